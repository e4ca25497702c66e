package cluster

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"umbra/gitstore/sink"
	"umbra/internal/blob"
	"umbra/internal/cluster/clustertest"
	"umbra/internal/cluster/engine"
	"umbra/internal/errs"
	"umbra/internal/need"
)

// freezer stops a node at its next points, as SIGSTOP would: its goroutines wait.
type freezer struct {
	mu     sync.Mutex
	thawed sync.Cond
	frozen bool
	at     map[string]bool // only at these points; nil: at all
	stuck  chan string     // the points at which a goroutine waits
}

func newFreezer() *freezer {
	f := &freezer{stuck: make(chan string, 1000)}
	f.thawed.L = &f.mu
	return f
}

func (f *freezer) option(o *Options) { o.at = f.wait }

func (f *freezer) wait(point string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for f.frozen && (f.at == nil || f.at[point]) {
		select {
		case f.stuck <- point:
		default:
		}
		f.thawed.Wait()
	}
}

// freeze stops the node at the given points, or at all.
func (f *freezer) freeze(points ...string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.frozen, f.at = true, nil
	for _, p := range points {
		if f.at == nil {
			f.at = map[string]bool{}
		}
		f.at[p] = true
	}
}

func (f *freezer) thaw() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.frozen = false
	f.thawed.Broadcast()
}

// awaitStuck waits until a goroutine waits at a point.
func (f *freezer) awaitStuck(t *testing.T, point string) {
	t.Helper()
	limit := time.After(20 * time.Second)
	for {
		select {
		case p := <-f.stuck:
			if p == point {
				return
			}
		case <-limit:
			t.Fatalf("no goroutine came to %q", point)
		}
	}
}

// scene is two nodes on one database, the first of which owns a workspace.
type scene struct {
	t      *testing.T
	pair   *clustertest.Pair
	url    string
	store  *blob.Memory
	freeze *freezer          // of n1
	link   *clustertest.Link // of n1 to the primary
	n1, n2 *Node
	s1     *Sink
	next   uint64
}

func newScene(t *testing.T, p *clustertest.Pair, change ...func(*Options)) *scene {
	t.Helper()
	s := &scene{t: t, pair: p, url: p.A.Database(t), store: blob.NewMemory(), freeze: newFreezer(), link: clustertest.NewLink(t, p.A.Address())}
	t.Cleanup(s.freeze.thaw)
	direct := strings.Replace(s.url, p.A.Address(), s.link.Address(), 1)
	s.n1 = open(t, direct, "n1", append(change, s.freeze.option)...)
	s.n2 = open(t, s.url, "n2", change...)
	t.Cleanup(s.freeze.thaw) // before the nodes end
	if _, err := s.n1.Create(context.Background(), Workspace{ID: "w", Kind: "virtual"}); err != nil {
		t.Fatal(err)
	}
	s.s1, _ = s.claim(s.n1)
	return s
}

// claim takes the workspace, from its owner once that is dead.
func (s *scene) claim(n *Node) (*Sink, *sink.Tail) {
	s.t.Helper()
	c, err := Await(context.Background(), 20*time.Second, func(ctx context.Context) (*Claim, error) { return n.Claim(ctx, "w") })
	if err != nil {
		s.t.Fatal(err)
	}
	k := n.Sink(c, s.store, time.Hour)
	tail, err := k.Tail(context.Background())
	if err != nil {
		s.t.Fatal(err)
	}
	s.next = tail.Next()
	return k, tail
}

func (s *scene) group(text string) *sink.Group {
	return &sink.Group{Pos: s.next, Seq: s.next, Data: []byte(text)}
}

func (s *scene) append(k *Sink, text string) {
	s.t.Helper()
	if err := k.Append(s.group(text)); err != nil {
		s.t.Fatal(err)
	}
	s.next++
}

// texts are the groups of a tail.
func texts(t *sink.Tail) string {
	var list []string
	for _, g := range t.Groups {
		if len(g.Data) > 0 {
			list = append(list, string(g.Data))
		}
	}
	return strings.Join(list, " ")
}

// begin appends in the background.
func (s *scene) begin(k *Sink, text string) <-chan error {
	done := make(chan error, 1)
	g := s.group(text)
	go func() { done <- k.Append(g) }()
	return done
}

