package workspaces

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"umbra/internal/errs"
	"umbra/internal/need"
	"umbra/internal/workspace"
	"umbra/internal/wspath"
)

// fakeWatcher tells what a test has it tell.
type fakeWatcher struct {
	mu      sync.Mutex
	spaces  map[string]workspace.WatchSpace
	order   []string // of Add
	covered []wspath.Path
	blind   bool
	added   chan string
}

func newFakeWatcher() *fakeWatcher {
	return &fakeWatcher{spaces: make(map[string]workspace.WatchSpace), added: make(chan string, 64)}
}

func (f *fakeWatcher) Add(_ context.Context, id, _ string, to workspace.WatchSpace) error {
	f.mu.Lock()
	f.spaces[id] = to
	f.order = append(f.order, id)
	f.mu.Unlock()
	f.added <- id
	return nil
}

func (f *fakeWatcher) Remove(id string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.spaces, id)
}

func (f *fakeWatcher) Sync(_ context.Context, id string) error {
	if _, trusted := f.State(id); !trusted {
		return errs.New(errs.Unavailable, "not_watched", "Not watched.")
	}
	return nil
}

func (f *fakeWatcher) State(id string) (watching, trusted bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	_, ok := f.spaces[id]
	return ok, ok && !f.blind
}

func (f *fakeWatcher) Cover(_ string, p wspath.Path) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.covered = append(f.covered, p)
}

func (f *fakeWatcher) space(id string) workspace.WatchSpace {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.spaces[id]
}

// watchBench is a folder on a real disk, watched by a fake.
type watchBench struct {
	t    *testing.T
	dir  string
	data string
	recs *memRecords
	f    *fakeWatcher
	m    *Manager
	w    *workspace.Workspace
	busy map[string]bool
}

func newWatchBench(t *testing.T, files ...string) *watchBench {
	t.Helper()
	b := &watchBench{t: t, dir: filepath.Join(t.TempDir(), "ws"), data: filepath.Join(t.TempDir(), "data"), recs: &memRecords{}, busy: make(map[string]bool)}
	for _, name := range files {
		b.write(name, "first of "+name)
	}
	b.start()
	w, _, err := b.m.Open(t.Context(), b.dir, OpenOptions{})
	must(t, err)
	b.w = w
	b.begun()
	return b
}

func (b *watchBench) start() {
	b.t.Helper()
	b.f = newFakeWatcher()
	m, err := NewManager(Options{DataDir: b.data, Records: b.recs, Watcher: b.f, ScanEvery: time.Hour, IdleAfter: time.Hour, WatchIdle: time.Hour})
	must(b.t, err)
	m.SetAttribute(func(string) string { return "" })
	m.SetBusy(func(id string) (bool, bool) { return b.busy[id], b.busy[id] })
	b.m = m
	b.t.Cleanup(func() { _ = m.Close(context.Background()) })
}

// begun waits until the folder is watched and was scanned for that.
func (b *watchBench) begun() {
	b.t.Helper()
	<-b.f.added
	_, err := b.w.Sync(b.t.Context(), workspace.SyncOptions{})
	must(b.t, err)
}

func (b *watchBench) write(name, data string) {
	b.t.Helper()
	must(b.t, os.MkdirAll(filepath.Dir(filepath.Join(b.dir, name)), 0o755))
	must(b.t, os.WriteFile(filepath.Join(b.dir, name), []byte(data), 0o644))
}

func (b *watchBench) tell(paths ...wspath.Path) { b.f.space(b.w.ID()).Dirty(paths) }

// found syncs, and holds how many entries the tip's tree differs by.
func (b *watchBench) found(want int) {
	b.t.Helper()
	before := b.w.Store().Tip().Commit
	_, err := b.w.Sync(b.t.Context(), workspace.SyncOptions{Attribute: true})
	must(b.t, err)
	// The reconciler may have been there first.
	n := 0
	c := b.w.Store().Tip().Commit
	for c != before && !before.IsZero() {
		commit, err := b.w.Store().ReadCommit(b.t.Context(), c)
		must(b.t, err)
		entries, err := b.w.EntriesOf(b.t.Context(), commit)
		must(b.t, err)
		n += len(entries)
		c = commit.Parent
	}
	if n != want {
		b.t.Errorf("%d entries were recorded, want %d", n, want)
	}
}

func TestSyncLooksAtWhatWasTold(t *testing.T) {
	files := []string{"a", "b", "d/c"}
	for i := range 10_001 { // with fewer Sync looks at everything
		files = append(files, fmt.Sprintf("many/%d", i))
	}
	b := newWatchBench(t, files...)
	b.write("a", "second")
	b.write("b", "second")
	b.found(0) // nobody told
	before := b.w.Store().Tip().Seq
	b.tell("a", "nothing/there")
	for b.w.Store().Tip().Seq == before {
		must(t, b.w.Store().Wait(t.Context(), before))
	}
	if got := tree(t, b.w); got["a"] != "second" || got["b"] != "first of b" {
		t.Errorf("history: %v", got)
	}
	b.f.space(b.w.ID()).Lost()
	must(t, b.w.Store().Wait(t.Context(), before+1))
	if got := tree(t, b.w); got["b"] != "second" {
		t.Errorf("history: %v", got)
	}
	b.f.mu.Lock()
	b.f.blind = true
	b.f.mu.Unlock()
	b.write("d/c", "second")
	b.found(1) // not trusted: a scan
}

