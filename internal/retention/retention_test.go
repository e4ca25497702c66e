package retention

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"umbra/gitstore"
	"umbra/internal/errs"
	"umbra/internal/need"
	"umbra/internal/state"
	"umbra/internal/task"
	"umbra/internal/vfs"
	"umbra/internal/workspace"
	"umbra/internal/workspaces"
	"umbra/internal/workspaces/recordstest"
	"umbra/internal/wspath"
)

// fakeClock is one that the test moves.
type fakeClock struct {
	mu  sync.Mutex
	now time.Time
}

func (c *fakeClock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *fakeClock) forward(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

// rig is the service on a folder, with time standing still.
type rig struct {
	fakeClock
	tasks   *task.Service
	manager *workspaces.Manager
	root    string
}

func newRig(t *testing.T) *rig {
	t.Helper()
	g := &rig{fakeClock: fakeClock{now: time.Unix(1_700_000_000, 0).UTC()}, root: t.TempDir()}
	dir := t.TempDir()
	db, err := state.Open(filepath.Join(dir, "state.db"))
	need.NoError(t, err)
	if g.manager, err = workspaces.NewManager(workspaces.Options{DataDir: dir, Records: &recordstest.Records{}, Now: g.Now, Foreground: true}); err != nil {
		t.Fatal(err)
	}
	areas := filepath.Join(dir, "tasks")
	need.NoError(t, os.MkdirAll(areas, 0o700))
	files, err := vfs.OS(areas)
	need.NoError(t, err)
	if g.tasks, err = task.New(t.Context(), task.Options{Workspaces: g.manager, State: db, FS: files, Dir: areas, Now: g.Now}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		g.tasks.Close()
		if err := errors.Join(g.manager.Close(context.Background()), files.Close(), db.Close()); err != nil {
			t.Error(err)
		}
	})
	return g
}

// day makes a task, writes n files an hour apart, and ends it.
func (g *rig) day(t *testing.T, n int) string {
	t.Helper()
	made, err := g.tasks.Create(t.Context(), task.CreateOptions{Goal: "a day's work", Root: g.root})
	need.NoError(t, err)
	defer made.Release()
	for i := range n {
		g.forward(time.Hour)
		_, err := g.tasks.Apply(t.Context(), made.Ref, workspace.Request{Ops: []workspace.Op{{Kind: workspace.OpWrite, Path: wspath.Path(fmt.Sprintf("f%d", i)),
			Data: fmt.Appendf(nil, "%d at %s\n", i, g.Now())}}})
		need.NoError(t, err)
	}
	ended := task.Completed
	need.NoError(t, g.tasks.Patch(t.Context(), made.Ref, task.Patch{Status: &ended}, ""))
	return made.Task.ID
}

func (g *rig) store(t *testing.T) *gitstore.Store {
	t.Helper()
	w, err := g.manager.Get(t.Context(), g.manager.List()[0].ID)
	need.NoError(t, err)
	defer w.Release()
	return w.Store()
}

// TestAge: the background looks once an interval, and drops what is older than
// the age and no more.
func TestAge(t *testing.T) {
	g := newRig(t)
	first := g.day(t, 5)
	second := g.day(t, 5)
	ticks, looked := make(chan time.Time), make(chan struct{})
	s := New(Options{Workspaces: g.manager, Tasks: g.tasks, Age: 48 * time.Hour, Interval: time.Minute, Now: g.Now,
		After: func(d time.Duration) <-chan time.Time {
			if d != time.Minute {
				t.Errorf("it waits for %v", d)
			}
			looked <- struct{}{}
			return ticks
		}})
	tick := func() {
		ticks <- time.Time{}
		<-looked
	}
	<-looked
	tick()
	if b := g.store(t).Boundary(); !b.Whole() {
		t.Fatalf("history begins at %v, and nothing is old", b)
	}
	g.forward(48*time.Hour - 4*time.Hour - time.Minute) // the first task, and one change of the second
	tick()
	if b := g.store(t).Boundary(); b.Seq != 6 {
		t.Fatalf("history begins at %v", b)
	}
	g.forward(time.Hour)
	tick()
	if b := g.store(t).Boundary(); b.Seq != 7 {
		t.Fatalf("an hour later history begins at %v", b)
	}
	go func() { // Close waits for its callers
		for range looked {
		}
	}()
	s.Close()
	close(looked)

	r, err := g.tasks.Get(t.Context(), first, nil)
	if err != nil || !r.Dropped || r.Task.Info.Goal != "a day's work" || r.Task.Changes != 5 {
		t.Fatalf("the first task: %+v, %v", r, err)
	}
	if v, err := g.tasks.View(t.Context(), r); err != nil || !v.BaseDropped || v.Status != task.Completed {
		t.Errorf("its view: %+v, %v", v, err)
	}
	if _, _, err := g.tasks.Changes(t.Context(), r, task.Filter{}, 0, 10); errs.CodeOf(err) != "history_dropped" {
		t.Errorf("its changelog: %v", err)
	}
	r.Release()
	if r, err = g.tasks.Get(t.Context(), second, nil); err != nil || r.Dropped || !r.Task.BaseDropped() {
		t.Fatalf("the second task: %+v, %v", r, err)
	}
	r.Release()
}