// TestScenarios are situations in which a node, the engine or a link fails at the
// worst moment. Each names the mutants that it is there for.
func TestScenarios(t *testing.T) {
	p := clustertest.Start(t, clustertest.Options{Standby: true})
	for _, c := range scenarios {
		t.Run(c.name, func(t *testing.T) { c.run(t, p) })
	}
}

type scenario struct {
	name    string
	run     func(*testing.T, *clustertest.Pair)
	mutants []string // those that it catches
}

var scenarios = []scenario{
	{"an owner that was paused finds its position trimmed", pausedAppend, []string{noEpoch, positionOnly}},
	{"an owner that was paused while it read answers nothing", pausedRead, []string{leaseFirst}},
	{"a beat that was held up revives nothing", heldBeat, []string{reviveBeat}},
	{"an owner that was deposed removes no object", deposedSwap, []string{deleteNow}},
	{"without a standby an append is unknown, not refused and not acknowledged", standbyAway, []string{ackUnknown, cancelAppend}},
	{"a row that only a crashed primary had is not acknowledged", localRow, []string{resolveByRead}},
	{"an answer that was lost is found", lostAnswer, nil},
	{"a manifest after one that was refused is its own object", swapAfterRefusal, nil},
	{"after an outage no node takes from all others", outage, nil},
	{"an engine that no longer waits gets no writes", replicationOff, nil},
	{"an engine that cannot be reached refuses, and comes back", unreachable, nil},
	{"records whose answers were lost are counted once", recordsLostAnswer, nil},
	{"without a standby a change of records is not acknowledged", recordsStandbyAway, nil},
	{"what is written while its neighbors are packed is not packed over", writtenWhilePacked, []string{packUnguarded}},
	{"a claim sees an append that was on its way", claimWaits, nil},
	{"a claim takes nothing from a node that began to live while it waited", claimWaitsForLife, nil},
	{"a removal that a deadlock ended, and that was done then, is not refused", removedAfterDeadlock, nil},
}

func pausedAppend(t *testing.T, p *clustertest.Pair) {
	s := newScene(t, p)
	s.append(s.s1, "one")
	s.freeze.freeze()
	late := s.begin(s.s1, "late")
	s.freeze.awaitStuck(t, "append")
	s2, _ := s.claim(s.n2)
	s.append(s2, "two")
	m := &sink.Manifest{Version: 1, Base: s.next - 1, Seq: s.next - 1}
	need.NoError(t, s2.Swap(context.Background(), &sink.Switch{Manifest: m}))
	s.append(s2, "three")
	s.freeze.thaw()
	if err := <-late; !errors.Is(err, sink.ErrFenced) {
		t.Errorf("the append of a deposed owner: %v", err)
	}
	m2 := &sink.Manifest{Version: 1, Base: 2, Seq: 2}
	if err := s.s1.Swap(context.Background(), &sink.Switch{Manifest: m2}); !errors.Is(err, sink.ErrFenced) {
		t.Errorf("the swap of a deposed owner: %v", err)
	}
	s.append(s2, "four")
	need.NoError(t, s.n2.Release(context.Background(), s2.claim))
	_, tail := s.claim(s.n1)
	if got := texts(tail); got != "three four" || !bytes.Equal(tail.Manifest.Encode(), m.Encode()) {
		t.Errorf("the log has %q and manifest %+v", got, tail.Manifest)
	}
}

func pausedRead(t *testing.T, p *clustertest.Pair) {
	s := newScene(t, p)
	s.append(s.s1, "one")
	value := "one"
	life := s.s1.claim.Life
	if !life.Reading(func() {}) {
		t.Fatal("an owner with a lease does not read")
	}
	got := ""
	answered := life.Reading(func() {
		got = value
		s.freeze.freeze()
		s2, _ := s.claim(s.n2)
		s.append(s2, "two")
		s.freeze.thaw()
	})
	if answered {
		t.Errorf("%q was answered after another node wrote", got)
	}
}

