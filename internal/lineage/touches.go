package lineage

import (
	"context"

	"umbra/gitstore"
)

// chunkSize is how many records of commits are read at once.
const chunkSize = 1024

// Touches goes backward through the commits that may have touched a path. It is not
// safe for concurrent use.
type Touches struct {
	st   *gitstore.Store
	from uint64 // the oldest number of interest
	next uint64 // the newest that was not read
	recs []gitstore.Record
}

// NewTouches begins at a commit and ends at an older one, both included.
func NewTouches(st *gitstore.Store, from, upTo uint64) *Touches {
	return &Touches{st: st, from: from, next: upTo}
}

// Before returns the record of the newest commit that may have touched one of some
// paths, older than the one before; ok is false where there is none.
func (t *Touches) Before(ctx context.Context, paths ...string) (rec gitstore.Record, ok bool, err error) {
	for {
		for n := len(t.recs) - 1; n >= 0; n-- {
			if r := &t.recs[n]; touches(r, paths) {
				t.recs = t.recs[:n]
				return *r, true, nil
			}
		}
		t.recs = t.recs[:0]
		if t.next < t.from || t.next == 0 {
			return rec, false, nil
		}
		low := t.from
		if t.next-low >= chunkSize {
			low = t.next - chunkSize + 1
		}
		if err := t.st.Records(ctx, low, t.next, func(r gitstore.Record) error {
			if r.Seq >= low {
				t.recs = append(t.recs, r)
			}
			return nil
		}); err != nil {
			return rec, false, err
		}
		t.next = low - 1
	}
}

func touches(r *gitstore.Record, paths []string) bool {
	for _, p := range paths {
		if r.MayTouch(p) {
			return true
		}
	}
	return false
}
