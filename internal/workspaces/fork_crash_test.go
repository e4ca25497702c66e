package workspaces

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"syscall"
	"testing"

	"umbra/internal/need"
	"umbra/internal/vfs"
	"umbra/internal/workspace"
	"umbra/internal/wspath"
)

// forkScenario makes forks, writes in one, forks that, deletes some, and deletes the
// parent of one; it notes what was acknowledged.
type forkScenario struct {
	b       *bench
	wrote   map[string]string // by fork: what a has
	deleted map[string]bool
	// What is not acknowledged yet: a write of text to a fork, a deletion.
	writing, text, dropping string
}

func (f *forkScenario) fork(of *workspace.Workspace, n int) ([]string, error) {
	made, err := f.b.m.ForkVirtual(context.Background(), of, ForkSpec{}, make([]string, n))
	var ids []string
	for _, r := range made {
		ids = append(ids, r.ID)
		f.wrote[r.ID] = f.wrote[of.ID()]
	}
	return ids, err
}

func (f *forkScenario) write(id, text string) error {
	w, err := f.b.m.Get(context.Background(), id)
	if err != nil {
		return err
	}
	defer w.Release()
	f.writing, f.text = id, text
	if _, err = w.Apply(context.Background(), workspace.Request{Ops: []workspace.Op{write("a", text)}}); err == nil {
		f.wrote[id] = text
	}
	return err
}

func (f *forkScenario) drop(id string) error {
	f.dropping = id
	err := f.b.m.Forget(context.Background(), id, true)
	if err == nil {
		f.deleted[id], f.dropping = true, ""
	}
	return err
}

func (f *forkScenario) play() error {
	f.wrote[f.b.w.ID()] = "one"
	first, err := f.fork(f.b.w, 3)
	if err != nil {
		return err
	}
	if err := errors.Join(f.write(first[0], "in the first"), f.write(f.b.w.ID(), "the parent's"), f.write(first[1], "in the second")); err != nil {
		return err
	}
	w, err := f.b.m.Get(context.Background(), first[0])
	if err != nil {
		return err
	}
	deep, err := f.fork(w, 2)
	w.Release()
	if err != nil {
		return err
	}
	if err := errors.Join(f.write(deep[0], "deep"), f.drop(first[2]), f.drop(first[1])); err != nil {
		return err
	}
	if err := f.b.m.Detach(context.Background(), first[0]); err != nil {
		return err
	}
	return errors.Join(f.drop(first[0]), f.write(deep[0], "deeper"), f.write(deep[1], "alone"))
}

// check opens what a crash left: every fork that has a record is whole and sound, what
// was acknowledged is there, what was deleted is not, and there is no remainder.
func (f *forkScenario) check(t *testing.T, b *bench, at string) {
	for id := range f.wrote {
		switch _, there := b.m.Record(id); {
		case there && f.deleted[id]:
			t.Errorf("%s: %s was deleted and is there", at, id)
		case !there && !f.deleted[id] && f.dropping != id:
			t.Errorf("%s: %s is lost", at, id)
		}
	}
	if id := f.dropping; id != "" { // package fork knows of it, and goes on with it
		must(t, b.m.RemoveFiles(Record{ID: id}))
	}
	for _, r := range b.m.List() {
		f.open(t, b, r.ID, at)
	}
	list, err := b.host.Top.ReadDir("data/workspaces")
	must(t, err)
	for _, e := range list {
		if _, ok := b.m.Record(e.Name); !ok {
			t.Errorf("%s: %s is left behind", at, e.Name)
		}
	}
}

func (f *forkScenario) open(t *testing.T, b *bench, id, at string) {
	w, err := b.m.Get(context.Background(), id)
	if err != nil {
		t.Errorf("%s: %s: %v", at, id, err)
		return
	}
	defer w.Release()
	e, ok, err := w.Store().Snapshot().Lookup(wspath.Path("a"))
	if err != nil || !ok {
		t.Errorf("%s: %s: %v %v", at, id, ok, err)
		return
	}
	data, err := w.Store().ReadBlob(context.Background(), e.ID, 1<<20)
	want, known := f.wrote[id]
	if err != nil || known && string(data) != want && (f.writing != id || string(data) != f.text) {
		t.Errorf("%s: %s has %q, not %q, %v", at, id, data, want, err)
	}
	for _, name := range []string{"HEAD", "config"} { // which only git reads
		text, err := vfs.ReadFile(b.host.Top, "data/workspaces/"+id+"/repo.git/"+name)
		if err != nil || len(text) == 0 {
			t.Errorf("%s: %s: %s is %q, %v", at, id, name, text, err)
		}
	}
	report, err := w.Store().Verify(context.Background(), nil)
	if err != nil || len(report.Problems) > 0 {
		t.Errorf("%s: %s: %v %v", at, id, report.Problems, err)
	}
}

