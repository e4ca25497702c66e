package tests

import (
	"testing"

	"umbra/tests/harness"
)

// A merge as one commit makes what the fork has, also where a file was written before it
// was moved, and something else took its place.
func TestForkSquashMoves(t *testing.T) {
	p := newProject(t, map[string]string{"a": "one\n", "d/x": "x\n", "gone": "gone\n"})
	ws := p.task(t).str("workspace_id")
	fork := p.forks(t, "/workspaces/"+ws, map[string]any{"kind": "virtual"})[0]
	id := fork["id"].(string)
	p.post(t, "/tasks", map[string]any{"task_id": "try", "workspace": id, "goal": "try"}).want(t, 201)
	put := func(path, text string) {
		t.Helper()
		if a := p.call(t, "PUT", "/tasks/try/content?path="+path, []byte(text)); a.Status/100 != 2 {
			t.Fatalf("%s", a.Body)
		}
	}
	move := func(from, to string) {
		t.Helper()
		p.post(t, "/tasks/try/move", map[string]any{"from": from, "to": to}).want(t, 200)
	}
	put("new", "new\n")
	move("new", "n/moved")
	put("n/moved", "moved\n")
	move("a", "b")
	put("a", "another\n")
	move("n/moved", "last")
	p.call(t, "DELETE", "/tasks/try/content?path=gone", nil).want(t, 200)
	put("gone", "back\n")
	move("d", "gone2")
	put("passing", "passing\n")
	move("passing", "passed")
	p.call(t, "DELETE", "/tasks/try/content?path=passed", nil).want(t, 200)

	var done mergeAnswer
	p.post(t, "/workspaces/"+id+"/merge", map[string]any{"as": "squash"}).want(t, 200).into(t, &done)
	if len(done.Commits) != 1 {
		t.Errorf("%d commits", len(done.Commits))
	}
	git := p.call(t, "GET", "/workspaces/"+ws, nil).want(t, 200).obj(t)["git_dir"].(string)
	for _, x := range []string{ws, id} { // which publishes
		p.post(t, "/workspaces/"+x+"/sync", map[string]any{}).want(t, 200)
	}
	want := harness.Git(t, fork["git_dir"].(string), "ls-tree", "-r", "refs/heads/shadow")
	if got := harness.Git(t, git, "ls-tree", "-r", "refs/heads/shadow"); got != want {
		t.Errorf("the parent has\n%s\nand the fork\n%s", got, want)
	}
	p.post(t, "/tasks/"+done.Task_ID+"/revert", map[string]any{}).want(t, 200)
	for path, text := range map[string]string{"a": "one\n", "d/x": "x\n", "gone": "gone\n"} {
		if got := p.read(t, path); got != text {
			t.Errorf("reverted, %s has %q", path, got)
		}
	}
	for _, path := range []string{"b", "last", "gone2", "n"} {
		p.absent(t, path)
	}
}
