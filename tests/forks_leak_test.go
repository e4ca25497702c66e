package tests

import (
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"umbra/internal/need"
	"umbra/tests/harness"
)

// A fork whose parent was deleted with force is purged by itself: what its layer had of
// the file on disk goes too.
func TestForkLayerPurge(t *testing.T) {
	const secret = "secret-of-the-layer-8291"
	p := newProject(t, map[string]string{"a": "one\n", ".gitignore": "out/\n"})
	task := p.task(t)
	ws := "/workspaces/" + task.str("workspace_id")
	id := layerFork(t, p, ws, nil)
	p.in(t, id, "echo "+secret+" > key; mkdir d; echo in-d-"+secret+" > d/key")
	p.in(t, id, "cat key") // its layer has the file now
	const own = "secret-that-is-ignored-too-7731"
	p.in(t, id, "echo "+own+" > also") // its layer gets this one by the next command
	p.in(t, id, "mkdir out; echo "+own+" > out/own")
	p.call(t, "PATCH", "/tasks/"+task.ID, map[string]any{"status": "completed"}).want(t, 200)
	p.call(t, "DELETE", ws+"?force=true", nil).want(t, 204)
	p.post(t, "/tasks", map[string]any{"task_id": "clean", "workspace": id, "goal": "clean"}).want(t, 201)
	p.call(t, "DELETE", "/tasks/clean/content?path=key", nil).want(t, 200)
	p.call(t, "DELETE", "/tasks/clean/content?path=d/key", nil).want(t, 200)
	p.call(t, "DELETE", "/tasks/clean/content?path=also", nil).want(t, 200)
	if _, said := p.purge(t, 1, id, "also"); !strings.Contains(said, "out/own") {
		t.Errorf("the refused purge says %s", said)
	}
	p.purge(t, 0, id, "also", "--ignore")
	p.purge(t, 0, id, "key")
	p.purge(t, 0, id, "d/key")
	p.verb(t, "gc", "--now")
	if found := p.Leaks(secret); len(found) > 0 {
		t.Errorf("the secret is in %v", found)
	}
	// A file of the fork's that is ignored stays, as it does in a directory, unless another node has the fork now.
	if found := p.Leaks(own); len(found) == 0 && harness.Nodes() > 0 {
		t.Log("no node has the other")
	} else if len(found) != 1 || !strings.HasSuffix(found[0], "layer/files/out/own (raw)") {
		t.Errorf("the other is in %v", found)
	}
}

// A content that is purged from a fork leaves the files that layers show in place of a
// directory whose workspace was deleted, in all forks; that is asked for, since no history
// has them.
func TestForkBelowPurge(t *testing.T) {
	const secret = "secret-of-the-ignored-4471"
	p := newProject(t, map[string]string{"a": "one\n", ".gitignore": "out/\n"})
	p.shell(t, "mkdir out; echo "+secret+" > out/env; echo other > out/other")
	task := p.task(t)
	ws := "/workspaces/" + task.str("workspace_id")
	ids := []string{layerFork(t, p, ws, nil), layerFork(t, p, ws, nil)}
	p.in(t, ids[0], "cp out/env key")
	p.in(t, ids[0], "rm key")
	p.call(t, "PATCH", "/tasks/"+task.ID, map[string]any{"status": "completed"}).want(t, 200)
	p.call(t, "DELETE", ws+"?force=true", nil).want(t, 204)
	p.shell(t, "rm out/env")
	refused := func() {
		t.Helper()
		if _, said := p.purge(t, 1, ids[0], "key"); !strings.Contains(said, "out/env") {
			t.Errorf("the purge says %s", said)
		}
	}
	refused()
	if harness.Nodes() == 0 { // ignored files are at the node that had the directory, which may not have the fork
		p.in(t, ids[0], "rm out/env")
		refused() // the other fork shows it
		if got := p.in(t, ids[1], "cat out/env"); got != secret+"\n" {
			t.Errorf("the other fork has %q", got)
		}
		if r, _ := p.purge(t, 0, ids[0], "key", "--ignore", "--dry-run"); r.Refused || len(r.Files) != 1 {
			t.Errorf("the dry run says %+v", r)
		}
	}
	p.purge(t, 0, ids[0], "key", "--ignore")
	p.verb(t, "gc", "--now")
	if found := p.Leaks(secret); len(found) > 0 {
		t.Errorf("the secret is in %v", found)
	}
	for _, id := range ids {
		if got := p.in(t, id, "ls -A out 2>/dev/null || true; cat a"); got != "other\none\n" && (harness.Nodes() == 0 || got != "one\n") {
			t.Errorf("%s shows %q", id, got)
		}
	}
}

