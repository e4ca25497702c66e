package workspaces

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"umbra/gitstore"
	"umbra/internal/errs"
	"umbra/internal/forklayer"
	"umbra/internal/layer"
	"umbra/internal/vfs"
	"umbra/internal/workspace"
	"umbra/internal/wspath"
)

// Mounted reports whether a workspace is a layer fork at a path of its own: an overlay
// that the server mounts, and that stays mounted while no server runs.
func (r Record) Mounted() bool { return r.Fork != nil && r.Fork.Kind == LayerKind && r.Root != "" }

// Overlay returns the overlay of a mounted fork.
func (m *Manager) Overlay(r Record) layer.Mount { return m.layerOf(r).Overlay() }

func (m *Manager) layerOf(r Record) forklayer.Mounted {
	l := forklayer.Mounted{ID: r.ID, Dir: m.LayerDirOf(r.ID), Point: r.Root, Origin: r.Fork.Origin, Whole: r.Fork.Whole}
	if r.Fork.Below != "" {
		l.Below = m.BelowDir(r.Fork.Below)
	}
	return l
}

const layerDir = "layer"

// LayerDirOf is the directory, in a fork's part of the data directory, of what a layer has
// over the parent's directory.
func (m *Manager) LayerDirOf(id string) string { return filepath.Join(m.dirOf(id), layerDir) }

// MountLayer mounts a layer over a workspace's directory at an empty one, for ForkCopy
// with the same id. Until that, UnmountLayer takes it away.
//
// Unprocessable "kind_unavailable" where the system cannot.
func (m *Manager) MountLayer(ctx context.Context, parent *workspace.Workspace, id, point string) error {
	rec, ok := m.Record(parent.ID())
	if !ok {
		return errUnknown()
	}
	r := Record{ID: id, Root: point, Fork: &Fork{Kind: LayerKind, Origin: rec.Place()}}
	below, err := m.below(ctx, r)
	if errs.Is(err, errs.NotFound) {
		return errs.New(errs.Unprocessable, "kind_unavailable", "The directory that the layer would show belongs to no workspace any more; leave path out, or use the kind copy.").With("field", "path")
	}
	if err != nil {
		return err
	}
	tip := below.Store().Tip() // of before: what changes meanwhile is put back
	below.Release()
	if err = m.layerOf(r).Mount(); err == nil {
		return m.layerOf(r).SetSeen(tip.Seq)
	}
	if errors.Is(err, layer.ErrUnsupported) {
		return ErrNoMount(err)
	}
	return errs.Wrap(err, "")
}

// ErrNoMount is returned where a layer cannot be mounted at a path.
func ErrNoMount(why error) error {
	_, text, _ := strings.Cut(why.Error(), ": ")
	return errs.New(errs.Unprocessable, "kind_unavailable", "A layer cannot be mounted at a path (%s); leave path out, or use the kind copy.", text).With("field", "path")
}

// UnmountLayer ends a layer that has no workspace, and removes what it has.
func (m *Manager) UnmountLayer(id, point string) error {
	r := Record{ID: id, Root: point, Kind: PhysicalKind, Fork: &Fork{Kind: LayerKind}}
	if _, there := m.Record(id); there {
		return nil
	}
	return errors.Join(m.DropUnfinished(func(r Record) bool { return r.ID == id }), errs.Wrap(m.removeFiles(r), ""))
}

// Unmount closes a mounted fork and ends its mount; the next use mounts it again. With
// force processes that use it keep what they have open.
//
// Conflict "layer_in_use".
func (m *Manager) Unmount(ctx context.Context, id string, force bool) error {
	r, ok := m.Record(id)
	if !ok || !r.Mounted() {
		return nil
	}
	if err := m.putAway(ctx, id, nil, false); err != nil {
		return err
	}
	err := m.layerOf(r).Unmount(force)
	if errors.Is(err, syscall.EBUSY) {
		return errs.New(errs.Conflict, "layer_in_use", "A process uses the directory of the fork; end it, or delete the fork with force.").With("path", r.Root)
	}
	return errs.Wrap(err, "")
}

