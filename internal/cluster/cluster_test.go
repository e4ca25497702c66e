package cluster

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"log/slog"
	"net"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"umbra/gitstore/object"
	"umbra/gitstore/sink"
	"umbra/gitstore/sink/sinktest"
	"umbra/internal/blob"
	"umbra/internal/blob/blobtest"
	"umbra/internal/cluster/clustertest"
	"umbra/internal/cluster/engine"
	"umbra/internal/cluster/recordrow"
	"umbra/internal/need"
	"umbra/internal/state"
)

// testLease is the shortest that a cluster may have: tests wait for its end.
const testLease = MinLease

// open begins a life, and ends it with the test.
func open(t testing.TB, url, name string, change ...func(*Options)) *Node {
	t.Helper()
	n, err := tryOpen(t, url, name, change...)
	need.NoError(t, err)
	t.Cleanup(n.abandon)
	return n
}

func tryOpen(t testing.TB, url, name string, change ...func(*Options)) (*Node, error) {
	t.Helper()
	opts := Options{URL: url, Name: name, Address: "http://" + name, Version: "test", Lease: testLease, Wait: 8 * time.Second,
		Log: slog.New(slog.NewTextHandler(testWriter{t, name}, nil))}
	for _, f := range change {
		f(&opts)
	}
	return Open(context.Background(), opts)
}

type testWriter struct {
	t    testing.TB
	name string
}

func (w testWriter) Write(p []byte) (int, error) {
	w.t.Logf("%s: %s", w.name, strings.TrimSpace(string(p)))
	return len(p), nil
}

// service is the suite's: each claim is another node's, so that it takes the
// workspace over as after a failover.
type service struct {
	t     testing.TB
	nodes []*Node
	store blob.Store
	owner map[string]*Claim
	turn  int
}

func (s *service) Claim(t testing.TB, ws string) sink.Sink {
	t.Helper()
	ctx := context.Background()
	s.turn++
	n := s.nodes[s.turn%len(s.nodes)]
	if old := s.owner[ws]; old == nil {
		if _, err := n.Create(ctx, Workspace{ID: ws, Kind: "virtual"}); err != nil {
			t.Fatal(err)
		}
	} else if life, _ := n.Life(); old.Life != life {
		// As if its node had died: it does not know, and goes on.
		need.NoError(t, n.Release(ctx, old))
	}
	c, err := n.Claim(ctx, ws)
	need.NoError(t, err)
	s.owner[ws] = c
	return n.Sink(c, s.store, 24*time.Hour)
}

func (s *service) Record(t testing.TB, _, bucket, key string) (value []byte, ok bool) {
	t.Helper()
	err := s.nodes[0].e.Do(context.Background(), func(ctx context.Context, c *engine.Conn) error {
		return c.QueryRow(ctx, `SELECT (SELECT value FROM record WHERE key = $1)`, recordrow.Key(bucket, key)).Scan(&value)
	})
	need.NoError(t, err)
	if value == nil {
		return nil, false
	}
	value, err = recordrow.UnpackValue(key, value)
	need.NoError(t, err)
	return value, true
}

func (s *service) Dropped(t testing.TB, ws string) (keys []string) {
	t.Helper()
	err := s.nodes[0].e.Do(context.Background(), func(ctx context.Context, c *engine.Conn) error {
		return c.QueryRow(ctx, `SELECT coalesce(array_agg(key), '{}') FROM garbage WHERE starts_with(key, $1)`, ws+"/").Scan(&keys)
	})
	need.NoError(t, err)
	return keys
}

// TestHealthy runs over one pair of servers that stays whole.
func TestHealthy(t *testing.T) {
	p := clustertest.Start(t, clustertest.Options{Standby: true})
	for _, c := range []struct {
		name string
		run  func(t *testing.T, p *clustertest.Pair)
	}{
		{"the sink does what every sink does", testConformance},
		{"records on several nodes do what every backend does", testRecordsConformance},
		{"records that are packed after each change do what every backend does", testPackedConformance},
		{"records that are packed while nodes change them", testPackWhileChanged},
		{"a transaction of records that comes late does nothing", testLateTwin},
		{"the writers of records are made at once", testWriters},
		{"a node that stops waits for no standby", testStopUnwaited},
		{"the last switch is made with the release", testLastSwitch},
		{"two nodes make the schema at once", testSchemaRace},
		{"records of a schema with buckets", testShortKeys},
		{"one name is one live node", testNames},
		{"claims", testClaims},
		{"a beat and the lanes", testBeatBesideLanes},
		{"a store on several nodes", testStore},
		{"the sweeper", testSweep},
		{"what a purge deletes", testErase},
		{"status and drain", testStatus},
		{"URLs and what a start refuses", testRefusals},
	} {
		t.Run(c.name, func(t *testing.T) { c.run(t, p) })
	}
}