// TestOff: without an age or a size nothing runs, and a collection by hand drops
// nothing.
func TestOff(t *testing.T) {
	g := newRig(t)
	g.day(t, 3)
	s := New(Options{Workspaces: g.manager, Tasks: g.tasks, Now: g.Now, After: func(time.Duration) <-chan time.Time {
		t.Error("it waits for something")
		return nil
	}})
	defer s.Close()
	g.forward(10_000 * time.Hour)
	list, err := s.Collect(t.Context(), Request{Now: true}, nil)
	if err != nil || len(list) != 1 || list[0].Commits != 0 || !list[0].Begin.Whole() || list[0].Failed != nil {
		t.Errorf("%+v, %v", list, err)
	}
	if _, err := s.Collect(t.Context(), Request{Workspaces: []string{"none"}}, nil); !errs.Is(err, errs.NotFound) {
		t.Errorf("of none: %v", err)
	}
}

// TestDryRunDropsNothing and reports what it would.
func TestDryRunDropsNothing(t *testing.T) {
	g := newRig(t)
	g.day(t, 4)
	s := New(Options{Workspaces: g.manager, Tasks: g.tasks, Age: time.Hour, Interval: time.Hour, Now: g.Now,
		After: func(time.Duration) <-chan time.Time { return nil }})
	defer s.Close()
	g.forward(10 * time.Hour)
	// The history may begin at a synced commit.
	if list, err := s.Collect(t.Context(), Request{DryRun: true}, nil); err != nil || len(list) != 1 || !g.store(t).Boundary().Whole() {
		t.Fatalf("%+v, %v", list, err)
	}
	list, err := s.Collect(t.Context(), Request{Now: true}, nil)
	if err != nil || list[0].Commits != 4 || g.store(t).Boundary().Seq != 5 {
		t.Errorf("%+v, %v; history begins at %v", list, err, g.store(t).Boundary())
	}
	left, _, err := s.Usage(t.Context(), "", true)
	if err != nil || len(left) != 1 || left[0].Begin.Seq != 5 || left[0].Other == 0 {
		t.Errorf("%+v, %v", left, err)
	}
}

// TestOneElsewhere: the only workspace, which another server has, is left to that; by its name
// it is asked for where that one is.
func TestOneElsewhere(t *testing.T) {
	g := newRig(t)
	g.day(t, 1)
	s := New(Options{Workspaces: g.manager, Tasks: g.tasks, Now: g.Now, Others: func(_ context.Context, ids []string) (map[string]bool, error) {
		return map[string]bool{ids[0]: true}, nil
	}})
	defer s.Close()
	list, err := s.Collect(t.Context(), Request{Now: true}, nil)
	if err != nil || len(list) != 1 || !list[0].Elsewhere {
		t.Fatalf("%+v, %v", list, err)
	}
	id := list[0].Workspace
	if list, err = s.Collect(t.Context(), Request{Now: true, Workspaces: []string{id}}, nil); err != nil || len(list) != 1 || list[0].Elsewhere {
		t.Errorf("%+v, %v", list, err)
	}
	for of, n := range map[string]int{"": 0, id: 1} {
		if used, others, err := s.Usage(t.Context(), of, false); err != nil || len(used) != n || len(others) != 1-n {
			t.Errorf("of %q: %+v, %v, %v", of, used, others, err)
		}
	}
}

// moving is a server whose workspaces another one is taking.
type moving struct{ workspaces.Shared }

func (moving) Claim(context.Context, workspaces.Record) (*workspaces.Held, error) {
	return nil, errs.New(errs.Unavailable, "owner_moving", "The workspace is moving to another server; retry.")
}

func (moving) Elsewhere(string) error { return nil }

// sharedManager has the workspace w, which servers share.
func sharedManager(t *testing.T, records workspaces.Records, shared workspaces.Shared) *workspaces.Manager {
	t.Helper()
	need.NoError(t, records.Put(workspaces.Record{ID: "w", Kind: "virtual", Namespace: []string{"w"}}))
	m, err := workspaces.NewManager(workspaces.Options{DataDir: t.TempDir(), Records: records, Shared: shared, Server: "a"})
	need.NoError(t, err)
	t.Cleanup(func() { _ = m.Close(context.Background()) })
	return m
}

