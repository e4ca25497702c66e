package blame

import (
	"context"

	"umbra/gitstore"
)

// chunkSize is how many records of commits are read at once.
const chunkSize = 1024

// touches goes backward through the commits that may have touched a path.
type touches struct {
	st   *gitstore.Store
	from uint64 // the oldest number of interest
	next uint64 // the newest that was not read
	recs []gitstore.Record
}

// newTouches begins at a commit and ends at an older one, both included.
func newTouches(st *gitstore.Store, from, upTo uint64) *touches {
	return &touches{st: st, from: from, next: upTo}
}

// before returns the number of the newest commit that may have touched a path,
// older than the one before; ok is false where there is none.
func (t *touches) before(ctx context.Context, path string) (seq uint64, ok bool, err error) {
	for {
		for n := len(t.recs) - 1; n >= 0; n-- {
			if r := &t.recs[n]; r.MayTouch(path) {
				t.recs = t.recs[:n]
				return r.Seq, true, nil
			}
		}
		t.recs = t.recs[:0]
		if t.next < t.from || t.next == 0 {
			return 0, false, nil
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
			return 0, false, err
		}
		t.next = low - 1
	}
}
