//go:build linux

package powercut

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"umbra/internal/need"
	"umbra/tests/harness"
)

func TestLayersKilledAtEachStep(t *testing.T) {
	need.Root(t)
	stopLayers(t, &disk{t: t, mount: t.TempDir(), killOnly: true})
}
func TestLayersAtEachStepExt4(t *testing.T) { stopLayers(t, newDisk(t, "ext4")) }
func TestLayersAtEachStepXFS(t *testing.T)  { stopLayers(t, newDisk(t, "xfs")) }

// The workspace and the command of stopLayers: files are replaced, made, deleted and
// renamed, one is changed by a person meanwhile, ignored ones too; directories are
// closed by the command (d, n, c/in) and by their owner (c, own, out/shut).
var stoppedFiles = map[string]string{".gitignore": "out/\n*.o\n", "a": "one\n", "both": "base\n", "big.o": "big\n", "k.o": "k\n",
	"d/gone": "x\n", "d/moved": "moved\n", "c/f": "f\n", "c/in/f": "f\n", "own/f": "f\n", "own/f.o": "o\n",
	"out/old": "old\n", "out/keep/f": "f\n", "out/shut/f": "f\n"}

const (
	stoppedCommand = "echo two > a; echo layer > both; rm d/gone; mv d/moved moved; mkdir -p n/m e; echo n > n/m/f; echo o > n/m/f.o; ln -s a l; " +
		"rm k.o; echo more >> big.o; rm -rf out/keep out/old; mkdir -p out/new; echo o > out/new/o; chmod 700 out/shut; echo o > out/shut/o; chmod 0 out/shut; " +
		"chmod 700 own; echo g > own/g; echo o >> own/f.o; chmod 0 own; chmod 700 c c/in; echo n > c/in/n; echo o > c/in/n.o; rm c/f; chmod 0 c/in; chmod 500 c; " +
		"echo n > d/n; chmod 0 d; chmod 0 n/m n"
	stoppedUser = 65534
)

// stopLayers applies one layer again and again, and stops the server before each thing
// that it does to a disk meanwhile, by the kill or the power: all of the layer is there
// then, or nothing. After a kill the layer is kept then, and can be applied. What the
// server changed is closed again as it was.
func stopLayers(t *testing.T, d *disk) {
	need.Long(t, "a kill at each step")
	x := &stopped{t: t, d: d, calls: &stopper{t: t}}
	need.NoError(t, os.MkdirAll(d.path("top"), 0o755))
	x.s = harness.Start(t, harness.Options{DataDir: d.path("top", "data"), User: stoppedUser, Wrap: x.calls.wrap})
	results := eachStep(t, x.round, func() (int, string) { return x.total, x.name })
	if results["applied"] == 0 || results["not applied"] == 0 {
		t.Error("not all happened")
	}
}

type stopped struct {
	t      *testing.T
	d      *disk
	s      *harness.Server
	calls  *stopper
	rounds int
	total  int    // steps of a whole apply
	want   string // what is there after it
	name   string // of the last step
}

