package session

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"umbra/internal/errs"
	"umbra/internal/need"
	"umbra/internal/state"
	"umbra/internal/task"
	"umbra/internal/vfs"
	"umbra/internal/workspaces"
)

// world is the services below a Service, which outlive it.
type world struct {
	t     *testing.T
	dir   string
	db    *state.DB
	m     *workspaces.Manager
	tasks *task.Service
	at    atomic.Int64 // nanoseconds since 1970: what the clock shows
}

func newWorld(t *testing.T) *world {
	t.Helper()
	return newWorldOn(t, nil)
}

// newWorldOn has its records in db; nil: in a new file.
func newWorldOn(t *testing.T, db *state.DB) *world {
	t.Helper()
	w := &world{t: t, dir: t.TempDir(), db: db}
	w.at.Store(time.Now().UnixNano())
	data := t.TempDir()
	var err error
	if w.db == nil {
		w.db, err = state.Open(filepath.Join(data, "state.db"))
	}
	need.NoError(t, err)
	if w.m, err = workspaces.NewManager(workspaces.Options{DataDir: data, Records: &workspaces.MemRecords{}}); err != nil {
		t.Fatal(err)
	}
	need.NoError(t, os.Mkdir(filepath.Join(data, "tasks"), 0o700))
	f, err := vfs.OS(filepath.Join(data, "tasks"))
	need.NoError(t, err)
	if w.tasks, err = task.New(context.Background(), task.Options{Workspaces: w.m, State: w.db, FS: f, Dir: data}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		w.tasks.Close()
		if err := errors.Join(w.m.Close(context.Background()), f.Close(), w.db.Close()); err != nil {
			t.Error(err)
		}
	})
	return w
}

func (w *world) now() time.Time { return time.Unix(0, w.at.Load()) }

func (w *world) pass(d time.Duration) { w.at.Add(int64(d)) }

// start makes a Service whose clock is the world's and that sweeps only when
// it is told to.
func (w *world) start() *Service {
	w.t.Helper()
	s, err := New(context.Background(), Options{State: w.db, Tasks: w.tasks, Workspaces: w.m, Idle: time.Hour, Now: w.now})
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { _ = s.Close() })
	return s
}

// put sets a record as it is.
func (w *world) put(r Record) {
	w.t.Helper()
	if err := w.db.Update(func(tx *state.Tx) error {
		var old Record
		if found, err := tx.Get(bucket, r.ID, &old); err != nil || !found {
			return errors.Join(err, records.Replace(tx, nil, &r))
		}
		return records.Replace(tx, &old, &r)
	}); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) create(s *Service, change func(*CreateOptions)) Session {
	w.t.Helper()
	o := CreateOptions{Root: w.dir, Allow: func(string, bool) error { return nil }}
	if change != nil {
		change(&o)
	}
	ses, _, err := s.Create(context.Background(), o)
	if err != nil {
		w.t.Fatal(err)
	}
	return ses
}

func (w *world) status(id string) task.Status {
	w.t.Helper()
	ref, err := w.tasks.Get(context.Background(), id, nil)
	if err != nil {
		w.t.Fatal(err)
	}
	defer ref.Release()
	return task.Status(ref.Task.Info.Status)
}

func TestIdleEnds(t *testing.T) {
	w := newWorld(t)
	s := w.start()
	ses := w.create(s, nil)
	w.pass(50 * time.Minute)
	_, done, err := s.Use(ses.ID, nil)
	need.NoError(t, err)
	// A request that runs for long holds the session.
	w.pass(3 * time.Hour)
	s.sweep(context.Background())
	done()
	w.pass(59 * time.Minute)
	s.sweep(context.Background())
	if _, done, err = s.Use(ses.ID, nil); err != nil {
		t.Fatal(err)
	}
	done()
	w.pass(61 * time.Minute)
	if _, _, err := s.Use(ses.ID, nil); errs.CodeOf(err) != "session_not_found" {
		t.Errorf("an idle session: %v", err)
	}
	if got := w.status(ses.Task); got != task.Executing {
		t.Errorf("before the sweep the task is %s", got)
	}
	s.sweep(context.Background())
	if got := w.status(ses.Task); got != task.Completed {
		t.Errorf("the task is %s", got)
	}
	if all, err := state.All[Record](w.db, bucket); err != nil || len(all) != 0 {
		t.Errorf("%v %v", all, err)
	}
}

// The last use is kept by a clean stop.
func TestLastUseIsKept(t *testing.T) {
	w := newWorld(t)
	s := w.start()
	ses := w.create(s, nil)
	w.pass(40 * time.Minute)
	_, done, err := s.Use(ses.ID, nil)
	need.NoError(t, err)
	done()
	need.NoError(t, s.Close())
	w.pass(40 * time.Minute)
	if _, done, err = w.start().Use(ses.ID, nil); err != nil {
		t.Fatal(err)
	}
	done()
}

// A server that was killed while a session was made, or ended, finishes it at
// the next start.
func TestSettlesAtStart(t *testing.T) {
	w := newWorld(t)
	s := w.start()
	made := w.create(s, nil)
	never := Record{ID: newID(), Task: "session-never", OwnTask: true, Pending: true, Created: w.now(), LastUsed: w.now()}
	half := made.Record
	half.Pending, half.Workspace = true, ""
	ending := w.create(s, nil).Record
	ending.Ended = true
	need.NoError(t, s.Close())
	for _, r := range []Record{never, half, ending} {
		w.put(r)
	}
	s = w.start()
	got, done, err := s.Use(made.ID, nil)
	need.NoError(t, err)
	done()
	if got.Workspace != made.Workspace || got.Root != made.Root {
		t.Errorf("%+v, want %+v", got, made)
	}
	s.sweep(context.Background())
	if got := w.status(ending.Task); got != task.Completed {
		t.Errorf("the task of an ended session is %s", got)
	}
	all, err := state.All[Record](w.db, bucket)
	if err != nil || len(all) != 1 || all[0].ID != made.ID {
		t.Errorf("%+v %v", all, err)
	}
}

