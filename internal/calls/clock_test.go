package calls_test

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"umbra/internal/calls"
	"umbra/internal/state"
	"umbra/internal/task"
	"umbra/internal/vfs"
	"umbra/internal/workspaces"
)

// world is a data directory with the services that calls need, and a directory. It can
// be closed and opened again. Its wall clock can be set.
type world struct {
	t          *testing.T
	data, root string
	records    *workspaces.MemRecords
	ahead      atomic.Int64        // of the wall clock, nanoseconds
	wrap       func(vfs.FS) vfs.FS // if not nil, of the file system of the log
	db         *state.DB
	m          *workspaces.Manager
	files      []vfs.FS
	tasks      *task.Service
	calls      *calls.Service
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{t: t, data: t.TempDir(), root: filepath.Join(t.TempDir(), "ws"), records: &workspaces.MemRecords{}}
	w.ok(os.Mkdir(w.root, 0o755))
	w.write("a", "1\n")
	w.open()
	t.Cleanup(w.close)
	return w
}

func (w *world) ok(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) write(name, text string) {
	w.t.Helper()
	w.ok(os.WriteFile(filepath.Join(w.root, name), []byte(text), 0o644))
}

// now is the time as it is set. The monotonic reading moves along: time has passed.
func (w *world) now() time.Time { return time.Now().Add(time.Duration(w.ahead.Load())) }

func (w *world) open() {
	w.t.Helper()
	var err error
	w.db, err = state.Open(filepath.Join(w.data, "state.db"))
	w.ok(err)
	w.m, err = workspaces.NewManager(workspaces.Options{DataDir: w.data, Records: w.records})
	w.ok(err)
	dir := func(name string) vfs.FS {
		w.ok(os.MkdirAll(filepath.Join(w.data, name), 0o700))
		f, err := vfs.OS(filepath.Join(w.data, name))
		w.ok(err)
		w.files = append(w.files, f)
		return f
	}
	log := dir("calls")
	if w.wrap != nil {
		log = w.wrap(log)
	}
	w.calls, err = calls.New(calls.Options{Workspaces: w.m, State: w.db, FS: log, Now: w.now})
	w.ok(err)
	w.tasks, err = task.New(context.Background(), task.Options{Workspaces: w.m, State: w.db, FS: dir("tasks"), Dir: filepath.Join(w.data, "tasks"), Log: slog.New(slog.DiscardHandler)})
	w.ok(err)
	w.calls.Attach(w.tasks)
	w.m.Resume()
}

func (w *world) close() {
	if w.db == nil {
		return
	}
	w.tasks.Close()
	err := errors.Join(w.calls.Close(), w.m.Close(context.Background()))
	for _, f := range w.files {
		err = errors.Join(err, f.Close())
	}
	w.ok(errors.Join(err, w.db.Close()))
	w.db, w.files = nil, nil
}

func (w *world) begin(session string) string {
	w.t.Helper()
	b, err := w.calls.Begin(context.Background(), calls.Begin{Agent: "a", Session: session, Cwd: w.root, TTL: time.Minute})
	w.ok(err)
	return b.ID
}

func (w *world) end(id string) *calls.Ended {
	w.t.Helper()
	e, err := w.calls.End(context.Background(), id, calls.End{})
	w.ok(err)
	return e
}

// list is the ids of all calls as they are listed.
func (w *world) list() (out []string) {
	w.t.Helper()
	list, _, err := w.calls.List(calls.Filter{}, "", 100)
	w.ok(err)
	for _, r := range list {
		out = append(out, r.ID)
	}
	return out
}

// TestClockIsSetOverARestart: the time that is left of a call follows from the system's
// start, not from the wall clock, and calls stay in the order in which they began.
func TestClockIsSetOverARestart(t *testing.T) {
	w := newWorld(t)
	first := w.begin("one")
	w.ahead.Store(int64(48 * time.Hour)) // forward: its minute has not passed
	w.close()
	w.open()
	second := w.begin("two")
	w.ahead.Store(int64(-48 * time.Hour)) // back
	w.close()
	w.open()
	third := w.begin("three")
	for _, id := range []string{first, second, third} {
		if r, err := w.calls.Get(id, nil); err != nil || r.Status != calls.Open {
			t.Fatalf("%s is %s, %v", id, r.Status, err)
		}
	}
	if got := w.list(); len(got) != 3 || got[0] != third || got[1] != second || got[2] != first {
		t.Errorf("listed %v, begun %v", got, []string{first, second, third})
	}
	w.end(second)
	w.end(third)
	w.write("a", "2\n")
	if e := w.end(first); e.Status != calls.OK || len(e.Entries) != 1 || e.Entries[0].Certainty != "window" {
		t.Errorf("%s %+v", e.Status, e.Entries)
	}
	if got := w.list(); len(got) != 3 || got[0] != third {
		t.Errorf("listed after their ends: %v", got)
	}
}