func swapAfterRefusal(t *testing.T, p *clustertest.Pair) {
	s := newScene(t, p)
	s.append(s.s1, "one")
	base := s.next - 1
	need.NoError(t, s.n2.e.Do(context.Background(), func(ctx context.Context, c *engine.Conn) error {
		_, err := c.Exec(ctx, fmt.Sprintf(`ALTER TABLE workspace ADD CHECK (base_pos <> %d) NOT VALID`, base))
		return err
	}))
	manifest := func() *sink.Manifest { // too large for the row
		data := bytes.Repeat([]byte{byte(s.next)}, 2*inlineManifest)
		return &sink.Manifest{Version: 1, Base: s.next - 1, Seq: s.next - 1, Files: []sink.File{{Name: "state", Size: int64(len(data)), Data: data}}}
	}
	if err := s.s1.Swap(context.Background(), &sink.Switch{Manifest: manifest()}); !errors.Is(err, sink.ErrRefused) {
		t.Fatalf("the first: %v", err)
	}
	s.append(s.s1, "two")
	m := manifest()
	need.NoError(t, s.s1.Swap(context.Background(), &sink.Switch{Manifest: m}))
	need.NoError(t, s.n1.Release(context.Background(), s.s1.claim))
	if _, tail := s.claim(s.n2); !bytes.Equal(tail.Manifest.Encode(), m.Encode()) {
		t.Errorf("the manifest is %+v", tail.Manifest)
	}
}

func heldBeat(t *testing.T, p *clustertest.Pair) {
	s := newScene(t, p)
	life := s.s1.claim.Life
	s.link.Hold(clustertest.There)
	s2, _ := s.claim(s.n2)
	s.append(s2, "two")
	s.link.Release()
	limit := time.After(5 * testLease)
	for over := false; !over; {
		select {
		case <-life.Over():
			over = true
		case <-limit:
			t.Fatal("the life goes on")
		case <-time.After(testLease / 50):
			if life.Held() {
				t.Fatal("the life has a lease again")
			}
		}
	}
	// The node goes on with another life.
	need.NoError(t, s.n2.Release(context.Background(), s2.claim))
	if err := clustertest.Await(10*time.Second, func() (bool, error) { l, _ := s.n1.Life(); return l != life && l.Held(), nil }); err != nil {
		t.Fatal(err)
	}
	if _, tail := s.claim(s.n1); texts(tail) != "two" {
		t.Errorf("the log has %q", texts(tail))
	}
}

func deposedSwap(t *testing.T, p *clustertest.Pair) {
	ctx := context.Background()
	s := newScene(t, p)
	s.append(s.s1, "one")
	pack, err := s.s1.Put(ctx, strings.NewReader("pack"), 4)
	need.NoError(t, err)
	m := &sink.Manifest{Version: 1, Base: s.next - 1, Packs: []sink.Pack{{Name: pack, Size: 4}}}
	need.NoError(t, s.s1.Swap(ctx, &sink.Switch{Manifest: m}))
	merged, err := s.s1.Put(ctx, strings.NewReader("merged"), 6)
	need.NoError(t, err)
	s.freeze.freeze()
	done := make(chan error, 1)
	go func() {
		done <- s.s1.Swap(ctx, &sink.Switch{Manifest: &sink.Manifest{Version: 2, Base: m.Base, Packs: []sink.Pack{{Name: merged, Size: 6}}}, Drop: []string{pack}})
	}()
	s.freeze.awaitStuck(t, "swap")
	s2, tail := s.claim(s.n2)
	s.freeze.thaw()
	if err := <-done; !errors.Is(err, sink.ErrFenced) {
		t.Errorf("the swap of a deposed owner: %v", err)
	}
	r, err := s2.Fetch(ctx, tail.Manifest.Packs[0].Name, 0, -1)
	if err != nil {
		t.Fatalf("the pack that the manifest names: %v", err)
	}
	if b, err := io.ReadAll(r); err != nil || string(b) != "pack" {
		t.Errorf("%q, %v", b, err)
	}
}

func standbyAway(t *testing.T, p *clustertest.Pair) {
	s := newScene(t, p, func(o *Options) { o.Wait = 2 * time.Second })
	s.append(s.s1, "one")
	p.B.Pause()
	defer p.B.Resume()
	err := <-s.begin(s.s1, "two")
	if err == nil {
		t.Fatal("an append was acknowledged without the standby")
	}
	refused := errors.Is(err, sink.ErrRefused)
	p.B.Resume()
	// The node sees what became of it by its next claim.
	_, tail := s.claim(s.n1)
	if got := texts(tail); refused && got != "one" {
		t.Errorf("the log has %q, and an append of it was refused: %v", got, err)
	} else if !refused && got != "one two" {
		t.Errorf("the sent group is not there: %q", got)
	}
}

