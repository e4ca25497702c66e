package measure

import (
	"context"
	"slices"
	"sync"
	"time"

	"umbra/tests/bench/stats"
)

// Load is what a lane did under a load without a pause.
type Load struct {
	Name string
	stats.Summary
	Rate float64 // changes a second
	// Silence is the longest time in which no change ended.
	Silence time.Duration
}

// Sustain has the lane's clients work for a time without a pause.
func (e *Env) Sustain(ctx context.Context, l Lane, length time.Duration) (Load, error) {
	t := newTrack(l, e.nextSeed())
	if _, _, err := t.slice(ctx, 0); err != nil { // warms up
		return Load{}, err
	}
	type client struct {
		took  []time.Duration
		ended []time.Time
		err   error
	}
	list := make([]client, t.clients)
	start := time.Now()
	var clients sync.WaitGroup
	for n := range list {
		clients.Go(func() {
			c := &list[n]
			for time.Since(start) < length && ctx.Err() == nil {
				d, err := t.one(ctx, n)
				if err != nil {
					c.err = err
					return
				}
				c.took, c.ended = append(c.took, d), append(c.ended, time.Now())
			}
		})
	}
	clients.Wait()
	total := time.Since(start)
	var took []time.Duration
	var ended []time.Time
	for _, c := range list {
		if c.err != nil {
			return Load{}, c.err
		}
		took, ended = append(took, c.took...), append(ended, c.ended...)
	}
	if err := context.Cause(ctx); err != nil {
		return Load{}, err
	}
	return Load{Name: l.name(), Summary: stats.Of(took), Rate: float64(len(took)) / total.Seconds(), Silence: silence(start, ended)}, nil
}

// silence gives the longest gap between moments, the first counted from start.
func silence(start time.Time, moments []time.Time) time.Duration {
	slices.SortFunc(moments, time.Time.Compare)
	var longest time.Duration
	for _, m := range moments {
		longest = max(longest, m.Sub(start))
		start = m
	}
	return longest
}

// Beside runs a probe, every now and then, until stop is called, which returns
// how long the probe's calls took. The first error ends it.
func Beside(every time.Duration, probe func() error) (stop func() (stats.Summary, error)) {
	done := make(chan struct{})
	var took []time.Duration
	var err error
	var running sync.WaitGroup
	running.Go(func() {
		tick := time.NewTicker(every)
		defer tick.Stop()
		for err == nil {
			select {
			case <-done:
				return
			case <-tick.C:
				start := time.Now()
				err = probe()
				took = append(took, time.Since(start))
			}
		}
	})
	return func() (stats.Summary, error) {
		close(done)
		running.Wait()
		return stats.Of(took), err
	}
}
