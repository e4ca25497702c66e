package revert

import (
	"fmt"
	"testing"
)

// TestRevertOfWhatFoundUndoneWork reverts a task that deleted another's line after that
// other one was reverted: the line does not come back, as in the other order. Shared and
// foreign reverts, and files of other tasks, make no difference.
func TestRevertOfWhatFoundUndoneWork(t *testing.T) {
	const base = `1\n2\n3\n4\n5\n6\n7\n8\n9\n`
	for _, order := range [][]string{{"a", "b"}, {"b", "a"}} {
		for _, by := range []string{"task", "commit"} {
			g := newRig(t, map[string]string{"f": "1\n2\n3\n4\n5\n6\n7\n8\n9\n", "other": "o\n"})
			for _, id := range []string{"a", "b", "c"} {
				g.task(id)
			}
			g.do("c", `put other c\n`)
			g.mustRevert(Request{Task: "c"})
			g.do("a", `put f 1\n2\n3\n4\n5\nof a\n6\n7\n8\n9\n`, `put made a\n`)
			g.do("b", "put f "+base)
			for _, task := range order {
				if by == "commit" && task == "a" {
					// No task: the revert is of no task.
					g.mustRevert(Request{Scope: Scope{Where: &Where{Actor: "a"}}})
					continue
				}
				g.mustRevert(Request{Task: task})
			}
			// What was found anew after b was reverted first.
			if _, ok := g.all("a", "b"); !ok {
				t.Errorf("%v, %s: a conflict", order, by)
			}
			if got := g.disk(); got["f"] != "1\n2\n3\n4\n5\n6\n7\n8\n9\n" || got["made"] != "" {
				t.Errorf("%v, %s: %s", order, by, show(got))
			}
		}
	}
}

// BenchmarkRevertBesideReverted plans the revert of one task after others, which changed
// other files, were reverted.
func BenchmarkRevertBesideReverted(b *testing.B) {
	for _, n := range []int{20, 200} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			g := newRig(b, map[string]string{"f": "1\n2\n3\n"})
			g.task("a")
			g.do("a", `put f 1\nof a\n2\n3\n`)
			for i := range n {
				id := fmt.Sprintf("t%d", i)
				g.task(id)
				for k := range 5 {
					g.do(id, fmt.Sprintf(`put d%d/f%d x\n`, i, k))
				}
				g.mustRevert(Request{Task: id})
			}
			for b.Loop() {
				if _, err := g.revert(Request{Task: "a", DryRun: true}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