// The machine stops at every call of making, using, detaching and deleting forks.
func TestForkCrashAtEveryCall(t *testing.T) {
	stride, calls := 1, 0
	run := func(on func(n int, c vfs.Call, f *forkScenario) error) {
		b := newBench(t, map[string]string{"a": "one", "d/b": "two"})
		f := &forkScenario{b: b, wrote: map[string]string{}, deleted: map[string]bool{}}
		n := 0
		b.on(func(c vfs.Call) error {
			n++
			return on(n, c, f)
		})
		need.NoError(t, f.play())
		b.on(nil)
		calls = n
		b.stop()
	}
	type crash struct {
		mem  *vfs.Mem
		recs *memRecords
		f    forkScenario
		at   string
	}
	if testing.Short() {
		stride = 7
	}
	for _, mode := range []vfs.CrashMode{vfs.CrashNothing, vfs.CrashSyncedOnly, vfs.CrashRandom} {
		var crashes []crash
		run(func(n int, c vfs.Call, f *forkScenario) error {
			if n%stride == 0 {
				all, err := f.b.recs.All()
				recs := &memRecords{}
				must(t, errors.Join(err, recs.Put(all...)))
				crashes = append(crashes, crash{f.b.mem.CrashClone(vfs.CrashOptions{Mode: mode, Rand: rand.New(rand.NewPCG(uint64(n), 1))}), recs,
					forkScenario{wrote: maps.Clone(f.wrote), deleted: maps.Clone(f.deleted), writing: f.writing, text: f.text, dropping: f.dropping}, fmt.Sprintf("%v, call %d: %s %s", mode, n, c.Op, c.Name)})
			}
			return nil
		})
		for _, c := range crashes {
			epoch := "one"
			if mode != vfs.CrashNothing {
				epoch = "two"
			}
			dead := &bench{t: t, recs: c.recs}
			again := dead.reboot(t, c.mem, epoch)
			c.f.check(t, again, c.at)
			must(t, again.m.Close(context.Background()))
			if t.Failed() {
				return
			}
		}
	}
	t.Logf("%d calls", calls)
}

// A git that works in a fork reads its ancestors' packs: they are told of it.
func TestForkReaders(t *testing.T) {
	b := newBench(t, map[string]string{"a": "one"})
	defer b.stop()
	made, err := b.m.ForkVirtual(t.Context(), b.w, ForkSpec{}, []string{"", ""})
	must(t, err)
	w, err := b.m.Get(t.Context(), made[0].ID)
	must(t, err)
	defer w.Release()
	deep, err := b.m.ForkVirtual(t.Context(), w, ForkSpec{}, []string{""})
	must(t, err)
	got := map[uint64]bool{}
	for _, info := range b.m.readers(b.w.ID()) {
		got[info.Ino] = true
	}
	for _, id := range []string{made[0].ID, made[1].ID, deep[0].ID} {
		info, err := b.host.Stat("/data/workspaces/" + id + "/repo.git")
		must(t, err)
		if !got[info.Ino] {
			t.Errorf("%s is not among them", id)
		}
	}
}

// A fork whose first use fails at any call is made by the next one, as durable as ever,
// and syncs nothing twice.
func TestForkMadeAgain(t *testing.T) {
	for n := 1; ; n++ {
		b := newBench(t, map[string]string{"a": "one"})
		f := &forkScenario{b: b, wrote: map[string]string{b.w.ID(): "one"}, deleted: map[string]bool{}}
		ids, err := f.fork(b.w, 1)
		must(t, err)
		calls, synced := 0, map[string]int{}
		b.on(func(c vfs.Call) error {
			if calls++; calls == n {
				return syscall.EIO
			}
			if c.Op == vfs.OpSyncDir || c.Op == vfs.OpFsync || c.Op == vfs.OpFdatasync {
				synced[c.Name]++
			}
			return nil
		})
		w, err := b.m.Get(t.Context(), ids[0])
		b.on(nil)
		if err == nil {
			w.Release()
		}
		if calls < n {
			for name, times := range synced {
				if times > 1 {
					t.Errorf("%s is synced %d times", name, times)
				}
			}
			t.Logf("%d calls, %d syncs", calls, len(synced))
			b.stop()
			return
		}
		must(t, f.write(ids[0], "in the fork"))
		recs := &memRecords{}
		all, err := b.recs.All()
		must(t, errors.Join(err, recs.Put(all...)))
		crash := b.mem.CrashClone(vfs.CrashOptions{Mode: vfs.CrashSyncedOnly})
		b.stop()
		again := (&bench{t: t, recs: recs}).reboot(t, crash, "two")
		f.check(t, again, fmt.Sprintf("call %d", n))
		must(t, again.m.Close(context.Background()))
		if t.Failed() {
			return
		}
	}
}

// An id is given once: not that of another workspace, of the same request or before, nor
// of one that was forgotten and left its history.
func TestForkIDs(t *testing.T) {
	b := newBench(t, map[string]string{"a": "one"})
	defer b.stop()
	n := 0
	b.m.random = func(id []byte) { // each of them three times
		n++
		clear(id)
		id[0] = byte(n / 3)
	}
	made, err := b.m.ForkVirtual(t.Context(), b.w, ForkSpec{}, make([]string, 20))
	must(t, err)
	w, err := b.m.Get(t.Context(), made[0].ID)
	must(t, err)
	w.Release()
	must(t, b.m.Forget(t.Context(), made[0].ID, false))
	n = 0
	more, err := b.m.ForkVirtual(t.Context(), b.w, ForkSpec{}, make([]string, 20))
	must(t, err)
	ids := map[string]bool{}
	for _, r := range append(made, more...) {
		if ids[r.ID] {
			t.Errorf("%s was given twice", r.ID)
		}
		ids[r.ID] = true
	}
}