// RemoveMountPoint removes the directory at which a fork that was deleted was mounted,
// unless something is in it. That is durable before the answer.
func (m *Manager) RemoveMountPoint(r Record) error {
	if !r.Mounted() {
		return nil
	}
	err := syscall.Rmdir(r.Root) // a file there is a user's
	if err == nil {
		err = m.syncAbove(r.Root)
	}
	if errors.Is(err, os.ErrNotExist) || errors.Is(err, syscall.ENOTEMPTY) || errors.Is(err, syscall.ENOTDIR) || errors.Is(err, syscall.EBUSY) {
		return nil
	}
	return errs.Wrap(err, "")
}

// syncAbove makes it durable that a directory is gone.
func (m *Manager) syncAbove(root string) error {
	dir, err := m.opt.Host.Open(filepath.Dir(root))
	if err != nil {
		return err
	}
	return errors.Join(dir.SyncDir("."), dir.Close())
}

// below opens the workspace whose directory a mounted fork shows. The caller releases
// it. NotFound where that was forgotten.
func (m *Manager) below(ctx context.Context, r Record) (*workspace.Workspace, error) {
	return m.At(ctx, r.Fork.Origin)
}

// At opens the workspace of a directory, if it is one: NotFound. The caller releases it.
func (m *Manager) At(ctx context.Context, root string) (*workspace.Workspace, error) {
	for _, r := range m.Physical() {
		if r.Root == root && root != "" {
			return m.Get(ctx, r.ID)
		}
	}
	return nil, errUnknown()
}

// Shown returns the layers that show a workspace's directory: those that are mounted, and
// those without a path, also where they are forks of others or of one that was deleted.
func (m *Manager) Shown(r Record) (list []Record) {
	if r.Root == "" {
		return nil
	}
	for _, x := range m.Physical() {
		if x.Mounted() && x.Fork.Origin == r.Root && !x.Fork.Whole {
			list = append(list, x)
		}
	}
	seen := map[string]bool{}
	var walk func(forks []Record)
	walk = func(forks []Record) {
		for _, x := range forks {
			if x.Root != "" || seen[x.ID] {
				continue
			}
			seen[x.ID] = true
			if x.Fork.Kind == LayerKind && !x.Fork.Whole {
				list = append(list, x)
			}
			walk(m.Forks(x.ID))
		}
	}
	walk(m.Forks(r.ID))
	walk(slices.DeleteFunc(m.collect(keeping(r.ID)), func(x Record) bool { return x.Fork.Origin != r.Root }))
	return list
}

// CheckUnshown fails with errs.Conflict has_forks where layers show a workspace's
// directory: they need it.
func (m *Manager) CheckUnshown(r Record) error {
	list := m.Shown(r)
	if _, err := m.opt.Host.Stat(r.Root); vfs.IsAbsent(err) { // what is mounted shows nothing any more
		list = slices.DeleteFunc(list, Record.Mounted)
	}
	return hasForks("Layers show the directory of this workspace.", list)
}

// AlterFork changes what is recorded of a fork. One at a path is closed before, and mounted
// by its next use unless it is mounted.
func (m *Manager) AlterFork(ctx context.Context, r Record, change func(*Fork)) error {
	if r.Mounted() {
		if err := m.putAway(ctx, r.ID, nil, false); err != nil {
			return err
		}
	}
	return m.alterRecord(r.ID, func(r *Record) bool {
		f := *r.Fork
		change(&f)
		r.Fork = &f
		return true
	})
}

// BelowDir is a directory that layers show in place of one whose workspace was deleted: it
// has the files of that which no history has. Without a name it is that of all of them.
func (m *Manager) BelowDir(name string) string { return filepath.Join(m.opt.DataDir, "below", name) }

// Needed reports whether a fork shows a directory of BelowDir.
func (m *Manager) Needed(name string) (bool, error) {
	list, _, err := m.opt.Records.List(below(name), "", 1)
	return len(list) > 0, errs.Wrap(err, "")
}

// belowSeq returns the number up to which what changed below a mounted fork is put back.
func (m *Manager) belowSeq(ctx context.Context, r Record) uint64 {
	if seq, ok := m.layerOf(r).Seen(); ok {
		return seq
	}
	w, err := m.below(ctx, r)
	if err != nil {
		return 0
	}
	defer w.Release()
	return w.Store().Tip().Seq
}

