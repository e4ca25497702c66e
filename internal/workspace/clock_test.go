package workspace

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"umbra/internal/clock"
)

// A wall clock that is set back neither makes an old scan look new nor puts the
// next one off.
func TestClockSetBack(t *testing.T) {
	root := t.TempDir()
	now := time.Now()
	must(t, os.WriteFile(filepath.Join(root, "a"), []byte("1\n"), 0o644))
	m := &opener{DataDir: t.TempDir(), Records: &memRecords{}, Foreground: true, Now: func() time.Time { return now }}
	defer m.Close(t.Context())
	w, err := m.Open(t.Context(), root)
	must(t, err)
	defer w.Release()
	_, err = w.Sync(t.Context(), SyncOptions{})
	must(t, err)
	known := w.knownAt.Load()
	now = now.Add(-time.Hour)
	must(t, os.WriteFile(filepath.Join(root, "a"), []byte("a person's\n"), 0o644))
	res, err := w.Reconcile(t.Context(), SyncOptions{}, clock.Boot())
	must(t, err)
	if res.Changed != 1 {
		t.Error("Reconcile found nothing; a file was changed on disk")
	}
	tw := newWatch(w, nil, 0)
	if due := tw.period(false) - tw.sinceScan(); due > tw.period(false) {
		t.Errorf("the next scan is due in %v; the period is %v", due, tw.period(false))
	}
	if w.knownAt.Load() >= known {
		t.Error("what is on disk counts as known before it is compared")
	}
}
