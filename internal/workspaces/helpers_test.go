package workspaces

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"umbra/gitstore"
	"umbra/internal/vfs"
	"umbra/internal/workspace"
	"umbra/internal/workspace/wstest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// memHost is a machine in memory.
type memHost = wstest.MemHost

var (
	must      = wstest.Must
	writeDisk = wstest.WriteDisk
	mkdirs    = wstest.Mkdirs
	inFolder  = wstest.InFolder
	files     = wstest.Files
	diffMaps  = wstest.DiffMaps
	write     = wstest.WriteOp
	del       = wstest.DeleteOp
	rename    = wstest.RenameOp
	mkdir     = wstest.MkdirOp
	symlink   = wstest.SymlinkOp
	chmod     = wstest.ChmodOp
	copyOp    = wstest.CopyOp
	brief     = wstest.Brief
)

// memRecords keeps records in memory.
type memRecords = MemRecords

// bench is a machine with one workspace at /ws and the data directory at /data.
type bench struct {
	t    testing.TB
	mem  *vfs.Mem
	hook *vfs.Hook
	host *wstest.MemHost
	recs *memRecords
	m    *Manager
	w    *workspace.Workspace
	deny []string // operations that the file system has not
}

// on sets what happens at each call, in addition to what is denied. One call is made at a time.
func (b *bench) on(fn func(vfs.Call) error) {
	var mu sync.Mutex
	b.hook.OnCall = func(c vfs.Call) error {
		if slices.Contains(b.deny, c.Op) {
			return errors.ErrUnsupported
		}
		if fn != nil {
			mu.Lock()
			defer mu.Unlock()
			return fn(c)
		}
		return nil
	}
}

// newBench makes the files (a name that ends in "/" is a folder, a value that
// begins with "->" a link) and opens the workspace on them.
func newBench(t testing.TB, files map[string]string, deny ...string) *bench {
	t.Helper()
	mem := vfs.NewMem(vfs.MemOptions{})
	for _, dir := range []string{"ws", "data"} {
		must(t, mem.Mkdir(dir, 0o755))
	}
	names := make([]string, 0, len(files))
	for name := range files {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		writeDisk(t, mem, "ws/"+name, files[name])
	}
	must(t, mem.SyncDir("."))
	b := &bench{t: t, mem: mem, hook: &vfs.Hook{}, recs: &memRecords{}, deny: deny}
	b.on(nil)
	b.host = &memHost{Top: vfs.Inject(mem, b.hook), Boot: "one"}
	b.start()
	w, _, err := b.m.Open(t.Context(), "/ws", OpenOptions{})
	must(t, err)
	b.w = w
	return b
}

func (b *bench) start() {
	b.t.Helper()
	m, err := NewManager(Options{DataDir: "/data", Host: b.host, Records: b.recs, Foreground: true,
		Store: func(o *gitstore.Options) { o.Foreground = true }})
	must(b.t, err)
	b.m = m
}

// again closes the workspace and opens it with other options.
func (b *bench) again(change func(*Options)) {
	b.t.Helper()
	b.w.Release()
	must(b.t, b.m.putAway(context.Background(), b.w.ID(), nil, false))
	change(&b.m.opt)
	must(b.t, b.open())
}

func (b *bench) stop() {
	b.t.Helper()
	b.w.Release()
	must(b.t, b.m.Close(context.Background()))
}

// reboot gives a bench on what a crash leaves.
func (b *bench) reboot(t testing.TB, mem *vfs.Mem, epoch string) *bench {
	t.Helper()
	n := &bench{t: t, mem: mem, hook: &vfs.Hook{}, recs: b.recs, deny: b.deny}
	n.on(nil)
	n.host = &memHost{Top: vfs.Inject(mem, n.hook), Boot: epoch}
	n.start()
	return n
}

func (b *bench) open() error {
	for _, r := range b.m.List() {
		w, err := b.m.Get(context.Background(), r.ID)
		if err != nil {
			return err
		}
		b.w = w
	}
	return nil
}

// tree returns what history holds, in the same form.
func tree(t testing.TB, w *workspace.Workspace) map[string]string { return wstest.Tip(t, w.Store()) }

// same fails if the disk is not the tip (empty folders apart).
func (b *bench) same() {
	b.t.Helper()
	if d := b.differ(); d != "" {
		b.t.Fatal(d)
	}
}

func (b *bench) differ() string {
	return diffMaps(files(inFolder(b.t, b.mem, "ws")), tree(b.t, b.w))
}

func (b *bench) apply(ops ...workspace.Op) (*workspace.Result, error) {
	return b.w.Apply(context.Background(), workspace.Request{Ops: ops})
}

func (b *bench) ok(ops ...workspace.Op) *workspace.Result {
	b.t.Helper()
	res, err := b.apply(ops...)
	if err != nil {
		b.t.Fatal(err)
	}
	return res
}

// real is a workspace on a real directory.
func real(t testing.TB, files map[string]string) *bench {
	t.Helper()
	top := t.TempDir()
	ws, data := filepath.Join(top, "ws"), filepath.Join(top, "data")
	must(t, os.MkdirAll(ws, 0o755))
	for name, content := range files {
		full := filepath.Join(ws, name)
		must(t, os.MkdirAll(filepath.Dir(full), 0o755))
		must(t, os.WriteFile(full, []byte(content), 0o644))
	}
	b := &bench{t: t, recs: &memRecords{}}
	m, err := NewManager(Options{DataDir: data, Records: b.recs, CheckpointEvery: 50 * time.Millisecond})
	must(t, err)
	b.m = m
	w, _, err := m.Open(context.Background(), ws, OpenOptions{})
	must(t, err)
	b.w = w
	t.Cleanup(func() { b.stop() })
	return b
}