// A fork that was given a history of its own has whole packs of its parent's, and with them
// contents that its history never had: they are in no way of a purge, and not left by it.
func TestForkApartPurge(t *testing.T) {
	const merged, later = "secret-that-was-merged-5512", "secret-of-the-first-6623"
	p := newProject(t, map[string]string{"a": "one\n"})
	first := p.task(t)
	ws := "/workspaces/" + first.str("workspace_id")
	middle := p.forks(t, ws, map[string]any{"kind": "virtual"})[0]["id"].(string)
	made := p.forks(t, "/workspaces/"+middle, map[string]any{"kind": "virtual", "count": 2})
	x, y := made[0]["id"].(string), made[1]["id"].(string)
	p.post(t, "/tasks", map[string]any{"task_id": "x", "workspace": x, "goal": "try"}).want(t, 201)
	p.call(t, "PUT", "/tasks/x/content?path=key", []byte(merged)).want(t, 201)
	p.merge(t, x, nil)
	p.call(t, "DELETE", "/tasks/x/content?path=key", nil).want(t, 200)
	first.put(t, "later", later)
	first.put(t, "later", "clean")
	p.call(t, "DELETE", "/workspaces/"+middle+"?force=true&history=delete", nil).want(t, 204)
	p.purge(t, 0, x, "key")
	if found := p.Leaks(merged); len(found) > 0 {
		t.Errorf("the fork's secret is in %v", found)
	}
	p.purge(t, 0, first.str("workspace_id"), "later")
	if found := p.Leaks(later); len(found) > 0 {
		t.Errorf("the first's secret is in %v", found)
	}
	for _, id := range []string{x, y} {
		p.call(t, "GET", "/workspaces/"+id+"/log", nil).want(t, 200)
		harness.Git(t, p.Find("workspaces", id, "repo.git"), "fsck", "--strict", "--no-dangling")
	}
}

// A fork whose siblings are directories is purged, whichever node of a cluster has it.
func TestForkPurgeOfACopysSibling(t *testing.T) {
	const secret = "secret-of-all-forks-9931"
	p := newProject(t, map[string]string{"a": "one\n"})
	task := p.task(t)
	ws := "/workspaces/" + task.str("workspace_id")
	task.put(t, "key", secret)
	task.put(t, "key", "clean")
	dir := filepath.Join(t.TempDir(), "copy")
	ids := []string{p.forks(t, ws, map[string]any{"kind": "copy", "path": dir})[0]["id"].(string)}
	for _, f := range p.forks(t, ws, map[string]any{"kind": "virtual", "count": 3}) {
		ids = append(ids, f["id"].(string))
	}
	p.call(t, "PATCH", "/tasks/"+task.ID, map[string]any{"status": "completed"}).want(t, 200)
	p.call(t, "DELETE", ws+"?force=true&history=delete", nil).want(t, 204)
	p.Stop()
	p.Restart()
	for _, id := range ids {
		p.log(t, id) // the node that is asked has it from now on, unless it is a directory
	}
	for _, id := range slices.Backward(ids) {
		p.purge(t, 0, id, "key")
	}
	if found := p.Leaks(secret); len(found) > 0 {
		t.Errorf("the secret is in %v", found)
	}
}

