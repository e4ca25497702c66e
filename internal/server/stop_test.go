package server

import (
	"testing"
	"time"
)

// TestCloseUntil: a stop that took little has its ten seconds, and one that took all of them
// still has time to close.
func TestCloseUntil(t *testing.T) {
	began := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for _, c := range []struct{ took, want time.Duration }{
		{0, stopPatience}, {8 * time.Second, stopPatience}, {9500 * time.Millisecond, 9500*time.Millisecond + closePatience}, {time.Minute, time.Minute + closePatience},
	} {
		if got := closeUntil(began, began.Add(c.took)).Sub(began); got != c.want {
			t.Errorf("after %v: %v, not %v", c.took, got, c.want)
		}
	}
}
