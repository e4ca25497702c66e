package clock

import (
	"context"
	"iter"
	"time"
)

// Ticks yields the time after each period, until ctx ends. Ticks that pass while the
// loop's body runs are dropped.
func Ticks(ctx context.Context, every time.Duration) iter.Seq[time.Time] {
	return func(yield func(time.Time) bool) {
		tick := time.NewTicker(every)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case now := <-tick.C:
				if !yield(now) {
					return
				}
			}
		}
	}
}