func TestOwnWritesAreKnownByContent(t *testing.T) {
	b := newWatchBench(t, "a")
	for range 20 {
		_, err := b.w.Apply(t.Context(), workspace.Request{Ops: []workspace.Op{write("x/y", time.Now().String())}})
		must(t, err)
		b.tell("x/y", "x", "x/.umbra-0123456789abcdef.tmp")
	}
	seq := b.w.Store().Tip().Seq
	b.found(0)
	if got := b.w.Store().Tip().Seq; got != seq || seq != 21 {
		t.Errorf("%d commits, then %d", seq, got)
	}
	if !slices.Contains(b.f.covered, wspath.Path("x/y")) {
		t.Errorf("covered: %v", b.f.covered)
	}
}

func TestFoldersThatAreTold(t *testing.T) {
	b := newWatchBench(t, "a", "d/e/f", "d/g", "gone/x", "gone/y/z")
	must(t, os.RemoveAll(filepath.Join(b.dir, "gone")))
	must(t, os.Rename(filepath.Join(b.dir, "d"), filepath.Join(b.dir, "moved")))
	b.write("moved/new", "n")
	must(t, os.Symlink("moved", filepath.Join(b.dir, "d")))
	before := b.w.Store().Tip().Seq
	b.tell("gone", "d", "moved", "a")
	must(t, b.w.Store().Wait(t.Context(), before))
	want := map[string]string{"a": "first of a", "d": "->moved", "moved/e/f": "first of d/e/f", "moved/g": "first of d/g", "moved/new": "n"}
	if d := diffMaps(want, tree(t, b.w)); d != "" {
		t.Error(d)
	}
	if got := b.w.Store().Tip().Seq; got != before+1 {
		t.Errorf("one look made %d commits", got-before)
	}
}

func TestRestartScansWhatWasWatched(t *testing.T) {
	b := newWatchBench(t, "a")
	id := b.w.ID()
	if r, _ := b.m.Record(id); !r.Watched {
		t.Error("not noted as watched")
	}
	b.w.Release()
	must(t, b.m.Close(t.Context()))
	b.write("a", "while down")
	b.start()
	b.busy[id] = true
	b.m.Resume()
	if got := <-b.f.added; got != id {
		t.Fatal(got)
	}
	w, err := b.m.Get(t.Context(), id)
	must(t, err)
	b.w = w
	if got := tree(t, w); got["a"] != "while down" {
		t.Errorf("history: %v", got)
	}
	w.Release()
	// A busy one stays, an idle one is put away and not watched any more.
	b.m.opt.WatchIdle = time.Nanosecond
	b.m.PutAway(t.Context(), time.Now().Add(time.Hour))
	if watching, _ := b.f.State(id); !watching {
		t.Error("a workspace with a task was put away")
	}
	b.busy[id] = false
	b.m.PutAway(t.Context(), time.Now().Add(time.Hour))
	watching, _ := b.f.State(id)
	for end := time.Now().Add(10 * time.Second); watching && time.Now().Before(end); watching, _ = b.f.State(id) {
		runtime.Gosched() // Resume may have it open still
		b.m.PutAway(t.Context(), time.Now().Add(time.Hour))
	}
	if watching {
		t.Error("an idle workspace is watched on")
	}
	if r, _ := b.m.Record(id); r.Watched {
		t.Error("still noted as watched")
	}
}

func TestAFolderThatComesBack(t *testing.T) {
	b := newWatchBench(t, "a", "b")
	id := b.w.ID()
	aside := b.dir + "-aside"
	must(t, os.Rename(b.dir, aside))
	b.f.space(id).Gone()
	if b.w.State() != workspace.Missing {
		t.Error(b.w.State())
	}
	b.w.Release()
	must(t, b.m.Close(t.Context()))
	b.start()
	w, err := b.m.Get(t.Context(), id)
	must(t, err)
	if w.State() != workspace.Missing {
		t.Error(w.State())
	}
	w.Release()
	must(t, os.Rename(aside, b.dir))
	w, err = b.m.Get(t.Context(), id)
	must(t, err)
	defer w.Release()
	if got := tree(t, w); w.State() == workspace.Missing || len(got) != 2 {
		t.Errorf("%s, history: %v", w.State(), got)
	}
}

func TestAnotherFolderOfTheSameNumber(t *testing.T) {
	b := newWatchBench(t, "a")
	id := b.w.ID()
	b.w.Release()
	must(t, b.m.Close(t.Context()))
	// As if the file system had given the number to a folder that was made later.
	r := b.recs.all[id]
	if r.Born == 0 {
		need.Missing(t, "the file system does not tell when a folder was made")
	}
	r.Born--
	b.recs.all[id] = r
	b.write("a", "another folder's")
	b.start()
	w, err := b.m.Get(t.Context(), id)
	must(t, err)
	defer w.Release()
	if got := tree(t, w); w.State() != workspace.Missing || got["a"] != "first of a" {
		t.Errorf("%s, history: %v", w.State(), got)
	}
	if _, err := w.Sync(t.Context(), workspace.SyncOptions{}); errs.CodeOf(err) != "workspace_missing" {
		t.Error(err)
	}
}
