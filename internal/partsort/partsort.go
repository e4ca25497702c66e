// Package partsort sorts a part of a list: a page of a large directory needs no more.
package partsort

import (
	"math/rand/v2"
	"slices"
)

// Sort puts the elements in place that are from one index up to another when the
// list is sorted, and the others anywhere on their side.
func Sort[T any](list []T, from, to int, cmp func(a, b T) int) {
	const small = 64
	for len(list) > small {
		if to <= 0 || from >= len(list) || from >= to {
			return
		}
		// The pivot is unpredictable: names come from outside.
		i := partition(list, rand.IntN(len(list)), cmp)
		Sort(list[:i], from, to, cmp)
		list, from, to = list[i+1:], from-i-1, to-i-1
	}
	slices.SortFunc(list, cmp)
}

// partition puts what is less than the pivot before it and the rest behind, and
// returns its index.
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
