package workspaces

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"umbra/gitstore/remote"
	"umbra/gitstore/sink"
	"umbra/gitstore/sink/sinktest"
	"umbra/internal/errs"
	"umbra/internal/witness"
	"umbra/internal/workspace"
)

// shop is what the servers of a test share.
type shop struct {
	t    testing.TB
	recs MemRecords
	// putting, if not nil, is called before a record is written.
	putting func()
	// cacheLimit is Options.CacheLimit of the servers started after it was set.
	cacheLimit func(cached int64) int64
	// over is what a claim's log is used by; nil: it is used as it is.
	over func(log sink.Sink) sink.Sink
	// now is Options.Now.
	now func() time.Time

	mu   sync.Mutex
	rows map[string]*shopRow
}

type shopRow struct {
	namespace string
	owner     *clerk
	epoch     int64
	log       *sinktest.Memory
}

type shopRecords struct {
	*MemRecords
	s *shop
}

func (r shopRecords) Put(list ...Record) error {
	if r.s.putting != nil {
		r.s.putting()
	}
	return r.MemRecords.Put(list...)
}

// clerk is one server's part.
type clerk struct {
	s    *shop
	name string
	m    *Manager
	dead chan struct{}
	once sync.Once
	// asked, if not nil, is sent to by each claim for a request that can go elsewhere,
	// which waits for it.
	asked chan struct{}
}

func newShop(t testing.TB) *shop { return &shop{t: t, rows: map[string]*shopRow{}} }

// server starts a server.
func (s *shop) server(name string, hooks ...Hooks) *clerk {
	s.t.Helper()
	c := &clerk{s: s, name: name, dead: make(chan struct{})}
	m, err := NewManager(Options{DataDir: s.t.TempDir(), Records: shopRecords{&s.recs, s}, Shared: c, Server: name, CacheLimit: s.cacheLimit, Now: s.now})
	must(s.t, err)
	c.m = m
	for _, h := range hooks {
		m.AddHooks(h)
	}
	s.t.Cleanup(func() {
		c.die()
		if err := m.Close(context.Background()); err != nil {
			s.t.Error(err)
		}
	})
	return c
}

// die makes others take over what the server has.
func (c *clerk) die() { c.once.Do(func() { close(c.dead) }) }

func (c *clerk) isDead() bool {
	select {
	case <-c.dead:
		return true
	default:
		return false
	}
}

func (c *clerk) Create(_ context.Context, r Record) (string, error) {
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	name := strings.Join(r.Namespace, "\x00")
	for id, row := range c.s.rows {
		if name != "" && row.namespace == name {
			return id, nil
		}
	}
	c.s.rows[r.ID] = &shopRow{namespace: name, log: sinktest.NewMemory()}
	return r.ID, nil
}

func (c *clerk) Claim(ctx context.Context, r Record) (*Held, error) {
	_, forwardable := witness.IsForwardable(ctx)
	if forwardable && c.asked != nil {
		c.asked <- struct{}{}
	}
	for {
		c.s.mu.Lock()
		row := c.s.rows[r.ID]
		if row == nil && r.Fork != nil && r.Fork.Unmade {
			row = &shopRow{log: sinktest.NewMemory()}
			c.s.rows[r.ID] = row
		}
		if row == nil {
			c.s.mu.Unlock()
			return nil, errs.New(errs.NotFound, "workspace_not_found", "It does not exist.")
		}
		owner := row.owner
		if owner == c {
			c.s.t.Errorf("%s claims %s twice", c.name, r.ID)
		}
		if owner == nil || owner.isDead() {
			row.owner = c
			row.epoch++
			epoch := row.epoch
			var k sink.Sink = row.log.Claim()
			if c.s.over != nil {
				k = c.s.over(k)
			}
			c.s.mu.Unlock()
			return &Held{Sink: k, Epoch: epoch, Lost: c.dead, Release: func(context.Context) {
				c.s.mu.Lock()
				defer c.s.mu.Unlock()
				if row.owner == c && row.epoch == epoch && !c.isDead() {
					row.owner = nil
				}
			}}, nil
		}
		c.s.mu.Unlock()
		if forwardable {
			return nil, &errs.Error{Kind: errs.Unavailable, Code: "owner_moving", Err: ErrOwnedElsewhere}
		}
		if err := owner.m.Yield(ctx, r.ID, false); err != nil {
			return nil, err
		}
	}
}

