package tests

import (
	"strings"
	"testing"
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
	p.purge(t, 0, id, "also")
	p.purge(t, 0, id, "key")
	p.purge(t, 0, id, "d/key")
	p.verb(t, "gc", "--now")
	if found := leaksOf(t, p.DataDir, secret); len(found) > 0 {
		t.Errorf("the secret is in %v", found)
	}
	// A file of the fork's that is ignored stays, as it does in a directory.
	if found := leaksOf(t, p.DataDir, own); len(found) != 1 || !strings.HasSuffix(found[0], "layer/files/out/own (raw)") {
		t.Errorf("the other is in %v", found)
	}
}
