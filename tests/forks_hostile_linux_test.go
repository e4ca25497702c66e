package tests

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"umbra/internal/need"
	"umbra/tests/harness"
)

// A copy is written inside its directory alone, also where its commit has a link at
// which the parent has a directory of ignored files now; and what has the name of a file
// does not hold it up.
func TestForkCopyStaysInside(t *testing.T) {
	need.Tool(t, "mkfifo")
	p := newProject(t, map[string]string{".gitignore": "*.log\n", "a": "a\n"})
	outside, top := t.TempDir(), t.TempDir()
	p.shell(t, "ln -s "+outside+" out; ln -s sub in; mkdir sub; echo sub > sub/s")
	task := p.task(t)
	ws := "/workspaces/" + task.str("workspace_id")
	at := p.call(t, "GET", ws, nil).want(t, 200).obj(t)["head"]
	p.shell(t, "rm out in a; mkdir -p out/deep in; echo x > out/x.log; echo x > out/deep/x.log; echo x > in/x.log; echo x > sub/x.log; mkfifo a")
	p.post(t, ws+"/sync", map[string]any{}).want(t, 200)
	dir := filepath.Join(top, "copy")
	id := p.forks(t, ws, map[string]any{"kind": "copy", "path": dir, "at": at, "ignored": "copy"})[0]["id"].(string)
	if got := sh(t, dir, "readlink out; readlink in; cat a sub/s sub/x.log; ls sub"); got != outside+"\nsub\na\nsub\nx\ns\nx.log\n" {
		t.Errorf("the copy has %s", got)
	}
	p.call(t, "DELETE", "/workspaces/"+id, nil).want(t, 204)
	if list, err := os.ReadDir(outside); err != nil || len(list) > 0 {
		t.Errorf("outside: %v, %v", list, err)
	}
}

// A fork with a file that history cannot have is not deleted without force: the file
// would be lost. One that the parent has too is no reason.
func TestForkUnrecorded(t *testing.T) {
	p := newProject(t, map[string]string{"ws/a": "a\n"})
	p = &project{Server: harness.Start(t, harness.Options{Config: "limits: {capture_bytes: 1000}\n"}), dir: filepath.Join(p.dir, "ws")}
	p.shell(t, "head -c 2000 /dev/zero > parents")
	ws := "/workspaces/" + p.task(t).str("workspace_id")
	for _, kind := range []string{"copy", "layer"} {
		dir := filepath.Join(t.TempDir(), kind)
		r := p.post(t, ws+"/forks", map[string]any{"kind": kind, "path": dir})
		if kind == "layer" && r.Status == 422 {
			t.Logf("no layers at a path here: %s", r.Body)
			continue
		}
		t.Cleanup(func() { _ = syscall.Unmount(dir, syscall.MNT_DETACH) })
		id := "/workspaces/" + r.want(t, 201).list(t, "forks")[0]["id"].(string)
		sh(t, dir, "dd if=/dev/zero of=large bs=3000 count=1 status=none") // at once: an empty one would be recorded
		o := p.call(t, "DELETE", id, nil).fails(t, 409, "unmerged")
		if got := testJSON(o["unrecorded"]); got != `[{"path":"large","reason":"too_large"}]` {
			t.Errorf("%s: %s", kind, got)
		}
		sh(t, dir, "rm large")
		p.call(t, "DELETE", id, nil).want(t, 204)
	}
}

// What is mounted inside a copy's directory is not removed with it.
func TestForkWithAMountInside(t *testing.T) {
	p := newProject(t, map[string]string{"a": "a\n"})
	ws := "/workspaces/" + p.task(t).str("workspace_id")
	dir, outside := filepath.Join(t.TempDir(), "copy"), t.TempDir()
	id := "/workspaces/" + p.forks(t, ws, map[string]any{"kind": "copy", "path": dir})[0]["id"].(string)
	sh(t, dir, "mkdir m; echo precious > "+outside+"/precious")
	at := filepath.Join(dir, "m")
	need.Root(t)
	if err := syscall.Mount(outside, at, "", syscall.MS_BIND, ""); err != nil {
		need.Missing(t, "no bind mounts: "+err.Error())
	}
	defer func() { _ = syscall.Unmount(at, 0) }()
	fork := p.forks(t, id, map[string]any{"kind": "virtual"})[0]
	p.log(t, fork["id"].(string)) // a node of a cluster makes the repository when it opens the fork
	borrows := filepath.Join(fork["git_dir"].(string), "objects/info/alternates")
	p.call(t, "DELETE", id+"?force=true", nil).fails(t, 409, "mounted_inside")
	p.call(t, "GET", id, nil).want(t, 200)
	if _, err := os.Stat(borrows); err != nil {
		t.Error("the fork of what is not deleted has a history of its own now:", err)
	}
	need.NoError(t, syscall.Unmount(at, 0))
	p.call(t, "DELETE", id+"?force=true", nil).want(t, 204)
	if got := sh(t, outside, "cat precious"); got != "precious\n" {
		t.Errorf("it has %q", got)
	}
}