func (c *clerk) Former(context.Context, string) (uint64, bool, error) { return 0, false, nil }

func (c *clerk) Orphaned(context.Context, string, []string) error { return nil }

func (c *clerk) Copy(context.Context, string) (sink.Sink, error) { return nil, remote.ErrNoCopy }

func (c *clerk) View(_ context.Context, id string, _ Point) (sink.Sink, Point, error) {
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	row := c.s.rows[id]
	if row == nil {
		return nil, Point{}, errMoving()
	}
	return row.log.Clone().Claim(), Point{Exact: true}, nil
}

func (c *clerk) Elsewhere(server string) error {
	return errs.New(errs.Unavailable, "node_down", "It is at %s.", server)
}

func (c *clerk) Remove(_ context.Context, id string, history bool) error {
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	if c.s.rows[id].owner != c {
		return errMoving()
	}
	if history {
		delete(c.s.rows, id)
	} else {
		c.s.rows[id].namespace = ""
	}
	return nil
}

func (c *clerk) open(namespace ...string) *workspace.Workspace {
	c.s.t.Helper()
	w, err := c.m.OpenVirtual(context.Background(), namespace)
	must(c.s.t, err)
	return w
}

func put(t testing.TB, w *workspace.Workspace, p, data string) *workspace.Result {
	t.Helper()
	res, err := w.Apply(context.Background(), workspace.Request{Ops: []workspace.Op{write(p, data)}})
	must(t, err)
	return res
}

// stuckSink is a log whose appends do not return while it is held.
type stuckSink struct {
	sink.Sink
	asked, free chan struct{}
}

func (s *stuckSink) Append(g *sink.Group) error {
	select {
	case s.asked <- struct{}{}:
	case <-s.free:
	}
	<-s.free
	return s.Sink.Append(g)
}

// TestSharedStuck: a workspace in which a request does not end is released in bounded
// time. The request acknowledges nothing, and until it has ended the workspace is not
// opened again by the same server.
func TestSharedStuck(t *testing.T) {
	s := newShop(t)
	a, b := s.server("a"), s.server("b")
	w := a.open("x")
	id := w.ID()
	put(t, w, "f", "one")
	w.Release()
	must(t, a.m.Yield(t.Context(), id, false))

	stuck := &stuckSink{asked: make(chan struct{}), free: make(chan struct{})}
	s.over = func(log sink.Sink) sink.Sink {
		stuck.Sink = log
		return stuck
	}
	w, err := a.m.Get(t.Context(), id)
	must(t, err)
	s.over = nil
	wrote := make(chan error, 1)
	go func() {
		defer w.Release()
		_, err := w.Apply(context.Background(), workspace.Request{Ops: []workspace.Op{write("f", "two")}})
		wrote <- err
	}()
	<-stuck.asked
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	yielded := make(chan error, 1)
	go func() { yielded <- a.m.Yield(ctx, id, false) }()
	select {
	case err := <-yielded:
		if err == nil {
			t.Error("a request is in it, and it is closed")
		}
	case <-time.After(20 * time.Second):
		t.Fatal("it is not released")
	}
	other, err := b.m.Get(t.Context(), id)
	must(t, err)
	if got := read(t, other, "f"); got != "one" {
		t.Errorf("%q", got)
	}
	put(t, other, "f", "three")
	other.Release()
	soon, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if _, err := a.m.Get(soon, id); err == nil {
		t.Error("it is opened next to what is in it")
	}
	close(stuck.free)
	if err := <-wrote; err == nil {
		t.Error("what was written without the workspace is acknowledged")
	}
	again, err := a.m.Get(t.Context(), id)
	must(t, err)
	defer again.Release()
	if got := read(t, again, "f"); got != "three" {
		t.Errorf("%q", got)
	}
}

