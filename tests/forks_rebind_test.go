package tests

import (
	"os"
	"testing"

	"umbra/internal/need"
)

// Forks of a workspace that was deleted do not follow another one, which had its directory
// afterwards, to a directory of other people.
func TestForkOfADeletedWorkspaceStays(t *testing.T) {
	t.Parallel()
	_, dir, as := rooted(t)
	fork := func() (workspace, fork string) {
		t.Helper()
		made := as("both", "POST", "/tasks", map[string]any{"goal": "g", "workspace": dir + "/a"}).want(t, 201)
		workspace = "/workspaces/" + made.str(t, "workspace_id")
		list := as("both", "POST", workspace+"/forks", map[string]any{"kind": "virtual"}).want(t, 201).list(t, "forks")
		as("both", "PATCH", "/tasks/"+made.str(t, "task_id"), map[string]any{"status": "completed"}).want(t, 200)
		return workspace, "/workspaces/" + list[0]["id"].(string)
	}
	workspace, old := fork()
	as("both", "DELETE", workspace+"?force=true", nil).want(t, 204)
	workspace, own := fork()
	need.NoError(t, os.Rename(dir+"/a", dir+"/b/x"))
	as("both", "PATCH", workspace, map[string]any{"root": dir + "/b/x"}).want(t, 200)
	for _, c := range []struct {
		fork, sees, not string
	}{{old, "alice", "bob"}, {own, "bob", "alice"}} {
		as(c.sees, "GET", c.fork, nil).want(t, 200)
		as(c.not, "GET", c.fork, nil).fails(t, 404, "workspace_not_found")
	}
}
