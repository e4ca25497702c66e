package measure

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"
)

// Count has a lane make a number of changes, in a loop or with a pause after
// each. Nothing is timed: it is for counting what they cost otherwise.
func (e *Env) Count(ctx context.Context, l Lane, changes int, period time.Duration) error {
	t := newTrack(l, e.nextSeed())
	var made atomic.Int64
	errs := make([]error, t.clients)
	var clients sync.WaitGroup
	for client := range t.clients {
		clients.Go(func() {
			for made.Add(1) <= int64(changes) {
				if _, err := t.one(ctx, client); err != nil {
					errs[client] = err
					return
				}
				if err := Pause(ctx, period); err != nil {
					errs[client] = err
					return
				}
			}
		})
	}
	clients.Wait()
	return errors.Join(errs...)
}

// Pause waits, unless the run is stopped.
func Pause(ctx context.Context, period time.Duration) error {
	if period == 0 {
		return context.Cause(ctx)
	}
	t := time.NewTimer(period)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-t.C:
		return nil
	}
}