func localRow(t *testing.T, p *clustertest.Pair) {
	s := newScene(t, p, func(o *Options) { o.Wait = 30 * time.Second })
	s.append(s.s1, "one")
	p.B.Kill()
	done := s.begin(s.s1, "two")
	p.A.Await("SELECT count(*) > 0 FROM pg_stat_activity WHERE wait_event = 'SyncRep' AND query LIKE '%INSERT INTO journal%'", "t")
	p.A.Kill()
	p.A.Start()
	// The lane resolves, and its statement waits as well.
	p.A.Await("SELECT count(*) > 0 FROM pg_stat_activity WHERE wait_event = 'SyncRep' OR query LIKE '%SELECT nonce%' AND query NOT LIKE '%pg_stat_activity%'", "t")
	select {
	case err := <-done:
		t.Errorf("no standby has the row, and the append returned %v", err)
	case <-time.After(testLease):
	}
	p.B.Start()
	p.A.AwaitStandby()
	if !t.Failed() {
		if err := <-done; err != nil {
			t.Errorf("once the standby was back: %v", err)
		}
	}
}

func lostAnswer(t *testing.T, p *clustertest.Pair) {
	s := newScene(t, p)
	for i := range 10 {
		s.freeze.freeze("append")
		done := s.begin(s.s1, fmt.Sprint(i))
		s.freeze.awaitStuck(t, "append")
		s.link.CutBeforeAnswer()
		s.freeze.thaw()
		need.NoError(t, <-done)
		s.next++
	}
	need.NoError(t, s.n1.Release(context.Background(), s.s1.claim))
	if _, tail := s.claim(s.n2); texts(tail) != "0 1 2 3 4 5 6 7 8 9" {
		t.Errorf("the log has %q", texts(tail))
	}
}

func outage(t *testing.T, p *clustertest.Pair) {
	s := newScene(t, p)
	life := s.s1.claim.Life
	p.A.Pause()
	<-time.After(3 * testLease)
	if life.Held() {
		t.Error("a lease is held that no beat renewed")
	}
	p.A.Resume()
	if err := clustertest.Await(20*time.Second, func() (bool, error) { return life.Held(), nil }); err != nil {
		t.Fatalf("the life did not go on: %v", err)
	}
	s.append(s.s1, "one")
	select {
	case <-life.Over():
		t.Error("the life was declared dead for an outage of the engine")
	default:
	}
}

func replicationOff(t *testing.T, p *clustertest.Pair) {
	s := newScene(t, p)
	s.append(s.s1, "one")
	p.A.Set("synchronous_standby_names", "")
	defer p.A.Set("synchronous_standby_names", "ANY 1 (b)")
	// At once or by the next beat: never acknowledged in between.
	if err := s.s1.Append(s.group("two")); err == nil {
		t.Error("an append was acknowledged while nothing waited for a standby")
	}
	if err := clustertest.Await(2*time.Second, func() (bool, error) { return s.n2.Engine().Reason == "replication_off", nil }); err != nil {
		t.Errorf("the other node does not know: %v", err)
	}
	if _, err := s.n1.Claim(context.Background(), "w"); err == nil {
		t.Error("a workspace was claimed while nothing waited for a standby")
	}
	_, err := tryOpen(t, s.url, "n3")
	var r *Refusal
	if !errors.As(err, &r) || r.Code != "replication_off" || r.Sentence != "Nothing waits for a standby: synchronous_standby_names is empty." {
		t.Errorf("a start: %v", err)
	}
	p.A.Set("synchronous_standby_names", "ANY 1 (b)")
	need.NoError(t, clustertest.Await(5*time.Second, func() (bool, error) { return s.n1.Engine().Reason == "", nil }))
	if _, tail := s.claim(s.n1); !strings.HasPrefix(texts(tail), "one") {
		t.Errorf("the log has %q", texts(tail))
	}
}

func unreachable(t *testing.T, p *clustertest.Pair) {
	s := newScene(t, p, func(o *Options) { o.Wait = time.Second })
	s.append(s.s1, "one")
	s.link.Refuse()
	need.NoError(t, clustertest.Await(10*time.Second, func() (bool, error) { return s.n1.Engine().Reason == "unreachable", nil }))
	for range 2 * laneCount {
		err := s.s1.Append(s.group("two"))
		e, ok := errors.AsType[*errs.Error](err)
		if !errors.Is(err, sink.ErrRefused) || !ok || e.Code != "engine_unavailable" && e.Code != "owner_moving" {
			t.Fatalf("an append without an engine: %v", err)
		}
	}
	s.link.Accept()
	need.NoError(t, clustertest.Await(10*time.Second, func() (bool, error) { return s.n1.Engine().Reason == "", nil }))
	if _, tail := s.claim(s.n1); texts(tail) != "one" {
		t.Errorf("the log has %q: a refused append is in it", texts(tail))
	}
}

