package repo

import (
	"umbra/gitstore/object"
	"umbra/internal/errs"
)

// IsAbsent reports whether an error says that an object is nowhere.
func IsAbsent(err error) bool { return errs.Is(err, errs.NotFound) || errs.Is(err, errs.Gone) }

// ReadMeta returns one of our objects, but no blob's bytes.
func (r *Repo) ReadMeta(id object.ID) (object.Kind, []byte, error) {
	for range 2 {
		for _, j := range *r.Live.Load() {
			if l, ok := j.Find(id); ok && l.Kind == object.Blob {
				return object.Blob, nil, nil
			}
		}
		f, err := r.Holder(id)
		if err != nil {
			return 0, nil, err
		}
		if f == nil {
			break
		}
		kind, _, err := f.Pack.Info(id)
		f.Release()
		if err == nil && kind == object.Blob {
			return kind, nil, nil
		}
		if err == nil {
			break
		}
	}
	return r.ReadObject(id, object.MaxMeta)
}
