package tests

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"umbra/internal/need"
	"umbra/tests/harness"
)

// A commit, by its id or the beginning of it, tells what it did, and its patch
// is what git makes of it.
func TestWorkspaceCommits(t *testing.T) {
	p := newProject(t, map[string]string{"a": "1\n2\n3\n", "old": "stays\n", "go": "x"})
	k := p.task(t)
	ws := "/workspaces/" + k.str("workspace_id")
	k.put(t, "a", "1\nTWO\n3\n", "X-Subtask-Id", "s1", "X-Actor", "claude", "X-Request-Id", "r-1").want(t, 200)
	p.post(t, k.url("/batch"), map[string]any{"message": "all at once", "operations": []map[string]any{
		{"op": "rename", "path": "old", "new_path": "dir/new"}, {"op": "delete", "path": "go"}, {"op": "chmod", "path": "a", "mode": "100755"},
		{"op": "write", "path": "bin", "content": "AAEC/w==", "encoding": "base64"}, {"op": "write", "path": "empty", "content": ""}}}).want(t, 200)

	head := k.git(t, "rev-parse", "HEAD")
	first := k.git(t, "rev-parse", "HEAD~1")
	base := k.str("base")
	o := p.call(t, "GET", ws+"/commits/"+first, nil).want(t, 200).obj(t)
	has(t, o, map[string]any{"commit": first, "parent": base, "seq": 2, "subject": "modify a", "task_id": k.ID, "subtask_id": "s1", "actor": "claude",
		"source": "api", "request_id": "r-1", "reverts": []any{}})
	o = p.call(t, "GET", ws+"/commits/head", nil).want(t, 200).obj(t)
	has(t, o, map[string]any{"commit": head, "subject": "all at once"})
	if n := len(o["entries"].([]any)); n != 5 {
		t.Errorf("%d entries", n)
	}
	o = p.call(t, "GET", ws+"/commits/"+base, nil).want(t, 200).obj(t)
	has(t, o, map[string]any{"parent": nil, "seq": 1, "source": "baseline", "entries": []any{}, "task_id": nil})

	for _, name := range []string{first[:12], strings.ToUpper(first)} {
		has(t, p.call(t, "GET", ws+"/commits/"+name, nil).want(t, 200).obj(t), map[string]any{"commit": first})
	}
	for query, want := range map[string]string{"?path=dir": "rename old -> dir/new", "?path=old": "rename old -> dir/new", "?path=go": "delete go"} {
		if got := briefs(p.call(t, "GET", ws+"/commits/head"+query, nil).want(t, 200).list(t, "entries")); len(got) != 1 || got[0] != want {
			t.Errorf("%s: %v", query, got)
		}
	}
	if got := p.call(t, "GET", ws+"/commits/head?change_id=3", nil).want(t, 200).list(t, "entries"); len(got) != 1 {
		t.Errorf("%v", got)
	}

	// The patch takes the tree before to the tree after, as git sees it.
	patch := p.call(t, "GET", ws+"/commits/head/diff", nil, "Accept", "text/x-diff").want(t, 200)
	if ct := patch.head("Content-Type"); ct != "text/x-diff; charset=utf-8" {
		t.Error(ct)
	}
	out := t.TempDir()
	harness.Git(t, out, "clone", "-q", k.gitDir(), "c")
	clone := filepath.Join(out, "c")
	harness.Git(t, clone, "checkout", "-q", first)
	file := filepath.Join(out, "p")
	need.NoError(t, os.WriteFile(file, patch.Body, 0o666))
	harness.Git(t, clone, "apply", "--index", file)
	if got, want := harness.Git(t, clone, "write-tree"), k.git(t, "rev-parse", "HEAD^{tree}"); got != want {
		t.Errorf("applied, the tree is %s, not %s", got, want)
	}
	o = p.call(t, "GET", ws+"/commits/"+first+"/diff?context=0", nil, "Accept", "application/json").want(t, 200).obj(t)
	has(t, o, map[string]any{"commit": first, "additions": 1, "deletions": 1, "binary": false})
	if text := o["diff"].(string); !strings.Contains(text, "@@ -2 +2 @@") {
		t.Error(text)
	}
	o = p.call(t, "GET", ws+"/commits/head/diff?path=bin", nil, "Accept", "application/json").want(t, 200).obj(t)
	has(t, o, map[string]any{"binary": true})
	if r := p.call(t, "GET", ws+"/commits/"+base+"/diff", nil).want(t, 200); len(r.Body) != 0 {
		t.Errorf("the baseline's patch is %.200s", r.Body)
	}

	for name, code := range map[string]string{"abc": "invalid_commit", "no-such": "invalid_commit", "a%2Fb": "invalid_commit"} {
		p.call(t, "GET", ws+"/commits/"+name, nil).fails(t, 400, code)
		p.call(t, "GET", ws+"/commits/"+name+"/diff", nil).fails(t, 400, code)
	}
	tree := k.git(t, "rev-parse", "HEAD^{tree}")
	for _, name := range []string{tree, strings.Repeat("0", 39) + "1", "0000000000000"} {
		p.call(t, "GET", ws+"/commits/"+name, nil).fails(t, 404, "commit_not_found")
	}
	p.call(t, "GET", ws+"/commits/head?change_id=0", nil).fails(t, 400, "invalid_parameter")
	p.call(t, "GET", ws+"/commits/head/diff?context=-1", nil).fails(t, 400, "invalid_parameter")
	p.call(t, "GET", "/workspaces/none/commits/head", nil).fails(t, 404, "workspace_not_found")
}