// heldRow is a transaction that has the workspace's row locked, as an append on its
// way does.
type heldRow struct {
	t  *testing.T
	e  *engine.Engine
	c  *engine.Conn
	tx pgx.Tx
}

func holdRow(t *testing.T, n *Node, statement string, args ...any) *heldRow {
	t.Helper()
	ctx := context.Background()
	c, err := n.e.Dial(ctx)
	need.NoError(t, err)
	if _, err := c.Exec(ctx, "SET idle_in_transaction_session_timeout = 0"); err != nil {
		t.Fatal(err)
	}
	tx, err := c.Begin(ctx)
	need.NoError(t, err)
	h := &heldRow{t: t, e: n.e, c: c, tx: tx}
	h.exec(statement, args...)
	return h
}

func (h *heldRow) exec(statement string, args ...any) {
	h.t.Helper()
	if _, err := h.tx.Exec(context.Background(), statement, args...); err != nil {
		h.t.Fatal(err)
	}
}

func (h *heldRow) commit() {
	h.t.Helper()
	if err := h.tx.Commit(context.Background()); err != nil {
		h.t.Error(err)
	}
	h.e.Drop(h.c)
}

// waiting waits until a statement waits for a lock.
func waiting(p *clustertest.Pair, like string) {
	p.A.Await(fmt.Sprintf("SELECT count(*) > 0 FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '%%%s%%'", like), "t")
}

func claimWaits(t *testing.T, p *clustertest.Pair) {
	s := newScene(t, p)
	s.append(s.s1, "one")
	g := s.group("on its way")
	row := holdRow(t, s.n1, appendGroups, []string{"w"}, []int64{int64(s.next)}, []int64{s.s1.claim.Epoch}, []int64{1}, [][]byte{g.AppendTo(nil)})
	if err := s.n1.e.Do(context.Background(), func(ctx context.Context, c *engine.Conn) error {
		_, err := c.Exec(ctx, `UPDATE node SET state = 'dead' WHERE life = $1`, s.s1.claim.Life.ID)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	claimed := make(chan string, 1)
	go func() {
		_, tail := s.claim(s.n2)
		claimed <- texts(tail)
	}()
	waiting(p, "workspace")
	row.commit()
	if got := <-claimed; got != "one on its way" {
		t.Errorf("the claim sees %q", got)
	}
}

func claimWaitsForLife(t *testing.T, p *clustertest.Pair) {
	ctx := context.Background()
	s := newScene(t, p)
	need.NoError(t, s.n1.Release(ctx, s.s1.claim))
	row := holdRow(t, s.n1, claimLock, "w")
	result := make(chan error, 1)
	go func() {
		_, err := s.n2.Claim(ctx, "w")
		result <- err
	}()
	waiting(p, "workspace")
	n3 := open(t, s.url, "n3")
	life, _ := n3.Life()
	row.exec(`UPDATE workspace SET epoch = epoch + 1, owner = $1 WHERE id = 'w'`, life.ID)
	row.commit()
	var owned *OwnedError
	if err := <-result; !errors.As(err, &owned) || owned.Owner.Name != "n3" {
		t.Errorf("a claim of what another has claimed: %v", err)
	}
}

func removedAfterDeadlock(t *testing.T, p *clustertest.Pair) {
	s := newScene(t, p)
	g := s.group("with a pack")
	g.Packs = []sink.Pack{{Name: "w/1-x.pack", Size: 1}}
	need.NoError(t, s.s1.Append(g))
	c, err := s.n1.Claim(context.Background(), "w")
	need.NoError(t, err)
	row := holdRow(t, s.n2, `INSERT INTO garbage (key, not_before) VALUES ('w/1-x.pack', now())`)
	removed := make(chan error, 1)
	go func() { removed <- s.n1.Sink(c, s.store, time.Hour).Remove(context.Background(), true) }()
	waiting(p, "DELETE FROM workspace")
	row.exec(`SELECT FROM workspace WHERE id = 'w' FOR UPDATE`) // the one that waits for longer is ended
	row.commit()
	if err := <-removed; err != nil {
		t.Errorf("the removal: %v", err)
	}
	if _, err := s.n2.Find(context.Background(), "w"); !errors.Is(err, ErrNotFound) {
		t.Errorf("after the removal: %v", err)
	}
}
