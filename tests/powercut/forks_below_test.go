//go:build linux

package powercut

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"umbra/internal/need"
	"umbra/tests/harness"
)

func TestForkParentDeletionKilledAtEachStep(t *testing.T) {
	need.Root(t)
	stopDeletion(t, &disk{t: t, mount: t.TempDir(), killOnly: true})
}
func TestForkParentDeletionAtEachStepExt4(t *testing.T) { stopDeletion(t, newDisk(t, "ext4")) }
func TestForkParentDeletionAtEachStepXFS(t *testing.T)  { stopDeletion(t, newDisk(t, "xfs")) }

// stopDeletion deletes, again and again, a workspace with force whose directory three layers
// show, and stops the server before each thing that it does to a disk meanwhile, by a kill or
// the power. Two of the layers have no path, so its ignored files are copied for them; the
// third one is mounted and takes over what it shows. No layer loses anything, what was answered
// stays, and where nothing was answered the workspace can be deleted again.
func stopDeletion(t *testing.T, d *disk) {
	need.Long(t, "a stop at each step")
	x := &deletion{t: t, d: d, calls: &stopper{t: t}}
	for _, dir := range []string{"ws", "copies", "layers"} {
		need.NoError(t, os.Mkdir(d.path(dir), 0o755))
	}
	x.write(d.path("ws"), map[string]string{"a": "one\n", "d/x": "x\n", ".gitignore": "out/\n", "out/big": strings.Repeat("big\n", 5000),
		"out/deep/1": "1\n", "out/deep/2": "2\n", "out/deep/3": "3\n"})
	need.NoError(t, os.Symlink("big", d.path("ws", "out", "link")))
	t.Cleanup(func() { unmountWithin(t, d.path("layers")) })
	x.s = harness.Start(t, harness.Options{DataDir: d.path("data"), Config: "limits: {free_bytes: 1}\n", Wrap: x.calls.wrap})
	x.first = x.s.Do("POST", "/tasks", map[string]string{"goal": "g", "workspace": d.path("ws")}).Expect(201).Text("workspace_id")
	eachStep(t, x.round, func() (int, string) { return x.total, x.name })
}

type deletion struct {
	t      *testing.T
	d      *disk
	s      *harness.Server
	calls  *stopper
	first  string // the workspace that stays
	rounds int
	total  int    // steps of a whole deletion
	name   string // of the last step
}

const deletionList = `find . -name .git -prune -o -printf '%p %y %m %l\n' | LC_ALL=C sort; cat a d/x own out/big out/deep/* | sha256sum; cat a d/x own`

