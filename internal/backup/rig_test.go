package backup

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"syscall"
	"testing"
	"time"

	"umbra/gitstore"
	"umbra/gitstore/message"
	"umbra/gitstore/object"
	"umbra/internal/need"
	"umbra/internal/vfs"
	"umbra/internal/wspath"
)

var errKilled = errors.New("killed")

// rig is a data directory in memory with one workspace, and the process that
// holds it.
type rig struct {
	t     *testing.T
	data  *vfs.Mem
	store *gitstore.Store
	now   time.Time
	n     int
	// frozen is called after a moment was taken; nil: nothing happens then.
	frozen func()
}

func newRig(t *testing.T) *rig {
	t.Helper()
	r := &rig{t: t, data: vfs.NewMem(vfs.MemOptions{}), now: time.Unix(1_700_000_000, 0)}
	for _, dir := range []string{"workspaces", "workspaces/w", "tasks", "tasks/t", "tasks/t/scratch", "tasks/t/artifacts", "cache"} {
		r.must(r.data.Mkdir(dir, 0o700))
	}
	r.file("format", "2\n")
	r.file("lock", "held")
	r.file("owner", "secret")
	r.file("cache/big", "cached")
	r.must(r.data.Symlink("scratch/f", "tasks/t/link"))
	r.open()
	_, err := r.store.Baseline(context.Background(), message.Message{Source: message.Baseline}, func(gitstore.AddFile) error { return nil })
	r.must(err)
	r.write()
	return r
}

func (r *rig) open() {
	sub, err := r.data.Sub("workspaces/w")
	r.must(err)
	r.store, err = gitstore.Open(context.Background(), gitstore.Options{FS: sub, Foreground: true, MergeGrace: time.Nanosecond,
		InUse: func(context.Context, []vfs.Info, []vfs.Info) (bool, error) { return false, nil },
		Now:   func() time.Time { r.now = r.now.Add(time.Minute); return r.now }})
	r.must(err)
	r.t.Cleanup(func() { r.store.Close(context.Background()) })
}

func (r *rig) must(err error) {
	r.t.Helper()
	if err != nil {
		r.t.Fatal(err)
	}
}

func (r *rig) file(name, text string) {
	r.t.Helper()
	f, err := r.data.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	r.must(err)
	_, err = f.Write([]byte(text))
	r.must(errors.Join(err, f.Close()))
}

// write makes a few commits, and the records and files of a task that go with
// them.
func (r *rig) write() {
	r.t.Helper()
	ctx := context.Background()
	for range 3 {
		r.n++
		b := r.store.NewBlob(fmt.Appendf(nil, "content %d\n", r.n))
		_, err := r.store.Commit(ctx, gitstore.Draft{Edits: []gitstore.Edit{{Path: wspath.Path(fmt.Sprintf("f%d", r.n%5)), Mode: object.Regular, Blob: b}},
			Message: message.Message{Source: message.API}, Entries: 1})
		r.must(err)
		if r.n%3 == 1 {
			r.must(r.store.Publish(ctx))
		}
	}
	r.file("tasks/t/scratch/f", fmt.Sprint("scratch ", r.n))
}

// State is Source's.
func (r *rig) State(_ context.Context, w io.Writer) ([]string, error) {
	_, err := fmt.Fprintf(w, "records %d", r.n)
	return []string{"w"}, err
}

// Freeze is Source's.
func (r *rig) Freeze(ctx context.Context, id string) (*gitstore.Frozen, error) {
	if id != "w" {
		return nil, gone()
	}
	f, err := r.store.Freeze(ctx)
	if r.frozen != nil {
		r.frozen()
	}
	return f, err
}

// backup backs the directory up.
func (r *rig) backup(to vfs.FS) (Report, error) {
	return Run(context.Background(), Options{Source: r, Data: r.data, To: to, Program: "test", Now: func() time.Time { return r.now }})
}

// moment is what a data directory holds.
type moment struct {
	tip              gitstore.ID
	records, scratch string
}

func (r *rig) moment() moment {
	return moment{r.store.Tip().Commit, fmt.Sprint("records ", r.n), fmt.Sprint("scratch ", r.n)}
}

// look reads what a restored directory holds, and checks all of it.
func look(t *testing.T, data *vfs.Mem) moment {
	t.Helper()
	read := func(name string) string {
		text, err := vfs.ReadFile(data, name)
		need.NoError(t, err)
		return string(text)
	}
	m := moment{records: read("state.db"), scratch: read("tasks/t/scratch/f")}
	if target, err := data.Readlink("tasks/t/link"); err != nil || target != "scratch/f" {
		t.Errorf("link: %q %v", target, err)
	}
	if info, err := data.Lstat("tasks/t/artifacts"); err != nil || !info.IsDir() {
		t.Errorf("an empty folder: %v", err)
	}
	list, err := data.ReadDir(".")
	if err != nil || len(list) != 4 {
		t.Errorf("%v %v", list, err)
	}
	sub, err := data.Sub("workspaces/w")
	need.NoError(t, err)
	ctx := context.Background()
	s, err := gitstore.Open(ctx, gitstore.Options{FS: sub, Foreground: true})
	need.NoError(t, err)
	defer s.Close(ctx)
	if rec := s.Recovery(); len(rec.Torn) > 0 || rec.Foreign > 0 {
		t.Errorf("the start had to put right: %+v", rec)
	}
	if rep, err := s.Verify(ctx, nil); err != nil || len(rep.Problems) > 0 {
		t.Errorf("verify: %q %v", rep.Problems, err)
	}
	m.tip = s.Tip().Commit
	return m
}

// restored restores into a new directory.
func restored(t *testing.T, from vfs.FS) moment {
	t.Helper()
	to := vfs.NewMem(vfs.MemOptions{})
	if _, err := Restore(context.Background(), RestoreOptions{From: from, To: to}); err != nil {
		t.Fatal(err)
	}
	// All of it is durable.
	return look(t, to.CrashClone(vfs.CrashOptions{Mode: vfs.CrashSyncedOnly}))
}

// stride is how many calls lie between two points: every call is one, but with
// -short.
func stride() int {
	if testing.Short() {
		return 11
	}
	return 1
}

// clones calls fn with what a kill and power cuts may leave of a file system.
func clones(t *testing.T, at *vfs.Mem, n int, fn func(t *testing.T, clone *vfs.Mem)) {
	t.Helper()
	for _, mode := range []vfs.CrashMode{vfs.CrashNothing, vfs.CrashSyncedOnly, vfs.CrashNamesOnly, vfs.CrashRandom} {
		clone := at.CrashClone(vfs.CrashOptions{Mode: mode, Rand: rand.New(rand.NewPCG(uint64(n), 7))})
		if !t.Run(fmt.Sprintf("call %d %v", n, mode), func(t *testing.T) { fn(t, clone) }) {
			t.FailNow()
		}
	}
}

var errnos = []syscall.Errno{syscall.ENOSPC, syscall.EIO}
