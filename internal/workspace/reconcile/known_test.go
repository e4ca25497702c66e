package reconcile

import (
	"testing"
	"time"

	"umbra/internal/clock"
	"umbra/internal/workspace/disk"
)

// TestKnownGoesBack: what counts as known goes back with the wall time; when the next
// scan is due does not depend on it.
func TestKnownGoesBack(t *testing.T) {
	now := time.Now()
	r := &Reconciler{Disk: &disk.Disk{Now: func() time.Time { return now }}}
	r.Compared(clock.Boot(), now)
	before := r.knownAt.Load()
	now = now.Add(-time.Hour)
	w := newWatch(r, nil, 0)
	if due := w.period(false) - w.sinceScan(); due > w.period(false) {
		t.Errorf("the next scan is due in %v; the period is %v", due, w.period(false))
	}
	if r.knownUpTo(now); r.knownAt.Load() >= before {
		t.Error("what is on disk counts as known before it is compared")
	}
}
