package cluster

import (
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"umbra/internal/blob/blobtest"
	"umbra/internal/cluster/clustertest"
	"umbra/tests/harness"
)

// faults are what can go wrong, by name. Each ends before it returns.
var faults = map[string]func(w *world, m *member){
	"kill": func(w *world, m *member) {
		w.kill(m)
		pause(1)
		m.restart()
	},
	"stop": func(w *world, m *member) {
		m.setPaused(true)
		m.server.Stop()
		m.restart()
	},
	"kill while it stops": func(w *world, m *member) {
		m.setPaused(true)
		m.server.Signal(syscall.SIGTERM)
		<-time.After(rand.N(400 * time.Millisecond))
		w.kill(m)
		m.restart()
	},
	"kill two": func(w *world, m *member) {
		other := w.after(m)
		w.kill(m)
		w.kill(other)
		pause(1.5)
		m.restart()
		other.restart()
	},
	"pause": func(w *world, m *member) {
		w.signal(m, syscall.SIGSTOP)
		pause(3)
		w.signal(m, syscall.SIGCONT)
	},
	"pause for less than a lease": func(w *world, m *member) {
		w.signal(m, syscall.SIGSTOP)
		pause(0.9)
		w.signal(m, syscall.SIGCONT)
	},
	"pause for four leases": func(w *world, m *member) {
		w.signal(m, syscall.SIGSTOP)
		pause(8)
		w.signal(m, syscall.SIGCONT)
	},
	"its wall clock jumps": func(w *world, m *member) {
		c := harness.NewWallClock(w.t, m.server.PID())
		for _, d := range []time.Duration{time.Hour, -time.Hour, 0} {
			c.Set(d)
			pause(1)
		}
	},
	"no way to the engine": func(_ *world, m *member) {
		hold(m.engines, clustertest.There)
		pause(2)
		release(m.engines)
	},
	"no way back from the engine": func(_ *world, m *member) {
		hold(m.engines, clustertest.Back)
		pause(2)
		release(m.engines)
	},
	"the engine's answers are lost": func(_ *world, m *member) {
		for range 5 {
			for _, l := range m.engines {
				l.CutBeforeAnswer()
			}
			pause(0.2)
		}
	},
	"no way to other nodes": func(_ *world, m *member) {
		hold([]*clustertest.Link{m.front}, clustertest.There)
		pause(2)
		release([]*clustertest.Link{m.front})
	},
	"no way back to other nodes": func(_ *world, m *member) {
		hold([]*clustertest.Link{m.front}, clustertest.Back)
		pause(2)
		release([]*clustertest.Link{m.front})
	},
	"it is cut off": func(_ *world, m *member) {
		links := append([]*clustertest.Link{m.front, m.store}, m.engines...)
		hold(links, clustertest.There)
		hold(links, clustertest.Back)
		pause(3)
		release(links)
	},
	"other nodes' answers are lost": func(_ *world, m *member) {
		for range 5 {
			m.front.CutBeforeAnswer()
			pause(0.2)
		}
	},
	"no way to the store":                          whileStopping(2, func(_ *world, m *member) { m.store.Refuse() }, func(_ *world, m *member) { m.store.Accept() }),
	"the store is slow":                            store(blobtest.Faults{Delay: 3 * time.Second}, 2),
	"the store fails":                              store(blobtest.Faults{Status: http.StatusServiceUnavailable, Code: "SlowDown"}, 2),
	"an object is missing once":                    store(blobtest.Faults{Times: 1, Method: http.MethodGet, Status: http.StatusNotFound, Code: "NoSuchKey"}, 1),
	"the store ignores ranges":                     store(blobtest.Faults{Method: http.MethodGet, Whole: true}, 1),
	"the store does not say that it has an object": store(blobtest.Faults{Method: http.MethodPut, Swallow: true}, 2),
	"bodies hang":                                  store(blobtest.Faults{Method: http.MethodGet, Cut: 7, Hang: true}, 1),
	"the store is slow for long":                   store(blobtest.Faults{Delay: 10 * time.Second}, 8),
	"bodies are cut":                               store(blobtest.Faults{Method: http.MethodGet, Cut: 7}, 1),
	"the standby pauses": func(w *world, _ *member) {
		w.pair.B.Pause()
		pause(1.5)
		w.pair.B.Resume()
	},
	"the standby is cut off": func(w *world, _ *member) {
		hold([]*clustertest.Link{w.pair.Wire}, clustertest.There)
		hold([]*clustertest.Link{w.pair.Wire}, clustertest.Back)
		pause(2)
		release([]*clustertest.Link{w.pair.Wire})
	},
	"no standby is waited for": func(w *world, _ *member) {
		w.pair.A.Set("synchronous_standby_names", "")
		pause(2)
		w.pair.A.Set("synchronous_standby_names", "ANY 1 ("+w.pair.B.Name+")")
	},
	"the engine pauses": func(w *world, _ *member) {
		w.pair.A.Pause()
		pause(2)
		w.pair.A.Resume()
	},
	"the engine restarts": func(w *world, _ *member) {
		w.pair.A.Kill()
		w.pair.A.Start()
		w.pair.A.AwaitStandby()
	},
	"the engine fails over": func(w *world, _ *member) {
		w.pair.A.AwaitStandby()
		w.pair.A.Kill()
		w.pair.B.Promote()
		w.pair.A.Follow(w.pair.B)
		w.pair.A, w.pair.B = w.pair.B, w.pair.A
	},
	// One node goes on with the old primary, the others see the new one alone.
	"the old primary lives on": func(w *world, m *member) {
		w.pair.A.AwaitStandby()
		w.pair.Wire.Refuse()
		for _, x := range w.members {
			if x == m {
				x.engineLink(w.pair.B).Refuse()
			} else {
				x.engineLink(w.pair.A).Hold(clustertest.There)
				x.engineLink(w.pair.A).Hold(clustertest.Back)
			}
		}
		w.pair.B.Promote()
		pause(3)
		w.pair.A.Kill()
		w.pair.Wire.Accept()
		w.pair.A.Follow(w.pair.B)
		for _, x := range w.members {
			release(x.engines)
			x.engineLink(w.pair.B).Accept()
		}
		w.pair.A, w.pair.B = w.pair.B, w.pair.A
	},
}