func testConformance(t *testing.T, p *clustertest.Pair) {
	url := p.A.Database(t)
	s := &service{t: t, store: blob.NewMemory(), owner: map[string]*Claim{}}
	for _, name := range []string{"n1", "n2"} {
		s.nodes = append(s.nodes, open(t, url, name))
	}
	sinktest.Run(t, s)
}

// within ends the test's process with the stacks of all goroutines if f takes
// longer than a limit: what it waits for is in the output.
func within(limit time.Duration, what string, f func()) {
	timer := time.AfterFunc(limit, func() {
		debug.SetTraceback("all")
		panic(fmt.Sprintf("%s takes longer than %v", what, limit))
	})
	defer timer.Stop()
	f()
}

// testBeatBesideLanes holds what a lane holds while it asks for the engine's state:
// a beat that is answered meanwhile must leave the state to be asked for.
func testBeatBesideLanes(t *testing.T, p *clustertest.Pair) {
	n := open(t, p.A.Database(t), "n1")
	n.lanes.mu.Lock()
	defer n.lanes.mu.Unlock()
	n.mu.Lock()
	beaten := n.beaten
	n.mu.Unlock()
	within(20*time.Second, "a beat", func() { <-beaten })
	within(20*time.Second, "the engine's state beside a beat", func() { n.Engine() })
}

// testShortKeys upgrades records and the name of a manifest that were written before the
// migration to short keys.
func testShortKeys(t *testing.T, p *clustertest.Pair) {
	url := p.A.Database(t)
	all := migrations
	migrations = all[:3]
	defer func() { migrations = all }()
	open(t, url, "n1").abandon()
	db := strings.TrimSuffix(url[strings.LastIndexByte(url, '/')+1:], "?sslmode=disable")
	p.A.In(db).SQL(`INSERT INTO record (bucket, key, value) VALUES ('tasks', '1', 'one'), ('tasks_by_time', '\x00ff', 'two'), ('none', '', 'three'), ('none', 'x', '\x0102'), ('none', 'y', ''),
		('workspaces_index', 'name/' || convert_to(repeat('a', 32) || repeat('b', 32) || '/w', 'UTF8'), '0'), ('workspaces_index', 'age/1/w', '0')`)
	p.A.In(db).SQL(`INSERT INTO workspace (id, kind, namespace, pinned, epoch, manifest_ver, base_pos, sealed_at, manifest_key) VALUES
		('w', 'virtual', 'a/b', NULL, 7, 3, 5, now(), 'w/1-x.manifest'), ('v', 'virtual', NULL, NULL, 1, 0, 0, NULL, NULL), ('p', 'physical', NULL, 'n', 2, 1, 9, now(), NULL)`)
	migrations = all
	n := open(t, url, "n2")
	got := p.A.In(db).SQL(`SELECT id, coalesce(kind, 'virtual'), pinned, epoch, manifest_ver, base_pos, sealed_at IS NULL, namespace IS NULL, manifest_key, ` + manifestKey + ` FROM workspace w ORDER BY id`)
	if want := "p|physical|n|2|1|9|f|t||\nv|virtual||1|0|0|t|t||\nw|virtual||7|3|5|t|f|1-x|w/1-x.manifest"; got != want {
		t.Errorf("the workspaces are\n%s, want\n%s", got, want)
	}
	if id, err := n.Named(context.Background(), "a/b"); id != "w" {
		t.Errorf("a namespace is that of %q, %v", id, err)
	}
	r := n.Records()
	defer func() { need.NoError(t, r.Close()) }()
	records := []string{}
	need.NoError(t, r.Each(context.Background(), func(bucket, key string, value []byte) error {
		records = append(records, fmt.Sprintf("%s %q %s", bucket, key, value))
		return nil
	}))
	if want := []string{`none "" three`, "none \"x\" \x01\x02", `none "y" `, `tasks "1" one`, `tasks_by_time "\x00\xff" two`, `workspaces_index "age/1/w" 0`,
		`workspaces_index "name/` + strings.Repeat("a", 32) + `/w" 0`}; !slices.Equal(records, want) {
		t.Errorf("the records are %q, want %q", records, want)
	}
}

