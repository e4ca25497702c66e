package tests

import (
	"strings"
	"testing"
)

// TestReviewRedo reverts a rejection, and that revert, and so on: a hunk is listed as
// rejected while its rejection is in effect.
func TestReviewRedo(t *testing.T) {
	p := newProject(t, map[string]string{"a": numbered(40)})
	k := p.task(t)
	k.put(t, "a", strings.NewReplacer("line 5\n", "five\n", "line 30\n", "thirty\n").Replace(numbered(40))).want(t, 200)
	list, _ := k.hunks(t, "")
	commit := p.post(t, k.url("/review"), map[string]any{"reject": []string{list[0].ID}}).want(t, 200).str(t, "commit")
	for n := range 4 {
		open, _ := k.hunks(t, "?status=open")
		rejected, _ := k.hunks(t, "?status=rejected")
		if n%2 == 0 && (len(open) != 1 || len(rejected) != 1 || rejected[0].ID != list[0].ID) || n%2 == 1 && (len(open) != 2 || len(rejected) != 0) {
			t.Errorf("after %d reverts: open %+v, rejected %+v", n, open, rejected)
		}
		commit = p.post(t, "/workspaces/"+k.str("workspace_id")+"/commits/"+commit+"/revert", map[string]any{}).want(t, 200).str(t, "commit")
	}
}

// TestReviewRestRedo rejects the rest of a task, reverts that, and that revert: what
// another task had deleted is not brought back by rejecting the deletion.
func TestReviewRestRedo(t *testing.T) {
	base := numbered(30)
	with := strings.NewReplacer("line 15\n", "line 15\nof b\n", "line 3\n", "line 3\nseen\n").Replace(base)
	p := newProject(t, map[string]string{"f": base})
	a, b := p.task(t), p.task(t)
	b.put(t, "f", with)
	a.put(t, "f", strings.Replace(with, "of b\n", "", 1))
	commit := p.post(t, b.url("/review"), map[string]any{"reject_rest": true}).want(t, 200).str(t, "commit")
	for n := range 4 {
		if list, _ := a.hunks(t, ""); len(list) != n%2 {
			t.Errorf("after %d reverts: %+v", n, list)
		}
		commit = p.post(t, "/workspaces/"+a.str("workspace_id")+"/commits/"+commit+"/revert", map[string]any{}).want(t, 200).str(t, "commit")
	}
}
