package task

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"umbra/gitstore/message"
	"umbra/gitstore/object"
	"umbra/gitstore/sink"
	"umbra/internal/errs"
	"umbra/internal/idem"
	"umbra/internal/state"
	"umbra/internal/vfs"
	"umbra/internal/workspace"
	"umbra/internal/workspaces"
)

// pair is two servers' services over one database. The workspace's store is one: it
// moves between them by epoch alone.
type pair struct {
	t        *testing.T
	db       *state.DB
	manager  *workspaces.Manager
	one, two *Service
	epochs   map[*Service]int64
	last     int64
	w        *workspace.Workspace
	objects  *memObjects
}

func newPair(t *testing.T) *pair {
	t.Helper()
	p := &pair{t: t, db: state.NewShared(), epochs: map[*Service]int64{}, objects: &memObjects{has: map[string][]byte{}}}
	dir := t.TempDir()
	var err error
	p.manager, err = workspaces.NewManager(workspaces.Options{DataDir: dir, Records: &workspaces.MemRecords{}})
	p.check(err)
	t.Cleanup(func() { p.check(p.manager.Close(context.Background())) })
	for _, s := range []**Service{&p.one, &p.two} {
		own := filepath.Join(dir, "tasks"+string(rune('a'+len(p.epochs))))
		p.check(os.Mkdir(own, 0o700))
		files, err := vfs.OS(own)
		p.check(err)
		*s, err = New(context.Background(), Options{Workspaces: p.manager, State: p.db, FS: files, Dir: own, Objects: p.objects,
			Epoch: func(string) int64 { return p.epochs[*s] }})
		p.check(err)
		p.epochs[*s] = 0
		t.Cleanup(func() {
			(*s).Close()
			p.check(files.Close())
		})
	}
	if p.w, err = p.manager.OpenVirtual(context.Background(), []string{"w"}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.w.Release)
	p.owns(p.one)
	return p
}

func (p *pair) check(err error) {
	p.t.Helper()
	if err != nil {
		p.t.Fatal(err)
	}
}

// owns makes a service the owner; the one before is not told.
func (p *pair) owns(s *Service) {
	p.t.Helper()
	p.last++
	for other := range p.epochs {
		p.epochs[other] = 0
	}
	p.epochs[s] = p.last
	p.check(s.Entered(context.Background(), p.w))
}

func (p *pair) create(s *Service, change func(*CreateOptions)) *Ref {
	p.t.Helper()
	o := CreateOptions{Goal: "goal"}
	if change != nil {
		change(&o)
	}
	made, err := s.CreateOn(context.Background(), p.w, o)
	p.check(err)
	p.t.Cleanup(made.Release)
	return made.Ref
}

func (p *pair) set(s *Service, r *Ref, status Status) error {
	return s.Patch(context.Background(), r, Patch{Status: &status}, "")
}

// status is what the records of a server say.
func (p *pair) status(s *Service, id string) Status {
	p.t.Helper()
	rec, ok, err := s.index.get(id)
	p.check(err)
	if !ok {
		return ""
	}
	return rec.Status
}

func (p *pair) listed(s *Service, q Query) (ids []string) {
	p.t.Helper()
	q.Limit = 100
	page, err := s.List(context.Background(), q)
	p.check(err)
	for _, r := range page.Tasks {
		ids = append(ids, r.ID)
	}
	return ids
}

// reads counts what is read of a backend.
type reads struct {
	state.Backend
	views, gets int
}

func (r *reads) Shared() bool { return true }

func (r *reads) View(fn func(state.BackendTx) error) error {
	r.views++
	return r.Backend.View(fn)
}

func (r *reads) Get(bucket, key string) (value []byte, found bool, err error) {
	r.gets++
	err = r.Backend.View(func(tx state.BackendTx) error {
		value, found, err = tx.Get(bucket, key)
		return err
	})
	return value, found, err
}

