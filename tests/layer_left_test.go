package tests

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"umbra/internal/need"
)

// TestWorkspaceWithALayerLeft: a workspace is not deleted while a layer has changes that were
// never applied, unless by force: they are nowhere else.
func TestWorkspaceWithALayerLeft(t *testing.T) {
	p := newProject(t, map[string]string{"a": "one\n"})
	var l struct {
		Layer, Dir string
		Workspace  string `json:"workspace_id"`
		Task       string `json:"task_id"`
	}
	p.post(t, "/layers", map[string]any{"agent": "a", "agent_session": "s", "cwd": p.dir}).want(t, 201).into(t, &l)
	need.NoError(t, os.WriteFile(filepath.Join(l.Dir, "upper", "new"), []byte("work\n"), 0o644))
	p.call(t, "PATCH", "/tasks/"+l.Task, map[string]any{"status": "completed"}).want(t, 200)
	a := p.call(t, "DELETE", "/workspaces/"+l.Workspace, nil)
	if a.fails(t, 409, "unmerged"); !strings.Contains(string(a.Body), l.Layer) {
		t.Errorf("the layer is not named: %s", a.Body)
	}
	if raw, err := os.ReadFile(filepath.Join(l.Dir, "upper", "new")); err != nil || string(raw) != "work\n" {
		t.Errorf("%q %v", raw, err)
	}
	left := func() (all string) { // a node lists those of others whose calls are open
		for _, s := range p.Each() {
			all += string(s.Do("GET", "/layers", nil).Expect(200).Body)
		}
		return all
	}
	if list := left(); !strings.Contains(list, l.Layer) {
		t.Errorf("it is not listed: %s", list)
	}
	p.call(t, "DELETE", "/workspaces/"+l.Workspace+"?force=true", nil).want(t, 204)
	if list := left(); strings.Contains(list, l.Layer) {
		t.Errorf("it is left after a deletion by force: %s", list)
	}
}
