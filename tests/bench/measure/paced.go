package measure

import (
	"context"
	"fmt"
	"time"
)

// Paced has one client of each lane make count changes, one each period, as an
// agent does that thinks in between. The lanes take turns of block changes, so
// that what one does after an answer falls into its own pauses; with a block of
// one they share a period instead, each at its own offset. That is for long
// periods.
func (e *Env) Paced(ctx context.Context, lanes []Lane, period time.Duration, count, block int) ([]Measured, error) {
	seed := e.nextSeed()
	tracks := make([]*track, len(lanes))
	for i, l := range lanes {
		l.Clients = 1
		tracks[i] = newTrack(l, seed+uint64(i))
	}
	step := period
	if block <= 1 {
		block, step = 1, period/time.Duration(len(lanes))
	}
	ticker := time.NewTicker(step)
	defer ticker.Stop()
	for done := 0; done < count; done += block {
		for i, t := range tracks {
			var samples []time.Duration
			var busy time.Duration
			for range min(block, count-done) {
				select {
				case <-ctx.Done():
					return nil, context.Cause(ctx)
				case <-ticker.C:
				}
				d, err := t.one(ctx, 0)
				if err != nil {
					return nil, fmt.Errorf("%s: %w", lanes[i].name(), err)
				}
				samples, busy = append(samples, d), busy+d
			}
			t.add(samples, busy)
		}
	}
	return measuredOf(tracks), nil
}
