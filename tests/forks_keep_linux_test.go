package tests

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"umbra/internal/need"
	"umbra/tests/harness"
)

// A copy has the times, bits and attributes of the parent's files and directories, so that
// build tools do nothing again; holes stay holes. FIFOs and sockets are left out, and each
// name of a file with several is a file. What is not the parent's content has its own time.
func TestForkCopyKeeps(t *testing.T) {
	p := newProject(t, map[string]string{"a": "one\n", "d/run": "#!/bin/sh\n", "changed": "1\n", ".gitignore": "out/\n"})
	p.shell(t, "mkdir -p out/deep; echo big > out/big; ln out/big out/hard; mkfifo out/pipe; truncate -s 64M out/sparse; ln -s big out/link")
	l, err := net.Listen("unix", filepath.Join(p.dir, "out", "sock"))
	need.NoError(t, err)
	defer l.Close()
	attributes := true
	for _, name := range []string{"a", "out/big"} {
		attributes = unix.Setxattr(filepath.Join(p.dir, name), "user.umbra-test", []byte("kept"), 0) == nil && attributes
	}
	const old = "touch -d '2001-02-03 04:05:06.789' a d/run changed out/big out/sparse; chmod 600 a; chmod 711 d/run; chmod 640 out/big; chmod 750 out d; touch -d '2002-02-03' out/deep out d"
	p.shell(t, old)
	task := p.task(t)
	ws := "/workspaces/" + task.str("workspace_id")
	at := p.call(t, "GET", ws, nil).want(t, 200).str(t, "head")
	p.shell(t, "echo 2 > changed; touch -d '2001-02-03 04:05:06.789' changed")
	const list = `find . -name .git -prune -o \( -type f -o -type d \) ! -name changed -printf '%p %y %m %s %T@\n' | grep -v '^\. ' | LC_ALL=C sort; stat -c %a .`
	want := sh(t, p.dir, list)
	for _, x := range []struct{ at, text string }{{"", "2\n"}, {at, "1\n"}} {
		dir := filepath.Join(t.TempDir(), "fork")
		p.forks(t, ws, map[string]any{"kind": "copy", "path": dir, "at": x.at})
		if got := sh(t, dir, list); got != want {
			t.Errorf("the fork has\n%s\nnot\n%s", got, want)
		}
		if got := sh(t, dir, "cat changed"); got != x.text {
			t.Errorf("the changed file is %q", got)
		}
		if now := strings.HasPrefix(sh(t, dir, "stat -c %y changed"), "2001"); now != (x.at == "") {
			t.Errorf("at %q the changed file has the parent's time: %v", x.at, now)
		}
		if got := sh(t, dir, "cat out/hard; readlink out/link; stat -c %h out/hard; test ! -e out/pipe; test ! -e out/sock"); got != "big\nbig\n1\n" {
			t.Errorf("the fork has %q", got)
		}
		if got := sh(t, dir, "test $(stat -c %b out/sparse) -lt 2048; stat -c %s out/sparse"); got != "67108864\n" {
			t.Errorf("the file with holes has %s bytes", got)
		}
		for _, name := range []string{"a", "out/big"} {
			value := make([]byte, 10)
			if n, err := unix.Getxattr(filepath.Join(dir, name), "user.umbra-test", value); attributes && (err != nil || string(value[:n]) != "kept") {
				t.Errorf("%s has the attribute %q, %v", name, value[:max(n, 0)], err)
			}
		}
	}
}

// A fork takes no room below limits.free_bytes: nothing is left of one that would.
func TestForkRoom(t *testing.T) {
	p := newProject(t, map[string]string{"a": "one\n", ".gitignore": "out/\n"})
	p.shell(t, "mkdir out; echo big > out/big")
	ws := "/workspaces/" + p.task(t).str("workspace_id")
	p.Stop()
	p.Server = harness.Start(t, harness.Options{DataDir: p.DataDir, Config: "limits: {free_bytes: 1000000000000000000}\n"})
	dir := filepath.Join(t.TempDir(), "fork")
	for _, body := range []map[string]any{{"kind": "copy", "path": dir}, {"kind": "layer", "ignored": "copy"}} {
		if a := p.post(t, ws+"/forks", body); body["kind"] == "copy" || a.Status != 422 { // else it has no layers
			a.fails(t, 507, "insufficient_storage")
		}
	}
	if _, err := os.Lstat(dir); err == nil {
		t.Error("the directory of the fork is there")
	}
	if list := p.call(t, "GET", ws+"/forks", nil).want(t, 200).list(t, "forks"); len(list) > 0 {
		t.Errorf("the forks are %v", list)
	}
}
