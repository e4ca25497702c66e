package task

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"umbra/gitstore/message"
	"umbra/internal/errs"
	"umbra/internal/need"
	"umbra/internal/state"
	"umbra/internal/workspace"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestCreateReplaysItsKey(t *testing.T) {
	g := newRig(t)
	keyed := func(o *CreateOptions) { o.IdempotencyKey = "sha256:" + strings.Repeat("a", 64); o.ID = "given" }
	a := g.create(t, keyed)
	a.Release()
	for range 2 {
		b := g.create(t, keyed)
		if !b.Replayed || b.Task.ID != a.Task.ID {
			t.Errorf("made %s, replayed %v", b.Task.ID, b.Replayed)
		}
		b.Release()
		g.reopen(t)
	}
	_, err := g.Create(context.Background(), CreateOptions{Goal: "g", Root: g.root, ID: "given"})
	if errs.CodeOf(err) != "task_exists" {
		t.Errorf("the id was given again: %v", err)
	}
}

// The same request makes no second workspace either, also after a kill before its answer was
// kept.
func TestCreateVirtualReplaysItsKey(t *testing.T) {
	g := newRig(t)
	keyed := func(o *CreateOptions) {
		o.Root, o.Virtual, o.IdempotencyKey = "", true, "sha256:"+strings.Repeat("a", 64)
	}
	a := g.create(t, keyed)
	a.Release()
	for range 2 {
		b := g.create(t, keyed)
		if !b.Replayed || b.Task.ID != a.Task.ID {
			t.Errorf("made %s on %s, replayed %v", b.Task.ID, b.Workspace.ID(), b.Replayed)
		}
		b.Release()
		g.kill(t)
	}
	if n := len(g.manager.List()); n != 1 {
		t.Errorf("%d workspaces", n)
	}
}