func TestSharedMoves(t *testing.T) {
	s := newShop(t)
	a, b := s.server("a"), s.server("b")
	w := a.open("x", "y")
	id := w.ID()
	first := put(t, w, "f", "one")
	w.Release()

	w2 := b.open("x", "y")
	if w2.ID() != id || w2.Store().Tip() != w.Store().Tip() || read(t, w2, "f") != "one" {
		t.Fatalf("%s at %+v, was %s at %+v", w2.ID(), w2.Store().Tip(), id, w.Store().Tip())
	}
	if _, err := w.Apply(t.Context(), workspace.Request{Ops: []workspace.Op{write("f", "late")}}); errs.CodeOf(err) != "owner_moving" {
		t.Errorf("a write at the former owner: %v", err)
	}
	second := put(t, w2, "f", "two")
	if second.Seq != first.Seq+1 {
		t.Errorf("seq %d after %d", second.Seq, first.Seq)
	}
	w2.Release()

	// The owner dies over an open workspace.
	b.die()
	w3 := a.open("x", "y")
	defer w3.Release()
	if tip := w3.Store().Tip(); tip.Commit != second.Commit || read(t, w3, "f") != "two" {
		t.Errorf("%+v", tip)
	}
	if n, err := s.recs.Count(); n != 1 || err != nil {
		t.Errorf("%d workspaces, %v", n, err)
	}
}

func TestSharedHooks(t *testing.T) {
	s := newShop(t)
	var mu sync.Mutex
	var told []string
	note := func(name string) Hooks {
		add := func(what string) {
			mu.Lock()
			defer mu.Unlock()
			told = append(told, name+" "+what)
		}
		return Hooks{
			Entered: func(_ context.Context, w *workspace.Workspace) error {
				if w.Store().Tip().Seq == 0 {
					return errors.New("it has no baseline")
				}
				add("entered")
				return nil
			},
			Leaving: func(context.Context, string) { add("leaving") },
			Lost:    func(string) { add("lost") },
		}
	}
	a, b := s.server("a", note("a")), s.server("b", note("b"))
	w := a.open("n")
	w.Release()
	b.open("n").Release()
	b.die()
	a.open("n").Release()
	mu.Lock()
	defer mu.Unlock()
	// When a dead server finds out is not settled.
	got := strings.Join(told, ", ")
	if !strings.HasPrefix(got, "a entered, a leaving, b entered, ") || strings.Contains(got, "b leaving") {
		t.Error(got)
	}
}

// TestSharedLost: a workspace that was lost is closed, and what it had is not written.
func TestSharedLost(t *testing.T) {
	s := newShop(t)
	lost := make(chan string, 1)
	a := s.server("a", Hooks{Lost: func(id string) { lost <- id }, Leaving: func(context.Context, string) { t.Error("it writes") }})
	w := a.open("n")
	defer w.Release()
	a.die()
	select {
	case id := <-lost:
		if id != w.ID() {
			t.Error(id)
		}
	case <-time.After(10 * time.Second):
		t.Fatal("the loss is not noticed")
	}
	if _, err := w.Apply(t.Context(), workspace.Request{Ops: []workspace.Op{write("f", "x")}}); errs.CodeOf(err) != "owner_moving" {
		t.Errorf("a write: %v", err)
	}
	if _, err := w.Stat(t.Context(), "f"); errs.CodeOf(err) != "owner_moving" {
		t.Errorf("a read: %v", err)
	}
}

