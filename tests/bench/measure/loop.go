package measure

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"
)

// Loop has every lane make changes without a pause, in turns: in each round
// each lane works for one slice (and makes at least one change a client), in an
// order that is drawn again, so that none always follows the same neighbor and
// pays for what that left to the disk. Untimed work (Prepare) is not in the
// rates either, but for several clients, where others go on meanwhile.
func (e *Env) Loop(ctx context.Context, lanes []Lane) ([]Measured, error) {
	rounds, slice, seed := e.Scale.Rounds, e.Scale.Slice, e.nextSeed()
	tracks := make([]*track, len(lanes))
	for i, l := range lanes {
		tracks[i] = newTrack(l, seed+uint64(i))
		if _, _, err := tracks[i].slice(ctx, 0); err != nil { // warms up
			return nil, fmt.Errorf("%s: %w", l.name(), err)
		}
	}
	order := rand.New(rand.NewPCG(seed, 1))
	for range rounds {
		for _, i := range order.Perm(len(tracks)) {
			samples, busy, err := tracks[i].slice(ctx, slice)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", lanes[i].name(), err)
			}
			tracks[i].add(samples, busy)
		}
	}
	return measuredOf(tracks), nil
}

func measuredOf(tracks []*track) []Measured {
	list := make([]Measured, len(tracks))
	for i, t := range tracks {
		list[i] = t.measured()
	}
	return list
}

// slice lets the lane's clients work until a time has gone by, each making one
// change at least, and gives the latencies and the wall-clock time that the
// changes took.
func (t *track) slice(ctx context.Context, length time.Duration) (samples []time.Duration, busy time.Duration, err error) {
	if t.clients == 1 {
		return t.alone(ctx, length)
	}
	perClient := make([][]time.Duration, t.clients)
	errs := make([]error, t.clients)
	start := time.Now()
	end := start.Add(length)
	var clients sync.WaitGroup
	for client := range t.clients {
		clients.Go(func() {
			for {
				d, err := t.one(ctx, client)
				if err != nil {
					errs[client] = err
					return
				}
				perClient[client] = append(perClient[client], d)
				if !time.Now().Before(end) || ctx.Err() != nil {
					return
				}
			}
		})
	}
	clients.Wait()
	busy = time.Since(start)
	for client := range t.clients {
		if errs[client] != nil {
			return nil, 0, errs[client]
		}
		samples = append(samples, perClient[client]...)
	}
	return samples, busy, context.Cause(ctx)
}

func (t *track) alone(ctx context.Context, length time.Duration) (samples []time.Duration, busy time.Duration, err error) {
	for end := time.Now().Add(length); ; {
		d, err := t.one(ctx, 0)
		if err != nil {
			return nil, 0, err
		}
		samples, busy = append(samples, d), busy+d
		if !time.Now().Before(end) || ctx.Err() != nil {
			return samples, busy, context.Cause(ctx)
		}
	}
}
