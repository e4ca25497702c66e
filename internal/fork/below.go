package fork

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"time"

	"umbra/gitstore"
	"umbra/gitstore/object"
	"umbra/internal/errs"
	"umbra/internal/forklayer"
	"umbra/internal/layer"
	"umbra/internal/vfs"
	"umbra/internal/workspace"
	"umbra/internal/workspaces"
)

// provideFiles gives the layers that show a workspace's directory what they need of it, so
// that it can be forgotten. One that is mounted takes over all that it shows; a process that
// uses it keeps what it has open. The others, also one at a path that is not mounted, share a
// directory with the files that no history has, and take the rest from history. Layers that have
// it before an error keep it.
//
// Conflict "layer_in_use" while a command runs in one without a path.
func (s *Service) provideFiles(ctx context.Context, rec workspaces.Record) error {
	if s.o.Workspaces.CheckUnshown(rec) == nil {
		return nil
	}
	if err := s.o.Layers.FreeBelow(rec.ID); err != nil {
		return err
	}
	w, err := s.o.Workspaces.Get(ctx, rec.ID)
	if err != nil {
		return err
	}
	defer w.Release()
	s.below.RLock()
	defer s.below.RUnlock()
	_, err = os.Stat(rec.Root)
	gone := vfs.IsAbsent(err)
	below := ""
	for _, x := range s.o.Workspaces.Shown(rec) {
		there := false
		if x.Mounted() {
			if gone {
				continue // it shows nothing any more
			}
			if there, err = s.mounted(ctx, x); err != nil {
				return err
			}
		}
		if there {
			err = s.own(ctx, w, x)
		} else {
			if below == "" {
				if below, err = s.keepBelow(ctx, w); err != nil {
					return err
				}
				defer s.dropBelow(below) // unless a fork shows it
			}
			err = s.showBelow(ctx, x, below)
		}
		if err != nil {
			return err
		}
	}
	return s.o.Layers.FreeBelow(rec.ID) // a command may have begun meanwhile
}

// mounted reports whether a layer at a path is mounted, and mounts it if that is possible.
func (s *Service) mounted(ctx context.Context, x workspaces.Record) (bool, error) {
	w, err := s.o.Workspaces.Get(ctx, x.ID) // which mounts it
	if err != nil {
		return false, err
	}
	w.Release()
	there, err := s.o.Workspaces.Overlay(x).Mounted()
	return there, errs.Wrap(err, "")
}

// own puts back in a layer what changed below it, and has it take over the rest. What a
// user changes below in this very moment becomes a change of the layer's.
func (s *Service) own(ctx context.Context, below *workspace.Workspace, x workspaces.Record) error {
	w, err := s.o.Workspaces.Get(ctx, x.ID)
	if err != nil {
		return err
	}
	for _, of := range []*workspace.Workspace{below, w} {
		if _, err = of.Sync(ctx, workspace.SyncOptions{Attribute: true}); err != nil {
			break
		}
	}
	if err == nil {
		err = errs.Wrap(s.o.Workspaces.Overlay(x).Own(ctx, s.o.Room), "")
	}
	w.Release()
	if err != nil {
		return err
	}
	if err := s.setWhole(ctx, x, ""); err != nil {
		return err
	}
	if w, err = s.o.Workspaces.Get(ctx, x.ID); err != nil { // which mounts it alone
		return err
	}
	w.Release()
	return nil
}

// keepBelow copies the files of a workspace's directory that no history has, for layers that
// show them from then on, and returns the name of their directory.
func (s *Service) keepBelow(ctx context.Context, w *workspace.Workspace) (name string, err error) {
	_, err = w.Sync(ctx, workspace.SyncOptions{Attribute: true})
	missing := err != nil && errs.CodeOf(err) == "workspace_missing"
	if err != nil && !missing {
		return "", err
	}
	name = workspaces.NewKey(w.ID())
	dir := s.o.Workspaces.BelowDir(name)
	defer func() {
		if err != nil {
			err = errors.Join(err, layer.Remove(dir))
		}
	}()
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", errs.Wrap(err, "")
	}
	if missing {
		return name, errs.Wrap(synced(dir), "")
	}
	c, err := newCopier(ctx, w, dir)
	if err != nil {
		return "", err
	}
	c.over, c.room = true, s.o.Room
	if err := errors.Join(c.ignored(w.Store().Snapshot()), c.finish(), c.close()); err != nil {
		return "", err
	}
	return name, errs.Wrap(synced(dir), "")
}

// showBelow has a layer that is not mounted show a directory of keepBelow. One without a
// path takes the files of its history when its next command begins.
func (s *Service) showBelow(ctx context.Context, x workspaces.Record, below string) error {
	if x.Mounted() {
		w, err := s.o.Workspaces.Get(ctx, x.ID)
		if err != nil {
			return err
		}
		err = s.place(ctx, w, below)
		w.Release()
		if err != nil {
			return err
		}
	}
	return s.setWhole(ctx, x, below)
}

// setWhole notes that a layer shows a directory of keepBelow, or nothing, in place of the
// parent's.
func (s *Service) setWhole(ctx context.Context, x workspaces.Record, below string) error {
	return s.o.Workspaces.AlterFork(ctx, x, func(f *workspaces.Fork) { f.Whole, f.Below = true, below })
}

// place puts the files of a fork's history below what was written in it while it was
// mounted, durably.
func (s *Service) place(ctx context.Context, w *workspace.Workspace, below string) error {
	l := &forklayer.Layer{Dir: s.o.Workspaces.LayerDirOf(w.ID()), Lower: s.o.Workspaces.BelowDir(below), Alone: true,
		Tracked: func(string, bool) (bool, error) { return false, nil }, // nothing was placed yet
		Blob: func(id object.ID) (io.ReadCloser, error) {
			r, _, err := w.Store().OpenBlob(ctx, id)
			return r, err
		}}
	if err := l.Refresh(ctx, gitstore.Snapshot{}, w.Store().Snapshot()); err != nil {
		return err
	}
	return errs.Wrap(synced(l.Files()), "")
}

// dropBelow removes a directory of keepBelow that no fork shows.
func (s *Service) dropBelow(name string) {
	needed, err := s.o.Workspaces.Needed(name)
	if err == nil && !needed {
		err = layer.Remove(s.o.Workspaces.BelowDir(name))
	}
	if err != nil {
		s.o.Log.Warn("the files that deleted forks showed could not be removed; the next sweep tries again", "path", s.o.Workspaces.BelowDir(name), "error", err)
	}
}

// sweepBelow removes the directories that no fork shows: a stop left them, or another server
// deleted the last one.
func (s *Service) sweepBelow() {
	if !s.below.TryLock() {
		return // the next time
	}
	defer s.below.Unlock()
	list, err := os.ReadDir(s.o.Workspaces.BelowDir(""))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		s.o.Log.Warn("the files that forks of deleted workspaces show are not known", "error", err)
	}
	for _, e := range list {
		s.dropBelow(e.Name())
	}
}

const (
	// expireEvery is how often forks are looked for that have expired.
	expireEvery = 5 * time.Second
	// sweepEvery is how often directories are removed that forks of other servers showed last.
	sweepEvery = time.Minute
)

func (s *Service) run(ctx context.Context) {
	defer close(s.done)
	tick, sweep := time.NewTicker(expireEvery), time.NewTicker(sweepEvery)
	defer tick.Stop()
	defer sweep.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			s.Expire(ctx)
		case <-sweep.C:
			if s.o.State.Shared() {
				s.sweepBelow()
			}
		}
	}
}
