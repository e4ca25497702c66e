package tests

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"umbra/tests/harness"
)

// forks asks for forks and gives their descriptions.
func (p *project) forks(t *testing.T, ws string, body map[string]any) []map[string]any {
	t.Helper()
	return p.post(t, ws+"/forks", body).want(t, 201).list(t, "forks")
}

// A fork begins as its parent is, shares its history, and changes alone.
func TestForkVirtual(t *testing.T) {
	p := newProject(t, map[string]string{"a": "one\n", "d/b": "two\n"})
	task := p.task(t)
	ws := "/workspaces/" + task.str("workspace_id")
	task.put(t, "a", "1\n")
	p.shell(t, "echo person > c")
	made := p.forks(t, ws, map[string]any{"kind": "virtual", "name": "try", "count": 3})
	if len(made) != 3 || made[1]["name"] != "try-2" || made[0]["kind"] != "virtual" || made[0]["fork_of"] != task.str("workspace_id") || made[0]["fork_at"] != made[0]["head"] {
		t.Fatalf("%v", made)
	}
	first := made[0]["id"].(string)
	in := p.post(t, "/tasks", map[string]any{"task_id": "in-fork", "workspace": first, "goal": "try"}).want(t, 201).obj(t)
	if in["workspace_id"] != first {
		t.Fatalf("%v", in)
	}
	p.call(t, "PUT", "/tasks/in-fork/content?path=a", []byte("fork\n")).want(t, 200)
	if got := string(p.call(t, "GET", "/tasks/in-fork/content?path=c", nil).want(t, 200).Body); got != "person\n" {
		t.Errorf("the fork has %q", got)
	}
	if got := p.read(t, "a"); got != "1\n" {
		t.Errorf("the parent has %q", got)
	}
	task.put(t, "d/b", "parent\n")
	if got := string(p.call(t, "GET", "/tasks/in-fork/content?path=d/b", nil).want(t, 200).Body); got != "two\n" {
		t.Errorf("the fork has %q", got)
	}

	// Blame and log go back into the parent's history, and stock git sees where the
	// two part.
	if out := p.call(t, "GET", "/workspaces/"+first+"/blame?path=c", nil).want(t, 200).list(t, "ranges"); len(out) != 1 || out[0]["source"] != "external" {
		t.Errorf("%v", out)
	}
	log := p.call(t, "GET", "/workspaces/"+first+"/log", nil).want(t, 200).list(t, "entries")
	if len(log) != 3 || log[0]["task_id"] != "in-fork" || log[2]["path"] != "a" {
		t.Errorf("%v", log)
	}
	p.post(t, "/workspaces/"+first+"/sync", map[string]any{}).want(t, 200)
	p.post(t, ws+"/sync", map[string]any{}).want(t, 200)
	gitDir := made[0]["git_dir"].(string)
	if got := harness.Git(t, gitDir, "merge-base", "refs/heads/shadow", made[0]["fork_at"].(string)); got != made[0]["fork_at"] {
		t.Errorf("git's merge base is %q", got)
	}
	harness.Git(t, gitDir, "fsck", "--strict", "--no-dangling")
	clone := filepath.Join(t.TempDir(), "clone")
	harness.Git(t, gitDir, "-c", "protocol.allow=always", "clone", "-q", p.URL+"/git/"+first+".git", clone)
	if data, err := os.ReadFile(filepath.Join(clone, "a")); err != nil || string(data) != "fork\n" {
		t.Errorf("the clone has %q, %v", data, err)
	}

	// It outlives a restart, and so does a fork of it.
	deep := p.forks(t, "/workspaces/"+first, map[string]any{})[0]
	p.restart()
	if list := p.call(t, "GET", ws+"/forks", nil).want(t, 200).list(t, "forks"); len(list) != 3 || list[0]["id"] != first {
		t.Errorf("%v", list)
	}
	if got := p.call(t, "GET", "/workspaces/"+deep["id"].(string), nil).want(t, 200).obj(t); got["fork_of"] != first || got["head"] != deep["head"] {
		t.Errorf("%v", got)
	}

	// Nothing that a fork needs goes.
	p.call(t, "DELETE", "/workspaces/"+made[1]["id"].(string), nil).want(t, 204)
	p.call(t, "PATCH", "/tasks/in-fork", map[string]any{"status": "completed"}).want(t, 200)
	p.call(t, "DELETE", "/workspaces/"+first, nil).fails(t, 409, "unmerged")
	p.call(t, "DELETE", "/workspaces/"+first+"?force=true", nil).want(t, 204)
	if got := p.call(t, "GET", "/workspaces/"+deep["id"].(string)+"/log", nil).want(t, 200).list(t, "entries"); len(got) != 3 {
		t.Errorf("%v", got)
	}
	harness.Git(t, deep["git_dir"].(string), "fsck", "--strict", "--no-dangling")
	task.end(t)
	p.call(t, "DELETE", ws, nil).fails(t, 409, "has_forks")
}