func TestCreateAtOnce(t *testing.T) {
	g := newRig(t)
	var won, lost int
	var mu sync.Mutex
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			m, err := g.Create(context.Background(), CreateOptions{Goal: "g", Root: g.root, ID: "same"})
			mu.Lock()
			defer mu.Unlock()
			if err == nil {
				won++
				m.Release()
			} else if errs.CodeOf(err) == "task_exists" {
				lost++
			} else {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if won != 1 || lost != 7 {
		t.Errorf("%d won, %d lost", won, lost)
	}
}

// The index is a cache: without it, and where a crash left it behind, the
// repositories tell all.
func TestIndexIsRebuilt(t *testing.T) {
	g := newRig(t)
	a := g.create(t, func(o *CreateOptions) { o.ID = "a"; o.MadeBy = "session s1" })
	b := g.create(t, func(o *CreateOptions) { o.ID = "b" })
	c := g.create(t, func(o *CreateOptions) { o.ID = "c" })
	need.NoError(t, g.write(a.Ref, "f", "one"))
	g.patch(t, c.Ref, Failed)
	need.NoError(t, g.Delete(context.Background(), c.Ref, ""))
	want := map[string]Record{}
	for _, id := range []string{"a", "b", "c"} {
		want[id], _ = known(t, g.index, id)
	}
	if !want["a"].Active || !want["a"].Auto || !want["c"].Deleted {
		t.Fatalf("the index has %+v", want)
	}
	ws := a.ID()
	for _, m := range []*Made{a, b, c} {
		m.Release()
	}
	same := func(when string) {
		t.Helper()
		for id, w := range want {
			if got, ok := known(t, g.index, id); !ok || got != w {
				t.Errorf("%s: %s is %+v, was %+v", when, id, got, w)
			}
		}
	}
	need.NoError(t, g.index.flush(0))
	need.NoError(t, g.db.Update(func(tx *state.Tx) error { return tx.DeleteBucket(bucket) }))
	g.reopen(t)
	same("rebuilt")

	// As after a crash in between: a status that the index does not know, and a
	// task that never came about.
	behind := want["b"]
	behind.Pending, behind.Status = true, Paused
	for _, r := range []Record{behind, {ID: "never", Workspace: ws, Created: time.Now().UTC(), Status: Executing, Pending: true}} {
		need.NoError(t, g.index.put(r))
	}
	g.reopen(t)
	same("settled")
	if _, ok := known(t, g.index, "never"); ok {
		t.Error("a task that never was is still in the index")
	}
}

func TestWritable(t *testing.T) {
	g := newRig(t)
	r := g.create(t, nil)
	defer r.Release()
	id, ws := r.Task.ID, r.ID()
	for _, c := range []struct {
		task, ws, code string
		prepare        func()
	}{
		{id, ws, "", func() {}},
		{id, "another", "task_other_workspace", func() {}},
		{"nothing", ws, "task_not_found", func() {}},
		{id, ws, "task_paused", func() { g.patch(t, r.Ref, Paused) }},
		{id, ws, "task_ended", func() { g.patch(t, r.Ref, Completed) }},
		{id, ws, "task_not_found", func() {
			need.NoError(t, g.Delete(context.Background(), r.Ref, ""))
		}},
	} {
		c.prepare()
		err := g.Writable(c.task, c.ws)
		if c.code == "" && err != nil || c.code != "" && errs.CodeOf(err) != c.code {
			t.Errorf("%s on %s: %v, want %q", c.task, c.ws, err, c.code)
		}
	}
}

// Once the end of a task was answered, nothing of it is committed any more.
func TestNoChangeAfterTheEnd(t *testing.T) {
	g := newRig(t)
	r := g.create(t, nil)
	defer r.Release()
	var all sync.WaitGroup
	var mu sync.Mutex
	acknowledged := 0
	for w := range 4 {
		all.Go(func() {
			for i := 0; ; i++ {
				err := g.write(r.Ref, fmt.Sprintf("w%d", w), fmt.Sprint(i))
				if errs.CodeOf(err) == "task_ended" {
					return
				}
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				acknowledged++
				mu.Unlock()
			}
		})
	}
	st := g.TaskStream(g.get(t, r.Task.ID), FromNow)
	defer st.Close()
	for range 20 {
		if _, err := st.Next(context.Background()); err != nil {
			t.Fatal(err)
		}
	}
	other := g.get(t, r.Task.ID)
	defer other.Release()
	g.patch(t, other, Completed)
	atEnd, _ := r.Store().Task(r.Task.ID)
	all.Wait()
	after, _ := r.Store().Task(r.Task.ID)
	if after.Changes != atEnd.Changes || uint64(acknowledged) != after.Changes {
		t.Errorf("%d changes at the end, %d after, %d acknowledged", atEnd.Changes, after.Changes, acknowledged)
	}
	seen := 20
	for {
		ev, err := st.Next(context.Background())
		if errors.Is(err, io.EOF) {
			break
		}
		need.NoError(t, err)
		if ev.Kind == EventChange {
			seen++
		}
	}
	// The stream began somewhere after the first writes.
	if uint64(seen) > after.Changes {
		t.Errorf("%d events of %d changes", seen, after.Changes)
	}
}

func TestStreamLags(t *testing.T) {
	g := newRig(t)
	g.shut(t)
	g.lag = 5
	g.open(t)
	r := g.create(t, nil)
	defer r.Release()
	st := g.WorkspaceStream(g.get(t, r.Task.ID).Workspace, FromNow)
	defer st.Close()
	for i := range 9 {
		need.NoError(t, g.write(r.Ref, "f", fmt.Sprint(i)))
	}
	ev, err := st.Next(context.Background())
	if err != nil || ev.Kind != EventLagged || ev.After != 1 {
		t.Fatalf("%+v, %v", ev, err)
	}
	if _, err := st.Next(context.Background()); !errors.Is(err, io.EOF) {
		t.Errorf("a stream that lagged goes on: %v", err)
	}
	// By number it goes on where it was, however far that is.
	again := g.WorkspaceStream(g.get(t, r.Task.ID).Workspace, int64(ev.After))
	defer again.Close()
	for want := uint64(2); want <= 10; want++ {
		ev, err := again.Next(context.Background())
		if err != nil || ev.Commit == nil || ev.Commit.Seq != want {
			t.Fatalf("%+v, %v; want %d", ev, err, want)
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := again.Next(ctx); errs.KindOf(err) != errs.Canceled {
		t.Errorf("a client that went away: %v", err)
	}
}

func TestStreamEnds(t *testing.T) {
	g := newRig(t)
	r := g.create(t, nil)
	g.patch(t, r.Ref, Paused)
	wait := func(st *Stream) <-chan error {
		done := make(chan error, 1)
		go func() {
			for {
				if _, err := st.Next(context.Background()); err != nil {
					st.Close()
					done <- err
					return
				}
			}
		}()
		return done
	}
	closed := wait(g.TaskStream(g.get(t, r.Task.ID), FromNow))
	g.patch(t, r.Ref, Cancelled)
	if err := <-closed; !errors.Is(err, io.EOF) {
		t.Errorf("ended: %v", err)
	}
	forgotten := wait(g.WorkspaceStream(g.get(t, r.Task.ID).Workspace, 0))
	ws := r.ID()
	r.Release()
	need.NoError(t, g.Forget(context.Background(), ws, false))
	if err := <-forgotten; !errors.Is(err, io.EOF) {
		t.Errorf("forgotten: %v", err)
	}
	if _, err := g.Get(context.Background(), r.Task.ID, nil); errs.CodeOf(err) != "task_not_found" {
		t.Errorf("a task of a forgotten workspace: %v", err)
	}
	if left, err := os.ReadDir(filepath.Join(g.dir, "tasks")); err != nil || len(left) != 0 {
		t.Errorf("its folders are still there: %v", left)
	}
	other := g.create(t, nil)
	stopped := wait(g.WorkspaceStream(g.get(t, other.Task.ID).Workspace, FromNow))
	other.Release()
	g.Service.Close()
	if err := <-stopped; !errors.Is(err, io.EOF) {
		t.Errorf("stopped: %v", err)
	}
}

// Change sets of more entries than a message lists are numbered and paged like
// any other.
func TestLargeChangeSets(t *testing.T) {
	g := newRig(t)
	r := g.create(t, nil)
	defer r.Release()
	const n = 600
	apply := func(data string) {
		t.Helper()
		var ops []workspace.Op
		for i := range n {
			ops = append(ops, workspace.Op{Kind: workspace.OpWrite, Path: mustPath(fmt.Sprintf("d/%03d", i)), Data: []byte(data)})
		}
		if _, err := g.Apply(context.Background(), r.Ref, workspace.Request{By: workspace.By{SubtaskID: data}, Ops: ops}); err != nil {
			t.Fatal(err)
		}
	}
	apply("one")
	apply("two")
	var seen []string
	for after := uint64(0); ; {
		entries, next, err := g.Changes(context.Background(), r.Ref, Filter{}, after, 250)
		need.NoError(t, err)
		for _, e := range entries {
			if e.ID != uint64(len(seen)+1) {
				t.Fatalf("entry %d has the id %d", len(seen)+1, e.ID)
			}
			if (e.Operation == message.Modify) != (len(seen) >= n) || e.Before.IsZero() != (len(seen) < n) || e.AfterHash == "" {
				t.Fatalf("entry %+v", e)
			}
			seen = append(seen, e.Path)
		}
		if next == 0 {
			break
		}
		after = next
	}
	if len(seen) != 2*n || !slices.Equal(seen[:n], seen[n:]) {
		t.Errorf("%d entries", len(seen))
	}
	v, err := g.View(context.Background(), r.Ref)
	if err != nil || v.Changes != 2*n || !slices.Equal(v.Subtasks, []Subtask{{"one", n, 1, n}, {"two", n, n + 1, 2 * n}}) {
		t.Errorf("%+v, %v", v, err)
	}
	e, err := g.Change(context.Background(), r.Ref, n+1)
	if err != nil || e.Path != "d/000" {
		t.Errorf("%+v, %v", e, err)
	}
	if got, _, err := g.Changes(context.Background(), r.Ref, Filter{Path: "d/599"}, 0, 10); err != nil || len(got) != 2 {
		t.Errorf("%d entries of one path, %v", len(got), err)
	}
}
