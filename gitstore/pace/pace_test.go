package pace

import (
	"context"
	"errors"
	"testing"
	"time"

	"umbra/internal/need"
)

// TestPaceTakesAFifth: for each slice of work four as long of rest.
func TestPaceTakesAFifth(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	var worked, rested time.Duration
	p := &Pace{Rest: 4, Now: func() time.Time { return now }, Sleep: func(_ context.Context, d time.Duration) error {
		rested += d
		now = now.Add(d)
		return nil
	}}
	for i := range 10_000 {
		need.NoError(t, p.Step(t.Context()))
		d := time.Duration(i%7) * time.Millisecond
		if i%1000 == 0 {
			d = 3 * time.Second // a sync of much
		}
		worked += d
		now = now.Add(d)
	}
	if share := float64(worked) / float64(worked+rested); share > 0.201 || share < 0.199 {
		t.Errorf("%v of work, %v of rest", worked, rested)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := p.Step(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("after the end: %v", err)
	}
	var none *Pace
	if err := none.Step(t.Context()); err != nil {
		t.Error(err)
	}
}
