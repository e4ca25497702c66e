package workspace

import (
	"context"
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"umbra/gitstore"
	"umbra/gitstore/message"
	"umbra/gitstore/object"
	"umbra/internal/errs"
	"umbra/internal/ignore"
	"umbra/internal/rootfs"
	"umbra/internal/vfs"
	"umbra/internal/wspath"
)

// The kinds of workspaces (Record.Kind).
const (
	PhysicalKind = "physical"
	VirtualKind  = "virtual"
)

// virtual is what a workspace without a folder has beside its repository. Its
// newest tree is what a folder would hold; a request's commit is all that is
// done, and nobody else ever changes anything. Folders exist as long as they
// hold a file.
type virtual struct {
	tree *treeFS

	mu    sync.Mutex
	times map[wspath.Path]changed // of files that were asked for or written lately
}

// changed is when a file became what it is.
type changed struct {
	id   object.ID
	mode object.Mode
	ns   int64
}

const (
	maxTimes = 4096
	// maxTimeWalk bounds how far back the change of a file is looked for; one
	// that is older is told as old as that.
	maxTimeWalk = 2000
)

// OpenVirtual finds the virtual workspace of a namespace, or makes it. A nil
// namespace makes a new one that no namespace leads to. The caller calls
// Release. Two namespaces are the same store only if they are equal, segment by
// segment.
//
// errs.Invalid "invalid_namespace".
func (m *Manager) OpenVirtual(ctx context.Context, namespace []string) (*Workspace, error) {
	if err := CheckNamespace(namespace); err != nil {
		return nil, err
	}
	m.making.Lock()
	defer m.making.Unlock()
	if namespace != nil {
		for _, r := range m.List() {
			if r.Kind == VirtualKind && r.Namespace != nil && slices.Equal(r.Namespace, namespace) {
				return m.Get(ctx, r.ID)
			}
		}
	}
	return m.makeVirtual(ctx, namespace)
}

// FindVirtual gives the virtual workspace of a namespace, if there is one.
func (m *Manager) FindVirtual(namespace []string) (Record, bool) {
	for _, r := range m.List() {
		if r.Kind == VirtualKind && r.Namespace != nil && slices.Equal(r.Namespace, namespace) {
			return r, true
		}
	}
	return Record{}, false
}

// Bounds of a namespace.
const (
	maxSegments  = 64
	maxNamespace = 4096 // bytes in all
)

// CheckNamespace judges a namespace: a list of segments that are not empty. nil
// is none.
func CheckNamespace(namespace []string) error {
	if namespace == nil {
		return nil
	}
	fail := func(why string) error { return errs.New(errs.Invalid, "invalid_namespace", why) }
	size := 0
	for _, s := range namespace {
		if s == "" {
			return fail("A segment of the namespace is empty.")
		}
		size += len(s)
	}
	switch {
	case len(namespace) == 0:
		return fail("The namespace is empty.")
	case len(namespace) > maxSegments || size > maxNamespace:
		return fail("The namespace is too long.")
	}
	return nil
}

func (m *Manager) makeVirtual(ctx context.Context, namespace []string) (*Workspace, error) {
	now := m.opt.Now().UTC()
	name := "virtual"
	if len(namespace) > 0 {
		name = strings.Join(namespace, "-")
	}
	r := Record{ID: newID(strings.ReplaceAll(name, "/", "-")), Kind: VirtualKind, Namespace: slices.Clone(namespace), Created: now, LastUsed: now}
	dir := m.dirOf(r.ID)
	if err := m.opt.Host.MkdirAll(dir); err != nil {
		return nil, errs.Wrap(err, "")
	}
	w, err := m.loadVirtual(ctx, r)
	if err == nil {
		var c gitstore.Committed
		c, err = w.store.Baseline(ctx, message.Message{Source: message.Baseline}, func(gitstore.AddFile) error { return nil })
		if err == nil {
			w.progress.begin(c.Seq)
			err = m.opt.Records.Put(r)
		}
		if err != nil {
			err = errors.Join(err, w.close(ctx, nil))
		}
	}
	if err != nil {
		return nil, errors.Join(err, m.opt.Host.RemoveAll(dir))
	}
	return m.adoptNew(ctx, w, r)
}

// adoptNew makes a workspace that was just made one of the open ones.
func (m *Manager) adoptNew(ctx context.Context, w *Workspace, r Record) (*Workspace, error) {
	h := newHandle()
	h.refs = 1
	m.mu.Lock()
	stopped := m.stopped
	if !stopped {
		m.records[r.ID], m.open[r.ID] = r, h
	}
	m.mu.Unlock()
	if stopped {
		// The record is there: the next start has the workspace.
		return nil, errors.Join(errs.New(errs.Unavailable, "stopping", "The server is stopping."), w.close(ctx, nil))
	}
	m.startBackground(w)
	m.opened(r.ID, h, w, nil)
	return w, nil
}

