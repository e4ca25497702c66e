package repo

// MaxComputed bounds one value that Compute keeps, in bytes.
const MaxComputed = 64 << 10

// Computed names a value that was made of objects: by what it is of, and by the
// history that it was read in. A value for another beginning of the history, or
// after a purge, is computed again.
type Computed struct {
	Of             any
	From, Rewrites uint64
}

// Compute gives what fn makes of objects of the store, and keeps it where it is
// small: for what takes longer to compute than to look up. key holds all that the
// value depends on, in a type of the caller's own; bytes is the value's size.
// All is kept within Options.Caches, goes with the store, and nothing that was
// made of purged bytes stays. The value is shared and must not be changed. Safe
// for concurrent use; several who ask at once may each call fn.
func (h History) Compute(key any, fn func() (value any, bytes int64, err error)) (any, error) {
	k := Computed{key, h.r.Boundary().Seq, h.r.Rewrites()}
	if v, ok := h.r.Cached.Computed.Get(k); ok {
		return v, nil
	}
	v, bytes, err := fn()
	if err != nil || bytes > MaxComputed {
		return v, err
	}
	h.r.Cached.Computed.Put(k, v, bytes)
	if h.r.Rewrites() != k.Rewrites { // a purge that came meanwhile has cleared it before
		h.r.Cached.Computed.Clear()
	}
	return v, nil
}