// round deletes one copy of the first workspace, stopped before a step; 0: not stopped.
func (x *deletion) round(stop int) (result string) {
	t := x.t
	t.Helper()
	x.rounds++
	below, point := x.d.path("copies", fmt.Sprint(x.rounds)), x.d.path("layers", fmt.Sprint(x.rounds))
	of := x.fork(x.first, map[string]any{"kind": "copy", "path": below})
	plain := []string{x.fork(of, map[string]any{"kind": "layer"}), x.fork(of, map[string]any{"kind": "layer"})}
	mounted := x.fork(of, map[string]any{"kind": "layer", "path": point})
	var want []string
	for i, id := range plain {
		x.in(id, fmt.Sprintf("echo %d > own; rm out/deep/%d", i, i+1))
		want = append(want, x.in(id, deletionList))
	}
	x.shell(point, "echo mounted > own; rm out/deep/3")
	x.shell(below, "echo later > d/x; rm a")
	for _, id := range []string{of, mounted} {
		x.s.Do("POST", "/workspaces/"+id+"/sync", map[string]any{}).Expect(200)
	}
	want = append(want, x.shell(point, deletionList))
	(&stopped{t: t}).sync(x.d.mount)

	x.calls.arm(stop)
	_, _, reached := x.calls.at()
	answer := make(chan int, 1)
	go func() { answer <- x.remove(of) }()
	status := 0
	select {
	case status = <-answer:
		if status != 204 {
			t.Fatalf("status %d\n%s", status, x.s.Log.Tail(20))
		}
	case <-reached:
	}
	count, name, _ := x.calls.at()
	x.name = name
	if stop == 0 {
		x.total = count
	}
	if !x.d.killOnly {
		x.d.cut()
	}
	x.calls.end(x.s.PID())
	x.s.Wait()
	if status == 0 {
		status = <-answer
	}
	if !x.d.killOnly { // no mount outlives the machine
		unmountWithin(t, x.d.path("layers"))
	}
	x.d.reattach()
	x.s.Restart()

	check := func(why string) {
		t.Helper()
		for i, id := range plain {
			if got := x.in(id, deletionList); got != want[i] {
				t.Errorf("%s: the layer showed\n%s\nand shows\n%s", why, want[i], got)
			}
		}
		x.s.Do("POST", "/workspaces/"+mounted+"/sync", map[string]any{}).Expect(200)
		if got := x.shell(point, deletionList); got != want[2] {
			t.Errorf("%s: the mounted layer showed\n%s\nand shows\n%s", why, want[2], got)
		}
	}
	check("stopped")
	switch again := x.remove(of); {
	case again == 404:
		result = "deleted"
	case again == 204 && status != 204:
		result = "not deleted"
	default:
		t.Errorf("the answer was %d, and then %d", status, again)
	}
	check("deleted again")
	if _, err := os.Lstat(below); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the directory of the deleted copy: %v", err)
	}
	for _, id := range append(plain, mounted) {
		x.s.Do("DELETE", "/workspaces/"+id+"?force=true", nil).Expect(204)
	}
	left := x.shell(x.d.path("data"), "ls workspaces layers below; ls ../copies ../layers")
	if got := strings.Join(strings.Fields(left), " "); got != "below: layers: workspaces: "+x.first+" ../copies: ../layers:" {
		t.Errorf("left is %s", got)
	}
	harness.Git(t, x.d.path("data", "workspaces", x.first, "repo.git"), "fsck", "--strict", "--no-dangling")
	return result
}

func (x *deletion) fork(of string, body map[string]any) string {
	x.t.Helper()
	var made struct{ Forks []struct{ ID string } }
	a := x.s.Do("POST", "/workspaces/"+of+"/forks", body)
	if a.Status == 422 && strings.Contains(string(a.Body), "kind_unavailable") {
		need.Missing(x.t, "there are no layers: "+string(a.Body))
	}
	a.Expect(201).JSON(&made)
	return made.Forks[0].ID
}

// remove deletes a workspace with force, and returns the status; 0: there was no answer.
func (x *deletion) remove(id string) int {
	req, err := http.NewRequest("DELETE", x.s.URL+"/workspaces/"+id+"?force=true", nil)
	if err != nil {
		x.t.Error(err)
		return 0
	}
	res, err := x.s.Client.Do(req)
	if err != nil {
		return 0
	}
	res.Body.Close()
	return res.StatusCode
}

// in runs a command in a layer.
func (x *deletion) in(id, command string) string {
	x.t.Helper()
	status, out, said := harness.Run(x.t, nil, "in", "--server", x.s.URL, id, "--", "sh", "-ec", command)
	if status != 0 {
		x.t.Fatalf("in %s: %s: %d %s%s\n%s", id, command, status, out, said, x.s.Log.Tail(20))
	}
	return out
}

func (x *deletion) shell(dir, command string) string {
	x.t.Helper()
	cmd := exec.Command("sh", "-ec", command)
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	if err != nil {
		x.t.Fatalf("%s: %v\n%s", command, err, out)
	}
	return string(out)
}

func (x *deletion) write(dir string, files map[string]string) {
	x.t.Helper()
	for name, text := range files {
		need.NoError(x.t, os.MkdirAll(filepath.Join(dir, filepath.Dir(name)), 0o755))
		need.NoError(x.t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644))
	}
}
