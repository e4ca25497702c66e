package workspaces

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"path/filepath"

	"umbra/gitstore/object"
	"umbra/internal/audit"
	"umbra/internal/errs"
	"umbra/internal/forklayer"
	"umbra/internal/vfs"
	"umbra/internal/workspace"
	"umbra/internal/workspace/disk"
	"umbra/internal/workspace/host"
	"umbra/internal/workspaces/place"
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
	// Progress is called with the number of files that the baseline has met.
	Progress func(files int64)

	fork *Fork                // what the directory is a fork of
	id   string               // of the workspace; empty: a new one
	like *workspace.Workspace // whose files the directory shows, or nil
}

// look is place.Rules.Look, where this server opens directories.
func (m *Manager) look(root string, o OpenOptions) (place.Place, error) {
	if m.opt.Shared != nil && !m.opt.Physical {
		return place.Place{}, errs.New(errs.Forbidden, "physical_off", "This server opens no directories (cluster.physical).")
	}
	return m.places.Look(root, place.Options{Force: o.Force, Own: o.Own, Allow: o.Allow})
}

// inPlace reports whether the directory of a workspace is at its path.
func (m *Manager) inPlace(r Record) (bool, error) {
	if r.Mounted() { // another mount may show a directory with the same numbers
		if there, err := m.layerOf(r).Overlay().Mounted(); err != nil || !there {
			return false, err
		}
	}
	info, err := m.opt.Host.Stat(r.Root)
	if err == nil && r.Restored {
		return m.inPlaceRestored(r, info)
	}
	if err != nil || info.Ino != r.Ino {
		return false, err
	}
	born := m.places.Born(r.Root)
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
	if there, err := m.inPlace(r); err != nil || !there {
		return r
	}
	r.Dev = info.Dev
	m.changeRecord(r.ID, func(kept *Record) bool {
		kept.Dev = info.Dev
		return true
	})
	return r
}

// find gives the workspace of a folder: by its canonical path, or, where that is
// another one, if both lead to the same folder.
func (m *Manager) find(p place.Place) (Record, bool) {
	for _, r := range m.Physical() {
		if r.Root == p.Root {
			return r, true
		}
		if r.Dev == p.Dev && r.Ino == p.Ino {
			if info, err := m.opt.Host.Stat(r.Root); err == nil && info.Dev == p.Dev && info.Ino == p.Ino {
				return r, true
			}
		}
	}
	return Record{}, false
}

// Find gives the workspace of a folder by any spelling of its path, also another
// server's.
func (m *Manager) Find(_ context.Context, root string) (Record, bool) {
	p, err := m.look(root, OpenOptions{Force: true})
	if err != nil {
		// A folder that is gone is still known by its path.
		p = place.Place{Root: filepath.Clean(root)}
	}
	if r, known := m.find(p); known {
		return r, true
	}
	r, known, err := m.others(p.Root, err != nil, func(r Record) bool { return r.Root == p.Root && !r.Unfinished })
	if err != nil {
		m.opt.Log.Error("the directories of other servers cannot be read", "error", err)
	}
	return r, known
}

// overlaps fails if a folder lies in a workspace, or one in it. One of our own
// folders may: what is around it leaves it out.
func (m *Manager) overlaps(p place.Place, except string) error {
	for _, r := range m.Physical() {
		inside := host.Within(p.Root, r.Root) && !(p.Root != r.Root && m.places.IsOwn(p.Root))
		around := host.Within(r.Root, p.Root) && !(p.Root != r.Root && m.places.IsOwn(r.Root))
		if r.ID != except && (inside || around) {
			return errs.New(errs.Conflict, "workspace_overlaps", "The directory is inside another workspace, or another workspace is inside it.")
		}
	}
	return nil
}

// NewID returns an id for a new workspace: one that no record has, nor a directory that a
// workspace left when it was forgotten.
func (m *Manager) NewID(name string) string {
	for {
		id := workspace.NewID(name, m.random)
		_, taken, _ := m.opt.Records.Get(id)
		if _, err := m.opt.Host.Stat(m.dirOf(id)); !taken && err != nil {
			return id
		}
	}
}

// load opens the store and the directory of a workspace; nothing is recovered yet.
func (m *Manager) load(ctx context.Context, r Record) (*workspace.Workspace, error) {
	return m.loadOn(ctx, r, func(files vfs.FS) vfs.FS { return files })
}

// loadOn is like load; the store uses what over makes of its part of the data directory.
func (m *Manager) loadOn(ctx context.Context, r Record, over func(files vfs.FS) vfs.FS) (*workspace.Workspace, error) {
	c := workspace.Config{ID: r.ID, Root: r.Root, Dir: m.dirOf(r.ID), Host: m.opt.Host, Dev: r.Dev, Ino: r.Ino,
		Owners: workspace.NoOwners{}, OnlyTask: func() string { return "" }, Unforked: func() error { return m.CheckUnforked(r.ID) },
		Kept: func(ctx context.Context, blobs []object.ID, dry bool) error {
			return m.checkKept(ctx, r.ID, blobs, dry)
		},
		Policy: m.rules(r), Limits: m.opt.Limits, Meter: m.opt.Meter, Log: m.opt.Log.With("workspace", r.ID), Now: m.opt.Now}
	if r.Fork != nil && r.Fork.Kind == LayerKind {
		if c.Layer = m.layerOf(r); m.shares(r) && m.shared.heldElsewhere != nil {
			c.Layer = forklayer.Everywhere{Mounted: m.layerOf(r), Others: m.shared.heldElsewhere}
		}
	}
	if r.Kind != VirtualKind {
		there, err := m.inPlace(r)
		if !there && err != nil && !vfs.IsAbsent(err) && !errors.Is(err, fs.ErrPermission) {
			return nil, errs.Wrap(err, "")
		}
		c.Absent = !there
		c.Back = func() bool {
			there, _ := m.inPlace(r)
			return there
		}
		c.Own = m.places.OwnIn(r.Root)
		c.Staging = m.stagingFolder()
		if r.Mounted() && !r.Fork.Whole {
			c.Beneath = &beneath{m, r}
		}
		c.Owners, c.OnlyTask = lateOwners{m, r.ID}, func() string { return m.attribute(r.ID) }
	}
	so, release, err := m.storeOptions(ctx, r)
	if err != nil {
		return nil, err
	}
	so.FS = over(so.FS)
	c.Store, c.Base = so, release
	w, err := workspace.Open(ctx, c)
	if err != nil {
		release()
	}
	return w, err
}

