package cluster

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"umbra/gitstore/sink"
	"umbra/internal/blob"
	"umbra/internal/cluster/clustertest"
	"umbra/internal/cluster/engine"
	"umbra/internal/cluster/recordrow"
	"umbra/internal/need"
	"umbra/internal/state"
	"umbra/internal/state/statetest"
)

func records(t testing.TB, n *Node) *Records {
	t.Helper()
	r := n.Records()
	t.Cleanup(func() {
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	})
	return r
}

// inTurns is the records of several nodes: each transaction is another one's.
type inTurns struct {
	nodes []*Records
	turn  atomic.Int64
}

func (b *inTurns) next() *Records { return b.nodes[int(b.turn.Add(1))%len(b.nodes)] }

func (b *inTurns) Update(fn func(state.BackendTx) error) error { return b.next().Update(fn) }
func (b *inTurns) View(fn func(state.BackendTx) error) error   { return b.next().View(fn) }
func (b *inTurns) Close() error                                { return nil }

func (b *inTurns) Get(bucket, key string) ([]byte, bool, error) { return b.next().Get(bucket, key) }

func testRecordsConformance(t *testing.T, p *clustertest.Pair) {
	statetest.Conform(t, func(t *testing.T) state.Backend {
		url := p.A.Database(t)
		return &inTurns{nodes: []*Records{records(t, open(t, url, "n1")), records(t, open(t, url, "n2"))}}
	})
}

