package tests

import (
	"fmt"
	"math/rand"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"umbra/internal/need"
	"umbra/tests/harness"
)

// noise is content that does not get smaller when it is packed.
func noise(n int, seed int64) string {
	b := make([]byte, n)
	rand.New(rand.NewSource(seed)).Read(b)
	return string(b)
}

func (k *taskOf) state(t *testing.T) string {
	t.Helper()
	return k.p.call(t, "GET", "/workspaces/"+k.str("workspace_id"), nil).want(t, 200).str(t, "state")
}

// full is a workspace in which nothing new may be written, for the reason of a
// code.
func full(t *testing.T, k *taskOf, code string) {
	t.Helper()
	p := k.p
	head := k.git(t, "rev-parse", "refs/umbra/head")
	k.put(t, "new", noise(100, 9)).fails(t, 507, code)
	k.put(t, "kept", noise(100, 9)).fails(t, 507, code)
	k.put(t, "huge", noise(5<<20, 9)).fails(t, 507, code)
	p.post(t, k.url("/batch"), map[string]any{"operations": []any{
		map[string]any{"op": "delete", "path": "kept"}, map[string]any{"op": "write", "path": "half", "content": noise(100, 9)}}}).fails(t, 507, code)
	s := p.session(t)
	p.post(t, s.fs("write"), map[string]any{"path": "by-session", "content": "new"}).want(t, 507)
	if after := k.git(t, "rev-parse", "refs/umbra/head"); after != head {
		t.Error("a refused write made a commit")
	}
	for _, name := range []string{"new", "huge", "half", "by-session"} {
		p.absent(t, name)
	}
	if left, _ := filepath.Glob(filepath.Join(p.dir, ".umbra-*")); len(left) > 0 {
		t.Errorf("left behind: %q", left)
	}

	// What needs no new bytes goes on.
	was := p.read(t, "kept")
	p.call(t, "GET", k.file("kept"), nil).want(t, 200)
	p.post(t, k.url("/move"), map[string]any{"from": "kept", "to": "moved"}).want(t, 200)
	p.call(t, "DELETE", k.file("moved"), nil).want(t, 200)
	entries := k.changes(t, "")
	n := fmt.Sprint(entries[len(entries)-1]["id"])
	p.post(t, k.url("/changes/"+n+"/revert"), map[string]any{}).want(t, 200)
	if p.read(t, "moved") != was {
		t.Error("the revert of a delete gave other bytes")
	}
	p.post(t, k.url("/move"), map[string]any{"from": "moved", "to": "kept"}).want(t, 200)
	k.fsck(t)
}

// TestWorkspaceFull writes until the history of a workspace has the size that it
// may have.
func TestWorkspaceFull(t *testing.T) {
	p := &project{Server: harness.Start(t, harness.Options{Config: "limits: {workspace_bytes: 400KiB}\n"}), dir: t.TempDir()}
	p.fill(t, map[string]string{"first": "first\n"})
	k := p.task(t)
	k.put(t, "kept", noise(50<<10, 1)).want(t, 201)
	written := 0
	for i := 0; ; i++ {
		r := k.put(t, fmt.Sprintf("f%d", i), noise(20<<10, int64(i+10)))
		if r.Status == 507 {
			r.fails(t, 507, "quota_exceeded")
			break
		}
		r.want(t, 201)
		if written += 20 << 10; written > 400<<10 {
			t.Fatalf("%d bytes were written", written)
		}
	}
	if written < 250<<10 {
		t.Errorf("refused after %d bytes", written)
	}
	for i := 0; ; i++ { // to the last bytes of it
		if r := k.put(t, fmt.Sprintf("s%d", i), noise(900, int64(i+1000))); r.Status == 507 {
			break
		}
	}
	eventually(t, func() bool { return k.state(t) == "clean" })
	full(t, k, "quota_exceeded")

	// Another workspace is not hurt.
	other := &project{Server: p.Server, dir: t.TempDir()}
	other.task(t).put(t, "a", "a").want(t, 201)

	// A change on disk waits, and is recorded once there is room.
	p.fill(t, map[string]string{"by-hand": noise(1000, 5)})
	eventually(t, func() bool { return k.state(t) == "reconciling" })
	p.post(t, "/workspaces/"+k.str("workspace_id")+"/sync", map[string]any{}).want(t, 507)
	k.p.call(t, "GET", k.url("/diff"), nil).want(t, 200)
	p.Stop()
	more := &project{Server: harness.Start(t, harness.Options{DataDir: p.DataDir}), dir: p.dir}
	k.p = more
	eventually(t, func() bool { return k.state(t) == "clean" })
	if out := k.git(t, "ls-tree", "--name-only", "refs/umbra/head", "by-hand"); strings.TrimSpace(out) != "by-hand" {
		t.Errorf("not recorded: %q", out)
	}
}

