package tests

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"umbra/internal/need"
)

// blameModel knows the writer of each line: no two lines that are written are
// alike.
type blameModel struct {
	p                *project
	dir              string            // of this history's files
	first            map[string]string // line: the commit that wrote it
	via              map[string]string // line: the revert that brought it back last
	lines            int
	reverts, renames int
}

func (m *blameModel) files(t *testing.T) map[string][]string {
	t.Helper()
	out := make(map[string][]string)
	list, err := os.ReadDir(filepath.Join(m.p.dir, m.dir))
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	for _, e := range list {
		data, err := os.ReadFile(filepath.Join(m.p.dir, m.dir, e.Name()))
		need.NoError(t, err)
		var lines []string
		for l := range strings.Lines(string(data)) {
			lines = append(lines, strings.TrimSuffix(l, "\n"))
		}
		out[m.dir+"/"+e.Name()] = lines
	}
	return out
}

func (m *blameModel) check(t *testing.T, k *taskOf, seed, step int) {
	t.Helper()
	for path, lines := range m.files(t) {
		b := m.p.blame(t, k.str("workspace_id"), path, "")
		if b.Lines != len(lines) {
			t.Fatalf("seed %d step %d: %s has %d lines, not %d", seed, step, path, b.Lines, len(lines))
		}
		for _, r := range b.Ranges {
			via := ""
			if r.Via != nil {
				via = *r.Via
			}
			for n := r.Start; n <= r.End; n++ {
				l := lines[n-1]
				if r.Commit != m.first[l] || via != m.via[l] {
					logHistory(t, k, m.dir)
					t.Fatalf("seed %d step %d: %s:%d %q is %s via %q, not %s via %q", seed, step, path, n, l, r.Commit, via, m.first[l], m.via[l])
				}
			}
		}
	}
}

// Over random edits, recorded renames, deletions and reverts of two tasks each line
// belongs to the commit that first wrote it, and names the revert that brought it
// back.
func TestBlameModel(t *testing.T) {
	seeds := 12
	if soaking() {
		seeds = 400
	}
	p := newProject(t, map[string]string{"x": "x\n"})
	reverts, renames := 0, 0
	for seed := range seeds {
		rnd := rand.New(rand.NewPCG(uint64(seed), 3))
		m := &blameModel{p: p, dir: fmt.Sprintf("h%d", seed), first: make(map[string]string), via: make(map[string]string)}
		tasks := []*taskOf{p.task(t), p.task(t)}
		for step := range 30 {
			k := tasks[rnd.IntN(2)]
			before := m.files(t)
			paths := slices.Sorted(maps.Keys(before))
			free := ""
			for _, i := range rnd.Perm(5) {
				if path := fmt.Sprintf("%s/f%d", m.dir, i); before[path] == nil {
					free = path
				}
			}
			switch what := rnd.IntN(10); {
			case what < 5 || len(paths) == 0:
				path := free
				if len(paths) > 0 && (free == "" || rnd.IntN(4) > 0) {
					path = paths[rnd.IntN(len(paths))]
				}
				lines := before[path]
				at := rnd.IntN(len(lines) + 1)
				end := min(len(lines), at+rnd.IntN(4))
				var add []string
				for range 1 + rnd.IntN(4) {
					m.lines++
					add = append(add, fmt.Sprintf("line %d", m.lines))
				}
				commit := k.save(t, path, strings.Join(slices.Concat(lines[:at], add, lines[end:]), "\n")+"\n")
				for _, l := range add {
					m.first[l] = commit
				}
			case what < 7 && free != "":
				p.post(t, k.url("/move"), map[string]any{"from": paths[rnd.IntN(len(paths))], "to": free}).want(t, 200)
				m.renames++
			case what == 7:
				p.call(t, http.MethodDelete, k.file(paths[rnd.IntN(len(paths))]), nil).want(t, 200)
			default:
				list := k.changes(t, "")
				if len(list) == 0 {
					continue
				}
				id := list[len(list)-1-rnd.IntN(min(4, len(list)))]["id"] // older ones mostly conflict
				a := p.post(t, k.url(fmt.Sprintf("/changes/%v/revert", id)), map[string]any{})
				if a.Status != 200 {
					continue // a conflict, or undone already
				}
				commit, _ := a.obj(t)["commit"].(string)
				had := make(map[string]bool)
				for _, lines := range before {
					for _, l := range lines {
						had[l] = true
					}
				}
				for _, lines := range m.files(t) {
					for _, l := range lines {
						if !had[l] {
							m.via[l] = commit
							m.reverts++
						}
					}
				}
			}
			if rnd.IntN(3) == 0 || step == 29 {
				m.check(t, k, seed, step)
			}
		}
		reverts += m.reverts
		renames += m.renames
	}
	if reverts < seeds || renames < seeds {
		t.Errorf("%d lines brought back and %d renames are too few", reverts, renames)
	}
}

// logHistory prints a directory's newest commits.
func logHistory(t *testing.T, k *taskOf, dir string) {
	k.sync(t)
	t.Log(k.git(t, "log", "--no-renames", "-U0", "-p", "--format=%H %s%n%(trailers:key=Reverts,key=Reverts-Entry,key=Task-Id,key=Change)", "-14", "refs/heads/shadow", "--", dir))
}
