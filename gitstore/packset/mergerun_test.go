package packset

import (
	"math/rand/v2"
	"slices"
	"testing"
)

func TestMergeRun(t *testing.T) {
	for _, c := range []struct {
		counts []int
		want   int
	}{
		{nil, 0},
		{[]int{5, 5, 5, 5, 5}, 0},
		{[]int{5, 5, 5, 5, 5, 5}, 6},
		{[]int{5, 5, 5, 5, 5, 5, 100_000}, 6},
		{[]int{2, 116, 1400, 1675, 1985, 3830, 4255, 5650}, 8}, // small ones do not keep larger ones apart
		{[]int{1, 1, 1, 5000, 5000}, 0},
		{[]int{1, 1, 1, 5000, 5000, 5000, 5000, 5000, 5000}, 9},
		{[]int{1, 10, 100, 1000, 10_000, 100_000, 1_000_000}, 0},
	} {
		var packs []*File
		for _, n := range c.counts {
			packs = append(packs, &File{Count: n})
		}
		if got := mergeRun(packs, MergeWidth); got != c.want {
			t.Errorf("%v: %d are merged, not %d", c.counts, got, c.want)
		}
	}
}

// TestMergingKeepsFewPacksAtLittleCost plays months of publications of every
// size: the number of packs stays small, and an object is written again only a
// few times.
func TestMergingKeepsFewPacksAtLittleCost(t *testing.T) {
	rnd := rand.New(rand.NewPCG(3, 4))
	for name, size := range map[string]func(i int) int{
		"equal":         func(int) int { return 5 },
		"any":           func(int) int { return 1 + int(rnd.ExpFloat64()*1000) },
		"bursts":        func(i int) int { return 5 + i/500%2*20_000 },
		"growing":       func(i int) int { return 1 + i },
		"of all orders": func(int) int { return 1 << rnd.IntN(16) },
	} {
		packs := []*File{{Count: 100_000}} // a baseline
		made, written, most := 0, 0, 0
		for i := range 20_000 {
			n := size(i)
			made += n
			packs = append(packs, &File{Count: n})
			for {
				slices.SortFunc(packs, func(a, b *File) int { return a.Count - b.Count })
				n := mergeRun(packs, MergeWidth)
				if n == 0 {
					break
				}
				sum := 0
				for _, f := range packs[:n] {
					sum += f.Count
				}
				written += sum
				packs = append([]*File{{Count: sum}}, packs[n:]...)
			}
			most = max(most, len(packs))
		}
		t.Logf("%s: %d packs at most, each object written again %.1f times", name, most, float64(written)/float64(made))
		if most > 8*MergeWidth || written > 16*made {
			t.Errorf("%s: %d packs, each object written again %.1f times", name, most, float64(written)/float64(made))
		}
	}
}
