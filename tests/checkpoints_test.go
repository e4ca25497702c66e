package tests

import (
	"strings"
	"testing"
	"time"

	"umbra/tests/harness"
)

// A checkpoint names a moment, and everything comes back to it, or to a time, by
// one commit that a plan was asked for first.
func TestCheckpoints(t *testing.T) {
	p := newProject(t, map[string]string{"a": "one\n", "d/b": "two\n"})
	task := p.task(t)
	ws := "/workspaces/" + task.str("workspace_id")
	p.shell(t, "echo seen > c")
	made := p.post(t, ws+"/checkpoints", map[string]any{"name": "before", "message": "all good"}, "X-Actor", "ann").want(t, 201).obj(t)
	if made["actor"] != "ann" || made["message"] != "all good" {
		t.Errorf("%v", made)
	}
	if out := harness.Git(t, task.gitDir(), "cat-file", "-p", "umbra/before^{commit}:c"); out != "seen" {
		t.Errorf("git sees %q", out)
	}
	p.post(t, ws+"/checkpoints", map[string]any{"name": "before"}).fails(t, 409, "checkpoint_exists")
	for _, name := range []string{"../x", "v1.", "a..b", "x.lock", "-x", "head", ""} {
		p.post(t, ws+"/checkpoints", map[string]any{"name": name}).fails(t, 400, "invalid_name")
	}
	task.put(t, "a", "1\n")
	task.put(t, "d/b", "2\n")
	p.shell(t, "rm c; echo person > e")
	p.post(t, ws+"/restore", map[string]any{"to": "before"}).fails(t, 409, "plan_required")
	plan := p.post(t, ws+"/restore", map[string]any{"to": "before", "dry_run": true}).want(t, 200)
	var dry struct {
		Plan   string
		Files  []struct{ Path, Action string }
		Others []callEntry
	}
	plan.into(t, &dry)
	if len(dry.Files) != 4 || len(dry.Others) != 4 || p.read(t, "a") != "1\n" {
		t.Errorf("%+v", dry)
	}
	p.post(t, ws+"/restore", map[string]any{"to": "before", "plan": dry.Plan}).want(t, 200)
	if p.read(t, "a") != "one\n" || p.read(t, "d/b") != "two\n" || p.read(t, "c") != "seen\n" {
		t.Error("not as it was")
	}
	p.absent(t, "e")
	p.post(t, ws+"/restore", map[string]any{"to": time.Now().Add(time.Hour).UTC().Format(time.RFC3339), "dry_run": true}).want(t, 200)
	p.post(t, ws+"/restore", map[string]any{"to": "2001-01-01T00:00:00Z", "dry_run": true}).fails(t, 404, "commit_not_found")
	p.call(t, "GET", ws+"/blame?path=a&at=before", nil).want(t, 200)
	p.call(t, "GET", ws+"/commits/before", nil).want(t, 200)
	if list := p.call(t, "GET", ws+"/checkpoints", nil).want(t, 200).list(t, "checkpoints"); len(list) != 1 || list[0]["commit"] != made["commit"] {
		t.Errorf("%v", list)
	}
	task.fsck(t)
	p.call(t, "DELETE", ws+"/checkpoints/before", nil).want(t, 204)
	p.call(t, "DELETE", ws+"/checkpoints/before", nil).fails(t, 404, "checkpoint_not_found")
	if out := harness.Git(t, task.gitDir(), "tag"); strings.Contains(out, "before") {
		t.Error(out)
	}
}

// A purge moves checkpoints to the commits that the history has then; they are no user's refs,
// which keep what is purged.
func TestCheckpointsPurged(t *testing.T) {
	const secret = "secret-of-a-checkpoint-5531"
	p := newProject(t, map[string]string{"a": "one\n"})
	task := p.task(t)
	ws := "/workspaces/" + task.str("workspace_id")
	p.post(t, ws+"/checkpoints", map[string]any{"name": "first"}).want(t, 201)
	task.put(t, "key", secret+"\n")
	before := p.post(t, ws+"/checkpoints", map[string]any{"name": "before", "message": "all good"}, "X-Actor", "ann").want(t, 201).obj(t)
	task.put(t, "a", "two\n")
	task.git(t, "tag", "-a", "-m", "by hand", "umbra/light", before["commit"].(string))
	task.git(t, "update-ref", "refs/tags/umbra/bare", before["commit"].(string))
	p.call(t, "DELETE", task.file("key"), nil).want(t, 200)
	p.purge(t, 0, task.str("workspace_id"), "key")
	p.verb(t, "gc", "--now")
	if found := p.Leaks(secret); len(found) > 0 {
		t.Errorf("the secret is in %v", found)
	}
	list := p.call(t, "GET", ws+"/checkpoints", nil).want(t, 200).list(t, "checkpoints")
	if len(list) != 4 {
		t.Fatalf("%v", list)
	}
	for _, c := range list {
		text := p.call(t, "GET", task.file("a")+"&at="+c["commit"].(string), nil).want(t, 200)
		if string(text.Body) != "one\n" {
			t.Errorf("%v has %q", c, text.Body)
		}
		if c["name"] == "before" && (c["message"] != "all good" || c["actor"] != "ann" || c["commit"] == before["commit"]) {
			t.Errorf("%v was %v", c, before)
		}
	}
	dry := p.post(t, ws+"/restore", map[string]any{"to": "before", "dry_run": true}).want(t, 200).obj(t)
	p.restart()
	p.post(t, ws+"/restore", map[string]any{"to": "before", "plan": dry["plan"]}).want(t, 200)
	if a, key := p.read(t, "a"), p.read(t, "key"); a != "one\n" || key != "purged\n" {
		t.Errorf("%q, %q", a, key)
	}
	task.fsck(t)
	p.call(t, "DELETE", ws+"/checkpoints/before", nil).want(t, 204)
}
