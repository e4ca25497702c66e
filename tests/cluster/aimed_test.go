package cluster

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"umbra/internal/cluster/clustertest"
	"umbra/internal/need"
)

// aimed are faults in which a program that leaves a part of the protocol out does harm,
// and the mutants of internal/cluster that they are there for.
var aimed = []struct {
	name    string
	run     func(w *world)
	mutants []string
	patient bool // writes wait for long
	quiet   bool // there are no other writers
}{
	{"an append arrives after another node took over and sealed", lateSealed, []string{"no-epoch", "position-only"}, true, false},
	{"a beat arrives after another node took over", lateBeat, []string{"revive-beat"}, false, true},
	{"an owner that was paused is asked", pausedAsked, []string{"no-lease"}, false, false},
	{"the standby is away for longer than a write waits", standbyGone, []string{"cancel-append"}, false, false},
	{"a standby that was away takes over", standbyTakesOver, []string{"ack-unknown"}, false, false},
	{"a primary crashes alone, and its standby takes over", crashAlone, []string{"resolve-by-read"}, false, false},
}

// owner returns the node that owns a workspace by the engine's rows.
func (w *world) owner(at int) *member {
	name := w.pair.A.SQL("SELECT n.name FROM workspace w JOIN node n ON n.life = w.owner AND n.state <> 'dead' WHERE w.id = '" + w.spaces[at].id + "'")
	for _, m := range w.members {
		if m.name == name {
			return m
		}
	}
	return nil
}

// awaitOther waits until another node than m owns a workspace, and returns it.
func (w *world) awaitOther(at int, m *member) (other *member) {
	w.t.Helper()
	if err := clustertest.Await(30*time.Second, func() (bool, error) {
		for _, x := range w.members {
			if x != m {
				w.ask(x, "GET", "/tasks/"+w.spaces[at].task+"/content?path=k0", "")
			}
		}
		other = w.owner(at)
		return other != nil && other != m, nil
	}); err != nil {
		w.t.Fatalf("no other node than %s took over", m.name)
	}
	return other
}

// contend writes to a workspace by a node, and has clients write and read at another at
// the same time, until end.
func (w *world) contend(m *member, at int) (end func()) {
	stop := make(chan struct{})
	var busy sync.WaitGroup
	for c := range 8 {
		busy.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-stop:
					return
				case <-time.After(20 * time.Millisecond):
				}
				w.writeAt(m, 100+c, at, "k0", fmt.Sprintf("aimed-%d-%d-%d\n", time.Since(w.start), c, i), "")
			}
		})
	}
	return func() { close(stop); busy.Wait() }
}

// asked has clients read at a node, where they may get what another has changed.
func (w *world) asked(m *member, at int) {
	var all sync.WaitGroup
	for c := range 6 {
		all.Go(func() {
			for range 5 {
				w.readAt(m, 200+c, at, "k0")
			}
		})
	}
	all.Wait()
}

// lateBeat holds what the owner sends to the engine until another node owns the
// workspace, and asks it what that one writes since.
func lateBeat(w *world) {
	m := w.ownerOf(0)
	hold(m.engines, clustertest.There)
	other := w.awaitOther(0, m)
	release(m.engines)
	for i := range 40 {
		w.writeAt(other, 300, 0, "k0", fmt.Sprintf("other-%d-%d\n", time.Since(w.start), i), "")
		w.asked(m, 0)
		<-time.After(lease / 40)
	}
}

// lateSealed holds what the owner sends to the engine until another node owns the
// workspace, and has put the log into the store.
func lateSealed(w *world) {
	m := w.ownerOf(0)
	end := w.contend(m, 0)
	<-time.After(50 * time.Millisecond)
	hold(m.engines, clustertest.There)
	other := w.awaitOther(0, m)
	// A node that stops seals what it releases.
	other.setPaused(true)
	other.server.Stop()
	release(m.engines)
	end()
	other.restart()
}

// pausedAsked asks a node that was paused what another has changed since.
func pausedAsked(w *world) {
	m := w.ownerOf(0)
	w.asked(m, 0) // connections that are kept alive
	w.signal(m, syscall.SIGSTOP)
	other := w.awaitOther(0, m)
	w.writeAt(other, 300, 0, "k0", fmt.Sprintf("other-%d\n", time.Since(w.start)), "")
	time.AfterFunc(200*time.Millisecond, func() { w.signal(m, syscall.SIGCONT) })
	w.asked(m, 0)
}

