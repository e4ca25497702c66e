package workspaces

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"path/filepath"

	"umbra/gitstore"
	"umbra/gitstore/journal"
	"umbra/gitstore/remote"
	"umbra/internal/errs"
	"umbra/internal/vfs"
)

// asideSuffix ends the name of a workspace's directory on its way into its journals.
const asideSuffix = ".orphaned"

// PutAside keeps what this server has of a workspace that goes on without it: a history of
// its own, with later commits, becomes a directory journal/orphaned-FIRST-LAST of the
// workspace's, named by their numbers, which git reads. What other servers share of the
// workspace is in the log, and never in such a history. It does nothing for all others,
// and may be called again. Nothing has the workspace open.
func (m *Manager) PutAside(ctx context.Context, id string) error {
	m.shared.aside.Lock()
	defer m.shared.aside.Unlock()
	dir := m.dirOf(id)
	moved := dir + asideSuffix
	if !m.ownHistory(dir) && !m.exists(moved) {
		return nil
	}
	seq, was, err := m.opt.Shared.Former(ctx, id)
	if err != nil || !was {
		return err
	}
	if !m.exists(moved) {
		if err := m.stubs(func(all vfs.FS) error { return all.Rename(id, id+asideSuffix) }); err != nil {
			return err
		}
	}
	name, err := m.orphans(ctx, moved, seq)
	if err != nil {
		return err
	}
	var dirs []string
	if name == "" {
		err = m.opt.Host.RemoveAll(moved)
	} else {
		at := filepath.Join(dir, journal.Dir, name)
		if err = m.opt.Host.MkdirAll(filepath.Dir(at)); err == nil {
			err = m.stubs(func(all vfs.FS) error { return all.Rename(id+asideSuffix, path.Join(id, journal.Dir, name)) })
		}
		dirs = []string{at}
		m.opt.Log.Warn("the workspace goes on without commits of this server", "workspace", id, "last", seq, "orphaned", at)
	}
	if err == nil {
		err = m.stubs(func(dir vfs.FS) error { return dir.SyncDir(".") })
	}
	return errors.Join(err, m.opt.Shared.Orphaned(ctx, id, dirs))
}

// ownHistory reports whether a directory has a history that is no copy of a log.
func (m *Manager) ownHistory(dir string) bool {
	return m.exists(filepath.Join(dir, "repo.git")) && !m.exists(filepath.Join(dir, remote.BootFile))
}

func (m *Manager) exists(name string) bool {
	_, err := m.opt.Host.Stat(name)
	return !errors.Is(err, fs.ErrNotExist)
}

// orphans names the commits after a number that a history in a directory has; empty:
// there are none. It is opened for that, so that git sees all of them.
func (m *Manager) orphans(ctx context.Context, dir string, seq uint64) (name string, err error) {
	files, err := m.opt.Host.Open(dir)
	if err != nil {
		return "", err
	}
	s, err := gitstore.Open(ctx, gitstore.Options{FS: files, Log: m.opt.Log, Foreground: true})
	if err != nil {
		if errs.Is(err, errs.Canceled) {
			return "", errors.Join(err, files.Close())
		}
		// A fork, or a damaged one: all of it is kept.
		m.opt.Log.Warn("a history that is put aside cannot be opened", "directory", dir, "error", err)
		return fmt.Sprintf("%s%d", remote.Orphaned, seq+1), files.Close()
	}
	last := s.Tip().Seq
	if err := s.Close(ctx); err != nil || last <= seq {
		return "", err
	}
	return fmt.Sprintf("%s%d-%d", remote.Orphaned, seq+1, last), nil
}
