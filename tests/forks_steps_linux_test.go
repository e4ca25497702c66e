package tests

import (
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"umbra/internal/need"
)

// diskCalls are the system's calls that change a name or a mount, or wait for the disk.
var diskCalls = []string{"mkdirat", "unlinkat", "renameat", "linkat", "symlinkat", "mount", "umount2", "fsync", "fdatasync", "syncfs"}

// killedAt has the server killed as one of its threads makes its n-th call of a kind, from
// now on. Until that, end has it go on.
func killedAt(t *testing.T, p *project, call string, n int) (end func()) {
	t.Helper()
	cmd := exec.Command("strace", "-f", "-q", "-o", "/dev/null", "-p", fmt.Sprint(p.PID()), "-e", "trace="+call, "-e", fmt.Sprintf("inject=%s:signal=SIGKILL:when=%d", call, n))
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	need.NoError(t, cmd.Start())
	ended := make(chan struct{})
	go func() { defer close(ended); _ = cmd.Wait() }()
	traced := func() bool {
		raw, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.PID()))
		return !strings.Contains(string(raw), "\nTracerPid:\t0\n")
	}
	eventually(t, func() bool {
		select {
		case <-ended:
			return true
		default:
			return traced()
		}
	})
	select {
	case <-ended:
		gone := false // killed already, by what it does by itself
		for range 100 {
			if gone = syscall.Kill(p.PID(), 0) != nil; gone {
				break
			}
			<-time.After(10 * time.Millisecond)
		}
		if !gone {
			need.Missing(t, "strace may not trace here")
		}
	default:
	}
	return func() {
		_ = cmd.Process.Kill() // asked to end it may wait for a thread that has ended
		<-ended
	}
}

// A server that is killed at a call that changes the disk while a fork with a directory is made or
// deleted leaves the fork whole or nothing of it, and the parent as it was.
func TestForkKilledAtCalls(t *testing.T) {
	need.Long(t, "a start of the server for each step")
	need.Tool(t, "strace")
	soak := os.Getenv("UMBRA_SOAK") != ""
	for _, kind := range []string{"copy", "layer"} {
		for _, deleted := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s,deleted=%v", kind, deleted), func(t *testing.T) {
				k := &forkSteps{t: t, kind: kind, deleted: deleted, p: newProject(t, map[string]string{"a": "one\n", "d/x": "x\n", ".gitignore": "out/\n"})}
				k.p.shell(t, "mkdir -p out/deep; echo big > out/big; echo z > out/deep/z")
				k.ws = "/workspaces/" + k.p.task(t).str("workspace_id")
				if kind == "layer" {
					first := filepath.Join(t.TempDir(), "first")
					k.p.call(t, "DELETE", "/workspaces/"+mountedFork(t, k.p, k.ws, first, nil), nil).want(t, 204)
				}
				kills := 0
				calls, first, most := slices.Clone(diskCalls), 1, 40
				if !soak { // one moment of three calls
					first = 1 + rand.IntN(6)
					rand.Shuffle(len(calls), func(i, j int) { calls[i], calls[j] = calls[j], calls[i] })
					calls, most = calls[:3], first
				}
				for _, call := range calls {
					for n, answered := first, 0; answered < 2 && n <= most && !t.Failed(); n++ {
						if k.killed(call, n) {
							answered++
						} else {
							kills++
						}
					}
				}
				t.Logf("%d kills", kills)
			})
		}
	}
}

type forkSteps struct {
	t       *testing.T
	p       *project
	ws      string
	kind    string
	deleted bool
	round   int
}

const forkStepFiles = `find . -name .git -prune -o -print | LC_ALL=C sort; cat a d/x out/big out/deep/z`

