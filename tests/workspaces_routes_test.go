package tests

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"umbra/internal/need"
	"umbra/tests/harness"
)

func TestWorkspaces(t *testing.T) {
	p := newProject(t, map[string]string{"f": "x", "ignored/x": "x", ".gitignore": "ignored/\n"})
	if list := p.call(t, "GET", "/workspaces", nil).want(t, 200).list(t, "workspaces"); len(list) != 0 {
		t.Errorf("a new server has %v", list)
	}
	k := p.task(t)
	ws := "/workspaces/" + k.str("workspace_id")
	o := p.call(t, "GET", ws, nil).want(t, 200).obj(t)
	has(t, o, map[string]any{"id": k.str("workspace_id"), "root": k.str("workspace"), "kind": "physical", "ref": "refs/umbra/head",
		"git_dir": k.gitDir(), "head": k.str("base"), "state": "clean", "tasks": 1, "warnings": []any{}})
	if list := p.call(t, "GET", "/workspaces", nil).want(t, 200).list(t, "workspaces"); len(list) != 1 || list[0]["id"] != o["id"] {
		t.Errorf("the list is %v", list)
	}
	c := p.call(t, "GET", ws+"/coverage", nil).want(t, 200).obj(t)
	has(t, c, map[string]any{"skipped": []any{}, "tracked": 2})
	for _, path := range []string{"", "/log", "/coverage", "/stream"} {
		p.call(t, "GET", "/workspaces/nothing"+path, nil).fails(t, 404, "workspace_not_found")
	}
	p.call(t, "POST", "/workspaces/nothing/sync", nil).fails(t, 404, "workspace_not_found")
	p.call(t, "GET", ws+"/log?limit=0", nil).fails(t, 400, "invalid_parameter")
	p.call(t, "GET", ws+"/log?after=!", nil).fails(t, 400, "invalid_parameter")
	p.call(t, "GET", ws+"/log?task_id=a%20b", nil).fails(t, 400, "invalid_task_id")
	if list := p.call(t, "GET", ws+"/log", nil).want(t, 200).list(t, "entries"); len(list) != 0 {
		t.Errorf("the baseline has entries: %v", list)
	}
}

func TestWorkspaceForget(t *testing.T) {
	p := newProject(t, map[string]string{"f": "x"})
	k := p.task(t)
	ws := "/workspaces/" + k.str("workspace_id")
	p.call(t, "DELETE", ws, nil).fails(t, 409, "workspace_busy")
	p.call(t, "PATCH", k.url(""), map[string]any{"status": "completed"}).want(t, 200)
	p.call(t, "DELETE", ws+"?history=maybe", nil).fails(t, 400, "invalid_parameter")
	p.call(t, "DELETE", ws, nil).want(t, 204)
	p.call(t, "GET", ws, nil).fails(t, 404, "workspace_not_found")
	p.call(t, "GET", k.url(""), nil).fails(t, 404, "task_not_found")
	if p.read(t, "f") != "x" {
		t.Error("the folder was touched")
	}
	if out := harness.Git(t, k.gitDir(), "rev-parse", "refs/umbra/head"); out == "" {
		t.Error("the repository is gone")
	}
	again := p.task(t, "task_id", k.ID)
	if again.str("workspace_id") == k.str("workspace_id") {
		t.Error("the forgotten workspace came back")
	}
	p.call(t, "PATCH", again.url(""), map[string]any{"status": "failed"}).want(t, 200)
	p.call(t, "DELETE", "/workspaces/"+again.str("workspace_id")+"?history=delete", nil).want(t, 204)
	if _, err := os.Stat(again.gitDir()); !os.IsNotExist(err) {
		t.Errorf("the repository is still there: %v", err)
	}
	p.restart()
	if list := p.call(t, "GET", "/workspaces", nil).want(t, 200).list(t, "workspaces"); len(list) != 0 {
		t.Errorf("after a restart there is %v", list)
	}
}

func TestWorkspaceMoves(t *testing.T) {
	p := newProject(t, map[string]string{"f": "x", "g": "y"})
	k := p.task(t)
	ws := "/workspaces/" + k.str("workspace_id")
	moved := filepath.Join(t.TempDir(), "moved")
	need.NoError(t, os.Rename(p.dir, moved))
	k.put(t, "f", "no").fails(t, 409, "workspace_missing")
	p.call(t, "GET", k.file("f"), nil).fails(t, 409, "workspace_missing")
	has(t, p.call(t, "GET", ws, nil).want(t, 200).obj(t), map[string]any{"state": "missing"})
	p.call(t, "PATCH", ws, map[string]any{"root": "relative"}).fails(t, 422, "validation_failed")
	p.call(t, "PATCH", ws, map[string]any{"root": moved + "/f"}).fails(t, 400, "workspace_not_directory")
	need.NoError(t, os.WriteFile(filepath.Join(moved, "g"), []byte("changed"), 0o644))
	real, err := filepath.EvalSymlinks(moved)
	need.NoError(t, err)
	has(t, p.call(t, "PATCH", ws, map[string]any{"root": moved}).want(t, 200).obj(t), map[string]any{"root": real, "state": "clean"})
	has(t, p.call(t, "GET", k.url(""), nil).want(t, 200).obj(t), map[string]any{"workspace": real, "workspace_id": k.str("workspace_id")})
	k.sync(t)
	log := p.call(t, "GET", ws+"/log", nil).want(t, 200).list(t, "entries")
	if len(log) != 1 {
		t.Fatalf("the log has %v", log)
	}
	has(t, log[0], map[string]any{"path": "g", "source": "external", "task_id": nil})
	k.put(t, "f", "yes").want(t, 200)
	if data, err := os.ReadFile(filepath.Join(moved, "f")); err != nil || string(data) != "yes" {
		t.Errorf("f holds %q, %v", data, err)
	}
}

func TestWorkspaceAdopt(t *testing.T) {
	p := newProject(t, map[string]string{"f": "x", "g": "y"})
	k := p.task(t)
	ws := "/workspaces/" + k.str("workspace_id")
	aside := p.dir + "-aside"
	need.NoError(t, os.Rename(p.dir, aside))
	need.NoError(t, os.Mkdir(p.dir, 0o755))
	p.fill(t, map[string]string{"f": "another folder's"})
	p.call(t, "GET", k.file("f"), nil).fails(t, 409, "workspace_missing")
	k.put(t, "f", "no").fails(t, 409, "workspace_missing")
	p.post(t, ws+"/sync", nil).fails(t, 409, "workspace_missing")
	if p.read(t, "f") != "another folder's" {
		t.Error("the folder in its place was written")
	}
	got := p.post(t, ws+"/sync", map[string]any{"adopt": true}).want(t, 200).obj(t)
	if fmt.Sprint(got["changed"]) != "2" {
		t.Errorf("adopting tells %v", got)
	}
	has(t, p.call(t, "GET", ws, nil).want(t, 200).obj(t), map[string]any{"state": "clean"})
	if r := p.call(t, "GET", k.file("f"), nil).want(t, 200); string(r.Body) != "another folder's" {
		t.Errorf("f is %q", r.Body)
	}
}
