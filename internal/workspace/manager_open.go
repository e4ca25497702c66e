package workspace

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"io/fs"
	"log/slog"
	"path/filepath"
	"strings"
	"sync"
	"syscall"

	"umbra/internal/audit"
	"umbra/internal/errs"
	"umbra/internal/ignore"
	"umbra/internal/rootfs"
	"umbra/internal/vfs"
	"umbra/internal/workspace/host"
)

// OpenOptions are about opening a folder.
type OpenOptions struct {
	// Force accepts the root of the file system and home directories.
	Force bool
	// Own is for one of the server's own folders, by no client's wish: it need
	// not lie under Options.Roots.
	Own bool
	// Allow, if set, is asked about the canonical path before anything is made
	// or read; its error is answered as it is.
	Allow func(root string) error
	// Progress is told how many files the baseline has met.
	Progress func(files int64)

	fork *Fork // what a copied directory is a fork of
}

// place is a folder that was looked at.
type place struct {
	root     string
	dev, ino uint64
	born     int64
}

// look finds out what a path leads to. Errors: errs.Invalid
// workspace_not_found, workspace_not_directory, workspace_not_readable,
// workspace_too_wide; errs.Forbidden workspace_not_allowed.
func (m *Manager) look(root string, o OpenOptions) (place, error) {
	host := m.opt.Host
	refuse := func(code, why string) error { return errs.New(errs.Invalid, code, why) }
	canonical, err := host.Canonical(root)
	var info vfs.Info
	if err == nil {
		info, err = host.Stat(canonical)
	}
	switch {
	case err == nil && info.IsDir():
	case err == nil, errors.Is(err, syscall.ENOTDIR):
		return place{}, refuse("workspace_not_directory", "The workspace is no directory.")
	case errors.Is(err, fs.ErrPermission):
		return place{}, refuse("workspace_not_readable", "The workspace cannot be read.")
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ELOOP), errors.Is(err, syscall.ENAMETOOLONG), errors.Is(err, syscall.EINVAL):
		return place{}, refuse("workspace_not_found", "The workspace does not exist.")
	default:
		return place{}, errs.Wrap(err, "")
	}
	if o.Allow != nil {
		if err := o.Allow(canonical); err != nil {
			return place{}, err
		}
	}
	if err := m.guard(canonical, identity{info.Dev, info.Ino}, o); err != nil {
		return place{}, err
	}
	if len(m.opt.Roots) > 0 && !o.Own && !m.underRoots(canonical) {
		return place{}, errs.New(errs.Forbidden, "workspace_not_allowed", "The folder does not lie under one that may be opened.")
	}
	if !o.Force && m.tooWide(canonical) {
		return place{}, refuse("workspace_too_wide", "The folder is the file system's root or a home directory.")
	}
	return place{root: canonical, dev: info.Dev, ino: info.Ino, born: m.born(canonical)}, nil
}

func (m *Manager) born(dir string) int64 {
	if h, ok := m.opt.Host.(host.Births); ok {
		return h.Born(dir)
	}
	return 0
}

// stands reports whether the folder of a workspace stands at its place.
func (m *Manager) stands(r Record) (bool, error) {
	info, err := m.opt.Host.Stat(r.Root)
	if err == nil && r.Restored {
		return m.standsRestored(r, info)
	}
	if err != nil || info.Ino != r.Ino {
		return false, err
	}
	born := m.born(r.Root)
	if info.Dev != r.Dev {
		// A device may have another number after a start of the machine; the inode
		// and the time at which it was made are then all there is to go by.
		return r.Born != 0 && born == r.Born, nil
	}
	return r.Born == 0 || born == 0 || born == r.Born, nil
}

// renumbered gives a record with the number that its folder's device has now,
// where that is another one.
func (m *Manager) renumbered(r Record) Record {
	info, err := m.opt.Host.Stat(r.Root)
	if err != nil || info.Dev == r.Dev {
		return r
	}
	if there, err := m.stands(r); err != nil || !there {
		return r
	}
	r.Dev = info.Dev
	m.changeRecord(r.ID, func(kept *Record) bool {
		kept.Dev = info.Dev
		return true
	})
	return r
}

func (m *Manager) underRoots(canonical string) bool {
	for _, r := range m.opt.Roots {
		if c, err := m.opt.Host.Canonical(r); err == nil {
			r = c
		}
		if within(canonical, r) {
			return true
		}
	}
	return false
}

// within reports whether a host path is a folder or lies in it.
func within(p, dir string) bool {
	return p == dir || dir == "/" || strings.HasPrefix(p, strings.TrimSuffix(dir, "/")+"/")
}

func (m *Manager) tooWide(canonical string) bool {
	if canonical == "/" || filepath.Dir(canonical) == "/home" || canonical == "/home" {
		return true
	}
	for _, home := range m.opt.Host.Homes() {
		if c, err := m.opt.Host.Canonical(home); err == nil && c == canonical {
			return true
		}
	}
	return false
}

