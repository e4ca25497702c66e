package tests

import (
	"slices"
	"strings"
	"testing"
)

// TestReviewRewritten holds that hunks stay those of their subtasks when another empties
// the file and writes it again, as many editors do: blame then says that the lines are
// the other's.
func TestReviewRewritten(t *testing.T) {
	base := numbered(30)
	p := newProject(t, map[string]string{"f": base})
	k := p.task(t)
	without := strings.Replace(strings.Replace(base, "line 13\n", "", 1), "line 19\n", "", 1)
	k.put(t, "f", without, "X-Subtask-Id", "s1")
	with := strings.Replace(without, "line 15\n", "line 15\nadded\n", 1)
	k.put(t, "f", with, "X-Subtask-Id", "s0")
	list, _ := k.hunks(t, "")
	listed := func(list []hunk) (out []string) {
		for _, h := range list {
			for l := range strings.Lines(h.Text) {
				if l[0] == '+' || l[0] == '-' {
					out = append(out, strings.Join(h.Subtasks, " ")+strings.TrimSpace(l))
				}
			}
		}
		return out
	}
	if got := listed(list); !slices.Equal(got, []string{"s1-line 13", "s0+added", "s1-line 19"}) {
		t.Fatalf("%v", got)
	}
	p.post(t, k.url("/review"), map[string]any{"reject": []string{list[2].ID}}).want(t, 200)
	for _, text := range []string{"", strings.Replace(p.read(t, "f"), "line 28\n", "a person's\n", 1)} {
		p.fill(t, map[string]string{"f": text})
		k.sync(t)
	}
	list, _ = k.hunks(t, "")
	if got := listed(list); !slices.Equal(got, []string{"s1-line 13", "s0+added"}) {
		t.Errorf("%v", got)
	}
	p.post(t, k.url("/review"), map[string]any{"reject_rest": true}).want(t, 200)
	if got, want := p.read(t, "f"), strings.Replace(base, "line 28\n", "a person's\n", 1); got != want {
		t.Errorf("%q", got)
	}
}
