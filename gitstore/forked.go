package gitstore

// forkPoint is where a store's own history begins that continues another's.
type forkPoint struct {
	*Repo // of the base
	seq   uint64
}

// ForkedAt gives the number of the commit at which a store's own history begins
// that continues another's; 0 for any other.
func (h History) ForkedAt() uint64 {
	if h.r.base == nil {
		return 0
	}
	return h.r.base.seq
}

// Depth counts the histories that this one continues, one through the other.
func (h History) Depth() int {
	if h.r.base == nil {
		return 0
	}
	return 1 + h.r.base.Depth()
}

// hasBaseObject reports whether the base has an object.
func (r *Repo) hasBaseObject(id ID) (bool, error) {
	if r.base == nil {
		return false, nil
	}
	return r.base.hasObject(id)
}

// hasObject reports whether a journal, a prepared blob or one of our packs, or of
// the store that this one continues, holds an object.
func (r *Repo) hasObject(id ID) (bool, error) {
	for _, j := range *r.live.Load() {
		if _, ok := j.Find(id); ok {
			return true, nil
		}
	}
	f, err := r.holder(id)
	if err != nil {
		return false, err
	}
	if f != nil {
		f.Release()
		return true, nil
	}
	return r.hasBaseObject(id)
}
