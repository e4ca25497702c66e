package workspaces

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"umbra/internal/errs"
	"umbra/internal/forklayer"
	"umbra/internal/layer"
	"umbra/internal/vfs"
	"umbra/internal/workspace"
	"umbra/internal/wspath"
)

// LayerDir is the directory, in a fork's part of the data directory, of what a layer has
// over the parent's directory.
const LayerDir = "layer"

// Mounted reports whether a workspace is a layer fork at a path of its own: an overlay
// that the server mounts, and that stays mounted while no server runs.
func (r Record) Mounted() bool { return r.Fork != nil && r.Fork.Kind == LayerKind && r.Root != "" }

// layerOf returns the layer of a mounted fork.
func (m *Manager) layerOf(r Record) forklayer.Mounted {
	return forklayer.Mounted{ID: r.ID, Dir: filepath.Join(m.dirOf(r.ID), LayerDir), Point: r.Root, Origin: r.Fork.Origin, Whole: r.Fork.Whole}
}

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
	if err != nil {
		return err
	}
	tip := below.Store().Tip() // of before: what changes meanwhile is put back
	below.Release()
	if err = m.layerOf(r).Mount(); err == nil {
		return m.layerOf(r).SetSeen(tip.Seq, tip.Commit)
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
	err := m.DropUnfinished(func(r Record) bool { return r.ID == id })
	return errors.Join(err, errs.Wrap(m.removeFiles(r), ""))
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
// unless something is in it.
func (m *Manager) RemoveMountPoint(r Record) error {
	if !r.Mounted() {
		return nil
	}
	err := os.Remove(r.Root)
	if errors.Is(err, os.ErrNotExist) || errors.Is(err, syscall.ENOTEMPTY) || errors.Is(err, syscall.ENOTDIR) || errors.Is(err, syscall.EBUSY) {
		return nil
	}
	return errs.Wrap(err, "")
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

// shown returns the forks that are mounted and show a workspace's directory.
func (m *Manager) shown(r Record) (list []Record) {
	for _, x := range m.Physical() {
		if x.Mounted() && x.Fork.Origin == r.Root && !x.Fork.Whole {
			list = append(list, x)
		}
	}
	return list
}

// CheckUnshown fails with errs.Conflict has_forks where forks that are mounted show a
// workspace's directory: nothing can be put back in them without it.
func (m *Manager) CheckUnshown(r Record) error {
	list := m.shown(r)
	if len(list) == 0 {
		return nil
	}
	if _, err := m.opt.Host.Stat(r.Root); vfs.IsAbsent(err) {
		return nil // they show nothing any more
	}
	ids := make([]string, len(list))
	for i := range list {
		ids[i] = list[i].ID
	}
	return workspace.ErrHasForks("Layers at a path show the directory of this workspace.", ids)
}

// Unshow has the forks that are mounted and show a workspace's directory take over what
// they show, so that it can be forgotten. A process that uses such a fork keeps what it
// has open. Forks that have it before an error keep it.
//
// Conflict "has_forks" for one that is not mounted.
func (m *Manager) Unshow(ctx context.Context, r Record) error {
	if m.CheckUnshown(r) == nil {
		return nil
	}
	for _, x := range m.shown(r) {
		if err := m.unshow(ctx, r, x); err != nil {
			return err
		}
	}
	return nil
}

func (m *Manager) unshow(ctx context.Context, below, r Record) error {
	w, err := m.Get(ctx, r.ID) // which mounts it
	if err != nil {
		return err
	}
	err = m.ownShown(ctx, below, r, w)
	w.Release()
	if err != nil {
		return err
	}
	if err := m.putAway(ctx, r.ID, nil, false); err != nil {
		return err
	}
	err = m.alterRecord(r.ID, func(r *Record) bool {
		f := *r.Fork
		f.Whole, r.Fork = true, &f
		return true
	})
	if err != nil {
		return err
	}
	if w, err = m.Get(ctx, r.ID); err != nil { // which mounts it alone
		return err
	}
	w.Release()
	return nil
}

// ownShown puts back in a fork what changed below it, and has it take over the rest. What
// a user changes below in this very moment becomes a change of the fork's.
func (m *Manager) ownShown(ctx context.Context, below, r Record, w *workspace.Workspace) error {
	if there, err := m.layerOf(r).Overlay().Mounted(); err != nil || !there {
		return errors.Join(errs.Wrap(err, ""), workspace.ErrHasForks("A layer that shows the directory of this workspace is not mounted; make its path an empty directory, or delete it.", []string{r.ID}))
	}
	of, err := m.Get(ctx, below.ID)
	if err != nil {
		return err
	}
	defer of.Release()
	for _, x := range []*workspace.Workspace{of, w} {
		if _, err := x.Sync(ctx, workspace.SyncOptions{Attribute: true}); err != nil {
			return err
		}
	}
	return errs.Wrap(m.layerOf(r).Overlay().Own(ctx), "")
}

// belowSeq returns the number up to which what changed below a mounted fork is put back.
func (m *Manager) belowSeq(ctx context.Context, r Record) uint64 {
	if seq, _, ok := m.layerOf(r).Seen(); ok {
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
// directory when it is removed: it was the parent's if the parent removed it since.
func (b *beneath) Own(ctx context.Context, p wspath.Path, gone bool) (bool, error) {
	own, err := layer.Decides(b.m.layerOf(b.r).Overlay().Upper, string(p))
	if err != nil || own || !gone {
		return own, err
	}
	_, commit, ok := b.m.layerOf(b.r).Seen()
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
	if err := w.LookAt(ctx, []wspath.Path{p}); err != nil {
		return false, err
	}
	then, err := w.Store().SnapshotOf(ctx, commit)
	if err != nil {
		return false, err
	}
	_, had, err := then.Lookup(p)
	if err != nil {
		return false, err
	}
	_, has, err := w.Store().Snapshot().Lookup(p)
	return !had || has, err
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
	if err := w.LookAt(ctx, []wspath.Path{p}); err != nil {
		return false, err
	}
	_, recorded, err := w.Store().Snapshot().Lookup(p)
	return !recorded, err
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
			return m.layerOf(r).SetSeen(e.Commit.Seq, e.Commit.ID)
		}
		return ctx.Err()
	})
	if ctx.Err() == nil {
		m.opt.Log.Warn("changes of the parent's files are put back in a fork by scans only", "workspace", r.ID, "error", err)
	}
}
