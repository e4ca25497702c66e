package tests

import (
	"net/http"
	"net/url"
	"strings"
	"testing"

	"umbra/tests/harness"
)

// policyRig is a workspace with a task that may change d only, and a protected file
// both in d and elsewhere.
type policyRig struct {
	*project
	k    *taskOf
	ws   string
	head any
}

func (g *policyRig) tip(t *testing.T) any {
	t.Helper()
	return g.call(t, "GET", "/workspaces/"+g.ws, nil).want(t, 200).obj(t)["head"]
}

func newPolicyRig(t *testing.T) *policyRig {
	t.Helper()
	p := &project{dir: folder(t, map[string]string{"a": "1\n", "e/x": "x\n", "d/b": "b\n", "d/go.lock": "l\n", "ci/x": "x\n"}), Server: harness.Start(t, harness.Options{
		Config: "policy:\n  protected: [\"*.lock\", \"/ci/x\"]\nexec:\n  enabled: true\n"})}
	g := &policyRig{project: p, k: p.task(t, "only", []string{"/d/**"})}
	g.ws = g.k.str("workspace_id")
	g.head = g.tip(t)
	return g
}

// TestPolicyRoutes holds that each route which writes refuses, in its dialect's words,
// what the task's only and what a protected path forbid, and that nothing is done.
func TestPolicyRoutes(t *testing.T) {
	g := newPolicyRig(t)
	k := g.k
	s := g.session(t, "taskId", k.ID)
	tools := &agent{g.Server, t, g.post(t, "/toolsets", map[string]any{"taskId": k.ID, "mounts": []any{physical("/p", "READ_WRITE", g.dir)}}).want(t, 201).str(t, "id")}
	raw := func(method, path, data string) func() *answer {
		return func() *answer { return g.call(t, method, path, []byte(data)) }
	}
	post := func(path string, body map[string]any) func() *answer {
		return func() *answer { return g.post(t, path, body) }
	}
	batch := func(op map[string]any) func() *answer {
		return post(k.url("/batch"), map[string]any{"operations": []any{op}})
	}
	tagged := func(path string, body map[string]any) func() *answer {
		return func() *answer { return g.post(t, path, body, "X-Task-Id", k.ID) }
	}
	upload := func(path string) func() *answer {
		return func() *answer {
			return g.call(t, "PUT", s.fs("upload", "path", path), []byte("2\n"))
		}
	}
	at := func(path string) string { return "?path=" + url.QueryEscape(path) }
	for name, ask := range map[string]func() *answer{
		"content":               raw("PUT", k.file("a"), "2\n"),
		"content, protected":    raw("PUT", k.file("d/go.lock"), "2\n"),
		"delete":                raw("DELETE", k.file("a"), ""),
		"delete, folder":        raw("DELETE", k.file("e")+"&recursive=true", ""),
		"delete, around":        raw("DELETE", k.file("d")+"&recursive=true", ""),
		"append":                raw("POST", k.url("/append")+at("a"), "2\n"),
		"append, protected":     raw("POST", k.url("/append")+at("d/go.lock"), "2\n"),
		"edit":                  post(k.url("/edit"), map[string]any{"path": "a", "old_string": "1", "new_string": "2"}),
		"copy":                  post(k.url("/copy"), map[string]any{"from": "d/b", "to": "c"}),
		"copy, protected":       post(k.url("/copy"), map[string]any{"from": "d/b", "to": "d/c.lock"}),
		"mkdir":                 post(k.url("/mkdir"), map[string]any{"path": "n"}),
		"move out":              post(k.url("/move"), map[string]any{"from": "d/b", "to": "b"}),
		"move in":               post(k.url("/move"), map[string]any{"from": "a", "to": "d/a"}),
		"move, protected":       post(k.url("/move"), map[string]any{"from": "d/go.lock", "to": "d/go"}),
		"symlink":               post(k.url("/symlink"), map[string]any{"path": "l", "target": "d/b"}),
		"symlink, protected":    post(k.url("/symlink"), map[string]any{"path": "d/l.lock", "target": "b"}),
		"batch, write":          batch(map[string]any{"op": "write", "path": "a", "content": "2\n"}),
		"batch, delete":         batch(map[string]any{"op": "delete", "path": "a"}),
		"batch, rename":         batch(map[string]any{"op": "rename", "path": "a", "new_path": "d/a"}),
		"batch, chmod":          batch(map[string]any{"op": "chmod", "path": "a", "mode": "100755"}),
		"session, write":        func() *answer { return s.put(t, "a", "2\n") },
		"session, replace":      func() *answer { return s.do(t, "replace", "path", "a", "old_string", "1", "new_string", "2") },
		"session, upload":       upload("a"),
		"session, upload, lock": upload("d/go.lock"),
		"session, move":         func() *answer { return s.do(t, "move", "from", "a", "to", "d/a") },
		"session, copy":         func() *answer { return s.do(t, "copy", "from", "a", "to", "c") },
		"session, mkdir":        func() *answer { return s.do(t, "mkdir", "path", "n") },
		"session, symlink":      func() *answer { return s.do(t, "symlink", "path", "l", "target", "d/b") },
		"session, delete":       func() *answer { return s.delete(t, "file", "a") },
		"session, delete dir":   func() *answer { return s.delete(t, "dir", "e", "recursive", "true") },
		"restore":               tagged("/workspaces/"+g.ws+"/restore", map[string]any{"to": g.head, "paths": []string{"a"}}),
	} {
		t.Run(name, func(t *testing.T) {
			if name == "restore" { // there is something to restore
				p := g.task(t)
				p.put(t, "a", "other\n").want(t, 200)
				defer func() {
					p.put(t, "a", "1\n").want(t, 200)
					g.head = g.tip(t)
				}()
				g.head = g.tip(t)
			}
			a := ask()
			if a.Status != http.StatusForbidden || !strings.Contains(string(a.Body), "protected by the rule") && !strings.Contains(string(a.Body), "may only change paths") {
				t.Errorf("%d %s", a.Status, a.Body)
			}
			if got := g.tip(t); got != g.head {
				t.Errorf("the head moved")
			}
		})
	}
	for name, args := range map[string][]any{
		"write_file":  {"path", "/p/a", "content", "2\n"},
		"edit_file":   {"path", "/p/d/go.lock", "old_string", "l", "new_string", "m"},
		"move_file":   {"from", "/p/d/b", "to", "/p/b"},
		"delete_file": {"path", "/p/a"},
	} {
		status, text := tools.call(name, args...)
		if status != "error" || !strings.Contains(text, "protected by the rule") && !strings.Contains(text, "may only change paths") {
			t.Errorf("%s: %s %s", name, status, text)
		}
	}
	run := g.post(t, k.url("/exec"), map[string]any{"command": "echo 2 > a; echo 2 > d/b"})
	if run.Status != http.StatusForbidden || !strings.Contains(string(run.Body), "may only change paths") {
		t.Errorf("exec: %d %s", run.Status, run.Body)
	}
	if g.tip(t) != g.head || g.read(t, "a") != "1\n" || g.read(t, "d/b") != "b\n" || g.read(t, "d/go.lock") != "l\n" {
		t.Error("something was changed")
	}
	// A link would put other files at protected paths.
	g.post(t, g.task(t).url("/move"), map[string]any{"from": "e", "to": "f"}).want(t, 200)
	free := g.task(t)
	g.call(t, "DELETE", "/tasks/"+g.task(t, "allow", []string{"/ci/**"}).ID+"/content?path=ci&recursive=true", nil).want(t, 200)
	g.post(t, free.url("/symlink"), map[string]any{"path": "ci", "target": "d"}).fails(t, 403, "policy_refused")
	g.post(t, free.url("/symlink"), map[string]any{"path": "di", "target": "d"}).want(t, 201)
	k.fsck(t)
}

