package fork

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"umbra/internal/errs"
	"umbra/internal/mounts"
	"umbra/internal/state"
	"umbra/internal/vfs"
	"umbra/internal/workspaces"
)

// pendingBucket of the state has the forks that are being made or deleted, and what they
// come from where that is bound to another directory.
const pendingBucket = "forks_pending"

// pending is what a crash leaves half done, and the next start finishes. One of its
// parts is set.
type pending struct {
	// Delete is a workspace that is being deleted. Once its record is gone, the rest
	// goes too; before, it stays whole.
	Delete  *workspaces.Record `json:"delete,omitempty"`
	History bool               `json:"history,omitempty"` // its repository goes too
	// Forks are layer forks that get ignored files of their own. They go.
	Forks []string `json:"forks,omitempty"`
	// Dir is the directory of a copy that is being filled. It goes, unless it is a fork
	// already. Dev and Ino are 0 until it was made.
	Dir string `json:"dir,omitempty"`
	Dev uint64 `json:"dev,omitempty"`
	Ino uint64 `json:"ino,omitempty"`
	// Layer is the id of the fork, if Dir is where a layer is mounted.
	Layer   string   `json:"layer,omitempty"`
	Rebound *rebound `json:"rebound,omitempty"`
	// Begun is when it was recorded.
	Begun time.Time `json:"begun,omitzero"`
}

// abandonedAfter is how old what another server does is at least when it is finished
// here.
const abandonedAfter = 15 * time.Minute

// begun records what is being done, durably. The caller calls done at its end.
func (s *Service) begun(p pending) (done func() error, err error) {
	key := workspaces.NewKey("pending")
	p.Begun = s.o.Now().UTC()
	if err := s.o.State.Put(pendingBucket, key, p); err != nil {
		return nil, errs.Wrap(err, "")
	}
	return func() error { return errs.Wrap(s.o.State.Delete(pendingBucket, key), "") }, nil
}

// again replaces what was recorded.
func (s *Service) again(p pending, done func() error) (func() error, error) {
	next, err := s.begun(p)
	if err != nil {
		return done, err
	}
	return next, done()
}

// identity returns the numbers of a directory's device and inode.
func identity(dir string) (dev, ino uint64, err error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return 0, 0, errs.Wrap(err, "")
	}
	dev, ino, err = identityOf(root)
	return dev, ino, errors.Join(err, root.Close())
}

// identityOf is like identity, of a directory that is open.
func identityOf(root *os.Root) (dev, ino uint64, err error) {
	info, err := root.Stat(".")
	if err != nil {
		return 0, 0, errs.Wrap(err, "")
	}
	st := info.Sys().(*syscall.Stat_t)
	return uint64(st.Dev), st.Ino, nil
}

// finish does what a crash left half done.
func (s *Service) finish(ctx context.Context) {
	found, err := state.Map[pending](s.o.State, pendingBucket)
	if err != nil {
		s.o.Log.Warn("forks that were being made or deleted are not known", "error", err)
	}
	for key, p := range found {
		if s.o.State.Shared() && s.o.Now().Sub(p.Begun) < abandonedAfter {
			continue // another server may be at it
		}
		err := s.finishOne(ctx, p)
		if err == nil {
			err = s.o.State.Delete(pendingBucket, key)
		}
		if err != nil {
			s.o.Log.Warn("what a stop left of a fork could not be removed; the next start tries again", "error", err)
		}
	}
	s.sweepBelow()
}

func (s *Service) finishOne(ctx context.Context, p pending) error {
	switch {
	case p.Rebound != nil:
		return s.follow(ctx, *p.Rebound)
	case p.Delete != nil:
		return s.finishDelete(ctx, *p.Delete, p.History)
	case p.Forks != nil:
		for _, id := range p.Forks {
			if rec, ok := s.o.Workspaces.Record(id); ok {
				if err := s.remove(ctx, rec, true, true); err != nil {
					return err
				}
			}
		}
		return nil
	}
	return s.finishCopy(p)
}

func (s *Service) finishDelete(ctx context.Context, rec workspaces.Record, history bool) error {
	if _, there := s.o.Workspaces.Record(rec.ID); there {
		return nil
	}
	err := s.o.Tasks.Forget(ctx, rec.ID, history)
	if err != nil && !errs.Is(err, errs.NotFound) {
		return err
	}
	if history {
		if err := s.o.Workspaces.RemoveFiles(rec); err != nil {
			return err
		}
	}
	return s.cleared(rec)
}

func (s *Service) finishCopy(p pending) error {
	if p.Layer != "" {
		if _, whole := s.o.Workspaces.Record(p.Layer); whole {
			return nil
		}
		if err := s.o.Workspaces.UnmountLayer(p.Layer, p.Dir); err != nil {
			return err
		}
		p.Ino = 0
	}
	for _, rec := range s.o.Workspaces.List() {
		if f := rec.Fork; f != nil && p.Ino != 0 && f.Ino == p.Ino && rec.Dev == p.Dev {
			return nil // whole
		}
	}
	if p.Ino == 0 { // nothing was put into it
		err := syscall.Rmdir(p.Dir) // a file there is a user's
		if err != nil && err != syscall.ENOTDIR && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, fs.ErrExist) {
			s.o.Log.Warn("a directory that a stop left of a fork stays", "path", p.Dir, "error", err)
		}
		return nil
	}
	return s.drop(p)
}

// unmade removes the directory of a fork that was not made.
func (s *Service) unmade(p pending) error {
	if p.Layer == "" {
		return s.drop(p)
	}
	if err := s.o.Workspaces.UnmountLayer(p.Layer, p.Dir); err != nil {
		return err
	}
	return syscall.Rmdir(p.Dir)
}

// drop removes the directory that was made for a copy, if that is at its path, and what was
// recorded of it.
func (s *Service) drop(p pending) error {
	if err := s.o.Workspaces.DropUnfinished(func(r workspaces.Record) bool { return r.Dev == p.Dev && r.Ino == p.Ino }); err != nil {
		return err
	}
	dev, ino, err := identity(p.Dir)
	if errors.Is(err, fs.ErrNotExist) || err == nil && (dev != p.Dev || ino != p.Ino) {
		return nil // something else is there
	}
	if err != nil {
		return err
	}
	return removed(p.Dir)
}

// unmountedInside fails where a file system is mounted inside a directory: its files
// are not the directory's. Conflict "mounted_inside".
func unmountedInside(dir string) error {
	table, err := mounts.Read()
	if err != nil {
		return errs.Wrap(err, "")
	}
	for i := range table {
		if at := table[i].Point; at != dir && mounts.Within(at, dir) {
			return errs.New(errs.Conflict, "mounted_inside", "A file system is mounted inside the fork's directory; unmount it first.").With("path", at)
		}
	}
	return nil
}

// removed removes a copy's directory, for good: it does not come back after a power
// failure.
func removed(dir string) error {
	if err := unmountedInside(dir); err != nil {
		return err
	}
	if err := os.RemoveAll(dir); err != nil {
		return errs.Wrap(err, "")
	}
	above, err := vfs.OS(filepath.Dir(dir))
	if err != nil {
		return errs.Wrap(err, "")
	}
	return errs.Wrap(errors.Join(above.SyncDir("."), above.Close()), "")
}
