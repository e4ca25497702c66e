package blame

import (
	"context"
	"sync"

	"umbra/gitstore"
	"umbra/internal/lineage"
)

// stepsAhead is how many commits are read at most before they are used.
const stepsAhead = 8

// steps reads the commits that may have touched a path ahead of their use, as long
// as the path stays the same. Not safe for concurrent use.
type steps struct {
	st      *gitstore.Store
	from    uint64
	t       *lineage.Touches
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
	return &steps{st: st, from: from, t: lineage.NewTouches(st, from, upTo), path: path, present: true}
}

// next returns what the newest commit that may have touched the path did to it,
// older than the one before; ok is false where there is none.
func (s *steps) next(ctx context.Context) (out stepped, ok bool, err error) {
	for len(s.queue) < stepsAhead {
		rec, more, err := s.t.Before(ctx, s.path)
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
	s.t, s.path, s.present, s.queue = lineage.NewTouches(s.st, s.from, below-1), path, present, nil
}

// wait returns when nothing reads any more.
func (s *steps) wait() { s.running.Wait() }