// killed does it once. It reports whether the request was answered before the n-th call.
func (k *forkSteps) killed(call string, nth int) (answered bool) {
	t, p := k.t, k.p
	n := fmt.Sprint(call, " ", nth)
	k.round++
	want := sh(t, p.dir, forkStepFiles)
	dir := filepath.Join(t.TempDir(), fmt.Sprint("fork", k.round))
	t.Cleanup(func() { _ = syscall.Unmount(dir, syscall.MNT_DETACH) })
	body := map[string]any{"kind": k.kind, "path": dir}
	method, target, request := "POST", k.ws+"/forks", fmt.Sprintf(`{"kind":%q,"path":%q}`, k.kind, dir)
	id := ""
	if k.deleted {
		id = p.forks(t, k.ws, body)[0]["id"].(string)
		method, target, request = "DELETE", "/workspaces/"+id+"?force=true", ""
	}
	end := killedAt(t, p, call, nth)
	req, err := http.NewRequest(method, p.URL+target, strings.NewReader(request))
	need.NoError(t, err)
	req.Header.Set("Content-Type", "application/json")
	if res, err := http.DefaultClient.Do(req); err == nil {
		_, err = io.Copy(io.Discard, res.Body)
		answered = err == nil && res.StatusCode/100 == 2
		if err == nil && !answered {
			t.Errorf("%s: the answer is %d", n, res.StatusCode)
		}
		res.Body.Close()
	}
	end()
	_ = syscall.Kill(p.PID(), syscall.SIGKILL) // if it was answered before
	p.Wait()
	p.Restart()
	forks := p.call(t, "GET", k.ws+"/forks", nil).want(t, 200).list(t, "forks")
	switch {
	case len(forks) > 1 || len(forks) == 0 && answered && !k.deleted || len(forks) == 1 && answered && k.deleted:
		t.Errorf("%s: answered %v, and the forks are %v", n, answered, forks)
	case len(forks) == 1:
		id = forks[0]["id"].(string)
		fork := "/workspaces/" + id
		p.post(t, fork+"/sync", map[string]any{}).want(t, 200)
		if got := sh(t, dir, forkStepFiles); got != want {
			t.Errorf("%s: the fork has\n%s\nnot\n%s", n, got, want)
		}
		if log := p.log(t, id); len(log) != 0 {
			t.Errorf("%s: the fork's history has %+v", n, log)
		}
		p.call(t, "DELETE", fork+"?force=true", nil).want(t, 204)
	}
	if list, err := os.ReadDir(filepath.Dir(dir)); err != nil || len(list) > 0 {
		t.Errorf("%s: left at the path is %v, %v", n, list, err)
	}
	parent := strings.TrimPrefix(k.ws, "/workspaces/")
	if left := sh(t, p.DataDir, "ls workspaces layers; ls below 2>/dev/null || true"); strings.Join(strings.Fields(left), " ") != "layers: workspaces: "+parent {
		t.Errorf("%s: left in the data directory is %s", n, left)
	}
	if got := sh(t, p.dir, forkStepFiles); got != want {
		t.Errorf("%s: the parent has\n%s\nnot\n%s", n, got, want)
	}
	return answered
}

// A server that is killed at a call that changes the disk while it deletes a workspace by
// force loses nothing that layers show of it: its ignored files are copied for them, or it is
// still there, and goes when it is deleted again.
func TestForkParentDeletionKilledAtCalls(t *testing.T) {
	need.Long(t, "a start of the server for each step")
	need.Tool(t, "strace")
	soak := os.Getenv("UMBRA_SOAK") != ""
	p := newProject(t, map[string]string{"a": "one\n", "d/x": "x\n", ".gitignore": "out/\n"})
	p.shell(t, "mkdir -p out/deep; echo big > out/big; for i in 1 2 3 4 5; do echo $i > out/deep/$i; done; ln -s big out/link")
	first := p.task(t).str("workspace_id")
	const list = `find . -name .git -prune -o -printf '%p %y %m %l\n' | LC_ALL=C sort; cat a d/x own out/big out/deep/*`
	round, kills := 0, 0
	for _, call := range append([]string{"mknodat", "fchmodat", "utimensat"}, diskCalls...) {
		if !soak && rand.IntN(4) > 0 {
			continue
		}
		for n, answered := 1, 0; answered < 2 && n <= 60 && !t.Failed(); n++ {
			if !soak {
				n += rand.IntN(10)
			}
			round++
			at := fmt.Sprint(call, " ", n)
			below := filepath.Join(t.TempDir(), fmt.Sprint("copy", round))
			of := p.forks(t, "/workspaces/"+first, map[string]any{"kind": "copy", "path": below})[0]["id"].(string)
			ids := []string{layerFork(t, p, "/workspaces/"+of, nil), layerFork(t, p, "/workspaces/"+of, nil)}
			var want []string
			for i, id := range ids {
				p.in(t, id, fmt.Sprintf("echo %d > own; rm out/deep/%d", i, i+1))
				want = append(want, p.in(t, id, list))
			}
			sh(t, below, "echo later > d/x; rm a")
			end := killedAt(t, p, call, n)
			done := false
			req, err := http.NewRequest("DELETE", p.URL+"/workspaces/"+of+"?force=true", nil)
			need.NoError(t, err)
			if res, err := http.DefaultClient.Do(req); err == nil {
				if done = res.StatusCode == 204; !done {
					t.Errorf("%s: the answer is %d", at, res.StatusCode)
				}
				res.Body.Close()
			}
			end()
			if done {
				answered++
			} else {
				kills++
			}
			_ = syscall.Kill(p.PID(), syscall.SIGKILL) // if it was answered before
			p.Wait()
			p.Restart()
			check := func(why string) {
				t.Helper()
				for i, id := range ids {
					if got := p.in(t, id, list); got != want[i] {
						t.Errorf("%s, %s: the fork showed\n%s\nand shows\n%s", at, why, want[i], got)
					}
				}
			}
			check("killed")
			if a := p.call(t, "DELETE", "/workspaces/"+of+"?force=true", nil); a.Status != 404 && (done || a.Status != 204) {
				t.Errorf("%s: deleted again: %d %s", at, a.Status, a.Body)
			}
			check("deleted")
			if _, err := os.Lstat(below); err == nil {
				t.Errorf("%s: the copy's directory is there", at)
			}
			for _, id := range ids {
				p.call(t, "DELETE", "/workspaces/"+id+"?force=true", nil).want(t, 204)
			}
			if left := sh(t, p.DataDir, "ls workspaces layers; ls below"); strings.Join(strings.Fields(left), " ") != "layers: workspaces: "+first {
				t.Errorf("%s: left in the data directory is %s", at, left)
			}
		}
	}
	t.Logf("%d kills", kills)
}
