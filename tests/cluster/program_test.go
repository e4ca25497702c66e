//go:build fleet

package cluster

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
	"time"
)

// short are the faults of make test.
var short = []string{"kill", "pause", "the engine fails over", "no way to the engine", "stop", "the engine's answers are lost",
	"no way to other nodes", "the store fails", "no way back from the engine", "other nodes' answers are lost", "kill",
	"the standby pauses", "no way to the store", "pause", "the engine restarts", "bodies are cut", "the engine pauses", "the store is slow"}

// TestFaults runs clients against three nodes while nodes, links, engine and store
// fail: no acknowledged write is lost, doubled, or missing from a read, and events
// come without a gap or a repeat.
func TestFaults(t *testing.T) {
	kinds := short
	if n, err := strconv.Atoi(os.Getenv("UMBRA_CLUSTER_FAULTS")); err == nil {
		for kinds = kinds[:min(n, len(kinds))]; len(kinds) < n; {
			kinds = append(kinds[:len(kinds):len(kinds)], short[rand.IntN(len(short))])
		}
	}
	w := newWorld(t, 4)
	settle := w.run(8)
	for i, kind := range kinds {
		m := w.members[rand.IntN(len(w.members))]
		before := w.acknowledged()
		begun := time.Now()
		faults[kind](w, m)
		w.recovered(fmt.Sprintf("%d: %s of %s", i, kind, m.name))
		t.Logf("%d: %s of %s: %d acknowledged, %d meanwhile, %v", i, kind, m.name, w.acknowledged(), w.acknowledged()-before, time.Since(begun).Round(10*time.Millisecond))
		if t.Failed() {
			break
		}
	}
	settle()
	if got := w.acknowledged(); got < 10*len(kinds) {
		t.Errorf("only %d writes were acknowledged", got)
	}
}
