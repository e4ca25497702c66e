package repo

import (
	"path"
	"strings"

	"umbra/gitstore/object"
	"umbra/gitstore/pack"
	"umbra/gitstore/refs"
	"umbra/gitstore/storedir"
)

// hasAny reports whether anybody's object of the repository has this id: ours,
// or one that a user's git wrote, loose or in a pack. Only for deciding
// whether a ref may name it; never for leaving out an object.
func (r *Repo) hasAny(id object.ID) bool {
	if _, _, err := r.ReadObject(id, object.MaxMeta); err == nil {
		return true
	}
	hex := id.String()
	if info, err := r.FS.Lstat(path.Join(storedir.Repo, "objects", hex[:2], hex[2:])); err == nil && info.Size > 0 {
		return true
	}
	names, err := r.FS.ReadDir(storedir.Packs)
	if err != nil {
		return false
	}
	for _, e := range names {
		if strings.HasSuffix(e.Name, storedir.Idx) && r.inIdx(path.Join(storedir.Packs, e.Name), id) {
			return true
		}
	}
	return false
}

func (r *Repo) inIdx(name string, id object.ID) bool {
	f, err := r.FS.Open(name)
	if err != nil {
		return false
	}
	info, err := f.Stat()
	if err != nil {
		f.Close()
		return false
	}
	x, err := pack.OpenIdx(f, info.Size, pack.IdxOptions{})
	if err != nil {
		f.Close()
		return false
	}
	defer x.Close()
	_, _, ok, err := x.Find(id)
	return ok && err == nil
}

// peel returns what one of our tags points at, for packed-refs.
func (r *Repo) peel(id object.ID) (object.ID, bool, error) {
	kind, data, err := r.ReadObject(id, object.MaxMeta)
	if err != nil || kind != object.Tag {
		return object.ID{}, false, err
	}
	tag, err := object.ParseTag(data)
	if err != nil {
		return object.ID{}, false, err
	}
	return tag.Object, true, nil
}

// OpenRefs opens the refs, and makes the repository if there is none.
func (r *Repo) OpenRefs() error {
	if err := refs.Init(r.FS, storedir.Repo); err != nil {
		return err
	}
	var err error
	r.Refs, err = refs.Open(refs.Options{FS: r.FS, Repo: storedir.Repo, HasObject: r.hasAny, Peel: r.peel, Now: r.Now})
	return err
}