// TestSharedUnknown: after an append whose outcome is unknown the workspace is opened
// again.
func TestSharedUnknown(t *testing.T) {
	for _, fault := range []sinktest.Fault{sinktest.UnknownNot, sinktest.UnknownIs} {
		s := newShop(t)
		a := s.server("a")
		w := a.open("n")
		var once atomic.Bool
		s.mu.Lock()
		s.rows[w.ID()].log.OnCall = func(c sinktest.Call) sinktest.Fault {
			if c.Op == "append" && once.CompareAndSwap(false, true) {
				return fault
			}
			return sinktest.None
		}
		s.mu.Unlock()
		_, err := w.Apply(t.Context(), workspace.Request{Ops: []workspace.Op{write("f", "x")}})
		if !errors.Is(err, sink.ErrUnknown) {
			t.Fatalf("fault %d: %v", fault, err)
		}
		w.Release()
		again := func() (*workspace.Result, error) {
			w, err := a.m.Get(t.Context(), w.ID())
			if err != nil {
				return nil, err
			}
			defer w.Release()
			return w.Apply(t.Context(), workspace.Request{Ops: []workspace.Op{write("g", "x")}})
		}
		var res *workspace.Result
		for deadline := time.Now().Add(10 * time.Second); ; {
			if res, err = again(); err == nil || time.Now().After(deadline) {
				break
			}
			if errs.CodeOf(err) != "owner_moving" {
				t.Fatal(err)
			}
		}
		must(t, err)
		want := uint64(2)
		if fault == sinktest.UnknownIs {
			want = 3
		}
		if res.Seq != want {
			t.Errorf("fault %d: seq %d, not %d", fault, res.Seq, want)
		}
	}
}

// TestSharedFamily: a workspace and its forks move together.
func TestSharedFamily(t *testing.T) {
	s := newShop(t)
	a, b := s.server("a"), s.server("b")
	w := a.open("n")
	put(t, w, "f", "one")
	forks, err := a.m.ForkVirtual(t.Context(), w, ForkSpec{}, []string{"left", "right"})
	must(t, err)
	put(t, w, "f", "two")
	left, err := a.m.Get(t.Context(), forks[0].ID)
	must(t, err)
	put(t, left, "g", "left")
	tip := left.Store().Tip()
	left.Release()
	w.Release()

	if b.m.Family(forks[1].ID) != w.ID() {
		t.Error("no family")
	}
	right, err := b.m.Get(t.Context(), forks[1].ID) // never opened before
	must(t, err)
	if read(t, right, "f") != "one" {
		t.Error("the fork has another file")
	}
	right.Release()
	s.mu.Lock()
	for id, row := range s.rows {
		if row.owner == a {
			t.Errorf("%s stayed", id)
		}
	}
	s.mu.Unlock()
	left, err = b.m.Get(t.Context(), forks[0].ID)
	must(t, err)
	if left.Store().Tip() != tip || read(t, left, "g") != "left" || read(t, left, "f") != "one" {
		t.Errorf("%+v, was %+v", left.Store().Tip(), tip)
	}
	left.Release()

	must(t, b.m.Detach(t.Context(), w.ID()))
	must(t, a.m.Forget(t.Context(), w.ID(), true))
	left, err = a.m.Get(t.Context(), forks[0].ID)
	must(t, err)
	defer left.Release()
	if left.Store().ForkedAt() != 0 || left.Store().Tip() != tip || read(t, left, "g") != "left" || read(t, left, "f") != "one" {
		t.Errorf("%+v, was %+v", left.Store().Tip(), tip)
	}
	if found, err := left.Store().Verify(t.Context(), nil); err != nil || len(found.Problems) > 0 {
		t.Errorf("%+v, %v", found, err)
	}
	right, err = a.m.Get(t.Context(), forks[1].ID)
	must(t, err)
	defer right.Release()
	if right.Store().Tip().Commit.String() != forks[1].Fork.At || read(t, right, "f") != "one" {
		t.Errorf("%+v", right.Store().Tip())
	}
}