func TestCreateLeavesNothingBehind(t *testing.T) {
	w := newWorld(t)
	s := w.start()
	refused := errs.New(errs.Forbidden, "workspace_not_allowed", "no")
	for _, o := range []CreateOptions{
		{}, {Root: "x"}, {Root: "/a\x00"}, {Root: w.dir + "/none"}, {Root: w.dir, TaskID: "none"}, {Root: w.dir, TaskID: "-"},
		{Root: w.dir, Allow: func(string, bool) error { return refused }}, {Root: w.dir, Model: string(make([]byte, 2000))},
	} {
		if o.Allow == nil {
			o.Allow = func(string, bool) error { return nil }
		}
		if _, _, err := s.Create(context.Background(), o); err == nil {
			t.Errorf("%+v is taken", o)
		}
	}
	if all, err := state.All[Record](w.db, bucket); err != nil || len(all) != 0 {
		t.Errorf("%v %v", all, err)
	}
	if n := len(w.m.List()); n != 0 {
		t.Errorf("%d workspaces", n)
	}
}

func TestKeyFindsTheSession(t *testing.T) {
	w := newWorld(t)
	s := w.start()
	key := func(o *CreateOptions) { o.IdempotencyKey = "sha256:x" }
	a := w.create(s, key)
	if b := w.create(s, key); b.ID != a.ID {
		t.Error("made twice")
	}
	need.NoError(t, s.Close())
	s = w.start()
	if b := w.create(s, key); b.ID != a.ID {
		t.Error("made twice over a start")
	}
	w.pass(25 * time.Hour)
	if b := w.create(s, key); b.ID == a.ID {
		t.Error("a key lives for ever")
	}
}

func TestDeleteGivenTask(t *testing.T) {
	w := newWorld(t)
	s := w.start()
	own := w.create(s, nil)
	ses := w.create(s, func(o *CreateOptions) { o.TaskID = own.Task })
	need.NoError(t, s.Delete(context.Background(), ses.ID, ""))
	if got := w.status(own.Task); got != task.Executing {
		t.Errorf("the given task is %s", got)
	}
	if err := s.Delete(context.Background(), ses.ID, ""); errs.CodeOf(err) != "session_not_found" {
		t.Error(err)
	}
	need.NoError(t, s.Delete(context.Background(), own.ID, ""))
	if got := w.status(own.Task); got != task.Completed {
		t.Errorf("its own task is %s", got)
	}
}

// What one server does to a session the other finds at once; a request at one keeps
// the other from ending the session.
func TestSharedSessions(t *testing.T) {
	w := newWorldOn(t, state.NewShared())
	one, two := w.start(), w.start()
	made := w.create(one, func(o *CreateOptions) { o.IdempotencyKey = "key" })
	ses, done, err := two.Use(made.ID, nil)
	if err != nil || ses.Task != made.Task || ses.Root != made.Root {
		t.Fatalf("%+v, %v", ses, err)
	}
	if again := w.create(two, func(o *CreateOptions) { o.IdempotencyKey = "key" }); again.ID != made.ID {
		t.Error("the request at the other server makes another one")
	}
	// A request that takes for ever at the one.
	for range 5 {
		w.pass(30 * time.Minute)
		need.NoError(t, two.flush())
		one.sweep(context.Background())
	}
	if list, err := one.List(nil); err != nil || len(list) != 1 || !list[0].LastUsed.Equal(w.now()) {
		t.Errorf("%+v, %v", list, err)
	}
	done()
	w.pass(61 * time.Minute)
	two.sweep(context.Background())
	one.sweep(context.Background())
	if _, _, err := one.Use(made.ID, nil); errs.CodeOf(err) != "session_not_found" {
		t.Errorf("an idle session: %v", err)
	}
	if got := w.status(made.Task); got != task.Completed {
		t.Errorf("the task is %s", got)
	}
	ended := w.create(one, nil)
	need.NoError(t, two.Delete(context.Background(), ended.ID, ""))
	if _, _, err := one.Use(ended.ID, nil); errs.CodeOf(err) != "session_not_found" {
		t.Errorf("an ended session: %v", err)
	}
	for _, in := range []string{bucket, byKey, byUse, unsettled} {
		if err := w.db.View(func(tx *state.Tx) error {
			return tx.ForEach(in, "", func(key string, raw []byte) (bool, error) {
				t.Errorf("%s has %q left: %s", in, key, raw)
				return true, nil
			})
		}); err != nil {
			t.Fatal(err)
		}
	}
}

// A database of a program before gets what leads to its records.
func TestIndexIsMade(t *testing.T) {
	w := newWorld(t)
	s := w.start()
	made := w.create(s, func(o *CreateOptions) { o.IdempotencyKey = "key" })
	need.NoError(t, s.Close())
	if err := w.db.Update(func(tx *state.Tx) error {
		return errors.Join(tx.DeleteBucket(byKey), tx.DeleteBucket(byUse), tx.DeleteBucket(unsettled), tx.DeleteBucket(indexMade))
	}); err != nil {
		t.Fatal(err)
	}
	s = w.start()
	if again := w.create(s, func(o *CreateOptions) { o.IdempotencyKey = "key" }); again.ID != made.ID {
		t.Error("its key is not found")
	}
	w.pass(2 * time.Hour)
	s.sweep(context.Background())
	if got := w.status(made.Task); got != task.Completed {
		t.Errorf("its task is %s when it is idle", got)
	}
}