// One subtask's summary and diff are its own alone.
func TestSubtaskViews(t *testing.T) {
	p := newProject(t, map[string]string{"a": "1\n2\n3\n4\n5\n6\n7\n8\n9\n"})
	k := p.task(t)
	k.put(t, "a", "ONE\n2\n3\n4\n5\n6\n7\n8\n9\n", "X-Subtask-Id", "s1").want(t, 200)
	k.put(t, "a", "ONE\n2\n3\n4\n5\n6\n7\n8\nNINE\n", "X-Subtask-Id", "s2").want(t, 200)
	k.put(t, "b", "new\n", "X-Subtask-Id", "s2").want(t, 201)
	files := p.call(t, "GET", k.url("/files?subtask_id=s1"), nil).want(t, 200).list(t, "files")
	if len(files) != 1 {
		t.Fatalf("%v", files)
	}
	has(t, files[0], map[string]any{"path": "a", "additions": 1, "deletions": 1, "status": "modified"})
	text := string(p.call(t, "GET", k.url("/diff?subtask_id=s2&path=a"), nil).want(t, 200).Body)
	if strings.Contains(text, "+ONE") || !strings.Contains(text, "+NINE") || !strings.Contains(text, " 6\n") {
		t.Error(text)
	}
	if text := string(p.call(t, "GET", k.url("/diff?subtask_id=s1"), nil).want(t, 200).Body); strings.Contains(text, "diff --git a/b") {
		t.Error(text)
	}
	p.call(t, "GET", k.url("/files?subtask_id=s3"), nil).fails(t, 404, "subtask_not_found")
	p.call(t, "GET", k.url("/diff?subtask_id=s3"), nil).fails(t, 404, "subtask_not_found")
	p.call(t, "GET", k.url("/files?subtask_id=a%20b"), nil).fails(t, 400, "invalid_subtask_id")
	p.call(t, "GET", k.url("/diff?subtask_id=s1&from=base"), nil).fails(t, 400, "invalid_parameter")
}

// A whole history is told whole, and a folder that is gone is told apart.
func TestWorkspaceVerify(t *testing.T) {
	p := newProject(t, map[string]string{"a": "1"})
	k := p.task(t)
	k.put(t, "b", "2").want(t, 201)
	ws := "/workspaces/" + k.str("workspace_id")
	o := p.call(t, "POST", ws+"/verify", nil).want(t, 200).obj(t)
	has(t, o, map[string]any{"workspace": k.str("workspace_id"), "root": k.str("workspace"), "commits": 2, "hashes": 1, "problems": []any{}, "disk": "same", "differs": []any{}})
	p.call(t, "POST", "/workspaces/none/verify", nil).fails(t, 404, "workspace_not_found")
	need.NoError(t, os.Rename(p.dir, p.dir+"-away"))
	has(t, p.call(t, "POST", ws+"/verify", nil).want(t, 200).obj(t), map[string]any{"problems": []any{}, "disk": "missing"})
	need.NoError(t, os.Rename(p.dir+"-away", p.dir))
	has(t, p.call(t, "POST", ws+"/verify", nil).want(t, 200).obj(t), map[string]any{"disk": "same"})
}
