package workspace

import (
	"fmt"
	"testing"

	"umbra/internal/wspath"
)

func TestLockedFor(t *testing.T) {
	many := func(format string, n int) (list []wspath.Path) {
		for i := range n {
			list = append(list, wspath.Path(fmt.Sprintf(format, i%7, i)))
		}
		return list
	}
	for _, c := range []struct {
		paths []wspath.Path
		most  int
		in    wspath.Path
	}{
		{many("a/%d/f%d", 100), 100, "a/0/f0"},
		{many("a/%d/f%d", 5000), 7, "a/0"},
		{many("a/b%d/x%d/f", 5000), 7, "a/b0"},
		{append(many("a/%d/f%d", 5000), "top"), 8, "top"},
		{many("x%d-%d", 5000), 1, wspath.Root},
	} {
		got := lockedFor(c.paths)
		found := false
		for _, p := range got {
			found = found || p == c.in
		}
		if len(got) > c.most || !found {
			t.Errorf("%s …: %d locks, %s among them: %v", c.paths[0], len(got), c.in, found)
		}
		for _, p := range c.paths {
			held := false
			for _, l := range got {
				held = held || p.Within(l)
			}
			if !held {
				t.Fatalf("%s is not locked", p)
			}
		}
	}
}

// TestGoneAtAllLevels: a folder that is removed is told as itself, as the folders
// in it, and as their files; each file is deleted once, in whatever order.
func TestGoneAtAllLevels(t *testing.T) {
	told := []wspath.Path{"a", "a/b", "a/b/0", "a/b/1", "a/c"}
	for i := range told {
		b := newBench(t, map[string]string{"a/b/0": "zero", "a/b/1": "one", "a/c": "c", "kept": "k"})
		must(t, removeAll(b.mem, "ws/a"))
		order := append(append([]wspath.Path(nil), told[i:]...), told[:i]...)
		b.w.syncMu.Lock()
		res, err := b.w.lookAt(t.Context(), order, SyncOptions{})
		b.w.syncMu.Unlock()
		if err != nil || res.Changed != 3 {
			t.Errorf("told in the order %q: %d changes, %v", order, res.Changed, err)
		}
		b.same()
	}
}
