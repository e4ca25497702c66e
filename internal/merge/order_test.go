package merge

import (
	"slices"
	"testing"
)

func TestOrdered(t *testing.T) {
	file := version{Mode: 0o100644}
	var names []string
	for _, c := range ordered([]change{
		{path: "b", from: "a", now: file}, {path: "d", from: "c", now: file}, {path: "c", from: "b", now: file}, {path: "new", now: file},
		{path: "x/y", from: "x", now: file}, {path: "gone", old: file},
	}) {
		names = append(names, c.path)
	}
	if want := []string{"gone", "d", "c", "b", "x/y", "new"}; !slices.Equal(names, want) {
		t.Errorf("%q, not %q", names, want)
	}
}
