package task

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"umbra/gitstore/message"
	"umbra/gitstore/object"
	"umbra/internal/areas"
	"umbra/internal/errs"
	"umbra/internal/need"
	"umbra/internal/state"
)

// kept gives the records that the database has, and the workspaces that it says
// it may be behind of.
func kept(t *testing.T, db *state.DB) (map[string]Record, []string) {
	t.Helper()
	recs := map[string]Record{}
	all, err := state.All[Record](db, bucket)
	need.NoError(t, err)
	for _, r := range all {
		recs[r.ID] = r
	}
	behind, err := (&index{db: db}).behind()
	need.NoError(t, err)
	return recs, behind
}

// What the database was not told when the server was killed is read from the
// repositories, and only of the workspaces where something happened.
func TestKilledBeforeTheIndexIsWritten(t *testing.T) {
	g := newRig(t)
	early := g.create(t, func(o *CreateOptions) { o.ID = "early" })
	need.NoError(t, g.index.flush(0))
	if recs, behind := kept(t, g.db); len(recs) != 1 || len(behind) != 0 {
		t.Fatalf("all is written, and the database has %v, behind of %v", recs, behind)
	}
	g.patch(t, early.Ref, Completed)
	auto := g.create(t, func(o *CreateOptions) { o.ID, o.MadeBy = "auto", "script" })
	need.NoError(t, g.write(auto.Ref, "f", "one"))
	gone := g.create(t, func(o *CreateOptions) { o.ID = "gone" })
	g.patch(t, gone.Ref, Failed)
	need.NoError(t, g.Delete(context.Background(), gone.Ref, ""))
	want := map[string]Record{}
	for _, id := range []string{"early", "auto", "gone"} {
		want[id], _ = known(t, g.index, id)
	}
	ws := early.ID()
	for _, m := range []*Made{early, auto, gone} {
		m.Release()
	}
	if recs, behind := kept(t, g.db); len(recs) != 1 || recs["early"].Status != Executing || !slices.Equal(behind, []string{ws}) {
		t.Fatalf("nothing was written, and the database has %v, behind of %v", recs, behind)
	}
	// As a power cut may have it: empty folders are not there.
	need.NoError(t, os.RemoveAll(filepath.Join(g.dir, "tasks", "auto")))
	g.kill(t)
	for id, w := range want {
		if got, ok := known(t, g.index, id); !ok || got != w {
			t.Errorf("%s is %+v, was %+v", id, got, w)
		}
	}
	if !want["auto"].Active || want["early"].Status != Completed || !want["gone"].Deleted {
		t.Errorf("the index had %+v", want)
	}
	if _, err := os.Stat(g.AreaDir("auto", areas.Scratch)); err != nil {
		t.Error(err)
	}
	recs, behind := kept(t, g.db)
	if len(recs) != 3 || len(behind) != 0 {
		t.Errorf("the database has %v, behind of %v", recs, behind)
	}
	if _, err := g.Create(context.Background(), CreateOptions{Goal: "g", Root: g.root, ID: "gone"}); errs.CodeOf(err) != "task_exists" {
		t.Errorf("an id was given again: %v", err)
	}
}

// A mark is there as long as a change is under way, whatever is written meanwhile.
func TestMarkStaysWhileUsed(t *testing.T) {
	db := openState(t, filepath.Join(t.TempDir(), "state.db"))
	defer db.Close()
	x, err := loadIndex(db)
	need.NoError(t, err)
	defer func() {
		if err := x.close(); err != nil {
			t.Error(err)
		}
	}()
	first, err := x.begin("w")
	need.NoError(t, err)
	second, err := x.begin("w")
	need.NoError(t, err)
	x.note(Record{ID: "a", Workspace: "w", Status: Executing})
	first()
	flush := func(quiet time.Duration) (map[string]Record, []string) {
		t.Helper()
		need.NoError(t, x.flush(quiet))
		return kept(t, db)
	}
	if recs, behind := flush(0); len(recs) != 1 || len(behind) != 1 {
		t.Errorf("beside a change: %v, behind of %v", recs, behind)
	}
	second()
	if _, behind := flush(time.Hour); len(behind) != 1 {
		t.Errorf("right after a change: behind of %v", behind)
	}
	if _, behind := flush(0); len(behind) != 0 {
		t.Errorf("long after a change: behind of %v", behind)
	}
	again, err := x.begin("w")
	need.NoError(t, err)
	if _, behind := kept(t, db); len(behind) != 1 {
		t.Errorf("at the next change: behind of %v", behind)
	}
	again()
	x.keepMark("broken")
	if _, behind := flush(0); len(behind) != 0 {
		t.Errorf("behind of %v", behind)
	}
	if _, there := x.late.marks["broken"]; !there {
		t.Error("the mark of a workspace that cannot be read went")
	}
}