// A copy is a directory of its own, with what no history has, and goes with its fork.
func TestForkCopy(t *testing.T) {
	p := newProject(t, map[string]string{"a": "one\n", ".gitignore": "out/\n", "run.sh": "#!/bin/sh\n"})
	p.shell(t, "mkdir out; echo built > out/x; ln -s a link; chmod 755 run.sh")
	task := p.task(t)
	ws := "/workspaces/" + task.str("workspace_id")
	dir := filepath.Join(t.TempDir(), "copy")
	p.post(t, ws+"/forks", map[string]any{"path": p.dir}).fails(t, 409, "path_exists")
	p.post(t, ws+"/forks", map[string]any{"path": filepath.Join(p.dir, "inside")}).fails(t, 409, "workspace_overlaps")
	p.absent(t, "inside")
	p.post(t, ws+"/forks", map[string]any{"path": "relative"}).fails(t, 400, "invalid_path")
	p.post(t, ws+"/forks", map[string]any{"kind": "virtual", "count": 0}).fails(t, 400, "invalid_count")
	p.post(t, ws+"/forks", map[string]any{"kinds": "virtual"}).fails(t, 400, "unknown_field")
	made := p.forks(t, ws, map[string]any{"path": dir})[0]
	if made["kind"] != "copy" || made["root"] != dir || made["head"] != made["fork_at"] {
		t.Fatalf("%v", made)
	}
	for name, want := range map[string]string{"a": "one\n", "out/x": "built\n", "link": "one\n"} {
		if data, err := os.ReadFile(filepath.Join(dir, name)); err != nil || string(data) != want {
			t.Errorf("%s has %q, %v", name, data, err)
		}
	}
	if info, err := os.Stat(filepath.Join(dir, "run.sh")); err != nil || info.Mode().Perm() != 0o755 {
		t.Errorf("run.sh: %v, %v", info, err)
	}
	if err := os.WriteFile(filepath.Join(dir, "a"), []byte("fork\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	id := "/workspaces/" + made["id"].(string)
	if n := p.post(t, id+"/sync", map[string]any{}).want(t, 200).obj(t)["changed"]; fmt.Sprint(n) != "1" {
		t.Errorf("%v changed", n)
	}
	if p.read(t, "a") != "one\n" {
		t.Error("the parent changed")
	}
	p.call(t, "DELETE", id, nil).fails(t, 409, "unmerged")
	p.call(t, "DELETE", id+"?force=true", nil).want(t, 204)
	if _, err := os.Stat(dir); err == nil || !strings.Contains(err.Error(), "no such file") {
		t.Errorf("the directory is there: %v", err)
	}
	none := filepath.Join(t.TempDir(), "none")
	made = p.forks(t, ws, map[string]any{"path": none, "ignored": "none", "kind": "copy"})[0]
	if _, err := os.Stat(filepath.Join(none, "out")); err == nil {
		t.Error("what is ignored was copied")
	}
	p.call(t, "DELETE", "/workspaces/"+made["id"].(string), nil).want(t, 204)
}

// A backup has forks whole, a purge would leave the bytes in them, and retention
// waits for them.
func TestForkUpkeep(t *testing.T) {
	p := newProject(t, map[string]string{"a": "one\n"})
	task := p.task(t)
	ws := "/workspaces/" + task.str("workspace_id")
	task.put(t, "a", "secret\n")
	made := p.forks(t, ws, map[string]any{"kind": "virtual"})[0]
	deep := p.forks(t, "/workspaces/"+made["id"].(string), nil)[0]
	p.post(t, "/tasks", map[string]any{"task_id": "in-deep", "workspace": deep["id"], "goal": "try"}).want(t, 201)
	p.call(t, "PUT", "/tasks/in-deep/content?path=b", []byte("deep\n")).want(t, 201)
	for _, id := range []string{task.str("workspace_id"), deep["id"].(string)} {
		if _, said := p.purge(t, 1, id, "a"); !strings.Contains(said, "fork") {
			t.Errorf("purge of %s says %q", id, said)
		}
	}
	dir := filepath.Join(t.TempDir(), "backup")
	backup(t, p.DataDir, dir)
	p.Stop()
	verify(t, 0, "--data-dir", p.DataDir)
	data := restore(t, dir)
	verify(t, 0, "--data-dir", data)
	again := harness.Start(t, harness.Options{DataDir: data})
	if got := string(again.Do("GET", "/tasks/in-deep/content?path=b", nil).Expect(200).Body); got != "deep\n" {
		t.Errorf("the fork's fork has %q", got)
	}
	if got := string(again.Do("GET", "/tasks/in-deep/content?path=a", nil).Expect(200).Body); got != "secret\n" {
		t.Errorf("the fork's fork has %q of the parent", got)
	}
	again.Do("POST", "/workspaces/"+deep["id"].(string)+"/sync", map[string]any{}).Expect(200)
	harness.Git(t, filepath.Join(data, "workspaces", deep["id"].(string), "repo.git"), "fsck", "--strict", "--no-dangling")
}
