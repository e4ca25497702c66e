package tests

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"umbra/internal/need"
)

// didTo is what a task does to a file.
type didTo struct {
	edit, mode, gone bool
	to               string
}

// renaming is a directory with one file, to which two tasks do something.
type renaming struct {
	p         *project
	dir, path string
	a, b      *taskOf
}

func newRenaming(t *testing.T, p *project, dir string) *renaming {
	t.Helper()
	p.fill(t, map[string]string{dir + "/f": numbered(30)})
	n := &renaming{p: p, dir: dir, path: dir + "/f", b: p.task(t), a: p.task(t)}
	n.a.sync(t)
	return n
}

func (n *renaming) do(t *testing.T, k *taskOf, d didTo, line, mode string) {
	t.Helper()
	if d.to != "" {
		to := n.dir + "/" + d.to
		n.p.post(t, k.url("/move"), map[string]any{"from": n.path, "to": to}).want(t, 200)
		n.path = to
	}
	if d.mode {
		n.p.post(t, k.url("/batch"), map[string]any{"operations": []any{map[string]any{"op": "chmod", "path": n.path, "mode": mode}}}).want(t, 200)
	}
	if d.edit {
		n.p.post(t, k.url("/edit"), map[string]any{"path": n.path, "old_string": line + "\n", "new_string": "changed\n"}).want(t, 200)
	}
	if d.gone {
		n.p.call(t, "DELETE", k.file(n.path), nil).want(t, 200)
	}
}

// tree returns the names, modes and changed lines of the files.
func (n *renaming) tree(t *testing.T) (out string) {
	t.Helper()
	list, err := os.ReadDir(filepath.Join(n.p.dir, n.dir))
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	for _, e := range list {
		info, err := e.Info()
		need.NoError(t, err)
		text, at := n.p.read(t, n.dir+"/"+e.Name()), []string{}
		for i, l := range strings.Split(text, "\n") {
			if l == "changed" {
				at = append(at, fmt.Sprint(i+1))
			}
		}
		out += fmt.Sprintf("%s %v %d lines, changed %v; ", e.Name(), info.Mode().Perm()&0o111 != 0, strings.Count(text, "\n"), at)
	}
	return out
}

// rest rejects the rest of both tasks; what is not separable from the other's is
// rejected after it.
func (n *renaming) rest(t *testing.T, order ...*taskOf) (steps string, again bool) {
	t.Helper()
	reject := func(k *taskOf) bool {
		a := n.p.post(t, k.url("/review"), map[string]any{"reject_rest": true})
		steps += fmt.Sprintf("%d %s| ", a.Status, n.tree(t))
		if a.Status != 200 {
			a.fails(t, 409, "revert_conflict")
		}
		return a.Status == 200
	}
	again = !reject(order[0])
	reject(order[1])
	if again {
		reject(order[0])
	}
	return steps, again
}

// TestReviewRestNames has one task edit, rename and chmod a file, and another one do
// and undo the same to it, in all combinations. Then the rest of both is rejected, in
// both orders: the file is as it was before.
func TestReviewRestNames(t *testing.T) {
	p := newProject(t, map[string]string{"x": "x\n"})
	count, conflicts := 0, 0
	for _, first := range []didTo{{to: "y"}, {mode: true}, {edit: true, to: "y"}, {edit: true, mode: true}, {mode: true, to: "y"}, {edit: true, mode: true, to: "y"}} {
		for _, second := range []didTo{{edit: true}, {to: "f"}, {to: "z"}, {mode: true}, {gone: true}, {edit: true, to: "f"}, {edit: true, to: "z"}, {edit: true, mode: true}, {mode: true, to: "f"}, {mode: true, to: "z"}, {edit: true, mode: true, to: "f"}, {edit: true, mode: true, to: "z"}, {edit: true, mode: true, to: "f", gone: true}} {
			if second.to == "f" && first.to == "" {
				continue
			}
			for _, turned := range []bool{false, true} {
				count++
				n := newRenaming(t, p, fmt.Sprintf("d%d", count))
				before, mode := n.tree(t), "100755"
				n.do(t, n.b, first, "line 5", mode)
				if first.mode {
					mode = "100644"
				}
				n.do(t, n.a, second, "line 25", mode)
				made, order := n.tree(t), []*taskOf{n.b, n.a}
				if turned {
					order = []*taskOf{n.a, n.b}
				}
				steps, again := n.rest(t, order...)
				if again {
					conflicts++
				}
				if got := n.tree(t); got != before {
					t.Errorf("%+v, %+v, turned %v: made %s\ngot %s\n%s", first, second, turned, made, got, steps)
				}
			}
		}
	}
	if t.Logf("%d histories, %d of them with a conflict", count, conflicts); count < 100 || conflicts > count/3 {
		t.Error("too little was tried")
	}
	n := newRenaming(t, p, "undone")
	before := n.tree(t)
	n.do(t, n.b, didTo{to: "y", mode: true}, "", "100755")
	n.do(t, n.a, didTo{to: "f", mode: true}, "", "100644")
	n.b.put(t, "undone/more", "m\n") // that there is something to undo
	p.post(t, n.b.url("/revert"), map[string]any{}).want(t, 200)
	p.post(t, n.a.url("/review"), map[string]any{"reject_rest": true}).want(t, 200)
	if got := n.tree(t); got != before {
		t.Errorf("%s", got)
	}
	n = newRenaming(t, p, "twice")
	before = n.tree(t)
	n.do(t, n.b, didTo{to: "y"}, "", "")
	n.do(t, n.b, didTo{to: "z"}, "", "")
	n.do(t, n.a, didTo{to: "f"}, "", "")
	if steps, _ := n.rest(t, n.b, n.a); n.tree(t) != before {
		t.Errorf("%s", steps)
	}
	n.b.fsck(t)
}

// TestReviewRestNamesAccepted holds that a name, a mode and lines that were accepted are
// not part of the rest, whoever took them back: to reject that brings them back.
func TestReviewRestNamesAccepted(t *testing.T) {
	p := newProject(t, map[string]string{"x": "x\n"})
	count := 0
	for mask := range 8 {
		for _, second := range []didTo{{to: "f", mode: true}, {to: "f"}, {mode: true}, {gone: true}} {
			for _, turned := range []bool{false, true} {
				count++
				n := newRenaming(t, p, fmt.Sprintf("d%d", count))
				n.do(t, n.b, didTo{edit: true, mode: true, to: "y"}, "line 5", "100755")
				list, _ := n.b.hunks(t, "")
				ids, want := []string{}, []any{"f", false, "[]"}
				for _, h := range list {
					for i, is := range []string{"rename", "mode", "@@"} {
						if strings.HasPrefix(h.Text, is) && mask&(1<<i) != 0 {
							ids, want[i] = append(ids, h.ID), []any{"y", true, "[5]"}[i]
						}
					}
				}
				if len(ids) > 0 {
					p.post(t, n.b.url("/review"), map[string]any{"accept": ids}).want(t, 200)
				}
				n.do(t, n.a, second, "", "100644")
				order := []*taskOf{n.b, n.a}
				if turned {
					order = []*taskOf{n.a, n.b}
				}
				steps, _ := n.rest(t, order...)
				if got := n.tree(t); got != fmt.Sprintf("%s %v 30 lines, changed %s; ", want[0], want[1], want[2]) {
					t.Errorf("accepted %v, %+v, turned %v: got %s, want %v\n%s", mask, second, turned, got, want, steps)
				}
			}
		}
	}
}
