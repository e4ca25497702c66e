package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"umbra/gitstore/sink"
	"umbra/internal/blob"
	"umbra/internal/cluster/clustertest"
	"umbra/internal/need"
)

// shelf is what an owner has of a workspace in memory: registers, and each value
// that was ever written, in order.
type shelf struct {
	Keys map[string]string `json:"keys"`
	All  []string          `json:"all"`
}

func (s *shelf) apply(data []byte) {
	key, value, _ := strings.Cut(string(data), "=")
	s.Keys[key] = value
	s.All = append(s.All, value)
}

// member is a node with the workspaces that it has open. Its links lead to both
// engines.
type member struct {
	w      *faultWorld
	name   string
	freeze *freezer
	links  []*clustertest.Link

	mu   sync.Mutex
	node *Node // nil: it was killed
	open map[string]*owner
}

// owner is an open workspace. Its readers have it locked for reading until they
// have compared the lease: before the node claims it again, they have ended.
type owner struct {
	mu      sync.RWMutex
	sink    *Sink
	state   shelf
	next    uint64
	version uint64
	closed  atomic.Bool
}

type faultWorld struct {
	t       *testing.T
	pair    *clustertest.Pair
	store   *blob.Memory
	members []*member
	start   time.Time

	mu       sync.Mutex
	history  []porcupine.Operation
	acked    map[string]string // value: workspace
	refused  []string
	unknowns int
}

type regInput struct {
	reg, value string
	write      bool
}

var registers = porcupine.Model{
	Partition: func(history []porcupine.Operation) [][]porcupine.Operation {
		by := map[string][]porcupine.Operation{}
		for _, op := range history {
			reg := op.Input.(regInput).reg
			by[reg] = append(by[reg], op)
		}
		var out [][]porcupine.Operation
		for _, list := range by {
			out = append(out, list)
		}
		return out
	},
	Init: func() any { return "" },
	Step: func(state, input, output any) (bool, any) {
		if in := input.(regInput); in.write {
			return true, in.value
		}
		return output == state, state
	},
}

func (m *member) begin() {
	m.w.t.Helper()
	n := open(m.w.t, m.w.pair.A.URL(m.links[0].Address(), m.links[1].Address()), m.name, m.freeze.option,
		func(o *Options) { o.Wait, o.Log = 2*testLease, nil })
	m.mu.Lock()
	defer m.mu.Unlock()
	m.node, m.open = n, map[string]*owner{}
}

// get opens a workspace, or returns why this node does not have it.
func (m *member) get(ctx context.Context, ws string) (*owner, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.node == nil {
		return nil, ErrClosed
	}
	if o := m.open[ws]; o != nil && !o.closed.Load() && o.sink.over() == nil {
		return o, nil
	}
	c, err := m.node.Claim(ctx, ws)
	if err != nil {
		return nil, err
	}
	o := &owner{sink: m.node.Sink(c, m.w.store, time.Hour), state: shelf{Keys: map[string]string{}}}
	tail, err := o.sink.Tail(ctx)
	if err != nil {
		m.w.t.Errorf("tail of %s: %v", ws, err)
		return nil, err
	}
	if tail.Manifest != nil {
		o.version = tail.Manifest.Version
		if err := json.Unmarshal(tail.Manifest.Files[0].Data, &o.state); err != nil {
			m.w.t.Error(err)
		}
	}
	for _, g := range tail.Groups {
		if len(g.Data) > 0 {
			o.state.apply(g.Data)
		}
	}
	o.next = tail.Next()
	m.open[ws] = o
	return o, nil
}

func (o *owner) write(key, value string) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.closed.Load() {
		return sink.Fenced(true, nil)
	}
	err := o.sink.Append(&sink.Group{Pos: o.next, Seq: o.next, Data: []byte(key + "=" + value)})
	switch {
	case err == nil:
		o.state.apply([]byte(key + "=" + value))
		o.next++
		if o.next%16 == 0 {
			o.seal()
		}
	case !errors.Is(err, sink.ErrRefused) || errors.Is(err, sink.ErrFenced):
		o.closed.Store(true)
	}
	return err
}