// TestPolicyReverts holds that a task takes back its own changes whatever the policy
// says, those of others only where it may write, and a person without a task all.
func TestPolicyReverts(t *testing.T) {
	g := newPolicyRig(t)
	lock := g.task(t, "allow", []string{"*.lock"})
	commit := lock.save(t, "d/go.lock", "2\n")
	outside := lock.save(t, "a", "2\n")
	revert := "/workspaces/" + g.ws + "/commits/" + commit + "/revert"
	g.post(t, revert, map[string]any{"task_id": g.k.ID}).fails(t, 403, "policy_refused")
	g.post(t, revert, map[string]any{}, "X-Task-Id", g.task(t).ID).fails(t, 403, "policy_refused")
	g.post(t, "/workspaces/"+g.ws+"/commits/"+outside+"/revert", map[string]any{"task_id": g.k.ID}).fails(t, 403, "policy_refused")
	g.post(t, "/workspaces/"+g.ws+"/revert", map[string]any{"paths": []string{"d"}, "task_id": g.k.ID}).fails(t, 403, "policy_refused")
	if g.read(t, "d/go.lock") != "2\n" || g.read(t, "a") != "2\n" {
		t.Error("another's change was taken back")
	}
	g.post(t, revert, map[string]any{}).want(t, 200)
	if g.read(t, "d/go.lock") != "l\n" {
		t.Error("a person's revert")
	}
	// What a call's shell did is taken back by its own task.
	g.post(t, "/calls", map[string]any{"cwd": g.dir, "task_id": g.k.ID, "call_id": "c", "tool": "Bash"}).want(t, 201)
	g.shell(t, "echo 3 > a; echo 3 > d/go.lock")
	g.post(t, "/calls/c/end", map[string]any{}).want(t, 200)
	g.post(t, "/calls/c/revert", map[string]any{}).want(t, 200)
	if g.read(t, "d/go.lock") != "l\n" || g.read(t, "a") != "2\n" {
		t.Errorf("%q %q", g.read(t, "d/go.lock"), g.read(t, "a"))
	}
	// So are rejected hunks of it.
	g.post(t, "/calls", map[string]any{"cwd": g.dir, "task_id": g.k.ID, "call_id": "c2", "tool": "Bash"}).want(t, 201)
	g.shell(t, "echo 4 > d/go.lock")
	g.post(t, "/calls/c2/end", map[string]any{}).want(t, 200)
	g.post(t, g.k.url("/review"), map[string]any{"reject_rest": true}).want(t, 200)
	if g.read(t, "d/go.lock") != "l\n" {
		t.Error("the rejection")
	}
	g.k.fsck(t)
}

