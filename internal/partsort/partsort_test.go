package partsort

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"testing"
)

func TestSort(t *testing.T) {
	for range 300 {
		list := make([]int, rand.IntN(500))
		for i := range list {
			list[i] = rand.IntN(1 + rand.IntN(600))
		}
		want := slices.Sorted(slices.Values(list))
		from, to := rand.IntN(520)-10, rand.IntN(520)-10
		Sort(list, from, to, cmp.Compare[int])
		for i := max(from, 0); i < min(to, len(list)); i++ {
			if list[i] != want[i] {
				t.Fatalf("of %d from %d to %d: %d at %d, want %d", len(list), from, to, list[i], i, want[i])
			}
		}
		slices.Sort(list)
		if !slices.Equal(list, want) {
			t.Fatal("the list lost something")
		}
	}
}