// A token for the directory of a copy learns nothing of what its parent became since, by no
// way of naming it.
func TestForkKeepsParentHidden(t *testing.T) {
	top, err := filepath.EvalSymlinks(t.TempDir())
	need.NoError(t, err)
	hidden, open := filepath.Join(top, "hidden"), filepath.Join(top, "open")
	for _, dir := range []string{hidden, open} {
		need.NoError(t, os.Mkdir(dir, 0o755))
	}
	config := fmt.Sprintf("auth: {tokens: [{name: owner, scope: exec, roots: [/], sha256: '%x'}, {name: some, scope: exec, roots: [%q], sha256: '%x'}]}\n",
		sha256.Sum256([]byte("owner")), open, sha256.Sum256([]byte("some")))
	p := &project{Server: harness.Start(t, harness.Options{Config: config, Token: "owner"}), dir: hidden}
	p.fill(t, map[string]string{"a": "one\n"})
	task := p.task(t)
	parent := task.str("workspace_id")
	id := p.forks(t, "/workspaces/"+parent, map[string]any{"kind": "copy", "path": filepath.Join(open, "fork")})[0]["id"].(string)
	fork := "/workspaces/" + id
	const secret = "of-the-parent-since-6620"
	task.put(t, "a", secret+"\n")
	p.post(t, "/workspaces/"+parent+"/checkpoints", map[string]any{"name": "named"}).want(t, 201)
	later := p.call(t, "GET", "/workspaces/"+parent, nil).want(t, 200).obj(t)["head"].(string)
	some := "Authorization: Bearer some"
	p.Do("POST", "/tasks", map[string]any{"task_id": "mine", "workspace": id, "goal": "try"}, some).Expect(201)
	cursor := base64.RawURLEncoding.EncodeToString([]byte(later + ".1"))
	for _, x := range []struct {
		method, path string
		body         map[string]any
	}{
		{"POST", fork + "/rebase", nil},
		{"POST", fork + "/rebase", map[string]any{"dry_run": true}},
		{"POST", fork + "/merge", map[string]any{"dry_run": true}},
		{"POST", fork + "/merge", map[string]any{"into": parent}},
		{"GET", fork + "/compare", nil},
		{"GET", fork + "/compare?with=" + parent, nil},
		{"GET", fork + "/compare?with=named", nil},
		{"GET", fork + "/compare?with=" + later, nil},
		{"POST", fork + "/restore", map[string]any{"to": "named", "dry_run": true}},
		{"POST", fork + "/restore", map[string]any{"to": later, "paths": []string{"a"}}},
		{"POST", fork + "/forks", map[string]any{"kind": "virtual", "at": later}},
		{"GET", fork + "/commits/" + later, nil},
		{"GET", fork + "/commits/" + later + "/diff", nil},
		{"GET", fork + "/blame?path=a&at=" + later, nil},
		{"GET", fork + "/blame?path=a&after=" + cursor, nil},
		{"POST", fork + "/revert", map[string]any{"commit": later}},
		{"GET", "/tasks/mine/content?path=a&at=" + later, nil},
		{"POST", "/workspaces/" + parent + "/forks", nil},
		{"DELETE", "/workspaces/" + parent + "?force=true", nil},
	} {
		var body any
		if x.body != nil {
			body = x.body
		}
		if r := p.Do(x.method, x.path, body, some); r.Status/100 != 4 || strings.Contains(string(r.Body), secret) {
			t.Errorf("%s %s %v: %d %s", x.method, x.path, x.body, r.Status, r.Body)
		}
	}
	if data, err := os.ReadFile(filepath.Join(open, "fork/a")); err != nil || string(data) != "one\n" {
		t.Errorf("the fork has %q, %v", data, err)
	}
	if r := p.Do("GET", fork+"/compare", nil, some); r.Status != 404 || !strings.Contains(string(r.Body), "workspace_not_found") {
		t.Errorf("%d %s", r.Status, r.Body)
	}
	p.post(t, "/workspaces/"+parent+"/sync", map[string]any{}).want(t, 200) // which publishes
	clone := filepath.Join(top, "clone")
	fetch := func(token, what string) error {
		return exec.Command("git", "-C", clone, "-c", "protocol.version=2", "-c", "http.extraHeader=Authorization: Bearer "+token, "fetch", "-q", p.URL+"/git/"+id+".git", what).Run()
	}
	harness.Git(t, top, "init", "-q", "clone")
	if err := fetch("some", "refs/heads/shadow"); err != nil {
		t.Errorf("the token cannot fetch the fork: %v", err)
	}
	if err := fetch("some", later); err == nil {
		t.Error("the token fetches a commit of the parent's")
	}
	if err := fetch("owner", "refs/heads/shadow"); err != nil {
		t.Errorf("the owner cannot fetch the fork: %v", err)
	}
	p.post(t, fork+"/rebase", nil).want(t, 200) // its owner sees both
}