// find gives the workspace of a folder: by its canonical path, or, where that is
// another one, if both lead to the same folder.
func (m *Manager) find(p place) (Record, bool) {
	for _, r := range m.List() {
		if r.Root == "" {
			continue
		}
		if r.Root == p.root {
			return r, true
		}
		if r.Dev == p.dev && r.Ino == p.ino {
			if info, err := m.opt.Host.Stat(r.Root); err == nil && info.Dev == p.dev && info.Ino == p.ino {
				return r, true
			}
		}
	}
	return Record{}, false
}

// Find gives the workspace of a folder by any spelling of its path.
func (m *Manager) Find(_ context.Context, root string) (Record, bool) {
	p, err := m.look(root, OpenOptions{Force: true})
	if err != nil {
		// A folder that is gone is still known by its path.
		p = place{root: filepath.Clean(root)}
	}
	return m.find(p)
}

// overlaps fails if a folder lies in a workspace, or one in it. One of our own
// folders may: what is around it leaves it out.
func (m *Manager) overlaps(p place, except string) error {
	for _, r := range m.List() {
		inside := within(p.root, r.Root) && !(p.root != r.Root && m.ownFolder(p.root))
		around := within(r.Root, p.root) && !(p.root != r.Root && m.ownFolder(r.Root))
		if r.ID != except && r.Root != "" && (inside || around) {
			return errs.New(errs.Conflict, "workspace_overlaps", "The folder lies inside another workspace, or another one inside of it.")
		}
	}
	return nil
}

// readable tells a folder that cannot be listed.
func readable(f vfs.FS) error {
	_, err := f.ReadDir(".")
	if errors.Is(err, fs.ErrPermission) {
		return errs.New(errs.Invalid, "workspace_not_readable", "The workspace cannot be read.")
	}
	return errs.Wrap(err, "")
}

// newID makes an id that tells people which folder it is of.
func newID(root string) string {
	var b strings.Builder
	for _, c := range strings.ToLower(filepath.Base(root)) {
		switch {
		case c >= 'a' && c <= 'z', c >= '0' && c <= '9':
			b.WriteRune(c)
		case b.Len() > 0 && !strings.HasSuffix(b.String(), "-"):
			b.WriteByte('-')
		}
		if b.Len() == 32 {
			break
		}
	}
	slug := strings.Trim(b.String(), "-")
	if slug == "" {
		slug = "workspace"
	}
	var rnd [4]byte
	_, _ = rand.Read(rnd[:]) // never fails
	return slug + "-" + hex.EncodeToString(rnd[:])
}

// load opens the store and the folder of a workspace; nothing is recovered yet.
func (m *Manager) load(ctx context.Context, r Record) (*Workspace, error) {
	host, dir := m.opt.Host, m.dirOf(r.ID)
	w := &Workspace{id: r.ID, dir: r.Root, gitDir: filepath.Join(dir, "repo.git"), locks: newLockTable(), index: newIndex(), policy: m.rules(r), limits: m.opt.Limits, meter: m.opt.Meter,
		log: m.opt.Log.With("workspace", r.ID), now: m.opt.Now, dev: r.Dev, ino: r.Ino, lingerWake: make(chan struct{}, 1), gone: make(chan struct{})}
	w.idle = sync.NewCond(&w.opmu)
	w.canWrite.Store(true)
	w.host = host
	w.owners = ownership{lateOwners{m, r.ID}, func() string { return m.attribute(r.ID) }}
	w.identity = func() (uint64, uint64, error) {
		info, err := host.Stat(r.Root)
		return info.Dev, info.Ino, err
	}
	w.back = func() bool {
		there, _ := m.stands(r)
		return there
	}
	w.gitRules = func() ([]byte, *ignore.Index, error) { return host.GitRules(r.Root) }
	w.own = m.ownIn(r.Root)
	var err error
	if w.fs, w.standIn, err = m.openFolder(r); err != nil {
		return nil, errs.Wrap(err, "")
	}
	w.root = rootfs.New(w.fs, rootfs.Umask(), m.stagingFolder())
	if w.files, err = host.Open(dir); err != nil {
		return nil, errors.Join(errs.Wrap(err, ""), w.fs.Close())
	}
	if w.progress, err = openProgress(w.files, host.Epoch(r.Root, dir)); err != nil {
		return nil, errors.Join(err, w.files.Close(), w.fs.Close())
	}
	w.openAside()
	storeFS, err := host.Open(dir)
	if err != nil {
		return nil, errors.Join(errs.Wrap(err, ""), w.free())
	}
	if err := m.openStore(ctx, w, r, storeFS); err != nil {
		return nil, errors.Join(err, w.free())
	}
	return w, nil
}

