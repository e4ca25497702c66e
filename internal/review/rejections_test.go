package review

import (
	"testing"

	"umbra/internal/need"
)

// What was rejected since a commit is looked for in the commits since, however many
// the task has: a model's tools ask for it at each call.
func TestRejectionsCost(t *testing.T) {
	g := newRig(t)
	cost := func(writes int) float64 {
		for i := range writes {
			g.write("a", i%40+1)
		}
		tip := g.w.Store().Tip().Seq
		g.write("b", 1+writes%40)
		return testing.AllocsPerRun(20, func() {
			list, err := Rejections(t.Context(), g.w, "t", tip)
			need.NoError(t, err)
			if len(list) != 0 {
				t.Fatal(list)
			}
		})
	}
	few, many := cost(5), cost(500)
	if many > few+2 {
		t.Errorf("%v allocations after 5 writes, %v after 500", few, many)
	}
}
