package workspace

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"umbra/gitstore"
	"umbra/internal/rootfs"
	"umbra/internal/vfs"
	"umbra/internal/workspace/host"
	"umbra/internal/workspace/record"
	"umbra/internal/workspace/wstest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// memHost is a machine in memory.
type memHost = wstest.MemHost

var (
	must      = wstest.Must
	writeDisk = wstest.WriteDisk
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
	removeAll = vfs.RemoveAll
)

// memRecords keeps what an opener knows of its workspaces.
type memRecords struct {
	mu  sync.Mutex
	all []Config
}

func (r *memRecords) of(root string) (Config, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, c := range r.all {
		if c.Root == root || c.ID == root {
			return c, true
		}
	}
	return Config{}, false
}

// opener opens workspaces as a manager does. The zero value of a field means its
// default.
type opener struct {
	DataDir         string
	Host            host.Host
	Records         *memRecords
	Foreground      bool
	Log             *slog.Logger
	Now             func() time.Time
	CheckpointEvery time.Duration
	Store           func(*gitstore.Options)

	mu      sync.Mutex
	open    []*Workspace
	staging *rootfs.Staging
}

// Open opens the workspace of a directory, and makes it if there is none.
func (o *opener) Open(ctx context.Context, root string) (*Workspace, error) {
	h := o.host()
	info, err := h.Stat(root)
	if err != nil {
		return nil, err
	}
	r, known := o.Records.of(root)
	if !known {
		r = Config{ID: "ws-" + strconv.Itoa(len(o.Records.all)+1), Root: root, Dev: info.Dev, Ino: info.Ino}
		r.Dir = o.dirOf(r.ID)
		if err := h.MkdirAll(r.Dir); err != nil {
			return nil, err
		}
	}
	w, err := o.load(ctx, r)
	if err != nil {
		return nil, err
	}
	if known {
		err = w.Resume(ctx, func() {})
	} else if err = w.Baseline(ctx, nil); err == nil {
		o.Records.mu.Lock()
		o.Records.all = append(o.Records.all, r)
		o.Records.mu.Unlock()
	}
	if err != nil {
		return nil, errors.Join(err, w.Close(ctx, nil))
	}
	if !o.Foreground {
		w.Start(Background{CheckpointEvery: cmp.Or(o.CheckpointEvery, 5*time.Second)})
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.open = append(o.open, w)
	return w, nil
}

func (o *opener) load(ctx context.Context, c Config) (*Workspace, error) {
	c.Host, c.Log, c.Now, c.Owners, c.OnlyTask, c.Meter = o.host(), o.Log, o.Now, record.NoOwners{}, func() string { return "" }, &Meter{}
	c.Back = func() bool { return false }
	c.Limits = Limits{CaptureBytes: 256 << 20, EditBytes: 64 << 20, CacheBytes: 64 << 20}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	c.Log = c.Log.With("workspace", c.ID)
	if c.Now == nil {
		c.Now = time.Now
	}
	if o.staging == nil {
		dir := path.Join(o.DataDir, "staging")
		if c.Host.MkdirAll(dir) == nil {
			if f, err := c.Host.Open(dir); err == nil {
				if o.staging, err = rootfs.OpenStaging(f); err != nil {
					f.Close()
				}
			}
		}
	}
	c.Staging = o.staging
	files, err := c.Host.Open(c.Dir)
	if err != nil {
		return nil, err
	}
	c.Store = gitstore.Options{FS: files, Log: c.Log, Now: c.Now, Foreground: o.Foreground}
	if o.Store != nil {
		o.Store(&c.Store)
	}
	return Open(ctx, c)
}

func (o *opener) host() host.Host {
	if o.Host == nil {
		return host.OS{}
	}
	return o.Host
}

func (o *opener) dirOf(id string) string { return path.Join(o.DataDir, "workspaces", id) }

// Close closes what was opened.
func (o *opener) Close(ctx context.Context) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	var err error
	for _, w := range o.open {
		err = errors.Join(err, w.Close(ctx, nil))
	}
	o.open = nil
	if o.staging != nil {
		err = errors.Join(err, o.staging.Close())
		o.staging = nil
	}
	return err
}

// bench is a machine with one workspace at /ws and the data directory at /data.
type bench struct {
	t    testing.TB
	mem  *vfs.Mem
	hook *vfs.Hook
	host *wstest.MemHost
	recs *memRecords
	m    *opener
	w    *Workspace
	deny []string // operations that the file system has not
}

// on sets what happens at each call, beside what is denied.
func (b *bench) on(fn func(vfs.Call) error) {
	b.hook.OnCall = func(c vfs.Call) error {
		if slices.Contains(b.deny, c.Op) {
			return errors.ErrUnsupported
		}
		if fn != nil {
			return fn(c)
		}
		return nil
	}
}

// newBench makes the files (a name that ends in "/" is a folder, a value that
// begins with "->" a link) and opens the workspace on them.
func newBench(t testing.TB, files map[string]string, deny ...string) *bench {
	t.Helper()
	return newBenchOn(t, vfs.MemOptions{}, files, deny...)
}

func newBenchOn(t testing.TB, o vfs.MemOptions, files map[string]string, deny ...string) *bench {
	t.Helper()
	mem := vfs.NewMem(o)
	for _, dir := range []string{"ws", "data"} {
		must(t, mem.Mkdir(dir, 0o755))
	}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		writeDisk(t, mem, "ws/"+name, files[name])
	}
	must(t, mem.SyncDir("."))
	b := &bench{t: t, mem: mem, hook: &vfs.Hook{}, recs: &memRecords{}, deny: deny}
	b.on(nil)
	b.host = &memHost{Top: vfs.Inject(mem, b.hook), Boot: "one"}
	b.start()
	w, err := b.m.Open(t.Context(), "/ws")
	must(t, err)
	b.w = w
	return b
}

func (b *bench) start() {
	b.t.Helper()
	b.m = &opener{DataDir: "/data", Host: b.host, Records: b.recs, Foreground: true}
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
	for _, r := range b.recs.all {
		w, err := b.m.Open(context.Background(), r.Root)
		if err != nil {
			return err
		}
		b.w = w
	}
	return nil
}

// tree returns what history holds, in the same form.
func tree(t testing.TB, w *Workspace) map[string]string { return wstest.Tip(t, w.store) }

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

func (b *bench) apply(ops ...Op) (*Result, error) {
	return b.w.Apply(context.Background(), Request{Ops: ops})
}

func (b *bench) ok(ops ...Op) *Result {
	b.t.Helper()
	res, err := b.apply(ops...)
	if err != nil {
		b.t.Fatal(err)
	}
	return res
}

func rel(dir string) string {
	if dir = strings.Trim(path.Clean("/"+dir), "/"); dir == "" {
		return "."
	}
	return dir
}