func testSchemaRace(t *testing.T, p *clustertest.Pair) {
	url := p.A.Database(t)
	type result struct {
		n   *Node
		err error
	}
	results := make(chan result)
	for i := range 5 {
		go func() {
			n, err := tryOpen(t, url, fmt.Sprintf("n%d", i))
			results <- result{n, err}
		}()
	}
	ids, created := map[string]bool{}, 0
	for range 5 {
		r := <-results
		if r.err != nil {
			t.Error(r.err)
			continue
		}
		defer r.n.abandon()
		ids[r.n.Cluster.ID] = true
		if r.n.Cluster.Created {
			created++
		}
		if r.n.Cluster.Schema != newest() || r.n.Cluster.Lease != testLease || len(r.n.Cluster.Key) != 32 {
			t.Errorf("the cluster is %+v", r.n.Cluster)
		}
	}
	if len(ids) != 1 || created != 1 {
		t.Errorf("%d clusters, made by %d nodes", len(ids), created)
	}
}

func testNames(t *testing.T, p *clustertest.Pair) {
	url := p.A.Database(t)
	n := open(t, url, "n")
	_, err := tryOpen(t, url, "n")
	var r *Refusal
	if !errors.As(err, &r) || r.Code != "node_name_taken" || r.Sentence != "Node n is live at http://n." || r.Exit != 1 {
		t.Fatalf("a second node of the name: %v", err)
	}
	// The holder of the data directory ends its former life at once: without any time
	// in which a lease could end.
	life, _ := n.Life()
	again := open(t, url, "n", func(o *Options) { o.Former, o.boot = life.ID, func() time.Duration { return time.Hour } })
	<-life.Over()
	if life.Held() {
		t.Error("a life that was declared dead has a lease")
	}
	// One that does not beat any more is replaced.
	again.abandon()
	n.abandon()
	open(t, url, "n")
}

func testClaims(t *testing.T, p *clustertest.Pair) {
	ctx := context.Background()
	url := p.A.Database(t)
	n1, n2 := open(t, url, "n1"), open(t, url, "n2")
	if _, err := n1.Claim(ctx, "none"); !errors.Is(err, ErrNotFound) {
		t.Errorf("a claim of nothing: %v", err)
	}
	for i, want := range []bool{true, false} {
		if made, err := n1.Create(ctx, Workspace{ID: "w", Kind: "virtual", Namespace: "a/b"}); err != nil || made != want {
			t.Errorf("create %d: %v, %v", i, made, err)
		}
	}
	if _, err := n1.Create(ctx, Workspace{ID: "v", Kind: "virtual", Namespace: "a/b"}); err == nil {
		t.Error("two workspaces have one namespace")
	}
	c1, err := n1.Claim(ctx, "w")
	need.NoError(t, err)
	var owned *OwnedError
	if _, err := n2.Claim(ctx, "w"); !errors.As(err, &owned) || owned.Owner.Name != "n1" || owned.Owner.Address != "http://n1" || owned.Epoch != c1.Epoch {
		t.Errorf("a claim of an owned workspace: %v", err)
	}
	if w, err := n2.Find(ctx, "w"); err != nil || w.Owner == nil || w.Owner.Name != "n1" || w.Epoch != c1.Epoch {
		t.Errorf("found %+v, %v", w, err)
	}
	need.NoError(t, n1.Release(ctx, c1))
	c2, err := n2.Claim(ctx, "w")
	if err != nil || c2.Epoch != c1.Epoch+1 {
		t.Fatalf("%+v, %v", c2, err)
	}
	// A release of before does not take it away.
	need.NoError(t, n1.Release(ctx, c1))
	if _, err := n1.Claim(ctx, "w"); !errors.As(err, &owned) || owned.Owner.Name != "n2" {
		t.Errorf("after a late release: %v", err)
	}
	// Those of a node that ended are free at once, of one that died after a lease.
	need.NoError(t, n2.Close(ctx))
	if _, err := n1.Claim(ctx, "w"); err != nil {
		t.Errorf("the owner has ended: %v", err)
	}
	// One that is pinned belongs to its node alone.
	if _, err := n1.Create(ctx, Workspace{ID: "p", Kind: "physical", Pinned: "n9"}); err != nil {
		t.Fatal(err)
	}
	if _, err := n1.Claim(ctx, "p"); !errors.As(err, &owned) || owned.Owner.Name != "n9" || owned.Owner.Life != 0 {
		t.Errorf("a claim of a pinned workspace: %v", err)
	}
}

