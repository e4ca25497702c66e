package blame

import (
	"context"
	"sync"

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

// before returns the record of the newest commit that may have touched a path,
// older than the one before; ok is false where there is none.
func (t *touches) before(ctx context.Context, path string) (rec gitstore.Record, ok bool, err error) {
	for {
		for n := len(t.recs) - 1; n >= 0; n-- {
			if r := &t.recs[n]; r.MayTouch(path) {
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

// stepsAhead is how many commits are read at most before they are used.
const stepsAhead = 8

// steps reads the commits that may have touched a path ahead of their use, as long
// as the path stays the same. Not safe for concurrent use.
type steps struct {
	st      *gitstore.Store
	from    uint64
	t       *touches
	path    string
	present bool
	queue   []chan stepped
	running sync.WaitGroup
}

// stepped is what step returns.
type stepped struct {
	v       version
	old     string
	changed bool
	err     error
}

// newSteps begins at a commit and ends at an older one, both included.
func newSteps(st *gitstore.Store, from, upTo uint64, path string) *steps {
	return &steps{st: st, from: from, t: newTouches(st, from, upTo), path: path, present: true}
}

// next returns what the newest commit that may have touched the path did to it,
// older than the one before; ok is false where there is none.
func (s *steps) next(ctx context.Context) (out stepped, ok bool, err error) {
	for len(s.queue) < stepsAhead {
		rec, more, err := s.t.before(ctx, s.path)
		if err != nil {
			return out, false, err
		}
		if !more {
			break
		}
		one := make(chan stepped, 1)
		s.queue = append(s.queue, one)
		path, present := s.path, s.present
		s.running.Go(func() { one <- step(ctx, s.st, &rec, path, present) })
	}
	if len(s.queue) == 0 {
		return out, false, nil
	}
	out = <-s.queue[0]
	s.queue = s.queue[1:]
	return out, true, out.err
}

// turn goes on below a commit with another path, or with what made the file absent.
func (s *steps) turn(below uint64, path string, present bool) {
	if path == s.path && present == s.present {
		return
	}
	s.t, s.path, s.present, s.queue = newTouches(s.st, s.from, below-1), path, present, nil
}

// wait returns when nothing reads any more.
func (s *steps) wait() { s.running.Wait() }
