package tests

import (
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"umbra/internal/need"
	"umbra/tests/harness"
)

// A virtual fork has no repository until it is used: stock git, a restart, a backup,
// a fork of it and the deletion of its parent find it whole all the same.
func TestForkUnmade(t *testing.T) {
	p := newProject(t, map[string]string{"a": "one\n"})
	task := p.task(t)
	parent := task.str("workspace_id")
	ws := "/workspaces/" + parent
	p.forks(t, ws, map[string]any{"kind": "virtual"}) // what the forks of a commit share
	entries := func() (n int) {
		err := filepath.WalkDir(filepath.Join(p.DataDir, "workspaces"), func(_ string, d fs.DirEntry, err error) error {
			if d.Type()&fs.ModeSymlink == 0 {
				n++
			}
			return err
		})
		need.NoError(t, err)
		return n
	}
	before := entries()
	made := p.forks(t, ws, map[string]any{"kind": "virtual", "count": 100})
	if n := entries() - before; n > 5 { // the parent's own may vary
		t.Errorf("100 forks made %d files and directories", n)
	}
	id := func(i int) string { return made[i]["id"].(string) }
	git := func(i int) {
		t.Helper()
		dir := made[i]["git_dir"].(string)
		if got := harness.Git(t, dir, "log", "--format=%H", "-1"); got != made[i]["fork_at"] {
			t.Errorf("git log says %q", got)
		}
		harness.Git(t, dir, "fsck", "--strict", "--no-dangling")
	}
	git(0)
	p.call(t, "GET", "/workspaces/"+id(0), nil).want(t, 200)
	git(0)
	p.restart()
	git(1)
	git(0)
	clone := filepath.Join(t.TempDir(), "clone")
	harness.Git(t, p.dir, "clone", "-q", p.URL+"/git/"+id(2)+".git", clone)
	if data, err := os.ReadFile(filepath.Join(clone, "a")); err != nil || string(data) != "one\n" {
		t.Errorf("the clone has %q, %v", data, err)
	}
	deep := p.forks(t, "/workspaces/"+id(3), map[string]any{})[0]
	if got := harness.Git(t, deep["git_dir"].(string), "log", "--format=%H", "-1"); got != made[3]["fork_at"] {
		t.Errorf("git log says %q", got)
	}
	p.call(t, "DELETE", "/workspaces/"+id(4), nil).want(t, 204)
	if _, err := os.Lstat(filepath.Join(p.DataDir, "workspaces", id(4))); err == nil {
		t.Error("a deleted fork is still there")
	}

	dir := filepath.Join(t.TempDir(), "backup")
	backup(t, p.DataDir, dir)
	again := harness.Start(t, harness.Options{DataDir: restore(t, dir)})
	for _, fork := range []string{id(0), id(5), deep["id"].(string)} {
		if n := len(again.Do("GET", "/workspaces/"+fork+"/log", nil).Expect(200).Field("entries").([]any)); n != 0 {
			t.Errorf("%s has %d entries", fork, n)
		}
	}

	task.end(t)
	p.call(t, "DELETE", ws, nil).fails(t, 409, "has_forks")
	p.call(t, "DELETE", ws+"?force=true&history=delete", nil).want(t, 204)
	p.post(t, "/tasks", map[string]any{"task_id": "late", "workspace": id(6), "goal": "try"}).want(t, 201)
	if got := string(p.call(t, "GET", "/tasks/late/content?path=a", nil).want(t, 200).Body); got != "one\n" {
		t.Errorf("the fork has %q", got)
	}
	git(6)
}
