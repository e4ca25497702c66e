package reconcile

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
