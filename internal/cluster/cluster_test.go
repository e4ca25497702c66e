package cluster

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"umbra/gitstore/sink"
	"umbra/gitstore/sink/sinktest"
	"umbra/internal/blob"
	"umbra/internal/cluster/clustertest"
)

// testLease is the shortest that a cluster may have: tests wait for its end.
const testLease = MinLease

// open begins a life, and ends it with the test.
func open(t testing.TB, url, name string, change ...func(*Options)) *Node {
	t.Helper()
	n, err := tryOpen(t, url, name, change...)
	if err != nil {
		t.Fatal(err)
	}
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
		if err := n.Release(ctx, old); err != nil {
			t.Fatal(err)
		}
	}
	c, err := n.Claim(ctx, ws)
	if err != nil {
		t.Fatal(err)
	}
	s.owner[ws] = c
	return n.Sink(c, s.store, 24*time.Hour)
}

func (s *service) Record(t testing.TB, _, bucket, key string) (value []byte, ok bool) {
	t.Helper()
	err := s.nodes[0].e.do(context.Background(), func(ctx context.Context, c *conn) error {
		return c.QueryRow(ctx, `SELECT (SELECT value FROM record WHERE bucket = $1 AND key = $2)`, bucket, []byte(key)).Scan(&value)
	})
	if err != nil {
		t.Fatal(err)
	}
	return value, value != nil
}

func (s *service) Dropped(t testing.TB, ws string) (keys []string) {
	t.Helper()
	err := s.nodes[0].e.do(context.Background(), func(ctx context.Context, c *conn) error {
		return c.QueryRow(ctx, `SELECT coalesce(array_agg(key), '{}') FROM garbage WHERE starts_with(key, $1)`, ws+"/").Scan(&keys)
	})
	if err != nil {
		t.Fatal(err)
	}
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
		{"two nodes make the schema at once", testSchemaRace},
		{"one name is one live node", testNames},
		{"claims", testClaims},
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
		if r.n.Cluster.created {
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
	// The holder of the data directory ends its former life at once.
	life, _ := n.Life()
	begun := time.Now()
	again := open(t, url, "n", func(o *Options) { o.Former = life.ID })
	if took := time.Since(begun); took > testLease/2 {
		t.Errorf("it took %v", took)
	}
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
	if err != nil {
		t.Fatal(err)
	}
	var owned *OwnedError
	if _, err := n2.Claim(ctx, "w"); !errors.As(err, &owned) || owned.Owner.Name != "n1" || owned.Owner.Address != "http://n1" || owned.Epoch != c1.Epoch {
		t.Errorf("a claim of an owned workspace: %v", err)
	}
	if w, err := n2.Find(ctx, "w"); err != nil || w.Owner == nil || w.Owner.Name != "n1" || w.Namespace != "a/b" || w.Epoch != c1.Epoch {
		t.Errorf("found %+v, %v", w, err)
	}
	if err := n1.Release(ctx, c1); err != nil {
		t.Fatal(err)
	}
	c2, err := n2.Claim(ctx, "w")
	if err != nil || c2.Epoch != c1.Epoch+1 {
		t.Fatalf("%+v, %v", c2, err)
	}
	// A release of before does not take it away.
	if err := n1.Release(ctx, c1); err != nil {
		t.Fatal(err)
	}
	if _, err := n1.Claim(ctx, "w"); !errors.As(err, &owned) || owned.Owner.Name != "n2" {
		t.Errorf("after a late release: %v", err)
	}
	// Those of a node that ended are free at once, of one that died after a lease.
	if err := n2.Close(ctx); err != nil {
		t.Fatal(err)
	}
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