// testLateTwin sends a commit again after its outcome was settled.
func testLateTwin(t *testing.T, p *clustertest.Pair) {
	r := records(t, open(t, p.A.Database(t), "n1"))
	deadline := time.Now().Add(time.Minute)
	w, err := r.writer(deadline)
	need.NoError(t, err)
	begin := func() *recordTx {
		tx := &recordTx{r: r, deadline: deadline, writable: true, w: &writer{w.id, w.nonce, w.fence}}
		if _, _, err := tx.Get("b", "k"); err != nil {
			t.Fatal(err)
		}
		need.NoError(t, errors.Join(tx.DeleteBucket("other"), tx.Put("b", "k", []byte("late"))))
		return tx
	}
	need.NoError(t, r.Update(func(tx state.BackendTx) error { return tx.Put("other", "k", []byte("1")) }))
	open := begin() // its snapshot is of before
	defer open.end()
	if nonce, err := r.fence(w, 7, deadline); err != nil || nonce != w.nonce {
		t.Fatal(nonce, err)
	}
	if stands, err := open.write(8); !engine.Again(err) || stands {
		t.Errorf("in a transaction that had begun: %v, %v", stands, err)
	}
	fresh := begin()
	defer fresh.end()
	if stands, err := fresh.write(9); err != nil || stands {
		t.Errorf("in one that begins: %v, %v", stands, err)
	}
	if _, found, err := r.Get("b", "k"); err != nil || found {
		t.Error("the late one wrote", err)
	}
	if _, found, err := r.Get("other", "k"); err != nil || !found {
		t.Error("the late one deleted", err)
	}
	// A writer whose row is gone is replaced.
	need.NoError(t, r.Update(func(tx state.BackendTx) error { return tx.Put("b", "k", []byte("1")) }))
	if err := r.n.e.Do(context.Background(), func(ctx context.Context, c *engine.Conn) error {
		_, err := c.Exec(ctx, `DELETE FROM writer`)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	need.NoError(t, r.Update(func(tx state.BackendTx) error { return tx.Put("b", "k", []byte("2")) }))
	if v, _, err := r.Get("b", "k"); err != nil || string(v) != "2" {
		t.Errorf("%q, %v", v, err)
	}
}

// testWriters holds that the writers of later transactions at the same time are there
// after the first.
func testWriters(t *testing.T, p *clustertest.Pair) {
	url := p.A.Database(t)
	need.NoError(t, add(records(t, open(t, url, "n1")), "first"))
	db := strings.TrimSuffix(url[strings.LastIndexByte(url, '/')+1:], "?sslmode=disable")
	if n := p.A.In(db).SQL("SELECT count(*) FROM writer"); n != strconv.Itoa(recordWrites) {
		t.Errorf("%s writers", n)
	}
}

// testStopUnwaited: neither a release with the last switch nor the end of a node's records nor
// that of its life waits until a standby has it.
func testStopUnwaited(t *testing.T, p *clustertest.Pair) {
	held, paused := make(chan struct{}), atomic.Bool{}
	url := p.A.Database(t)
	n := open(t, url, "n1", func(o *Options) {
		o.Lease = MaxLease
		o.at = func(point string) {
			if point == "beat" && paused.Load() {
				<-held // it would hold the life's row until a standby has it
			}
		}
	})
	r := n.Records()
	need.NoError(t, add(r, "first"))
	_, err := n.Create(t.Context(), Workspace{ID: "w", Kind: "virtual"})
	need.NoError(t, err)
	c, err := n.Claim(t.Context(), "w")
	need.NoError(t, err)
	k := n.Sink(c, blob.NewMemory(), time.Hour)
	tail, err := k.Tail(t.Context())
	need.NoError(t, err)
	at := tail.Next()
	need.NoError(t, k.Append(&sink.Group{Pos: at, Seq: 1, Data: []byte("one")}))
	need.NoError(t, k.Swap(t.Context(), &sink.Switch{Manifest: &sink.Manifest{Version: 1, Base: at, Seq: 1}, Last: true}))
	paused.Store(true)
	p.B.Pause()
	defer func() { p.B.Resume(); p.A.AwaitStandby() }()
	ctx, cancel := context.WithTimeout(t.Context(), 8*time.Second)
	defer cancel()
	context.AfterFunc(n.ctx, func() { close(held) })
	need.NoError(t, k.Release(ctx))
	need.NoError(t, r.Close())
	need.NoError(t, n.Close(ctx))
	db := p.A.In(strings.TrimSuffix(url[strings.LastIndexByte(url, '/')+1:], "?sslmode=disable"))
	if left := db.SQL("SELECT (SELECT count(*) FROM writer) || ' ' || (SELECT state FROM node) || ' ' || (SELECT count(*) FROM workspace WHERE owner IS NULL AND manifest_ver = 1) || ' ' || (SELECT count(*) FROM journal)"); left != "0 dead 1 0" {
		t.Errorf("writers, life, released workspaces and rows of the log: %s", left)
	}
}

// add adds one to a record: what is done twice, or lost, is seen in the sum.
func add(r state.Backend, key string) error {
	return r.Update(func(tx state.BackendTx) error {
		n, err := sum(tx, key)
		if err != nil {
			return err
		}
		return tx.Put("sums", key, fmt.Append(nil, n+1))
	})
}

func sum(tx state.BackendTx, key string) (n int, err error) {
	value, found, err := tx.Get("sums", key)
	if err == nil && found {
		_, err = fmt.Sscan(string(value), &n)
	}
	return n, err
}

func sumOf(t testing.TB, r state.Backend, key string) (n int) {
	t.Helper()
	if err := r.View(func(tx state.BackendTx) (err error) {
		n, err = sum(tx, key)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	return n
}

func recordsLostAnswer(t *testing.T, p *clustertest.Pair) {
	s := newScene(t, p)
	r1, r2 := records(t, s.n1), records(t, s.n2)
	for i := range 10 {
		s.freeze.freeze("record")
		done := make(chan error, 1)
		go func() { done <- add(r1, "k") }()
		s.freeze.awaitStuck(t, "record")
		s.link.CutBeforeAnswer()
		s.freeze.thaw()
		need.NoError(t, <-done)
		if got := sumOf(t, r2, "k"); got != i+1 {
			t.Fatalf("%d after %d", got, i+1)
		}
	}
}

func recordsStandbyAway(t *testing.T, p *clustertest.Pair) {
	s := newScene(t, p, func(o *Options) { o.Wait = 2 * time.Second })
	r := records(t, s.n1)
	need.NoError(t, add(r, "k"))
	p.B.Pause()
	defer p.B.Resume()
	err := add(r, "k")
	if err == nil {
		t.Error("a change was acknowledged without the standby")
	}
	unknown := errors.Is(err, sink.ErrUnknown)
	if !unknown && !errors.Is(err, sink.ErrRefused) {
		t.Errorf("neither refused nor unknown: %v", err)
	}
	if got := sumOf(t, r, "k"); got != 1 {
		t.Errorf("a change that no standby has is read: %d", got)
	}
	p.B.Resume()
	p.A.AwaitStandby()
	need.NoError(t, clustertest.Await(10*time.Second, func() (bool, error) { return add(r, "other") == nil, nil }))
	if got := sumOf(t, r, "k"); !unknown && got != 1 {
		t.Errorf("a refused change was done: %d", got)
	}
}

// TestRecordsFailover adds to records, makes and removes some on two nodes while the engine
// is killed, paused and failed over and both nodes pack, and counts: what was acknowledged is
// there once, what was refused is not.
func TestRecordsFailover(t *testing.T) {
	p := clustertest.Start(t, clustertest.Options{Standby: true})
	url := p.A.Database(t, p.A.Address(), p.B.Address())
	var all []*Records
	for _, name := range []string{"n1", "n2"} {
		all = append(all, records(t, open(t, url, name, func(o *Options) { o.Wait = 4 * time.Second })))
	}
	newPacking(all...)
	l := newLedger("made")
	stop := make(chan struct{})
	var wg sync.WaitGroup
	var acked, unknown, refused, packs atomic.Int64
	for _, r := range all {
		wg.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				for _, bucket := range []string{"sums", "made"} {
					n, _ := r.packBucket(context.Background(), bucket, math.MaxInt64) // it fails while the engine is away, and gives way to changes
					packs.Add(int64(n))
				}
			}
		})
	}
	for i := range 6 {
		wg.Go(func() {
			for j := 0; ; j++ {
				select {
				case <-stop:
					return
				default:
				}
				own := fmt.Sprintf("%d-%d", j, i) // next to those of others
				l.put(t, all[i%2], own, own)
				if j%2 == 0 {
					l.remove(t, all[(i+j/2)%2], own)
				}
				switch err := add(all[i%2], fmt.Sprint("k", j%5)); {
				case err == nil:
					acked.Add(1)
				case errors.Is(err, sink.ErrUnknown):
					unknown.Add(1)
				case errors.Is(err, sink.ErrRefused):
					refused.Add(1)
				default:
					t.Errorf("neither refused nor unknown: %v", err)
					return
				}
			}
		})
	}
	more := func() {
		t.Helper()
		was, packed := acked.Load(), packs.Load()
		if err := clustertest.Await(20*time.Second, func() (bool, error) { return acked.Load() > was+20 && packs.Load() > packed+20, nil }); err != nil {
			t.Fatalf("nothing is acknowledged, or packed, any more: %v", err)
		}
	}
	more()
	p.A.Kill() // in the middle of transactions
	p.A.Start()
	more()
	p.A.Pause()
	<-time.After(testLease / 2)
	p.A.Resume()
	more()
	p.A.Pause() // the old primary is there still
	p.B.Promote()
	p.A.Kill()
	p.A.Follow(p.B)
	p.B.AwaitStandby()
	more()
	close(stop)
	wg.Wait()
	l.check(t, all[0])
	got := int64(0)
	for i := range 5 {
		got += int64(sumOf(t, all[1], fmt.Sprint("k", i)))
	}
	if least, most := acked.Load(), acked.Load()+unknown.Load(); got < least || got > most {
		t.Errorf("counted to %d; %d were acknowledged, %d are unknown, %d were refused", got, acked.Load(), unknown.Load(), refused.Load())
	}
	t.Logf("%d acknowledged, %d unknown, %d refused, counted to %d, packed %d rows", acked.Load(), unknown.Load(), refused.Load(), got, packs.Load())
}

// BenchmarkRecords compares with the bare statements, in turns.
func BenchmarkRecords(b *testing.B) {
	p := clustertest.Start(b, clustertest.Options{Standby: true})
	n := open(b, p.A.Database(b), "n1")
	r := records(b, n)
	value := []byte(strings.Repeat("x", 300))
	c, err := n.e.Dial(context.Background())
	if err != nil {
		b.Fatal(err)
	}
	defer n.e.Drop(c)
	ctx := context.Background()
	b.Run("put", func(b *testing.B) {
		for i := range b.N {
			if err := r.Update(func(tx state.BackendTx) error { return tx.Put("x", fmt.Sprint(i), value) }); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("put, bare", func(b *testing.B) {
		for i := range b.N {
			if _, err := c.Exec(ctx, `INSERT INTO record (key, value) VALUES ($1, $2) ON CONFLICT (key) DO UPDATE SET value = excluded.value`, recordrow.Key("bare", fmt.Sprint(i)), value); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("read and put", func(b *testing.B) {
		for range b.N {
			if err := add(r, "k"); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("get", func(b *testing.B) {
		for range b.N {
			if _, found, err := r.Get("sums", "k"); err != nil || !found {
				b.Fatal(found, err)
			}
		}
	})
	b.Run("get, bare", func(b *testing.B) {
		for range b.N {
			var v []byte
			if err := c.QueryRow(ctx, `SELECT value FROM record WHERE key = $1`, recordrow.Key("sums", "k")).Scan(&v); err != nil && !errors.Is(err, pgx.ErrNoRows) {
				b.Fatal(err)
			}
		}
	})
}
