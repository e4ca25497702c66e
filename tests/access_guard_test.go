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

// The data directory, what lies in it, and the system's own directories are a
// workspace for no one, by no way.
func TestNeverAWorkspace(t *testing.T) {
	t.Parallel()
	dir := folder(t, map[string]string{"a": "x"})
	s := harness.Start(t, harness.Options{})
	ws := s.Do("POST", "/tasks", map[string]any{"goal": "g", "workspace": dir}).Expect(201).Text("workspace_id")
	link := filepath.Join(t.TempDir(), "link")
	need.NoError(t, os.Symlink(s.DataDir, link))
	for _, root := range []string{s.DataDir, filepath.Join(s.DataDir, "workspaces"), filepath.Join(s.DataDir, "workspaces", ws, "repo.git"), link,
		filepath.Join(link, "tasks"), "/proc", "/proc/self", "/sys", "/dev", "/dev/shm"} {
		if _, err := os.Stat(root); err != nil {
			continue
		}
		refused := func(r *harness.Response) {
			t.Helper()
			if r.Status != 403 && r.Status != 400 {
				t.Errorf("%s: %d %s", root, r.Status, r.Body)
			}
		}
		refused(s.Do("POST", "/tasks", map[string]any{"goal": "g", "workspace": root}))
		refused(s.Do("POST", "/tasks", map[string]any{"goal": "g", "workspace": root, "force": true}))
		refused(s.Do("POST", "/toolsets", mountsBody(physical("/p", "READ_WRITE", root))))
		refused(s.Do("POST", "/api/sessions", map[string]any{"workspacePath": root, "root": root, "path": root}))
		refused(s.Do("PATCH", "/workspaces/"+ws, map[string]any{"root": root}))
	}
	if got := s.Do("GET", "/workspaces/"+ws, nil).Expect(200).Text("root"); got != dir {
		t.Errorf("the workspace was bound to %s", got)
	}
	s.Stop()
	if harness.Nodes() > 0 {
		return // a node's data directory is refused before that
	}
	cmd := harness.Command(t, nil, "serve", "--data-dir", s.DataDir, "--listen", "127.0.0.1:0", s.DataDir)
	if out, err := cmd.CombinedOutput(); err == nil || cmd.ProcessState.ExitCode() != 2 || !strings.Contains(string(out), "cannot be a workspace") {
		t.Errorf("serve DIR: %v, %s", err, out)
	}
}

// A bind mount shows the data directory at another path.
func TestBindMountsOfTheDataDirectory(t *testing.T) {
	t.Parallel()
	need.Root(t)
	s := harness.Start(t, harness.Options{})
	dir := folder(t, map[string]string{"a": "x", "inner/keep": "", "deep/keep": "", "up/keep": ""})
	s.Do("POST", "/tasks", map[string]any{"goal": "g", "workspace": folder(t, map[string]string{"b": "y"})}).Expect(201)
	elsewhere := t.TempDir()
	bind(t, s.DataDir, elsewhere)
	bind(t, s.DataDir, filepath.Join(dir, "inner"))
	bind(t, filepath.Join(s.DataDir, "workspaces"), filepath.Join(dir, "deep"))
	for _, root := range []string{elsewhere, filepath.Join(elsewhere, "workspaces"), filepath.Join(dir, "deep")} {
		s.Do("POST", "/tasks", map[string]any{"goal": "g", "workspace": root, "force": true}).ExpectError(403, "workspace_not_allowed")
	}
	// A workspace around it leaves it out.
	made := s.Do("POST", "/tasks", map[string]any{"goal": "g", "workspace": dir}).Expect(201)
	task, ws := made.Text("task_id"), made.Text("workspace_id")
	for _, path := range []string{"inner/owner", "inner/lock", "deep/" + ws + "/repo.git/config"} {
		for _, r := range []*harness.Response{
			s.Do("GET", "/tasks/"+task+"/content?path="+path, nil),
			s.Do("PUT", "/tasks/"+task+"/content?path="+path, []byte("x")),
			s.Do("DELETE", "/tasks/"+task+"/content?path="+path, nil),
		} {
			if r.Status < 400 || r.Status >= 500 {
				t.Errorf("%s: %d %s", path, r.Status, r.Body)
			}
		}
	}
	s.Do("POST", "/workspaces/"+ws+"/sync", map[string]any{}).Expect(200)
	files := harness.Git(t, filepath.Join(s.DataDir, "workspaces", ws, "repo.git"), "ls-tree", "-r", "--name-only", "refs/umbra/head")
	if strings.Contains(files, "inner/") || strings.Contains(files, "deep/") || !strings.Contains(files, "a\n") {
		t.Errorf("recorded: %s", files)
	}
}

// A directory that was put in a workspace's place is taken only by who might have
// opened it.
func TestAdoptAsksTheRoots(t *testing.T) {
	t.Parallel()
	root, private := t.TempDir(), folder(t, map[string]string{"key": "SECRET"})
	w := filepath.Join(root, "w")
	need.NoError(t, os.Mkdir(w, 0o755))
	s := harness.Start(t, harness.Options{Config: fmt.Sprintf("auth: {tokens: [{name: alice, scope: write, roots: [%s], sha256: '%x'}]}\n", root, sha256.Sum256([]byte("alice")))})
	auth := "Authorization: Bearer alice"
	made := s.Do("POST", "/tasks", map[string]any{"goal": "g", "workspace": w}, auth).Expect(201)
	ws := made.Text("workspace_id")
	need.NoError(t, os.Remove(w))
	need.NoError(t, os.Symlink(private, w))
	s.Do("POST", "/workspaces/"+ws+"/sync", map[string]any{"adopt": true}, auth).ExpectError(403, "workspace_not_allowed")
	if r := s.Do("GET", "/tasks/"+made.Text("task_id")+"/content?path=key", nil, auth); strings.Contains(string(r.Body), "SECRET") {
		t.Error("a file outside the token's roots was read")
	}
}