// What is written at once is not overwritten by what was noted before, nor does
// what is removed come back; a transaction that fails loses nothing.
func TestLateIsOverruled(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.db")
	db := openState(t, path)
	defer func() { db.Close() }()
	x, err := loadIndex(db)
	need.NoError(t, err)
	end, err := x.begin("w")
	need.NoError(t, err)
	for _, id := range []string{"a", "b", "c"} {
		x.note(Record{ID: id, Workspace: "w", Status: Executing})
	}
	need.NoError(t, x.put(Record{ID: "a", Workspace: "w", Status: Failed}))
	need.NoError(t, x.remove("b"))
	// Who writes late meanwhile comes after the transaction, and before the index
	// has the new record: it must not know the old one as late.
	if err := x.change([]string{"c"}, func(*state.Tx) error {
		x.mu.Lock()
		defer x.mu.Unlock()
		if _, late := x.late.ids["c"]; late {
			t.Error("a record that is being written is late still")
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	x.note(Record{ID: "c", Workspace: "w", Status: Executing})
	broken := errors.New("broken")
	if err := x.write([]Record{{ID: "c", Workspace: "w", Status: Failed}}, func(*state.Tx) error { return broken }); !errors.Is(err, broken) {
		t.Fatal(err)
	}
	end()
	need.NoError(t, x.close())
	recs, behind := kept(t, db)
	if len(recs) != 2 || recs["a"].Status != Failed || recs["c"].Status != Executing || len(behind) != 0 {
		t.Errorf("%v, behind of %v", recs, behind)
	}
}

// A change of the folder while a task is being made is not the task's.
func TestBeingMadeIsNobodys(t *testing.T) {
	g := newRig(t)
	m := g.create(t, nil)
	ws := m.ID()
	g.patch(t, m.Ref, Completed)
	if !reserved(t, g.index, Record{ID: "new", Workspace: ws, Status: Executing, Pending: true}) {
		t.Fatal("taken")
	}
	if got := g.index.executing(ws); got != "" {
		t.Errorf("a change would be of %q", got)
	}
	g.index.release("new")
	m.Release()
	if !reserved(t, g.index, Record{ID: "new", Workspace: ws}) {
		t.Error("an id that was given back is taken")
	}
	g.index.release("new")
}

// A task whose status is set by its repository alone, as a crash between leaves
// it, is what the repository says.
func TestMarkedWorkspaceIsRead(t *testing.T) {
	g := newRig(t)
	m := g.create(t, func(o *CreateOptions) { o.ID = "a" })
	end, err := g.index.begin(m.ID())
	need.NoError(t, err)
	info := m.Task.Info
	info.Status = string(Paused)
	if _, err := m.Store().PutTask(context.Background(), info, object.Zero); err != nil {
		t.Fatal(err)
	}
	if _, err := m.Store().PutTask(context.Background(), message.Info{TaskID: "b", Goal: "g", Status: "executing", Created: time.Now().UTC()}, object.Zero); err != nil {
		t.Fatal(err)
	}
	end()
	m.Release()
	g.kill(t)
	a, _ := known(t, g.index, "a")
	if b, ok := known(t, g.index, "b"); a.Status != Paused || !ok || b.Status != Executing {
		t.Errorf("%+v, %+v", a, b)
	}
}

// To read the tasks of a workspace that was restored records nothing in it: who
// restored it is told first what differs in its folder.
func TestTasksOfARestoredWorkspace(t *testing.T) {
	for name, lose := range map[string]func(*state.Tx) error{
		"an index that is behind": func(tx *state.Tx) error { return (&index{}).deleteRecord(tx, "a") },
		"an index that is lost":   func(tx *state.Tx) error { return errors.Join(tx.DeleteBucket(bucket), tx.DeleteBucket(Behind)) },
	} {
		g := newRig(t)
		m := g.create(t, func(o *CreateOptions) { o.ID = "a" })
		ws := m.ID()
		end, err := g.index.begin(ws)
		need.NoError(t, err)
		defer end()
		m.Release()
		need.NoError(t, errors.Join(g.index.flush(0), g.db.Update(lose)))
		g.dropLate()
		g.shut(t)
		rec, _, err := g.records.Get(ws)
		rec.Restored = true
		need.NoError(t, errors.Join(err, g.records.Put(rec)))
		g.open(t)
		if rec, ok := g.manager.Record(ws); !ok || !rec.Restored {
			t.Errorf("%s: the workspace was opened", name)
		}
		if r, ok := known(t, g.index, "a"); !ok || r.Status != Executing {
			t.Errorf("%s: the task is %+v", name, r)
		}
	}
}
