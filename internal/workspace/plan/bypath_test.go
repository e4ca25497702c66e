package plan

import (
	"math/rand/v2"
	"slices"
	"testing"

	"umbra/internal/wspath"
)

// TestByPath compares byPath with looks at all paths of a map.
func TestByPath(t *testing.T) {
	paths := []wspath.Path{"a", "b", "a/b", "a/c", "a/b/c", "a/b/d", "a-b", "b/a/a/a", "b/a"}
	asked := append([]wspath.Path{wspath.Root, "", "c", "b/a/a"}, paths...)
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 0))
		m, all := newByPath[int](), make(map[wspath.Path]int)
		for n := range 60 {
			p := paths[r.IntN(len(paths))]
			if r.IntN(2) == 0 {
				m.put(p, n)
				all[p] = n
			} else {
				m.remove(p)
				delete(all, p)
			}
			if n < 10 {
				continue // the index is made of what is there by then
			}
			for _, dir := range asked {
				var under, in []wspath.Path
				for q := range all {
					if q.IsUnder(dir) {
						under = append(under, q)
					}
					if q.Dir() == dir || q.Dir().IsRoot() && dir.IsRoot() {
						in = append(in, q)
					}
				}
				for what, got := range map[string][2][]wspath.Path{"under": {m.under(dir), under}, "in": {m.children(dir), in}} {
					slices.Sort(got[0])
					slices.Sort(got[1])
					if !slices.Equal(got[0], got[1]) {
						t.Fatalf("seed %d, step %d: %s %q: got %q, want %q", seed, n, what, dir, got[0], got[1])
					}
				}
				if m.anyUnder(dir) != (len(under) > 0) {
					t.Fatalf("seed %d, step %d: anyUnder %q is %t", seed, n, dir, m.anyUnder(dir))
				}
			}
		}
	}
}
