package server

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// TestCloseUntil: a stop that took little has its ten seconds, and one that took all of them
// still has time to close.
func TestCloseUntil(t *testing.T) {
	began := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for _, c := range []struct{ took, want time.Duration }{
		{0, stopPatience}, {8 * time.Second, stopPatience}, {9500 * time.Millisecond, 9500*time.Millisecond + closePatience}, {time.Minute, time.Minute + closePatience},
	} {
		if got := stopFrom(began, false).closeUntil(began.Add(c.took)).Sub(began); got != c.want {
			t.Errorf("after %v: %v, not %v", c.took, got, c.want)
		}
	}
}

// TestStopOfANode: the parts of a node's stop share its ten seconds, also where each of
// them hangs.
func TestStopOfANode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hang := make(chan struct{})
		defer close(hang)
		began := time.Now()
		times := stopFrom(began, true)
		if begun := began.Add(sayPatience + refusePatience); begun.After(times.left.Add(-2*time.Second)) || times.left.After(times.requests) || times.requests.Sub(began) < 8*time.Second {
			t.Errorf("workspaces have %v, requests %v", times.left.Sub(began), times.requests.Sub(began))
		}
		<-time.After(time.Until(times.requests))
		for range 2 { // what is closed, and the node itself
			ctx, cancel := context.WithDeadline(t.Context(), times.closeUntil(time.Now()))
			if err := bounded(ctx, func() error { <-hang; return nil }); !errors.Is(err, context.DeadlineExceeded) {
				t.Error(err)
			}
			cancel()
		}
		if took := time.Since(began); took > stopPatience {
			t.Errorf("a stop took %v", took)
		}
	})
}