// TestDiskFull takes the room from the file system that history is on, and gives
// it back.
func TestDiskFull(t *testing.T) {
	need.Root(t)
	disk := smallDisk(t, "96m")
	p := &project{dir: t.TempDir()}
	p.Server = harness.Start(t, harness.Options{DataDir: filepath.Join(disk, "data"), Config: "limits: {free_bytes: 32MiB}\n"})
	k := p.task(t)
	k.put(t, "kept", noise(50<<10, 1)).want(t, 201)
	p.call(t, "PUT", k.url("/scratch/a"), []byte("a")).want(t, 201)
	p.call(t, "GET", "/readyz", nil).want(t, 200)
	filler := filepath.Join(disk, "filler")
	need.NoError(t, os.WriteFile(filler, make([]byte, 70<<20), 0o600))
	eventually(t, func() bool { return k.put(t, "probe", noise(10, 2)).Status == 507 })
	eventually(t, func() bool { return p.call(t, "GET", "/readyz", nil).Status == 503 })
	full(t, k, "insufficient_storage")
	p.call(t, "PUT", k.url("/scratch/b"), []byte("b")).fails(t, 507, "insufficient_storage")
	if r := p.post(t, "/tasks", map[string]any{"goal": "g", "workspace": t.TempDir()}); r.Status != 507 {
		t.Errorf("a new workspace: %d %s", r.Status, r.Body)
	}
	r := p.call(t, "PUT", "/workspace", map[string]any{"codeId": "c", "code": "export default 1"})
	if r.Status != 500 || !strings.Contains(string(r.Body), "InternalError") {
		t.Errorf("code: %d %s", r.Status, r.Body)
	}

	p.fill(t, map[string]string{"by-hand": noise(1000, 5)})
	eventually(t, func() bool { return k.state(t) == "reconciling" })
	p.restart() // a start does not fail either
	k.p = p
	eventually(t, func() bool { return k.state(t) == "reconciling" })
	p.call(t, "GET", k.file("kept"), nil).want(t, 200)
	need.NoError(t, os.Remove(filler))
	eventually(t, func() bool { return k.state(t) == "clean" })
	if out := k.git(t, "ls-tree", "--name-only", "refs/umbra/head", "by-hand"); strings.TrimSpace(out) != "by-hand" {
		t.Errorf("not recorded: %q", out)
	}
	k.put(t, "after", "after").want(t, 201)
	eventually(t, func() bool { return p.call(t, "GET", "/readyz", nil).Status == 200 })
	k.fsck(t)
}

