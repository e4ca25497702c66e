// Package pace bounds what long work takes of a machine.
package pace

import (
	"context"
	"time"

	"umbra/internal/errs"
)

// Pace bounds what long work takes of a core and of the disk: after each slice
// of work it rests for Rest times as long as the slice took. The time is that of
// the wall, so that waiting for the disk counts as work. The zero value never
// rests. For one goroutine.
type Pace struct {
	Rest  int                                              // 4: a fifth of the time is work
	Now   func() time.Time                                 // default: time.Now
	Sleep func(ctx context.Context, d time.Duration) error // default: a timer
	began time.Time
}

// paceSlice is how long work goes on without a rest; a writer that comes
// meanwhile waits for a disk that is busy no longer than that.
const paceSlice = 20 * time.Millisecond

// Step is called often while working. It rests when it is time to, and gives
// ctx's error once ctx has ended.
func (p *Pace) Step(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return errs.Wrap(context.Cause(ctx), "")
	}
	if p == nil || p.Rest <= 0 {
		return nil
	}
	now := p.now()
	if p.began.IsZero() {
		p.began = now
		return nil
	}
	worked := now.Sub(p.began)
	if worked < paceSlice {
		return nil
	}
	err := p.sleep(ctx, worked*time.Duration(p.Rest))
	p.began = p.now()
	return err
}

func (p *Pace) now() time.Time {
	if p.Now != nil {
		return p.Now()
	}
	return time.Now()
}

func (p *Pace) sleep(ctx context.Context, d time.Duration) error {
	if p.Sleep != nil {
		return p.Sleep(ctx, d)
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return errs.Wrap(context.Cause(ctx), "")
	}
}
