package archtest

import (
	"go/ast"
	"slices"
	"testing"
)

// waits are the files of tests that wait for a part of a second of real time, and how
// often. The counts only fall. The suites in tests/ are left out: they drive other
// processes, which are killed at random moments and asked until they have ended.
var waits = map[string]int{
	"internal/cluster/fault_test.go": 2, // clients of a real database take turns
	"internal/cluster/store_test.go": 1, // an owner that is dying
	"watcher/fault_test.go":          2, // nothing happens, by the kernel's events and by processor time
}

// TestTestsAwaitEvents finds time.After of milliseconds outside of synctest's bubbles.
func TestTestsAwaitEvents(t *testing.T) {
	found := map[string]int{}
	for _, s := range sources(t) {
		if !s.test || in(s.dir, "tests") {
			continue
		}
		var bubbles []ast.Node
		ast.Inspect(s.tree, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok {
				return true
			}
			switch calls(call) {
			case "synctest.Test":
				bubbles = append(bubbles, call)
			case "time.After":
				if !subSecond(call.Args) || slices.ContainsFunc(bubbles, func(b ast.Node) bool { return b.Pos() < call.Pos() && call.End() < b.End() }) {
					break
				}
				if found[s.name]++; found[s.name] > waits[s.name] {
					t.Errorf("%s: a test that waits for milliseconds: await an event or fake the clock", s.fset.Position(call.Pos()))
				}
			}
			return true
		})
	}
	for name, n := range waits {
		if found[name] < n {
			t.Errorf("%s waits %d times, listed are %d: lower it", name, found[name], n)
		}
	}
}

// calls returns the package and function that a call names, or "".
func calls(call *ast.CallExpr) string {
	sel, ok := call.Fun.(*ast.SelectorExpr)
	if !ok {
		return ""
	}
	owner, ok := sel.X.(*ast.Ident)
	if !ok {
		return ""
	}
	return owner.Name + "." + sel.Sel.Name
}

// subSecond reports whether a duration is written in a unit below a second.
func subSecond(args []ast.Expr) bool {
	found := false
	for _, arg := range args {
		ast.Inspect(arg, func(n ast.Node) bool {
			if sel, ok := n.(*ast.SelectorExpr); ok {
				found = found || sel.Sel.Name == "Millisecond" || sel.Sel.Name == "Microsecond"
			}
			return true
		})
	}
	return found
}