// seal moves the log into the manifest.
func (o *owner) seal() {
	raw, err := json.Marshal(&o.state)
	if err != nil {
		panic(err)
	}
	m := &sink.Manifest{Version: o.version + 1, Base: o.next - 1, Seq: o.next - 1, Files: []sink.File{{Name: "state", Size: int64(len(raw)), Data: raw}}}
	if err := o.sink.Swap(context.Background(), &sink.Switch{Manifest: m}); err == nil {
		o.version++
	} else if !errors.Is(err, sink.ErrRefused) || errors.Is(err, sink.ErrFenced) {
		o.closed.Store(true)
	}
}

func (o *owner) read(key string, pause func(string)) (value string, ok bool) {
	o.mu.RLock()
	defer o.mu.RUnlock()
	answered := !o.closed.Load() && o.sink.claim.Life.Reading(func() {
		value = o.state.Keys[key]
		pause("read")
	})
	return value, answered
}

// do runs one operation at the node that owns the workspace, from any node on.
func (w *faultWorld) do(client int, ws, key, value string) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*testLease)
	defer cancel()
	m := w.members[rand.IntN(len(w.members))]
	call := int64(time.Since(w.start))
	o, err := m.get(ctx, ws)
	if owned, ok := errors.AsType[*OwnedError](err); ok {
		if i := slices.IndexFunc(w.members, func(m *member) bool { return m.name == owned.Owner.Name }); i >= 0 {
			m = w.members[i]
			o, err = m.get(ctx, ws)
		}
	}
	if err != nil {
		select {
		case <-time.After(20 * time.Millisecond):
		case <-ctx.Done():
		}
		return
	}
	op := porcupine.Operation{ClientId: client, Input: regInput{ws + "/" + key, value, value != ""}, Call: call}
	if value == "" {
		got, ok := o.read(key, m.freeze.wait)
		if !ok {
			return
		}
		op.Output, op.Return = got, int64(time.Since(w.start))
		w.mu.Lock()
		defer w.mu.Unlock()
		w.history = append(w.history, op)
		return
	}
	err = o.write(key, value)
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case err == nil:
		op.Return = int64(time.Since(w.start))
		w.history = append(w.history, op)
		w.acked[value] = ws
	case errors.Is(err, sink.ErrRefused):
		w.refused = append(w.refused, value)
	default: // perhaps later, perhaps never
		op.Return = int64(1 << 60)
		w.history = append(w.history, op)
		w.unknowns++
	}
}

// fault does one thing and undoes it.
func (w *faultWorld) fault(kind string) {
	m := w.members[rand.IntN(len(w.members))]
	pause := func(leases float64) { <-time.After(time.Duration((0.3 + rand.Float64()*leases) * float64(testLease))) }
	switch kind {
	case "freeze":
		m.freeze.freeze()
		pause(2.5)
		m.freeze.thaw()
	case "kill":
		m.mu.Lock()
		n := m.node
		m.node = nil
		m.mu.Unlock()
		m.freeze.thaw()
		n.abandon()
		pause(1)
		m.begin()
	case "hold there", "hold back":
		way := clustertest.There
		if kind == "hold back" {
			way = clustertest.Back
		}
		for _, l := range m.links {
			l.Hold(way)
		}
		pause(2)
		for _, l := range m.links {
			l.Release()
		}
	case "refuse":
		for _, l := range m.links {
			l.Refuse()
		}
		pause(1.5)
		for _, l := range m.links {
			l.Accept()
		}
	case "lose an answer":
		for range 5 {
			for _, l := range m.links {
				l.CutBeforeAnswer()
			}
			pause(0.2)
		}
	case "standby":
		w.pair.B.Pause()
		pause(1.2)
		w.pair.B.Resume()
	case "engine paused":
		w.pair.A.Pause()
		pause(2)
		w.pair.A.Resume()
	case "engine restarted":
		w.pair.A.Kill()
		w.pair.A.Start()
		w.pair.A.AwaitStandby()
	case "failover":
		w.pair.A.AwaitStandby()
		w.pair.A.Kill()
		w.pair.B.Promote()
		w.pair.A.Follow(w.pair.B)
		w.pair.A, w.pair.B = w.pair.B, w.pair.A
	}
	pause(1)
}