func standbyGone(w *world) {
	w.pair.B.Stop()
	<-time.After(wait + lease)
	w.pair.B.Start()
	w.pair.A.AwaitStandby()
}

func standbyTakesOver(w *world) {
	w.pair.B.Stop()
	<-time.After(wait + lease)
	w.replaceA()
}

func crashAlone(w *world) {
	w.pair.B.Stop()
	<-time.After(lease / 2)
	w.pair.A.Kill()
	w.pair.A.Start()
	<-time.After(2 * lease)
	w.replaceA()
}

// replaceA has the standby, which does not run, take over from the primary. The nodes
// are lost with that one: they cannot put back what they have.
func (w *world) replaceA() {
	for _, m := range w.members {
		w.kill(m)
	}
	defer func() {
		for _, m := range w.members {
			m.restart()
		}
	}()
	w.pair.A.Kill()
	w.pair.B.Start()
	w.pair.B.Promote()
	w.pair.A.Follow(w.pair.B)
	w.pair.A, w.pair.B = w.pair.B, w.pair.A
}

// ownerOf returns the node that owns a workspace, which is claimed if need be.
func (w *world) ownerOf(at int) (m *member) {
	w.t.Helper()
	if err := clustertest.Await(20*time.Second, func() (bool, error) {
		w.ask(w.any(), "GET", "/tasks/"+w.spaces[at].task, "")
		m = w.owner(at)
		return m != nil, nil
	}); err != nil {
		w.t.Fatalf("workspace %d has no owner", at)
	}
	return m
}

// TestAimed has each of the aimed faults happen to three nodes with clients.
func TestAimed(t *testing.T) {
	need.Soak(t, "it starts three nodes and an engine for each fault")
	for _, a := range aimed {
		t.Run(a.name, func(t *testing.T) {
			defer func(d time.Duration) { wait = d }(wait)
			if a.patient {
				wait *= 4
			}
			w := newWorld(t, 2)
			writers := 4
			if a.quiet {
				writers = 0
			}
			settle := w.run(writers)
			for i := range 2 {
				w.writeAt(w.members[i], 300, i, "k0", fmt.Sprintf("first-%d\n", i), "")
			}
			w.await(2 + 5*writers)
			for range 2 {
				a.run(w)
				w.recovered(a.name)
			}
			settle()
		})
	}
}

// TestMutants runs the aimed faults against programs that leave a part of the protocol
// out: a mutant that passes three times is one that no fault finds.
func TestMutants(t *testing.T) {
	need.Soak(t, "it builds the program again, and starts three nodes for each mutant")
	program := filepath.Join(t.TempDir(), "umbra")
	if out, err := exec.Command("go", "build", "-tags", "nomsgpack,mutants", "-o", program, "umbra/cmd/umbra").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	self, err := os.Executable()
	need.NoError(t, err)
	for _, a := range aimed {
		for _, mutant := range a.mutants {
			t.Run(mutant, func(t *testing.T) {
				run := "^TestAimed$/^" + strings.ReplaceAll(a.name, " ", "_") + "$"
				var out []byte
				for range 3 {
					cmd := exec.Command(self, "-test.run", run, "-test.v")
					cmd.Env = append(os.Environ(), "UMBRA_MUTANT="+mutant, "UMBRA_BIN="+program)
					if out, err = cmd.CombinedOutput(); err != nil {
						break
					}
				}
				if err == nil {
					t.Errorf("it passes %q", a.name)
				} else if !strings.Contains(string(out), "--- FAIL: TestAimed/") {
					t.Errorf("it does not come to %q:\n%s", a.name, out)
				}
				t.Logf("%s", found(string(out)))
			})
		}
	}
}

// found are the lines of a test's output that say what went wrong.
func found(out string) string {
	var list []string
	for line := range strings.Lines(out) {
		if strings.Contains(line, "_test.go:") && len(list) < 5 {
			list = append(list, line)
		}
	}
	return strings.Join(list, "")
}