// A server that forwards requests for a task reads its record once for many, in one round
// trip, and not at all for a while.
func TestWhereIsRemembered(t *testing.T) {
	p := newPair(t)
	a := p.create(p.one, nil)
	counted := &reads{Backend: p.db.Backend()}
	p.two.index.db = state.New(counted)
	now := time.Now()
	p.two.o.Now = func() time.Time { return now }
	where := func(id, want string) {
		t.Helper()
		if ws, err := p.two.Where(id); ws != want || err != nil {
			t.Errorf("%q, %v", ws, err)
		}
	}
	for range 10 {
		where(a.Task.ID, p.w.ID())
	}
	if counted.views != 0 || counted.gets != 1 {
		t.Errorf("%d transactions and %d reads for ten requests", counted.views, counted.gets)
	}
	where("none", "")
	p.check(p.set(p.one, a, Completed))
	p.check(p.one.Delete(t.Context(), a, ""))
	now = now.Add(placeFor)
	where(a.Task.ID, "")
}

// turns counts what waits for an answer of the database within transactions that write.
type turns struct {
	state.Backend
	n int
}

func (c *turns) Shared() bool { return true }

func (c *turns) Update(fn func(state.BackendTx) error) error {
	return c.Backend.Update(func(tx state.BackendTx) error { return fn(turnsTx{tx, c}) })
}

type turnsTx struct {
	state.BackendTx
	c *turns
}

func (t turnsTx) Get(bucket, key string) ([]byte, bool, error) {
	t.c.n++
	return t.BackendTx.Get(bucket, key)
}

func (t turnsTx) GetMany(bucket string, keys []string) (map[string][]byte, error) {
	t.c.n++
	all := make(map[string][]byte)
	for _, key := range keys {
		value, found, err := t.BackendTx.Get(bucket, key)
		if err != nil {
			return nil, err
		}
		if found {
			all[key] = value
		}
	}
	return all, nil
}

// A server that gives many workspaces up reads the marks of all at once.
func TestLeavingReadsMarksAtOnce(t *testing.T) {
	p := newPair(t)
	counted := &turns{Backend: p.db.Backend()}
	x := p.one.index
	x.db = state.New(counted)
	var all []string
	for i := range 64 {
		ws := fmt.Sprintf("w%d", i)
		x.enter(ws, 1, nil)
		end, err := x.begin(ws)
		p.check(err)
		end()
		all = append(all, ws)
	}
	counted.n = 0
	p.check(x.flush(0))
	if counted.n != 1 {
		t.Errorf("%d reads, one after the other, for %d workspaces", counted.n, len(all))
	}
	p.check(p.db.View(func(tx *state.Tx) error {
		return tx.ForEach(Behind, "w", func(ws string, _ []byte) (bool, error) {
			t.Errorf("the mark of %s is left", ws)
			return true, nil
		})
	}))
}

// What one server does to a task the other finds at once.
func TestSharedTasks(t *testing.T) {
	p := newPair(t)
	a := p.create(p.one, func(o *CreateOptions) { o.ID, o.IdempotencyKey = "a", "key" })
	if got := p.status(p.two, "a"); got != Executing {
		t.Errorf("the other server: %q", got)
	}
	if got := p.listed(p.two, Query{Status: Executing}); len(got) != 1 || got[0] != "a" {
		t.Errorf("the other lists %q", got)
	}
	if n, err := p.two.Count(p.w.ID()); n != 1 || err != nil {
		t.Error(n, err)
	}
	p.check(p.set(p.one, a, Completed))
	if got := p.status(p.two, "a"); got != Completed {
		t.Errorf("the other server: %q", got)
	}
	if got := p.listed(p.two, Query{Status: Executing}); len(got) != 0 {
		t.Errorf("the other lists %q", got)
	}
	if rec, ok, err := p.two.index.withKey("key"); err != nil || !ok || rec.ID != "a" || !idem.Remembered(rec.Created, rec.Created) {
		t.Errorf("%+v, %v", rec, err)
	}
	// An id is given once, whichever node is asked.
	other, err := p.manager.OpenVirtual(context.Background(), []string{"other"})
	p.check(err)
	defer other.Release()
	p.epochs[p.two] = 1
	if _, err := p.two.CreateOn(context.Background(), other, CreateOptions{Goal: "goal", ID: "a"}); errs.CodeOf(err) != "task_exists" {
		t.Errorf("the id of a task at the other server: %v", err)
	}
	p.check(p.one.Delete(context.Background(), a, ""))
	if n, err := p.two.Count(p.w.ID()); n != 0 || err != nil {
		t.Error(n, err)
	}
}