// TestBaselineAtTheFloor opens a folder that is larger than the room for it. That
// ends with a plain error, before the floor is passed by more than one pack of the
// baseline; what it had made durable by then goes too, and it goes well when there
// is room.
func TestBaselineAtTheFloor(t *testing.T) {
	need.Root(t)
	const (
		floor = 48 << 20
		files = 150 // more than two packs of a baseline
		each  = 1 << 20
	)
	disk := smallDisk(t, "336m")
	filler := filepath.Join(disk, "filler")
	if err := os.WriteFile(filler, make([]byte, 176<<20), 0o600); err != nil { // 160 MiB are left
		t.Fatal(err)
	}
	p := &project{dir: t.TempDir()}
	p.Server = harness.Start(t, harness.Options{DataDir: filepath.Join(disk, "data"), Config: fmt.Sprintf("limits: {free_bytes: %d}\n", floor)})
	for i := range files {
		p.fill(t, map[string]string{fmt.Sprintf("d%d/f%d", i%7, i): noise(each, int64(i))})
	}
	free := func() int64 {
		t.Helper()
		n, err := freeOf(disk)
		need.NoError(t, err)
		return n
	}
	before := free()
	p.post(t, "/tasks", map[string]any{"goal": "g", "workspace": p.dir}).fails(t, 507, "insufficient_storage")
	for _, what := range []string{"workspaces", "tasks"} {
		if list := p.call(t, "GET", "/"+what, nil).want(t, 200).obj(t)[what].([]any); len(list) != 0 {
			t.Errorf("%s: %v", what, list)
		}
	}
	if left, err := os.ReadDir(filepath.Join(p.DataDir, "workspaces")); err != nil && !os.IsNotExist(err) || len(left) > 0 { // another node may have been asked
		t.Errorf("left behind: %v, %v", left, err)
	}
	if took := before - free(); took > 4<<20 {
		t.Errorf("%d bytes are gone", took)
	}
	// What is smaller than the room is taken.
	p.call(t, "GET", "/readyz", nil).want(t, 200)
	other := &project{Server: p.Server, dir: t.TempDir()}
	other.task(t).put(t, "a", "a").want(t, 201)

	need.NoError(t, os.Remove(filler))
	k := p.task(t)
	if got := strings.Count(k.git(t, "ls-tree", "-r", "refs/umbra/head"), "blob"); got != files {
		t.Errorf("%d files are recorded, not %d", got, files)
	}
	k.put(t, "d0/f0", "after").want(t, 200)
	k.fsck(t)
}

// TestStartOnFullDisk kills the server and leaves not one byte of the disk that
// history is on. A start answers reads, refuses writes plainly, and is well when there
// is space, without another start.
func TestStartOnFullDisk(t *testing.T) {
	need.Root(t)
	disk := smallDisk(t, "48m")
	p := &project{dir: t.TempDir()}
	p.Server = harness.Start(t, harness.Options{DataDir: filepath.Join(disk, "data"), Config: "limits: {free_bytes: 1}\n"})
	p.fill(t, map[string]string{"first": "first\n"})
	k := p.task(t)
	for i := range 5 {
		k.put(t, fmt.Sprint("f", i), fmt.Sprint("v", i)).want(t, 201)
	}
	p.Kill()
	filler := filepath.Join(disk, "filler")
	f, err := os.Create(filler)
	need.NoError(t, err)
	for page := make([]byte, 4096); err == nil; {
		_, err = f.Write(page)
	}
	f.Close()
	if free, err := freeOf(disk); free != 0 || err != nil {
		t.Fatalf("%d bytes are free, %v", free, err)
	}
	p.fill(t, map[string]string{"by-hand": "by hand\n"})
	p.Restart()
	for _, target := range []string{k.file("f3"), k.url("/changes"), k.url("/files"), k.url("/diff"), k.url(""), "/workspaces/" + k.str("workspace_id")} {
		p.call(t, "GET", target, nil).want(t, 200)
	}
	if list := p.call(t, "GET", "/tasks", nil).want(t, 200).obj(t)["tasks"].([]any); len(list) != 1 {
		t.Errorf("tasks: %v", list)
	}
	k.put(t, "f9", "v9").fails(t, 507, "insufficient_storage")
	p.post(t, "/workspaces/"+k.str("workspace_id")+"/sync", map[string]any{}).fails(t, 507, "insufficient_storage")
	p.call(t, "GET", "/tasks/none", nil).fails(t, 404, "task_not_found")
	need.NoError(t, os.Remove(filler))
	eventually(t, func() bool { return k.put(t, "f9", "v9").Status == 201 })
	eventually(t, func() bool { return k.state(t) == "clean" })
	if out := strings.Fields(k.git(t, "ls-tree", "--name-only", "refs/umbra/head")); len(out) != 8 {
		t.Errorf("the tip has %v", out)
	}
	k.fsck(t)
	p.Stop()
}
