package workspace

import (
	"math/rand/v2"
	"slices"
)

// sortWindow puts those of a list in their place that stand from one index up
// to another once it is sorted, and the others anywhere on their side: a page
// of a large folder needs no more.
func sortWindow[T any](list []T, from, to int, cmp func(a, b T) int) {
	const small = 64
	for len(list) > small {
		if to <= 0 || from >= len(list) || from >= to {
			return
		}
		// A pivot that nobody can foresee: names come from outside.
		i := partition(list, rand.IntN(len(list)), cmp)
		sortWindow(list[:i], from, to, cmp)
		list, from, to = list[i+1:], from-i-1, to-i-1
	}
	slices.SortFunc(list, cmp)
}

// partition puts what is less than the pivot before it and the rest behind, and
// tells where it stands then.
func partition[T any](list []T, pivot int, cmp func(a, b T) int) int {
	last := len(list) - 1
	list[pivot], list[last] = list[last], list[pivot]
	at := 0
	for i := range last {
		if cmp(list[i], list[last]) < 0 {
			list[i], list[at] = list[at], list[i]
			at++
		}
	}
	list[at], list[last] = list[last], list[at]
	return at
}