func testSweep(t *testing.T, p *clustertest.Pair) {
	ctx := context.Background()
	s := newScene(t, p)
	s.append(s.s1, "one")
	put := func(text string) string {
		t.Helper()
		name, err := s.s1.Put(ctx, strings.NewReader(text), int64(len(text)))
		need.NoError(t, err)
		return name
	}
	there := func(name string) bool {
		_, err := blobtest.GetRange(ctx, s.store, name, 0, 1)
		return err == nil
	}
	old, kept, lost := put("old"), put("kept"), put("lost")
	swap := func(version uint64, drop []string, packs ...string) {
		t.Helper()
		m := &sink.Manifest{Version: version, Base: s.next - 1}
		for i, name := range packs {
			m.Packs = append(m.Packs, sink.Pack{Name: name, Sum: object.ID{byte(i)}, Size: 3})
		}
		need.NoError(t, s.s1.Swap(ctx, &sink.Switch{Manifest: m, Drop: drop}))
	}
	swap(1, nil, old, kept)
	s.s1.grace = 0
	swap(2, []string{old}, kept)
	if swept, err := s.n2.Sweep(ctx, s.store, true); err != nil || swept.Garbage == 0 || swept.Orphans != 0 {
		t.Errorf("%+v, %v", swept, err)
	}
	if there(old) || !there(kept) || !there(lost) {
		t.Errorf("old %v, kept %v, lost %v", there(old), there(kept), there(lost))
	}
	// A day later nothing has named the third.
	aged := &agedStore{Store: s.store, by: 25 * time.Hour}
	objects, records := s.n1.Objects(s.store, 0), s.n1.Records()
	db := state.New(records)
	ws, _, _ := strings.Cut(kept, "/")
	named, unnamed := ws+"/area-named", ws+"/area-unnamed"
	for _, key := range []string{named, unnamed} {
		need.NoError(t, objects.Put(ctx, key, strings.NewReader("object"), 6))
	}
	need.NoError(t, db.Put(keptObjects, named, "a task"))
	if swept, err := s.n2.Sweep(ctx, aged, true); err != nil || swept.Orphans != 2 {
		t.Errorf("%+v, %v", swept, err)
	}
	if !there(kept) || there(lost) || !there(named) || there(unnamed) {
		t.Errorf("kept %v, lost %v, named by a record %v, by none %v", there(kept), there(lost), there(named), there(unnamed))
	}
	err := db.Update(func(tx *state.Tx) error { return tx.Delete(keptObjects, named) })
	if err = errors.Join(err, objects.Drop(ctx, []string{named}), records.Close()); err != nil {
		t.Fatal(err)
	}
	if swept, err := s.n2.Sweep(ctx, s.store, false); err != nil || swept.Garbage != 1 || there(named) {
		t.Errorf("a dropped object: %+v, %v, %v", swept, err, there(named))
	}
	// A copy of the database does not know the last sweep; its own is not known to
	// the first.
	copied := p.A.Database(t)
	n3 := open(t, copied, "n3")
	if _, err := n3.Sweep(ctx, s.store, true); !errors.Is(err, ErrShared) {
		t.Errorf("the sweep of another database: %v", err)
	}
	need.NoError(t, s.store.Delete(ctx, sweepKey))
	if _, err := n3.Sweep(ctx, s.store, false); err != nil {
		t.Fatal(err)
	}
	if _, err := s.n1.Sweep(ctx, s.store, true); !errors.Is(err, ErrShared) {
		t.Errorf("a sweep after another database's: %v", err)
	}
}

