package idem

import (
	"testing"
	"time"
)

func TestRemembered(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for _, c := range []struct {
		ago  time.Duration
		want bool
	}{{0, true}, {24*time.Hour - 1, true}, {24 * time.Hour, false}, {25 * time.Hour, false}} {
		used := now.Add(-c.ago)
		if got := Remembered(used, now); got != c.want {
			t.Errorf("%v ago: %v", c.ago, got)
		}
		if got := used.After(Since(now)); got != c.want {
			t.Errorf("%v ago is after Since: %v", c.ago, got)
		}
	}
}