// A server that does not know that it was deposed changes no record.
func TestDeposedChangesNoRecord(t *testing.T) {
	p := newPair(t)
	a := p.create(p.one, func(o *CreateOptions) { o.ID = "a" })
	end, err := p.one.index.begin(p.w.ID())
	p.check(err)
	p.owns(p.two)
	b := p.create(p.two, func(o *CreateOptions) { o.ID = "b" })
	p.check(p.set(p.two, b, Paused))
	// What was under way ends late.
	rec, _, err := p.one.index.get("a")
	p.check(err)
	rec.Status = Failed
	if err := p.one.index.keep(rec, 1); !errors.Is(err, sink.ErrUnknown) {
		t.Errorf("a late record: %v", err)
	}
	end()
	p.check(p.one.index.flush(0))
	if got := p.status(p.two, "a"); got != Executing {
		t.Errorf("the record is %q", got)
	}
	if got, err := p.one.index.reserve(Record{ID: "c", Workspace: p.w.ID(), Status: Executing, Pending: true}); got || !errors.Is(err, sink.ErrFenced) {
		t.Errorf("a late reservation: %v, %v", got, err)
	}
	p.one.Lost(p.w.ID())
	if err := p.set(p.one, a, Failed); !errors.Is(err, sink.ErrFenced) {
		t.Errorf("a change without the workspace: %v", err)
	}
	if got := p.status(p.one, "b"); got != Paused {
		t.Errorf("it reads %q", got)
	}
	// One that was deposed before its first change leaves a mark that its successor
	// passes over.
	p.two.Leaving(context.Background(), p.w.ID())
	p.owns(p.one)
	p.owns(p.two)
	endOne, err := p.one.index.begin(p.w.ID())
	p.check(err)
	defer endOne()
	p.check(p.set(p.two, b, Executing))
	p.one.Lost(p.w.ID())
	if got := p.status(p.one, "b"); got != Executing {
		t.Errorf("the record is %q", got)
	}
}

// The next owner makes the records what the repository says, where the one before it
// ended in the middle of a change.
func TestEnteredSettles(t *testing.T) {
	ctx := context.Background()
	p := newPair(t)
	a := p.create(p.one, func(o *CreateOptions) { o.ID = "a" })
	end, err := p.one.index.begin(p.w.ID())
	p.check(err)
	defer end()
	info := a.Task.Info
	info.Status = string(Paused)
	if _, err := p.w.Store().PutTask(ctx, info, object.Zero); err != nil {
		t.Fatal(err)
	}
	if _, err := p.w.Store().PutTask(ctx, message.Info{TaskID: "b", Goal: "goal", Status: string(Executing), Created: info.Created, Updated: info.Updated}, object.Zero); err != nil {
		t.Fatal(err)
	}
	if ok, err := p.one.index.reserve(Record{ID: "never", Workspace: p.w.ID(), Created: info.Created, Status: Executing, Pending: true}); !ok || err != nil {
		t.Fatal(ok, err)
	}
	p.owns(p.two)
	for id, want := range map[string]Status{"a": Paused, "b": Executing, "never": ""} {
		if got := p.status(p.two, id); got != want {
			t.Errorf("%s is %q, want %q", id, got, want)
		}
	}
	if _, mark, err := p.two.index.liveOf(p.w.ID()); mark != 0 || err != nil {
		t.Errorf("the mark is %d, %v", mark, err)
	}
	if n := p.two.Live(p.w.ID()); n != 2 {
		t.Errorf("%d live tasks in memory", n)
	}
	p.two.Leaving(ctx, p.w.ID())
	if n := p.two.Live(p.w.ID()); n != 0 {
		t.Errorf("%d live tasks in memory after it left", n)
	}
}