// agedStore lists objects as older than they are, but for the sweep's mark.
type agedStore struct {
	blob.Store
	by time.Duration
}

func (a *agedStore) List(ctx context.Context, prefix, after string) iter.Seq2[blob.Object, error] {
	return func(yield func(blob.Object, error) bool) {
		for o, err := range a.Store.List(ctx, prefix, after) {
			if o.Key != sweepKey {
				o.Modified = o.Modified.Add(-a.by)
			}
			if !yield(o, err) {
				return
			}
		}
	}
}

func testStatus(t *testing.T, p *clustertest.Pair) {
	ctx := context.Background()
	s := newScene(t, p)
	s.append(s.s1, "one")
	if _, err := s.n1.Create(ctx, Workspace{ID: "p", Kind: "physical", Pinned: "gone"}); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]bool{"n1": true, "gone": true, "none": false} {
		if known, err := s.n1.Known(ctx, name); known != want || err != nil {
			t.Errorf("node %s is known: %v, %v", name, known, err)
		}
	}
	a, err := Look(ctx, Options{URL: s.url})
	need.NoError(t, err)
	defer a.Close()
	if err := a.CheckStore(ctx, s.store, "memory", time.Second); err != nil || !a.Cluster().Marked {
		t.Fatalf("%v", err)
	}
	st, err := a.Status(ctx, s.store)
	need.NoError(t, err)
	if st.Engine.State != "ok" || !strings.Contains(st.Engine.Version, ".") || st.Engine.Standbys != 1 || st.Blobs.State != "ok" || !st.OK() {
		t.Errorf("%+v", st)
	}
	if len(st.Nodes) != 2 || st.Nodes[0].Node != "n1" || st.Nodes[0].State != "live" || st.Nodes[0].Owned != 1 || st.Nodes[1].Owned != 0 || st.Nodes[0].BeatAgeMS > testLease.Milliseconds() {
		t.Errorf("nodes: %+v", st.Nodes)
	}
	if w := st.Workspaces; w.Total != 2 || w.Owned != 1 || w.Pinned != 1 || w.UnsealedBytes == 0 {
		t.Errorf("workspaces: %+v", w)
	}
	list, err := a.Workspaces(ctx, s.store, []string{"w", "p"})
	if err != nil || len(list) != 2 || list[0].State != "owned" || *list[0].Owner != "n1" || list[0].Seq != s.next-1 || list[1].State != "node_down" || *list[1].Owner != "gone" {
		t.Errorf("%+v, %v", list, err)
	}
	if _, err := a.Workspaces(ctx, s.store, []string{"none"}); !errors.Is(err, ErrNotFound) {
		t.Errorf("a workspace that does not exist: %v", err)
	}
	if _, err := a.Drain(ctx, "none", 0, false, unreached); !errors.Is(err, ErrNoNode) {
		t.Errorf("a node that does not exist: %v", err)
	}
	if d, err := a.Drain(ctx, "n1", 0, false, unreached); err != nil || d.Released != 0 || len(d.Left) != 1 || d.Left[0] != "w" {
		t.Errorf("%+v, %v", d, err)
	}
	// The node hears of it by its beats, and releases what it has.
	go func() {
		if err := clustertest.Await(10*time.Second, func() (bool, error) { return s.n1.Draining(), nil }); err != nil {
			t.Error(err)
		}
		if err := s.n1.Release(ctx, s.s1.claim); err != nil {
			t.Error(err)
		}
	}()
	if d, err := a.Drain(ctx, "n1", 10*time.Second, false, unreached); err != nil || d.Released != 1 || len(d.Left) != 0 {
		t.Errorf("%+v, %v", d, err)
	}
	if _, err := a.Drain(ctx, "n1", 0, true, unreached); err != nil {
		t.Error(err)
	}
	if err := clustertest.Await(10*time.Second, func() (bool, error) { return !s.n1.Draining(), nil }); err != nil {
		t.Error("the node still drains")
	}
}

