package tests

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"umbra/internal/need"
	"umbra/tests/harness"
)

// What is written through a mapping, or through a name outside of the folder,
// raises no event there: a sync of a small folder finds it all the same.
func TestSilentWritesAreFoundBySync(t *testing.T) {
	t.Parallel()
	w := newWatched(t, harness.Options{}, map[string]string{"mapped": strings.Repeat("a", 8192), "linked": "old", "other": "x"})
	outside := filepath.Join(t.TempDir(), "name")
	need.NoError(t, os.Link(filepath.Join(w.dir, "linked"), outside))
	w.sync(t)
	f, err := os.OpenFile(filepath.Join(w.dir, "mapped"), os.O_RDWR, 0)
	need.NoError(t, err)
	defer f.Close()
	view, err := syscall.Mmap(int(f.Fd()), 0, 8192, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_SHARED)
	need.NoError(t, err)
	copy(view[4000:], "through the mapping")
	need.NoError(t, syscall.Munmap(view))
	need.NoError(t, os.WriteFile(outside, []byte("from outside"), 0o644))
	r := w.sync(t)
	has(t, r, map[string]any{"changed": 2})
	for _, name := range []string{"mapped", "linked"} {
		if got := harness.Git(t, w.k.gitDir(), "show", "refs/umbra/head:"+name); got != w.read(t, name) {
			t.Errorf("%s is not in history as it is on disk", name)
		}
	}
	for _, raw := range w.k.changes(t, "") {
		has(t, raw, map[string]any{"source": "external", "operation": "modify", "task_id": w.k.ID})
	}
	has(t, w.sync(t), map[string]any{"changed": 0, "commit": nil})
}