// store returns a fault of the store, which lasts while an owner stops.
func store(f blobtest.Faults, leases float64) func(*world, *member) {
	return whileStopping(leases, func(w *world, _ *member) { w.s3.Fail(f) }, func(w *world, _ *member) { w.s3.Fail(blobtest.Faults{}) })
}

// whileStopping returns a fault that lasts while an owner stops, seals what it releases,
// and other nodes take that over: nodes seldom use the store at other times.
func whileStopping(leases float64, fail, mend func(w *world, owner *member)) func(*world, *member) {
	return func(w *world, _ *member) {
		m := w.ownerOf(rand.IntN(len(w.spaces)))
		fail(w, m)
		m.setPaused(true)
		m.server.Signal(syscall.SIGTERM)
		pause(leases)
		mend(w, m)
		w.kill(m)
		m.restart()
	}
}

// pause waits for a while, in leases.
func pause(leases float64) {
	<-time.After(time.Duration((0.5 + 0.5*rand.Float64()) * leases * float64(lease)))
}

func hold(links []*clustertest.Link, way clustertest.Direction) {
	for _, l := range links {
		l.Hold(way)
	}
}

func release(links []*clustertest.Link) {
	for _, l := range links {
		l.Release()
	}
}

// run starts clients, and one that follows the events of each workspace. The returned
// function ends them, and checks all that they saw.
func (w *world) run(writers int) (settle func()) {
	ended, followers := make(chan struct{}), make(chan struct{})
	working := w.load(writers, ended)
	var following sync.WaitGroup
	events := make([]*followed, len(w.spaces))
	for at := range w.spaces {
		events[at] = &followed{values: map[uint64]string{}}
		following.Go(func() { w.follow(at, events[at], followers) })
	}
	return func() {
		w.t.Helper()
		close(ended)
		working.Wait()
		for at, f := range events {
			log := w.log(w.members[0], at)
			newest := log[len(log)-1].Seq
			if err := clustertest.Await(30*time.Second, func() (bool, error) { return f.last() >= newest, nil }); err != nil {
				w.dump()
				w.t.Fatalf("workspace %d: the newest event that came is %d of %d, from %s", at, f.last(), newest, f.from())
			}
		}
		close(followers)
		following.Wait()
		w.check(events)
	}
}

// TestOneServer holds the clients and the checks to a server without a cluster, which
// is killed and stopped beneath them.
func TestOneServer(t *testing.T) {
	w := clients(t)
	m := &member{name: "one", server: harness.Start(t, harness.Options{}), front: clustertest.NewLink(t, "127.0.0.1:1")}
	w.members = []*member{m}
	w.open(2)
	settle := w.run(4)
	for i, kind := range []string{"kill", "stop", "kill"} {
		w.await(20 * (i + 1))
		faults[kind](w, m)
		w.recovered(kind)
	}
	w.await(100)
	settle()
}

func (w *world) acknowledged() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	n := 0
	for _, rec := range w.writes {
		if rec.commit != "" {
			n++
		}
	}
	return n
}

// await waits until so many writes were acknowledged.
func (w *world) await(n int) {
	w.t.Helper()
	if err := clustertest.Await(time.Minute, func() (bool, error) { return w.acknowledged() >= n, nil }); err != nil {
		w.t.Fatalf("%d of %d writes were acknowledged", w.acknowledged(), n)
	}
}

// dump shows what PostgreSQL does, and writes the nodes' logs with their stacks to
// UMBRA_CLUSTER_DUMP.
func (w *world) dump() {
	if w.pair == nil {
		return
	}
	w.t.Logf("PostgreSQL:\n%s", w.pair.A.SQL(`SELECT pid, state, wait_event_type || ' ' || wait_event, pg_blocking_pids(pid), now() - xact_start, now() - state_change, left(query, 150)
		FROM pg_stat_activity WHERE backend_type = 'client backend' AND state <> 'idle' ORDER BY xact_start`))
	w.t.Logf("owners:\n%s", w.pair.A.SQL(`SELECT w.id, w.epoch, w.owner, n.name, n.state FROM workspace w LEFT JOIN node n ON n.life = w.owner`))
	if dir := os.Getenv("UMBRA_CLUSTER_DUMP"); dir != "" {
		for _, m := range w.members {
			m.server.Signal(syscall.SIGQUIT)
			m.server.Wait()
			if err := os.WriteFile(filepath.Join(dir, m.name+".log"), []byte(m.server.Log.String()), 0o600); err != nil {
				w.t.Error(err)
			}
		}
	}
}

// recovered waits until each workspace can be written again at each node.
func (w *world) recovered(after string) {
	w.t.Helper()
	for at, s := range w.spaces {
		for _, m := range w.members {
			var last *answer
			if err := clustertest.Await(30*time.Second, func() (bool, error) {
				last = w.ask(m, "GET", "/tasks/"+s.task, "")
				return last.err == nil && last.status == http.StatusOK, nil
			}); err != nil {
				w.dump()
				w.t.Fatalf("%s: workspace %d at %s is not served again: %v %d %s", after, at, m.name, last.err, last.status, last.body)
			}
		}
	}
}