// openFolder opens a workspace's folder; one that is gone is stood for by an
// empty one in memory, which nothing reads: every request looks first whether
// the folder is there.
func (m *Manager) openFolder(r Record) (folder vfs.FS, standIn bool, err error) {
	there, err := m.stands(r)
	if there {
		folder, err = m.opt.Host.Open(r.Root)
		return folder, false, err
	}
	if err != nil && !isAbsent(err) && !errors.Is(err, fs.ErrPermission) {
		return nil, false, err
	}
	return vfs.NewMem(vfs.MemOptions{}), true, nil
}

// ownFolder reports whether a canonical path is one of our own folders.
func (m *Manager) ownFolder(root string) bool {
	for _, dir := range m.opt.OwnFolders {
		if c, err := m.opt.Host.Canonical(dir); err == nil && c == root {
			return true
		}
	}
	return false
}

// openRecord opens a known workspace: what a stop left is settled, and what
// changed while nobody looked is recorded, of no task. Between the two it is
// given to those who only read (Read).
func (m *Manager) openRecord(ctx context.Context, r Record, h *handle) (*Workspace, error) {
	if r.Restored {
		r = m.settleRestored(r)
	}
	if r.Kind == VirtualKind {
		open := m.loadVirtual
		if r.Fork != nil && r.Fork.Unmade {
			open = m.makeFork
		}
		w, err := open(ctx, r)
		if err == nil {
			m.startBackground(w)
		}
		return w, err
	}
	r = m.renumbered(r)
	w, err := m.load(ctx, r)
	if err != nil {
		return nil, err
	}
	if w.checkFolder() == nil {
		if err := w.loadIndex(); err != nil {
			w.log.Warn("what was known of the files is not read; they are read anew", "error", err)
		}
		if err = w.recover(ctx); err == nil {
			m.readable(w, h)
			w.found, err = w.scan(ctx, SyncOptions{})
			if w.waits.Load() {
				err = nil // what people changed is recorded when there is room
			}
		}
	} else {
		w.progress.begin(w.store.Tip().Seq)
	}
	if err != nil && errs.CodeOf(err) != "workspace_missing" {
		return nil, errors.Join(err, w.close(ctx, nil))
	}
	m.startBackground(w)
	return w, nil
}

// startBackground starts a workspace's own work beside requests.
func (m *Manager) startBackground(w *Workspace) {
	if m.opt.Foreground {
		return
	}
	bg, cancel := context.WithCancel(context.Background())
	w.stopBackground = cancel
	if m.keeper != nil {
		w.keep = func(ctx context.Context, quiet bool) { m.keeper(ctx, w, quiet) }
	}
	w.background.Go(func() { w.run(bg, m.opt.CheckpointEvery) })
	m.watchFolder(bg, w)
}

// adopt takes the folder that stands at a workspace's path in place of the one
// that it was opened on. Differences are external changes of no task.
func (m *Manager) adopt(ctx context.Context, id string, allow func(root string) error) (SyncResult, error) {
	rec, ok := m.Record(id)
	if !ok {
		return SyncResult{}, errUnknown()
	}
	// Who opened it said how wide it may be, but not of what a link leads to now.
	canonical, err := m.opt.Host.Canonical(rec.Root)
	w, err := m.Rebind(ctx, id, rec.Root, OpenOptions{Force: err == nil && canonical == rec.Root, Own: m.ownFolder(rec.Root), Allow: allow})
	if errs.Is(err, errs.Invalid) {
		return SyncResult{}, errMissing()
	}
	if err != nil {
		return SyncResult{}, err
	}
	defer w.Release()
	audit.Allowed(ctx, audit.Adopt, id, slog.String("root", rec.Root))
	res, err := w.Sync(ctx, SyncOptions{})
	if err == nil && w.found.Changed > 0 {
		// What was found when the folder was bound counts too.
		res.Commit, res.Changed = w.store.Tip().Commit, res.Changed+w.found.Changed
	}
	return res, err
}

// Rebind binds a workspace to its folder's new place. Differences are external
// changes of no task. The caller calls Release.
func (m *Manager) Rebind(ctx context.Context, id, root string, o OpenOptions) (*Workspace, error) {
	m.making.Lock()
	defer m.making.Unlock()
	rec, ok := m.Record(id)
	if !ok {
		return nil, errUnknown()
	}
	if rec.Kind == VirtualKind {
		return nil, errVirtual()
	}
	p, err := m.look(root, o)
	if err != nil {
		return nil, err
	}
	if err := m.awaitOthers(ctx, p); err != nil {
		return nil, err
	}
	if err := m.overlaps(p, id); err != nil {
		return nil, err
	}
	if err := m.putAway(ctx, id, nil, false); err != nil {
		m.opt.Log.Warn("workspace not put away cleanly", "workspace", id, "error", err)
	}
	m.putting.Lock()
	rec.Root, rec.Dev, rec.Ino, rec.Born = p.root, p.dev, p.ino, p.born
	err = m.opt.Records.Put(rec)
	if err == nil {
		m.mu.Lock()
		m.records[id] = rec
		m.mu.Unlock()
	}
	m.putting.Unlock()
	if err != nil {
		return nil, err
	}
	return m.Get(ctx, id)
}