// TestSharedForget: the namespace is free, on every server.
func TestSharedForget(t *testing.T) {
	for _, history := range []bool{true, false} {
		s := newShop(t)
		a, b := s.server("a"), s.server("b")
		w := a.open("n")
		put(t, w, "f", "one")
		w.Release()
		must(t, b.m.Forget(t.Context(), w.ID(), history))
		if _, err := a.m.Get(t.Context(), w.ID()); errs.CodeOf(err) != "workspace_not_found" {
			t.Error(err)
		}
		w2 := a.open("n")
		if w2.ID() == w.ID() || w2.Store().Tip().Seq != 1 {
			t.Errorf("%s %+v", w2.ID(), w2.Store().Tip())
		}
		w2.Release()
	}
}

// TestSharedMaking: one workspace a namespace, whichever server makes it, and one whose maker
// died is finished.
func TestSharedMaking(t *testing.T) {
	s := newShop(t)
	servers := []*clerk{s.server("a"), s.server("b"), s.server("c")}
	id, err := servers[0].Create(t.Context(), Record{ID: "cut-off", Namespace: []string{"cut"}})
	must(t, err)
	var wg sync.WaitGroup
	ids := make(chan string, 60)
	for i := range 60 {
		wg.Go(func() {
			w, err := servers[i%3].m.OpenVirtual(context.Background(), []string{"cut"})
			if err != nil {
				t.Error(err)
				return
			}
			defer w.Release()
			ids <- w.ID()
		})
	}
	wg.Wait()
	close(ids)
	for got := range ids {
		if got != id {
			t.Errorf("%s, not %s", got, id)
		}
	}
}

// TestPutAwayOfWhatCannotBeOpened: a workspace that could not be opened while somebody
// waited to put it away is opened again meanwhile, and stays what it is then.
func TestPutAwayOfWhatCannotBeOpened(t *testing.T) {
	m := newShop(t).server("a").m
	failed, next := newHandle(), newHandle()
	m.mu.Lock()
	m.open["w"] = failed
	m.mu.Unlock()
	done := make(chan error)
	go func() { done <- m.putAway(t.Context(), "w", nil, false) }()
	for closing := false; !closing; runtime.Gosched() {
		m.mu.Lock()
		closing = failed.closing != nil
		m.mu.Unlock()
	}
	m.mu.Lock()
	m.open["w"] = next // as another request does after it failed
	m.mu.Unlock()
	close(failed.ready)
	must(t, <-done)
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.open["w"] != next {
		t.Error("the next one is forgotten, and would be claimed a second time")
	}
	delete(m.open, "w")
}

// TestSharedWriters: writers on three servers, and a workspace that moves between
// them all the time: nothing that was acknowledged is lost, and each commit has a
// number of its own.
func TestSharedWriters(t *testing.T) {
	s := newShop(t)
	servers := []*clerk{s.server("a"), s.server("b"), s.server("c")}
	servers[0].open("n").Release()
	var mu sync.Mutex
	seqs := map[uint64]string{}
	var wg sync.WaitGroup
	for i := range 9 {
		wg.Go(func() {
			for j := range 20 {
				name := fmt.Sprintf("f%d-%d", i, j)
				for {
					res, err := func() (*workspace.Result, error) {
						w, err := servers[i%3].m.OpenVirtual(context.Background(), []string{"n"})
						if err != nil {
							return nil, err
						}
						defer w.Release()
						return w.Apply(context.Background(), workspace.Request{Ops: []workspace.Op{write(name, name)}})
					}()
					if errs.CodeOf(err) == "owner_moving" {
						continue
					}
					if err != nil {
						t.Error(err)
						return
					}
					mu.Lock()
					if seqs[res.Seq] != "" {
						t.Errorf("%d is %s and %s", res.Seq, seqs[res.Seq], name)
					}
					seqs[res.Seq] = name
					mu.Unlock()
					break
				}
			}
		})
	}
	wg.Wait()
	w := servers[1].open("n")
	defer w.Release()
	if tip := w.Store().Tip(); tip.Seq != 181 || len(seqs) != 180 {
		t.Errorf("%d commits, tip %d", len(seqs), tip.Seq)
	}
	for _, name := range seqs {
		if read(t, w, name) != name {
			t.Errorf("%s is missing", name)
		}
	}
}

