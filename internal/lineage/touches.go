package lineage

import (
	"context"
	"slices"

	"umbra/gitstore"
)

// Touches goes backward through the commits that may have touched a path. It is not
// safe for concurrent use.
type Touches struct {
	st   *gitstore.Store
	from uint64 // the oldest number of interest
	next uint64 // the newest that was not asked for
}

// NewTouches begins at a commit and ends at an older one, both included.
func NewTouches(st *gitstore.Store, from, upTo uint64) *Touches {
	return &Touches{st: st, from: from, next: upTo}
}

// Before returns the record of the newest commit that may have touched one of some
// paths, older than the one before; ok is false where there is none.
func (t *Touches) Before(ctx context.Context, paths ...string) (rec gitstore.Record, ok bool, err error) {
	rec, ok, err = t.st.Touching(ctx, t.from, t.next, paths...)
	t.next = 0
	if ok {
		t.next = rec.Seq - 1
	}
	return rec, ok, err
}

func touches(r *gitstore.Record, paths []string) bool {
	return slices.ContainsFunc(paths, r.MayTouch)
}