func (x *stopped) round(stop int) (result string) {
	t := x.t
	t.Helper()
	x.rounds++
	ws := x.d.path("top", fmt.Sprint("ws", x.rounds))
	for name, text := range stoppedFiles {
		x.ok(os.MkdirAll(filepath.Join(ws, filepath.Dir(name)), 0o755))
		x.ok(os.WriteFile(filepath.Join(ws, name), []byte(text), 0o644))
	}
	x.ok(os.Chmod(ws, 0o755))
	owned(t, ws, stoppedUser)
	for _, name := range []string{"c/in", "own", "out/shut"} {
		x.ok(os.Chmod(filepath.Join(ws, name), 0))
	}
	x.ok(os.Chmod(filepath.Join(ws, "c"), 0o500))
	x.sync(ws)
	id := x.layer(ws)
	x.edit(filepath.Join(ws, "both"), "person\n")
	before := need.Tree(x.t, ws)

	x.calls.arm(stop)
	_, _, reached := x.calls.at()
	answer := make(chan int, 1)
	go func() { answer <- x.apply(id) }()
	status := 0
	select {
	case status = <-answer:
		if status != 200 {
			t.Fatalf("status %d\n%s", status, x.s.Log.Tail(20))
		}
		// It is removed in the background.
		for end := time.Now().Add(20 * time.Second); ; <-time.After(time.Millisecond) {
			if left, err := os.ReadDir(x.d.path("top", "data", "layers")); err == nil && len(left) == 0 || time.Now().After(end) {
				break
			}
			select {
			case <-reached:
			default:
				continue
			}
			break
		}
	case <-reached:
	}
	count, name, _ := x.calls.at()
	x.name = name
	if stop == 0 {
		x.total, x.want = count, need.Tree(x.t, ws)
		if x.want == before {
			t.Fatal("the layer changes nothing")
		}
	}
	if !x.d.killOnly {
		x.d.cut()
	}
	x.calls.end(x.s.PID())
	x.s.Wait()
	if status == 0 {
		status = <-answer
	}
	x.d.reattach()
	x.s.Restart()

	var list struct{ Layers []struct{ Layer string } }
	x.s.Do("GET", "/layers", nil).Expect(200).JSON(&list)
	now := need.Tree(x.t, ws)
	switch {
	case now == x.want && len(list.Layers) == 0:
		result = "applied"
		made := x.s.Do("POST", "/tasks", map[string]string{"goal": "g", "workspace": ws}).Expect(201)
		if n := x.s.Do("POST", "/workspaces/"+made.Text("workspace_id")+"/sync", map[string]any{}).Expect(200).Field("changed"); fmt.Sprint(n) != "0" {
			t.Errorf("%v changes are not recorded", n)
		}
	case now == before && status != 200 && (len(list.Layers) == 1 || !x.d.killOnly):
		result = "not applied"
		for _, l := range list.Layers {
			if !x.d.killOnly { // it may be incomplete
				x.s.Do("DELETE", "/layers/"+l.Layer, nil).Expect(204)
				continue
			}
			if status := x.apply(l.Layer); status != 200 {
				t.Errorf("applied later: status %d", status)
			}
			if now := need.Tree(x.t, ws); now != x.want {
				t.Errorf("applied later:\n%s\nwant\n%s", now, x.want)
			}
		}
	default:
		t.Fatalf("the answer was %d, %d layers are left, and there is\n%s\nbefore\n%s\nwant\n%s", status, len(list.Layers), now, before, x.want)
	}
	return result
}

// layer makes a layer that is not applied: its client is killed.
func (x *stopped) layer(ws string) (id string) {
	t := x.t
	t.Helper()
	cmd := x.s.AsUser("exec", "--server", x.s.URL, "--isolate=require", "--agent=a", "--session=s", "--cwd", ws, "--", "sh", "-ec", "umask 022; "+stoppedCommand+"; echo done; exec sleep 600")
	cmd.Dir = ws
	var errOut strings.Builder
	cmd.Stderr = &errOut
	out, err := cmd.StdoutPipe()
	x.ok(err)
	x.ok(cmd.Start())
	if _, err := out.Read(make([]byte, 1)); err != nil {
		_ = cmd.Wait()
		if strings.Contains(errOut.String(), "no layer") {
			need.Missing(t, errOut.String())
		}
		t.Fatal(err, errOut.String())
	}
	x.ok(cmd.Process.Kill())
	_ = cmd.Wait()
	var list struct {
		Layers []struct {
			Layer   string
			Running bool
		}
	}
	for end := time.Now().Add(20 * time.Second); ; <-time.After(time.Millisecond) {
		x.s.Do("GET", "/layers", nil).Expect(200).JSON(&list)
		if len(list.Layers) == 1 && !list.Layers[0].Running {
			return list.Layers[0].Layer
		}
		if time.Now().After(end) {
			t.Fatalf("%+v", list)
		}
	}
}

// apply returns the answer's status, 0 if there is none.
func (x *stopped) apply(id string) int {
	res, err := x.s.Client.Post(x.s.URL+"/layers/"+id+"/apply", "application/json", strings.NewReader("{}"))
	if err != nil {
		return 0
	}
	res.Body.Close()
	return res.StatusCode
}

// edit is a person's, and durable.
func (x *stopped) edit(name, text string) {
	x.t.Helper()
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_TRUNC, 0)
	x.ok(err)
	_, err = f.WriteString(text)
	x.ok(err)
	x.ok(f.Sync())
	x.ok(f.Close())
}

func (x *stopped) sync(dir string) {
	x.t.Helper()
	f, err := os.Open(dir)
	x.ok(err)
	x.ok(unix.Syncfs(int(f.Fd())))
	x.ok(f.Close())
}

func (x *stopped) ok(err error) {
	x.t.Helper()
	if err != nil {
		x.t.Fatal(err)
	}
}
