package repo

import "umbra/gitstore/object"

// ForkPoint is where a store's own history begins that continues another's.
type ForkPoint struct {
	*Repo // of the base
	Seq   uint64
	At    object.ID // of the base: the commit with that number
}

// ForkedAt gives the number of the commit at which a store's own history begins
// that continues another's; 0 for any other.
func (h History) ForkedAt() uint64 {
	if h.r.Base == nil {
		return 0
	}
	return h.r.Base.Seq
}

// Depth counts the histories that this one continues, one through the other.
func (h History) Depth() int {
	if h.r.Base == nil {
		return 0
	}
	return 1 + h.r.Base.Depth()
}

// HasBaseObject reports whether the base has an object.
func (r *Repo) HasBaseObject(id object.ID) (bool, error) {
	if r.Base == nil {
		return false, nil
	}
	return r.Base.hasObject(id)
}

// hasObject reports whether a journal, a prepared blob or one of our packs, or of
// the store that this one continues, holds an object.
func (r *Repo) hasObject(id object.ID) (bool, error) {
	for _, j := range *r.Live.Load() {
		if _, ok := j.Find(id); ok {
			return true, nil
		}
	}
	f, err := r.Holder(id)
	if err != nil {
		return false, err
	}
	if f != nil {
		f.Release()
		return true, nil
	}
	return r.HasBaseObject(id)
}
