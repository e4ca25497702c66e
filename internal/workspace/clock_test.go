package workspace

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"umbra/internal/clock"
	"umbra/internal/workspace/reconcile"
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
	_, err = w.Sync(t.Context(), reconcile.SyncOptions{})
	must(t, err)
	now = now.Add(-time.Hour)
	must(t, os.WriteFile(filepath.Join(root, "a"), []byte("a person's\n"), 0o644))
	res, err := w.Reconcile(t.Context(), reconcile.SyncOptions{}, clock.Boot())
	must(t, err)
	if res.Changed != 1 {
		t.Error("Reconcile found nothing; a file was changed on disk")
	}
}
