package workspace

import (
	"testing"

	"umbra/internal/workspace/reconcile"
	"umbra/internal/wspath"
)

// TestGoneAtAllLevels: a folder that is removed is told as itself, as the folders
// in it, and as their files; each file is deleted once, in whatever order.
func TestGoneAtAllLevels(t *testing.T) {
	paths := []wspath.Path{"a", "a/b", "a/b/0", "a/b/1", "a/c"}
	for i := range paths {
		b := newBench(t, map[string]string{"a/b/0": "zero", "a/b/1": "one", "a/c": "c", "kept": "k"})
		must(t, removeAll(b.mem, "ws/a"))
		order := append(append([]wspath.Path(nil), paths[i:]...), paths[:i]...)
		res, err := b.w.recon.LookAt(t.Context(), order, reconcile.SyncOptions{})
		if err != nil || res.Changed != 3 {
			t.Errorf("reported in the order %q: %d changes, %v", order, res.Changed, err)
		}
		b.same()
	}
}
