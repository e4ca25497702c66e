package tests

import (
	"os/exec"
	"path/filepath"
	"testing"
)

// A directory that the parent removes stays in a mounted fork that has files of its own in
// it: they are listed, and no scan takes them for deleted, even while a process uses the
// directory.
func TestForkMountedRemovedBeneath(t *testing.T) {
	p := newProject(t, map[string]string{"e/f/z": "z\n", "e/f/y": "y\n", "d/x": "x\n"})
	ws := "/workspaces/" + p.task(t).str("workspace_id")
	dir := filepath.Join(t.TempDir(), "fork")
	id := mountedFork(t, p, ws, dir, nil)
	fork := "/workspaces/" + id
	sh(t, dir, "echo mine > e/f/z; echo mine > d/x; ls -R")
	p.post(t, fork+"/sync", map[string]any{}).want(t, 200)
	user := exec.Command("sleep", "100")
	user.Dir = filepath.Join(dir, "d")
	if err := user.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = user.Process.Kill()
		_ = user.Wait()
	}()
	log := len(p.log(t, id))
	p.shell(t, "rm -r e d")
	p.post(t, ws+"/sync", map[string]any{}).want(t, 200)
	want := "./e/f/y\n./e/f/z\n"
	eventually(t, func() bool { return sh(t, dir, "find ./e -type f | sort") == want })
	check := func(why string) {
		t.Helper()
		p.post(t, fork+"/sync", map[string]any{}).want(t, 200)
		if got := sh(t, dir, "cat e/f/z e/f/y d/x"); got != "mine\ny\nmine\n" {
			t.Errorf("%s: the fork has %q", why, got)
		}
		if got := len(p.log(t, id)); got != log {
			t.Errorf("%s: the fork's history has %d new commits", why, got-log)
		}
	}
	check("removed")
	p.restart()
	check("restarted")
}
