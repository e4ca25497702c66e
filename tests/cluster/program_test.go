package cluster

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"umbra/internal/blob/blobtest"
	"umbra/internal/cluster/clustertest"
	"umbra/tests/harness"
)

// short are the faults of make test.
var short = []string{"kill", "pause", "the engine fails over", "no way to the engine", "stop", "the engine's answers are lost",
	"no way to other nodes", "the store fails", "no way back from the engine", "other nodes' answers are lost", "kill",
	"the standby pauses", "no way to the store", "pause", "the engine restarts", "bodies are cut", "the engine pauses", "the store is slow",
	"its wall clock jumps", "kill while it stops", "no standby is waited for", "the old primary lives on", "an object is missing once", "it is cut off"}

// TestFaults runs clients against three nodes while nodes, links, engine and store
// fail: no acknowledged write is lost, doubled, or missing from a read, and events
// come without a gap or a repeat.
func TestFaults(t *testing.T) {
	kinds, all := short, slices.Sorted(maps.Keys(faults))
	if n, err := strconv.Atoi(os.Getenv("UMBRA_CLUSTER_FAULTS")); err == nil {
		for kinds = kinds[:min(n, len(kinds))]; len(kinds) < n; {
			kinds = append(kinds[:len(kinds):len(kinds)], all[rand.IntN(len(all))])
		}
	}
	w := newWorldOn(t, 4, blobtest.StartGateway(t))
	settle := w.run(8)
	for i, kind := range kinds {
		m := w.members[rand.IntN(len(w.members))]
		before, failed := w.acknowledged(), w.s3.Failed()
		begun := time.Now()
		faults[kind](w, m)
		w.recovered(fmt.Sprintf("%d: %s of %s", i, kind, m.name))
		t.Logf("%d: %s of %s: %d acknowledged, %d meanwhile, %d requests to the store met a fault, %v", i, kind, m.name, w.acknowledged(), w.acknowledged()-before, w.s3.Failed()-failed, time.Since(begun).Round(10*time.Millisecond))
		if t.Failed() {
			break
		}
	}
	settle()
	if got, failed := w.acknowledged(), w.s3.Failed(); got < 10*len(kinds) || failed == 0 && len(kinds) >= len(short) {
		t.Errorf("only %d writes were acknowledged, and %d requests to the store met a fault", got, failed)
	}
}

// newWorld starts an engine, a store in memory and three nodes, and makes workspaces.
func newWorld(t *testing.T, spaces int) *world {
	t.Helper()
	return newWorldOn(t, spaces, blobtest.Start(t))
}

func newWorldOn(t *testing.T, spaces int, store *blobtest.Server) *world {
	t.Helper()
	w := clients(t)
	w.pair, w.s3 = clustertest.Start(t, clustertest.Options{Standby: true, Wire: true}), store
	for i := range 3 {
		w.members = append(w.members, w.join(fmt.Sprintf("n%d", i+1), i == 0, place{outside: "127.0.0.1"}))
	}
	w.open(spaces)
	return w
}

// place is where a node runs.
type place struct {
	outside string   // the address at which it reaches what it needs
	own     string   // where it listens and others reach it; empty: at the loopback, others by a link
	more    []string // arguments
	config  string   // YAML
	wrap    func(*exec.Cmd)
}

// join starts a node. The first makes the cluster.
func (w *world) join(name string, first bool, at place) *member {
	w.t.Helper()
	link := func(target string) *clustertest.Link { return clustertest.NewLinkAt(w.t, at.outside+":0", target) }
	m := &member{name: name, front: link("127.0.0.1:1"), store: link(strings.TrimPrefix(w.s3.URL, "http://")),
		engines: []*clustertest.Link{link(w.pair.A.Address()), link(w.pair.B.Address())}}
	url := w.pair.A.URL(m.engines[0].Address(), m.engines[1].Address())
	blobs := blobtest.At("http://"+m.store.Address(), "prod")
	env := blobtest.Credentials()
	if first {
		if status, stdout, stderr := harness.Run(w.t, env, "cluster", "init", "--lease", lease.String(), "--cluster", url, "--blobs", blobs); status != 0 {
			w.t.Fatalf("init: %s%s", stdout, stderr)
		}
	}
	if mutant := os.Getenv("UMBRA_MUTANT"); mutant != "" {
		env = append(env, "UMBRA_MUTANT="+mutant)
	}
	advertised := at.own
	if advertised == "" {
		advertised = m.front.Address()
	}
	m.server = harness.Start(w.t, harness.Options{Env: append(env, "UMBRA_CLUSTER_WAIT="+wait.String()), Listen: at.own, Config: at.config, Wrap: at.wrap,
		Args: append([]string{"--cluster", url, "--blobs", blobs, "--node", name, "--advertise", "http://" + advertised}, at.more...)})
	m.front.Retarget(strings.TrimPrefix(m.server.Address, "http://"))
	return m
}