// TestMovesMeanwhile: a workspace that another server takes after others were looked for is left
// to that one, and by its name is refused, for the next owner to be asked.
func TestMovesMeanwhile(t *testing.T) {
	s := New(Options{Workspaces: sharedManager(t, &recordstest.Records{}, moving{})})
	defer s.Close()
	for _, name := range []string{"", "w"} {
		req := Request{}
		if name != "" {
			req.Workspaces = []string{name}
		}
		list, err := s.Collect(t.Context(), req, nil)
		if err != nil || len(list) != 1 || list[0].Elsewhere != (name == "") || (errs.CodeOf(list[0].Failed) == "owner_moving") != (name != "") {
			t.Errorf("%q: %+v, %v", name, list, err)
		}
		used, others, err := s.Usage(t.Context(), name, false)
		if len(used) != 0 || (len(others) == 1) != (name == "") || (errs.CodeOf(err) == "owner_moving") != (name != "") {
			t.Errorf("usage of %q: %+v, %v, %v", name, used, others, err)
		}
	}
}

// TestUsageForgottenMeanwhile: a workspace that is deleted while the usage of all is read is
// left out.
func TestUsageForgottenMeanwhile(t *testing.T) {
	g := newRig(t)
	g.day(t, 1)
	s := New(Options{Workspaces: g.manager, Tasks: g.tasks, Now: g.Now, Others: func(_ context.Context, ids []string) (map[string]bool, error) {
		return nil, g.manager.Forget(t.Context(), ids[0], true)
	}})
	defer s.Close()
	if used, others, err := s.Usage(t.Context(), "", false); err != nil || len(used)+len(others) != 0 {
		t.Errorf("%+v, %v, %v", used, others, err)
	}
}

// away is records that cannot be read while on is set.
type away struct {
	recordstest.Records
	on bool
}

func (a *away) Get(id string) (workspaces.Record, bool, error) {
	if a.on {
		return workspaces.Record{}, false, errs.New(errs.Unavailable, "engine_unavailable", "The engine is away.")
	}
	return a.Records.Get(id)
}

// TestRecordsAway: a workspace whose record cannot be read is not one that was forgotten.
func TestRecordsAway(t *testing.T) {
	records := &away{}
	s := New(Options{Workspaces: sharedManager(t, records, moving{}), Others: func(context.Context, []string) (map[string]bool, error) {
		records.on = true
		return map[string]bool{}, nil
	}})
	defer s.Close()
	if used, others, err := s.Usage(t.Context(), "", false); errs.CodeOf(err) != "engine_unavailable" {
		t.Errorf("%+v, %v, %v", used, others, err)
	}
	records.on = false
	if list, err := s.Collect(t.Context(), Request{}, nil); err != nil || len(list) != 1 || errs.CodeOf(list[0].Failed) != "engine_unavailable" {
		t.Errorf("%+v, %v", list, err)
	}
}

// damaged is a server whose workspaces lack an object.
type damaged struct{ moving }

func (damaged) Claim(context.Context, workspaces.Record) (*workspaces.Held, error) {
	return nil, errs.New(errs.NotFound, "commit_not_found", "The commit does not exist.")
}

// TestCollectReportsDamage: an object that is missing is no workspace that was forgotten.
func TestCollectReportsDamage(t *testing.T) {
	s := New(Options{Workspaces: sharedManager(t, &recordstest.Records{}, damaged{})})
	defer s.Close()
	if list, err := s.Collect(t.Context(), Request{}, nil); err != nil || len(list) != 1 || errs.CodeOf(list[0].Failed) != "commit_not_found" {
		t.Errorf("%+v, %v", list, err)
	}
	if used, _, err := s.Usage(t.Context(), "", false); errs.CodeOf(err) != "commit_not_found" {
		t.Errorf("%+v, %v", used, err)
	}
}

// TestClockWasSet: while the clock is wrong nothing is dropped by its age, nor in
// the first day after a start.
func TestClockWasSet(t *testing.T) {
	g := newRig(t)
	g.day(t, 5)
	boot := time.Duration(0)
	s := New(Options{Workspaces: g.manager, Tasks: g.tasks, Age: 48 * time.Hour, Interval: time.Hour, Now: g.Now, Boot: func() time.Duration { return boot },
		After: func(time.Duration) <-chan time.Time { return nil }})
	defer s.Close()
	whole := func(when string) {
		t.Helper()
		s.Look(t.Context())
		if b := g.store(t).Boundary(); !b.Whole() {
			t.Fatalf("%s: history begins at %v", when, b)
		}
	}
	g.forward(60 * time.Hour) // the machine was started with a clock that is ahead
	boot += time.Minute
	whole("the clock was set")
	g.forward(-60 * time.Hour)
	boot += 23 * time.Hour
	g.forward(23 * time.Hour)
	whole("it is right again")
	boot += 60 * time.Hour
	g.forward(60 * time.Hour)
	s.Look(t.Context())
	if b := g.store(t).Boundary(); b.Whole() {
		t.Error("what is old and was seen growing old is kept")
	}
}
