package tests

import (
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"umbra/internal/need"
	"umbra/tests/harness"
)

// rooted is a server with tokens for two directories, a and b: alice writes in a, bob in
// b, reader reads in a, both writes in both, and all has no roots. as sends a request with one of them.
func rooted(t *testing.T) (p *project, dir string, as func(who, method, path string, body any, header ...string) *answer) {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	need.NoError(t, err)
	for _, name := range []string{"a", "b"} {
		need.NoError(t, os.Mkdir(filepath.Join(dir, name), 0o755))
	}
	token := func(name, scope, roots string) string {
		return fmt.Sprintf("{name: %s, scope: %s, sha256: '%x', roots: [%s]}", name, scope, sha256.Sum256([]byte(name)), roots)
	}
	config := "auth: {tokens: [" + strings.Join([]string{token("alice", "write", "'"+dir+"/a'"), token("bob", "write", "'"+dir+"/b'"),
		token("reader", "read", "'"+dir+"/a'"), token("all", "write", ""), token("both", "write", "'"+dir+"'")}, ", ") + "]}\n"
	p = &project{Server: harness.Start(t, harness.Options{Config: config}), dir: dir + "/a"}
	as = func(who, method, path string, body any, header ...string) *answer {
		t.Helper()
		return p.call(t, method, path, body, append(header, "Authorization", "Bearer "+who)...)
	}
	return p, dir, as
}

// Tokens: scopes, roots, and the actor, which no client can choose.
func TestTaskTokens(t *testing.T) {
	_, dir, as := rooted(t)
	make := func(who, folder, id string) *answer {
		t.Helper()
		return as(who, "POST", "/tasks", map[string]any{"goal": "g", "workspace": dir + "/" + folder, "task_id": id})
	}
	make("nobody", "a", "x").want(t, 401)
	make("reader", "a", "x").want(t, 403)
	make("alice", "b", "x").fails(t, 403, "workspace_not_allowed")
	make("all", "b", "x").fails(t, 403, "workspace_not_allowed")
	a := make("alice", "a", "ta").want(t, 201)
	make("bob", "b", "tb").want(t, 201)

	r := as("alice", "PUT", "/tasks/ta/content?path=f", []byte("x"), "X-Actor", "somebody-else").want(t, 201)
	as("reader", "GET", "/tasks/ta/content?path=f", nil).want(t, 200)
	as("all", "GET", "/tasks/tb", nil).want(t, 200)
	for _, rest := range []string{"", "/content?path=f", "/changes", "/stream", "/artifacts", "/scratch/x"} {
		as("bob", "GET", "/tasks/ta"+rest, nil).fails(t, 404, "task_not_found")
	}
	as("bob", "PUT", "/tasks/ta/content?path=f", []byte("no")).fails(t, 404, "task_not_found")
	as("bob", "PATCH", "/tasks/ta", map[string]any{"status": "failed"}).fails(t, 404, "task_not_found")
	as("reader", "PUT", "/tasks/ta/content?path=f", []byte("no")).want(t, 403)
	as("reader", "DELETE", "/tasks/ta", nil).want(t, 403)
	ws := "/workspaces/" + a.str(t, "workspace_id")
	for _, rest := range []string{"", "/log", "/coverage", "/stream"} {
		as("bob", "GET", ws+rest, nil).fails(t, 404, "workspace_not_found")
	}
	as("bob", "POST", ws+"/sync", nil).fails(t, 404, "workspace_not_found")
	as("bob", "DELETE", ws, nil).fails(t, 404, "workspace_not_found")
	as("reader", "POST", ws+"/sync", nil).want(t, 200)
	as("reader", "POST", ws+"/sync", map[string]any{"adopt": true}).want(t, 403)
	as("alice", "PATCH", ws, map[string]any{"root": dir + "/b"}).want(t, 403)
	for who, want := range map[string]int{"alice": 1, "bob": 1, "reader": 1, "all": 2} {
		if got := len(as(who, "GET", "/tasks", nil).want(t, 200).list(t, "tasks")); got != want {
			t.Errorf("%s sees %d tasks", who, got)
		}
		if got := len(as(who, "GET", "/workspaces", nil).want(t, 200).list(t, "workspaces")); got != want {
			t.Errorf("%s sees %d workspaces", who, got)
		}
	}
	list := as("alice", "GET", "/tasks/ta/changes", nil).want(t, 200).list(t, "entries")
	if len(list) != 1 {
		t.Fatalf("the changelog has %v", list)
	}
	has(t, list[0], map[string]any{"actor": "alice", "commit": r.str(t, "commit")})
	// A key is its token's own, and a kept answer is not shown to one who may
	// not see the task.
	as("alice", "PUT", "/tasks/ta/content?path=k", []byte("x"), "Idempotency-Key", "k").want(t, 201)
	as("all", "PUT", "/tasks/ta/content?path=k", []byte("x"), "Idempotency-Key", "k").want(t, 200)
	as("bob", "PUT", "/tasks/ta/content?path=k", []byte("x"), "Idempotency-Key", "k").fails(t, 404, "task_not_found")
}

func TestTaskLimits(t *testing.T) {
	p := &project{Server: harness.Start(t, harness.Options{Config: "limits: {upload_bytes: 1000, write_bytes: 2000, json_bytes: 500}\n"}), dir: t.TempDir()}
	k := p.task(t)
	k.put(t, "exact", strings.Repeat("x", 1000)).want(t, 201)
	over := []byte(strings.Repeat("x", 1001))
	for _, r := range []*answer{
		p.call(t, "PUT", k.file("over"), over),
		p.call(t, "PUT", k.file("over"), over, "Idempotency-Key", "k"),
		p.call(t, "PUT", k.url("/scratch/over"), over),
		p.post(t, k.url("/move"), map[string]any{"from": strings.Repeat("x", 600), "to": "y"}),
		p.post(t, k.url("/batch"), map[string]any{"operations": []any{map[string]any{"op": "write", "path": "over", "content": strings.Repeat("x", 2000)}}}),
	} {
		if r.Status != 413 {
			t.Errorf("%s: %d %.200s", r.what, r.Status, r.Body)
		}
	}
	p.absent(t, "over")
	if n := len(k.changes(t, "")); n != 1 {
		t.Errorf("%d changes", n)
	}
	if list := p.call(t, "GET", k.url("/scratch"), nil).want(t, 200).list(t, "files"); len(list) != 0 {
		t.Errorf("scratch has %v", list)
	}
	if left, err := filepath.Glob(filepath.Join(p.DataDir, "tasks", "*", ".umbra-*")); err != nil || len(left) != 0 {
		t.Errorf("left over: %v", left)
	}
}