// TestFaults runs writers and readers of several workspaces on three nodes while
// nodes, links and engines fail: no acknowledged write may be lost, doubled, or
// missing from a read.
func TestFaults(t *testing.T) {
	kinds := []string{"freeze", "kill", "hold there", "failover", "hold back", "refuse", "lose an answer", "standby", "engine paused", "engine restarted", "freeze", "kill"}
	if n, err := strconv.Atoi(os.Getenv("UMBRA_CLUSTER_FAULTS")); err == nil {
		for all := kinds; len(kinds) < n; {
			kinds = append(kinds, all[rand.IntN(len(all))])
		}
	} else if testing.Short() {
		kinds = kinds[:4]
	}
	const workspaces, keys, clients = 4, 2, 8
	w := &faultWorld{t: t, pair: clustertest.Start(t, clustertest.Options{Standby: true}), store: blob.NewMemory(), start: time.Now(), acked: map[string]string{}}
	for i := range 3 {
		m := &member{w: w, name: fmt.Sprintf("n%d", i+1), freeze: newFreezer(),
			links: []*clustertest.Link{clustertest.NewLink(t, w.pair.A.Address()), clustertest.NewLink(t, w.pair.B.Address())}}
		w.members = append(w.members, m)
		m.begin()
		t.Cleanup(m.freeze.thaw)
	}
	for i := range workspaces {
		if _, err := w.members[0].node.Create(context.Background(), Workspace{ID: fmt.Sprintf("w%d", i), Kind: "virtual"}); err != nil {
			t.Fatal(err)
		}
	}
	ended := make(chan struct{})
	var working sync.WaitGroup
	for c := range clients {
		working.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-ended:
					return
				case <-time.After(5 * time.Millisecond):
				}
				value := ""
				if rand.IntN(3) > 0 {
					value = fmt.Sprintf("%d-%d", c, i)
				}
				w.do(c, fmt.Sprintf("w%d", rand.IntN(workspaces)), fmt.Sprintf("k%d", rand.IntN(keys)), value)
			}
		})
	}
	for _, kind := range kinds {
		w.mu.Lock()
		before := len(w.acked)
		w.mu.Unlock()
		within(5*time.Minute, "the fault "+kind, func() { w.fault(kind) })
		w.mu.Lock()
		t.Logf("%s: %d acknowledged, %d of them meanwhile, %d unknown, %d refused", kind, len(w.acked), len(w.acked)-before, w.unknowns, len(w.refused))
		w.mu.Unlock()
	}
	close(ended)
	within(time.Minute, "the end of the clients", working.Wait)
	if len(w.acked) < 10*len(kinds) {
		t.Errorf("only %d writes were acknowledged", len(w.acked))
	}

	// What is in the log now, for a node that was not there.
	n4 := open(t, w.pair.A.URL(), "n4", func(o *Options) { o.Log = nil })
	for _, m := range w.members {
		within(time.Minute, "the end of "+m.name, m.node.abandon)
	}
	found := map[string]string{}
	for i := range workspaces {
		ws := fmt.Sprintf("w%d", i)
		last := &member{w: w, node: n4, open: map[string]*owner{}}
		o, err := Await(context.Background(), 20*time.Second, func(ctx context.Context) (*owner, error) { return last.get(ctx, ws) })
		need.NoError(t, err)
		for _, value := range o.state.All {
			if found[value] != "" {
				t.Errorf("%s is there twice", value)
			}
			found[value] = ws
		}
	}
	for value, ws := range w.acked {
		if found[value] != ws {
			t.Errorf("%s was acknowledged and is lost from %s", value, ws)
		}
	}
	for _, value := range w.refused {
		if found[value] != "" {
			t.Errorf("%s was refused and is in %s", value, found[value])
		}
	}
	if result := porcupine.CheckOperationsTimeout(registers, w.history, time.Minute); result != porcupine.Ok {
		t.Errorf("porcupine: %v", result)
	}
}
