package tests

import (
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"umbra/internal/need"
)

// A file that has the place of a layer which is not mounted is a user's, and stays when the
// layer is deleted.
func TestForkMountPointReplaced(t *testing.T) {
	p := newProject(t, map[string]string{"a": "one\n"})
	ws := "/workspaces/" + p.task(t).str("workspace_id")
	dir := filepath.Join(t.TempDir(), "fork")
	id := mountedFork(t, p, ws, dir, nil)
	p.Stop()
	need.NoError(t, syscall.Unmount(dir, 0))
	need.NoError(t, os.Remove(dir))
	need.NoError(t, os.WriteFile(dir, []byte("precious\n"), 0o644))
	p.Restart()
	p.call(t, "DELETE", "/workspaces/"+id+"?force=true", nil).want(t, 204)
	if data, err := os.ReadFile(dir); string(data) != "precious\n" {
		t.Errorf("the file at the path has %q, %v", data, err)
	}
}

// What is at the path of a fork that is refused stays, also when the server is killed
// instead of the answer.
func TestForkPathTakenAndKilled(t *testing.T) {
	need.Tool(t, "strace")
	p := newProject(t, map[string]string{"a": "one\n"})
	ws := "/workspaces/" + p.task(t).str("workspace_id")
	top := t.TempDir()
	sh(t, top, "echo precious > file; mkdir empty; ln -s file link")
	for _, name := range []string{"file", "empty", "link"} {
		body, err := json.Marshal(map[string]string{"kind": "copy", "path": filepath.Join(top, name)})
		need.NoError(t, err)
		end := killedAt(t, p, "mkdirat", 1)
		res, err := http.Post(p.URL+ws+"/forks", "application/json", strings.NewReader(string(body)))
		if err == nil {
			if res.Body.Close(); res.StatusCode != 409 {
				t.Errorf("%s: the answer is %d", name, res.StatusCode)
			}
		}
		end()
		_ = syscall.Kill(p.PID(), syscall.SIGKILL) // if it was answered
		p.Wait()
		p.Restart()
	}
	if got := sh(t, top, "ls; cat file; readlink link"); got != "empty\nfile\nlink\nprecious\nfile\n" {
		t.Errorf("there is\n%s", got)
	}
}