// beneath is reconcile.Beneath of a mounted fork.
type beneath struct {
	m *Manager
	r Record
}

// Own is of reconcile.Beneath. A file that was the fork's alone leaves nothing in the upper
// directory when it is removed. A missing file was removed by the parent where the
// parent's history had it at any commit since the one up to which changes are put back.
func (b *beneath) Own(ctx context.Context, p wspath.Path, gone bool) (bool, error) {
	own, err := layer.Decides(b.m.layerOf(b.r).Overlay().Upper, string(p))
	if err != nil || own || !gone {
		return own, err
	}
	seen, ok := b.m.layerOf(b.r).Seen()
	if !ok {
		return true, nil
	}
	w, err := b.m.below(ctx, b.r)
	if err != nil {
		if errs.Is(err, errs.NotFound) {
			return true, nil
		}
		return false, err
	}
	defer w.Release()
	// Between a request's commit and its end on disk history and directory differ.
	ctx, release, err := w.Hold(ctx, []wspath.Path{p})
	if err != nil {
		return false, err
	}
	defer release()
	if err := w.LookAt(ctx, []wspath.Path{p}); err != nil {
		return false, err
	}
	had := false
	err = w.Store().Records(ctx, seen, w.Store().Tip().Seq, func(r gitstore.Record) error {
		if had {
			return nil
		}
		then, err := w.Store().SnapshotOf(ctx, r.Commit)
		if err == nil {
			_, had, err = then.Lookup(p)
		}
		return err
	})
	return !had, err
}

func (b *beneath) Removed(p wspath.Path) bool {
	_, err := os.Lstat(filepath.Join(b.r.Fork.Origin, string(p.Dir())))
	return err != nil
}

func (b *beneath) Refresh() error { return b.m.layerOf(b.r).Overlay().Refresh() }

func (b *beneath) Shared(ctx context.Context, p wspath.Path) (bool, error) {
	w, err := b.m.below(ctx, b.r)
	if errs.Is(err, errs.NotFound) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer w.Release()
	// Between a request's commit and its end on disk history and directory differ.
	ctx, release, err := w.Hold(ctx, []wspath.Path{p})
	if err != nil {
		return false, err
	}
	defer release()
	before, err := w.Standing(p)
	if err != nil || before == workspace.KindNone { // it was there for a moment
		return false, err
	}
	if err := w.LookAt(ctx, []wspath.Path{p}); err != nil {
		return false, err
	}
	_, recorded, err := w.Store().Snapshot().Lookup(p)
	if recorded || err != nil {
		return false, err
	}
	after, err := w.Standing(p)
	return after != workspace.KindNone, err
}

// guardLayer puts back in a mounted fork what changes in the directory that it shows, until
// the context ends. A scan of the fork does that too, later.
func (m *Manager) guardLayer(ctx context.Context, fork *workspace.Workspace, r Record, seq uint64) {
	w, err := m.below(ctx, r)
	if err != nil {
		if !errs.Is(err, errs.NotFound) && ctx.Err() == nil {
			m.opt.Log.Warn("changes of the parent's files are put back in a fork by scans only", "workspace", r.ID, "error", err)
		}
		return
	}
	defer w.Release()
	failed := false
	err = w.Events(ctx, seq, func(e workspace.Event) error {
		var paths []wspath.Path
		for i := range e.Entries {
			for _, p := range []string{e.Entries[i].Path, e.Entries[i].NewPath} {
				if p = strings.TrimSuffix(p, "/"); p != "" {
					paths = append(paths, wspath.Path(p))
				}
			}
		}
		if err := fork.Keep(ctx, paths); err != nil && ctx.Err() == nil {
			m.opt.Log.Warn("changes of the parent's files are seen in a fork until its next scan", "workspace", r.ID, "error", err)
			failed = true // what was not put back is seen again at the next start
		} else if err == nil && !failed {
			return m.layerOf(r).SetSeen(e.Commit.Seq)
		}
		return ctx.Err()
	})
	if ctx.Err() == nil {
		m.opt.Log.Warn("changes of the parent's files are put back in a fork by scans only", "workspace", r.ID, "error", err)
	}
}