// unreached is a node that cannot be notified of its drain.
func unreached(context.Context, Peer) error { return errors.New("it is not reached") }

// A node that is notified of its drain does not wait for a beat: not for the next one, and
// not for the one that it sends, which is a commit.
func TestDrainNotified(t *testing.T) {
	url := clustertest.Start(t, clustertest.Options{}).A.Database(t)
	held, began := make(chan struct{}), atomic.Bool{}
	defer close(held)
	long := func(o *Options) {
		o.Lease, o.Replication = MaxLease, ReplicationNone
		o.at = func(point string) {
			if point == "beat" && began.Load() {
				<-held
			}
		}
	}
	n := open(t, url, "n1", long)
	opts := Options{URL: url, Replication: ReplicationNone}
	a, err := Look(t.Context(), opts)
	need.NoError(t, err)
	defer a.Close()
	began.Store(true)
	for _, undo := range []bool{false, true} {
		notified := ""
		notify := func(_ context.Context, p Peer) error {
			n.Look()
			notified = p.Address
			return nil
		}
		if _, err := a.Drain(t.Context(), "n1", 0, undo, notify); err != nil || notified != "http://n1" {
			t.Fatalf("%v, notified %q", err, notified)
		}
		if n.Draining() == undo {
			t.Errorf("undo %v: it drains: %v", undo, n.Draining())
		}
	}
}

// testLastSwitch: what Swap leaves to Release is one change of the workspace's row with it;
// one that cannot be made any more leaves the log as it is.
func testLastSwitch(t *testing.T, p *clustertest.Pair) {
	s := newScene(t, p)
	ctx := context.Background()
	state := func() (found string) {
		t.Helper()
		need.NoError(t, s.n1.e.Do(ctx, func(ctx context.Context, c *engine.Conn) error {
			return c.QueryRow(ctx, `SELECT concat_ws(' ', owner IS NULL, base_pos, manifest_ver, xmin) FROM workspace WHERE id = 'w'`).Scan(&found)
		}))
		return found
	}
	s.append(s.s1, "one")
	m := &sink.Manifest{Version: 1, Base: s.next - 1, Seq: s.next - 1}
	before := state()
	need.NoError(t, s.s1.Swap(ctx, &sink.Switch{Manifest: m, Last: true}))
	if now := state(); now != before || !strings.HasPrefix(now, "f 0 0 ") {
		t.Errorf("before the release: %s, was %s", now, before)
	}
	need.NoError(t, s.s1.Release(ctx))
	if now := state(); !strings.HasPrefix(now, fmt.Sprintf("t %d 1 ", m.Base)) {
		t.Errorf("released: %s", now)
	}
	k, tail := s.claim(s.n2)
	if texts(tail) != "" || !bytes.Equal(tail.Manifest.Encode(), m.Encode()) {
		t.Errorf("the next owner finds %q and %+v", texts(tail), tail.Manifest)
	}
	s.append(k, "two")
	m2 := &sink.Manifest{Version: 2, Base: s.next - 1, Seq: s.next - 1}
	need.NoError(t, k.Swap(ctx, &sink.Switch{Manifest: m2, Last: true}))
	k.claim.Epoch-- // another has it by now
	need.NoError(t, k.Release(ctx))
	k.claim.Epoch++
	if now := state(); !strings.HasPrefix(now, fmt.Sprintf("f %d 1 ", m.Base)) {
		t.Errorf("after a switch that came late: %s", now)
	}
}

// firstOnly returns an address at which the first connection leads to target, and no later
// one is answered.
func firstOnly(t *testing.T, target string) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	need.NoError(t, err)
	var held []net.Conn
	var wg sync.WaitGroup
	t.Cleanup(func() {
		_ = l.Close()
		wg.Wait()
		for _, c := range held {
			_ = c.Close()
		}
	})
	wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			held = append(held, c)
			if len(held) > 1 {
				continue
			}
			d, err := net.Dial("tcp", target)
			if err != nil {
				return
			}
			wg.Go(func() { defer c.Close(); _, _ = io.Copy(c, d) })
			wg.Go(func() { defer d.Close(); _, _ = io.Copy(d, c) })
		}
	})
	return l.Addr().String()
}