// TestPolicyMerge holds that a fork's changes are judged by the rules of the workspace
// into which they are merged.
func TestPolicyMerge(t *testing.T) {
	g := newPolicyRig(t)
	fork := g.post(t, "/workspaces/"+g.ws+"/forks", map[string]any{"kind": "virtual"}).want(t, 201).list(t, "forks")[0]
	id, _ := fork["id"].(string)
	g.post(t, "/tasks", map[string]any{"task_id": "f", "goal": "g", "workspace_id": id, "allow": []string{"*.lock"}}).want(t, 201)
	g.call(t, "PUT", "/tasks/f/content?path=d/b", []byte("2\n")).want(t, 200) // the first of two commits
	g.call(t, "PUT", "/tasks/f/content?path=d/go.lock", []byte("2\n")).want(t, 200)
	merge := "/workspaces/" + id + "/merge"
	for _, body := range []map[string]any{{"dry_run": true}, {}, {"as": "squash", "dry_run": true}, {"as": "squash"}} {
		if got := g.post(t, merge, body).fails(t, 403, "policy_refused"); got["rule"] != "protected" || got["path"] != "d/go.lock" {
			t.Errorf("%v: %v", body, got)
		}
	}
	if g.tip(t) != g.head || g.read(t, "d/b") != "b\n" {
		t.Error("a part was merged")
	}
	g.post(t, merge, map[string]any{"paths": []string{"d/b"}}).want(t, 200)
	if g.read(t, "d/b") != "2\n" || g.read(t, "d/go.lock") != "l\n" {
		t.Error("the rest was not merged")
	}
	allowed := g.task(t, "allow", []string{"*.lock"})
	g.post(t, merge, map[string]any{"task_id": allowed.ID}).want(t, 200)
	if g.read(t, "d/go.lock") != "2\n" {
		t.Error("with allow it was not merged")
	}
	g.k.fsck(t)
}
