package gitstore

// maxComputed bounds one value that Compute keeps, in bytes.
const maxComputed = 64 << 10

// computed names a value that was made of objects: by what it is of, and by the
// history that it was read in. A value for another beginning of the history, or
// after a purge, is computed again.
type computed struct {
	of             any
	from, rewrites uint64
}

// Compute gives what fn makes of objects of the store, and keeps it where it is
// small: for what takes longer to compute than to look up. key holds all that the
// value depends on, in a type of the caller's own; bytes is the value's size.
// All is kept within Options.Caches, goes with the store, and nothing that was
// made of purged bytes stays. The value is shared and must not be changed. Safe
// for concurrent use; several who ask at once may each call fn.
func (h History) Compute(key any, fn func() (value any, bytes int64, err error)) (any, error) {
	k := computed{key, h.r.Boundary().Seq, h.r.Rewrites()}
	if v, ok := h.r.cached.computed.Get(k); ok {
		return v, nil
	}
	v, bytes, err := fn()
	if err != nil || bytes > maxComputed {
		return v, err
	}
	h.r.cached.computed.Put(k, v, bytes)
	if h.r.Rewrites() != k.rewrites { // a purge that came meanwhile has cleared it before
		h.r.cached.computed.Clear()
	}
	return v, nil
}