// TestSharedDirectories: a server opens directories only if it is told to, and they are
// its own.
func TestSharedDirectories(t *testing.T) {
	s := newShop(t)
	a, b := s.server("a"), s.server("b")
	dir := t.TempDir()
	if _, _, err := a.m.Open(t.Context(), dir, OpenOptions{}); errs.CodeOf(err) != "physical_off" {
		t.Errorf("a directory: %v", err)
	}
	if n, err := s.recs.Count(); n != 0 || err != nil {
		t.Errorf("%d workspaces, %v", n, err)
	}
	a.m.opt.Physical, b.m.opt.Physical = true, true
	w, _, err := a.m.Open(t.Context(), dir, OpenOptions{})
	must(t, err)
	if w.Store().Held() != nil || s.rows[w.ID()] == nil {
		t.Error("a directory's history is shared, or others do not know of it")
	}
	w.Release()
	if _, err := b.m.Get(t.Context(), w.ID()); errs.CodeOf(err) != "node_down" {
		t.Errorf("at the other server: %v", err)
	}
	if _, state, ok := b.m.Resting(w.ID()); !ok || state != workspace.Clean {
		t.Errorf("listed by the other server: %s %t", state, ok)
	}
	// Another directory at its path is another workspace's at another machine alone.
	must(t, os.Rename(dir, dir+"-before"))
	must(t, os.Mkdir(dir, 0o755))
	if id, server, err := b.m.DirectoryAt(dir); id != "" || err != nil {
		t.Errorf("on another machine: %s at %s, %v", id, server, err)
	}
	b.m.opt.SeesSame = func(server string) bool { return server == "a" }
	if id, server, err := b.m.DirectoryAt(dir); id != w.ID() || server != "a" || err != nil {
		t.Errorf("on its machine: %s at %s, %v", id, server, err)
	}
	again, err := NewManager(Options{DataDir: t.TempDir(), Records: &s.recs, Shared: b, Server: "b", Physical: true})
	must(t, err)
	if list := again.Physical(); len(list) != 0 {
		t.Errorf("%+v", list)
	}
	must(t, again.Close(t.Context()))
}

// TestSharedOwn: the server's own directories are virtual, with a copy at each server
// of what that one wrote.
func TestSharedOwn(t *testing.T) {
	s := newShop(t)
	a, b := s.server("a"), s.server("b")
	at, bt := Own{Dir: t.TempDir() + "/new", Name: "code"}, Own{Dir: t.TempDir(), Name: "code"}
	if w, err := b.m.OpenOwn(t.Context(), bt, false); w != nil || err != nil {
		t.Fatal(w, err)
	}
	w, err := a.m.OpenOwn(t.Context(), at, true)
	must(t, err)
	put(t, w, "d/f.ts", "one")
	host := a.m.CopyOwn(at, w, "d/f.ts", []byte("one"))
	if data, err := os.ReadFile(host); string(data) != "one" || err != nil || host != at.Dir+"/d/f.ts" {
		t.Errorf("%s: %s, %v", host, data, err)
	}
	w.Release()
	w2, err := b.m.OpenOwn(t.Context(), bt, false)
	must(t, err)
	defer w2.Release()
	if w2.ID() != w.ID() || read(t, w2, "d/f.ts") != "one" {
		t.Errorf("%s, not %s", w2.ID(), w.ID())
	}
	a.m.CopyOwn(at, w2, "d/f.ts", nil)
	a.m.CopyOwn(at, w2, "d/f.ts", nil)
	if list, err := os.ReadDir(at.Dir + "/d"); len(list) != 0 || err != nil {
		t.Errorf("%v, %v", list, err)
	}
}