func testRefusals(t *testing.T, p *clustertest.Pair) {
	url := p.A.Database(t)
	_, empty := Look(context.Background(), Options{URL: url})
	n := open(t, url, "n")
	patience := 500 * time.Millisecond
	run := func(url string) error {
		n, err := Open(context.Background(), Options{URL: url, Name: "x", Address: "http://x", Patience: patience})
		if err == nil {
			n.abandon()
		}
		return err
	}
	role := "r" + strings.ReplaceAll(n.Cluster.ID, "-", "")
	p.A.SQL("CREATE ROLE " + role + " LOGIN")
	// A server of another version is the same one with another current_setting.
	old := p.A.Database(t)
	of := strings.TrimSuffix(old[strings.LastIndexByte(old, '/')+1:], "?sslmode=disable")
	p.A.In(of).SQL(`CREATE SCHEMA old; CREATE FUNCTION old.current_setting(text) RETURNS text LANGUAGE sql
		AS $$ SELECT CASE $1 WHEN 'server_version_num' THEN '130012' ELSE pg_catalog.current_setting($1) END $$`)
	p.A.SQL("ALTER DATABASE " + of + " SET search_path = old, pg_catalog")
	standby := firstOnly(t, p.B.Address())
	for _, c := range []struct {
		name     string
		err      error
		code     string
		sentence string
		exit     int
	}{
		{"an empty database", empty, "cluster_missing", "The database has no cluster of this program; run umbra cluster init.", 1},
		{"another scheme", run("mysql://u:secret@h/d"), "cluster_url_invalid", "cluster.url does not begin with postgres://.", 2},
		{"no host", run("postgres:///d"), "cluster_url_invalid", "cluster.url names no host.", 2},
		{"a wrong port", run("postgres://u:sec/ret@h/d"), "cluster_url_invalid", "cluster.url is not of the form postgres://USER@HOST:PORT,HOST:PORT/DATABASE?PARAMETER=VALUE.", 2},
		{"no listener", run("postgres://u:secret@127.0.0.1:1/d?sslmode=disable"), "engine_unreachable", "No PostgreSQL answers at 127.0.0.1:1: connect: connection refused.", 1},
		{"another database", run(strings.Replace(p.A.URL(), "/postgres?", "/none?", 1)), "engine_unreachable",
			fmt.Sprintf(`No PostgreSQL answers at %s: database "none" does not exist.`, p.A.Address()), 1},
		{"no rights", run(strings.Replace(p.A.Database(t), "umbra@", role+"@", 1)), "engine_rights", "Role " + role + " may not create tables in schema public.", 1},
		{"an old server", run(old), "engine_version", "PostgreSQL 13 is too old; 14 is needed.", 1},
		{"a standby alone, the last attempt of which is cut off", func() error {
			patience = 2 * time.Second
			return run(strings.Replace(url, p.A.Address(), standby, 1))
		}(), "engine_unreachable", fmt.Sprintf("No PostgreSQL answers at %s: the server is a standby.", standby), 1},
	} {
		var r *Refusal
		if !errors.As(c.err, &r) || r.Code != c.code || r.Sentence != c.sentence || r.Exit != c.exit {
			t.Errorf("%s: %v", c.name, c.err)
		}
		if c.err != nil && strings.Contains(c.err.Error(), "sec") {
			t.Errorf("%s: the message has the password: %v", c.name, c.err)
		}
	}
	// Of several hosts the primary is found.
	both := strings.Replace(url, p.A.Address(), p.B.Address()+","+p.A.Address(), 1)
	if err := run(both); err != nil {
		t.Errorf("standby and primary: %v", err)
	}
	db := strings.TrimSuffix(url[strings.LastIndexByte(url, '/')+1:], "?sslmode=disable")
	p.A.In(db).SQL("UPDATE cluster SET schema = 9, min_schema = 8")
	var r *Refusal
	if err := run(url); !errors.As(err, &r) || r.Code != "schema_newer" || r.Sentence != "The cluster's schema is 9; this program knows up to 4." {
		t.Errorf("a newer schema: %v", err)
	}
	p.A.In(db).SQL("UPDATE cluster SET min_schema = 4")
	if err := run(url); err != nil {
		t.Errorf("a newer schema that this program may use: %v", err)
	}
}
