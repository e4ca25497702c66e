package pathlock

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"

	"umbra/internal/need"
	"umbra/internal/wspath"
)

// An undo of a hundred files that waits for one writer comes before all writers that
// came after it, and those of other paths do not wait for it.
func TestLongRequestsAreNotPassed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := context.Background()
		table := New()
		var paths []wspath.Path
		for i := range 100 {
			paths = append(paths, wspath.Path(fmt.Sprintf("d%d/f%d", i%7, i)))
		}
		first, err := table.Acquire(ctx, paths[50:51])
		need.NoError(t, err)
		var mu sync.Mutex
		var order []string
		var wg sync.WaitGroup
		ask := func(who string, paths ...wspath.Path) {
			wg.Go(func() {
				l, err := table.Acquire(ctx, paths)
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				order = append(order, who)
				mu.Unlock()
				l.Release()
			})
			synctest.Wait() // it has the lock, or waits for it
		}
		ask("before", paths[0])
		ask("undo", paths...)
		for i := range 64 {
			ask("after", paths[i])
		}
		ask("elsewhere", "other")
		ask("above", "d3")
		if got := fmt.Sprint(order); got != "[before elsewhere]" {
			t.Errorf("while the first writer has its path: %s", got)
		}
		first.Release()
		wg.Wait()
		if len(order) != 68 || order[2] != "undo" {
			t.Errorf("then: %v", order)
		}
	})
}

func TestCovers(t *testing.T) {
	many := []wspath.Path{"a/b", "a/b/c", "d", "e/f/g", "h", "i", "j", "k", "l", "m"}
	for _, paths := range [][]wspath.Path{many[:3], many, append(many[:len(many):len(many)], "")} {
		l, err := New().Acquire(t.Context(), paths)
		need.NoError(t, err)
		for _, p := range []wspath.Path{"a", "a/b", "a/b/x", "a/bb", "d/e/f", "e/f", "z", wspath.Root, ""} {
			want := false
			for _, q := range paths {
				want = want || p.Within(q)
			}
			if l.Covers(p) != want {
				t.Errorf("%q of %q: %t", p, paths, !want)
			}
		}
		l.Release()
	}
}