// loadVirtual opens the store of a virtual workspace.
func (m *Manager) loadVirtual(ctx context.Context, r Record) (*Workspace, error) {
	host, dir := m.opt.Host, m.dirOf(r.ID)
	w := &Workspace{id: r.ID, gitDir: filepath.Join(dir, "repo.git"), locks: newLockTable(), index: newIndex(), policy: m.rules(r), limits: m.opt.Limits, meter: m.opt.Meter,
		log: m.opt.Log.With("workspace", r.ID), now: m.opt.Now, lingerWake: make(chan struct{}, 1), gone: make(chan struct{})}
	w.idle = sync.NewCond(&w.opmu)
	w.canWrite.Store(true)
	w.owners = ownership{noOwners{}, func() string { return "" }}
	w.identity = func() (uint64, uint64, error) { return 0, 0, nil }
	w.gitRules = func() ([]byte, *ignore.Index, error) { return nil, nil, nil }
	var err error
	if w.files, err = host.Open(dir); err != nil {
		return nil, errs.Wrap(err, "")
	}
	tree := &treeFS{scratch: w.files}
	w.virtual = &virtual{tree: tree, times: make(map[wspath.Path]changed)}
	w.fs = tree
	w.root = rootfs.New(tree, rootfs.Umask(), nil)
	tree.perm = w.root.FilePerm
	if err := sweepScratch(w.files); err != nil {
		return nil, errors.Join(errs.Wrap(err, ""), w.files.Close())
	}
	if w.progress, err = openProgress(w.files, host.Epoch(dir)); err != nil {
		return nil, errors.Join(err, w.files.Close())
	}
	storeFS, err := host.Open(dir)
	if err != nil {
		return nil, errors.Join(errs.Wrap(err, ""), w.free())
	}
	if err := m.openStore(ctx, w, r, storeFS); err != nil {
		return nil, errors.Join(err, w.free())
	}
	tree.store = w.store
	w.progress.begin(w.store.Tip().Seq)
	return w, nil
}

// sweepScratch drops new content that a kill left, where it had a name.
func sweepScratch(files vfs.FS) error {
	list, err := files.ReadDir(".")
	if err != nil {
		return err
	}
	for _, e := range list {
		if wspath.IsTemp(e.Name) {
			if err := files.Remove(e.Name); err != nil {
				return err
			}
		}
	}
	return nil
}

// forgetFolders takes out of a plan what only a disk could hold: folders
// without a file.
func (p *plan) forgetFolders() {
	p.net.dirs, p.bare = nil, false
	for i := range p.ops {
		if p.req.Ops[i].Kind == OpMkdir {
			p.ops[i].Operation, p.ops[i].Created = "", false
		}
	}
}

// written notes when files became what a commit made them.
func (v *virtual) written(entries []netEntry, when time.Time) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for i := range entries {
		if e := &entries[i].after; e.Mode != 0 {
			v.note(e.Path, changed{e.ID, e.Mode, when.UnixNano()})
		}
	}
}

// note remembers; mu is held.
func (v *virtual) note(p wspath.Path, c changed) {
	for old := range v.times {
		if len(v.times) < maxTimes {
			break
		}
		delete(v.times, old)
	}
	v.times[p] = c
}

// mtime gives when a file became what it is, in nanoseconds since 1970; 0 where
// it is not there or cannot be told. A folder's is the newest commit's.
func (w *Workspace) treeTime(p wspath.Path) int64 {
	v, ctx := w.virtual, context.Background()
	e, ok, err := w.store.Snapshot().Lookup(p)
	if err != nil || !ok {
		return 0
	}
	tip := w.store.Tip()
	if e.Mode != object.Dir {
		v.mu.Lock()
		c, known := v.times[p]
		v.mu.Unlock()
		if known && c.id == e.ID && c.mode == e.Mode {
			return c.ns
		}
	}
	var at int64
	for id, n := tip.Commit, 0; n < maxTimeWalk && !id.IsZero(); n++ {
		c, err := w.store.ReadCommit(ctx, id)
		if err != nil {
			break
		}
		snap, err := w.store.SnapshotOf(ctx, id)
		if err != nil {
			break
		}
		if was, ok, err := snap.Lookup(p); err != nil || !ok || was.ID != e.ID || was.Mode != e.Mode {
			break
		}
		at, id = c.When.UnixNano(), c.Parent
		if e.Mode == object.Dir {
			return at
		}
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	v.note(p, changed{e.ID, e.Mode, at})
	return at
}

// errVirtual is answered for what only a folder can be asked.
func errVirtual() error {
	return errs.New(errs.Conflict, "workspace_virtual", "The workspace is virtual: it has no folder.")
}