// openRecord opens a known workspace: what a stop left is settled, and what
// changed while it was closed is recorded, of no task. Between the two it is given
// to readers (Read).
func (m *Manager) openRecord(ctx context.Context, r Record, h *handle) (*workspace.Workspace, error) {
	if r.Restored {
		r = m.settleRestored(r)
	}
	open := m.load
	seq := uint64(0)
	if r.Mounted() {
		if err := m.layerOf(r).Mount(); err != nil {
			m.opt.Log.Warn("a fork is not mounted", "workspace", r.ID, "path", r.Root, "error", err)
		}
		seq = m.belowSeq(ctx, r)
	}
	if r.Kind != VirtualKind {
		r = m.renumbered(r)
	} else if r.Fork != nil && r.Fork.Unmade {
		open = m.makeFork
	}
	w, err := open(ctx, r)
	if err != nil {
		return nil, err
	}
	err = w.Resume(ctx, func() { m.readable(w, h) })
	if err == nil {
		err = m.enter(ctx, w)
	}
	if err != nil {
		return nil, errors.Join(err, w.Close(ctx, nil))
	}
	m.startBackground(w, r, seq)
	return w, nil
}

// startBackground starts a workspace's own work. seq is the number up to which it shows
// what is beneath a layer.
func (m *Manager) startBackground(w *workspace.Workspace, r Record, seq uint64) {
	if m.opt.Foreground {
		return
	}
	m.guardShared(w)
	b := workspace.Background{CheckpointEvery: m.opt.CheckpointEvery, Watcher: m.opt.Watcher, ScanEvery: m.opt.ScanEvery,
		Reopen: func() { m.reopen(w.ID()) },
		Watched: func() {
			m.changeRecord(w.ID(), func(r *Record) bool {
				change := !r.Watched
				r.Watched = true
				return change
			})
		}}
	if r.Mounted() && !r.Fork.Whole {
		b.Extra = func(ctx context.Context) { m.guardLayer(ctx, w, r, seq) }
	}
	if m.keeper != nil {
		b.Keep = func(ctx context.Context, quiet bool) { m.keeper(ctx, w, quiet) }
	}
	w.Start(b)
}

// adopt takes the directory that is at a workspace's path in place of the one that
// it was opened on. Differences are external changes of no task.
func (m *Manager) adopt(ctx context.Context, id string, allow func(root string) error) (workspace.SyncResult, error) {
	rec, ok := m.Record(id)
	if !ok {
		return workspace.SyncResult{}, errUnknown()
	}
	// Who opened it said how wide it may be, but not of what a link leads to now.
	canonical, err := m.opt.Host.Canonical(rec.Root)
	w, err := m.Rebind(ctx, id, rec.Root, OpenOptions{Force: err == nil && canonical == rec.Root, Own: m.places.IsOwn(rec.Root), Allow: allow})
	if errs.Is(err, errs.Invalid) {
		return workspace.SyncResult{}, disk.ErrMissing()
	}
	if err != nil {
		return workspace.SyncResult{}, err
	}
	defer w.Release()
	audit.Allowed(ctx, audit.Adopt, id, slog.String("root", rec.Root))
	res, err := w.Sync(ctx, workspace.SyncOptions{})
	if found := w.Found(); err == nil && found.Changed > 0 {
		// Changes that were found when the directory was bound count too.
		res.Commit, res.Changed = w.Store().Tip().Commit, res.Changed+found.Changed
	}
	return res, err
}

// Rebind binds a workspace to its folder's new place. Differences are external
// changes of no task. The caller calls Release.
func (m *Manager) Rebind(ctx context.Context, id, root string, o OpenOptions) (*workspace.Workspace, error) {
	m.making.Lock()
	defer m.making.Unlock()
	rec, ok := m.Record(id)
	if !ok {
		return nil, errUnknown()
	}
	if rec.Kind == VirtualKind {
		return nil, disk.ErrVirtual()
	}
	if rec.Mounted() {
		return nil, errs.New(errs.Conflict, "layer_in_use", "The fork is mounted at its path, and has no other directory.")
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
		m.opt.Log.Warn("workspace not unloaded cleanly", "workspace", id, "error", err)
	}
	unlock := m.putting.Lock(id)
	rec.Root, rec.Dev, rec.Ino, rec.Born = p.Root, p.Dev, p.Ino, p.Born
	err = m.opt.Records.Put(rec)
	if err == nil {
		m.mu.Lock()
		m.records[id] = rec
		m.mu.Unlock()
	}
	unlock()
	if err != nil {
		return nil, err
	}
	return m.Get(ctx, id)
}
