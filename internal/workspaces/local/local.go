// Package local has the histories that one of several servers keeps by itself, those of
// workspaces with directories: where they come from when the server has none, and where
// they go when the workspace goes on elsewhere.
package local

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"path"
	"path/filepath"
	"strings"

	"umbra/gitstore"
	"umbra/gitstore/journal"
	"umbra/gitstore/remote"
	"umbra/gitstore/sink"
	"umbra/internal/errs"
	"umbra/internal/vfs"
	"umbra/internal/workspace/host"
)

// The ends of the names of a workspace's directory on its way into its journals, and of
// one into which a history is fetched.
const (
	asideSuffix  = ".orphaned"
	comingSuffix = ".coming"
)

// Dir is a workspace's part of the data directory, by its host path.
type Dir struct {
	On   host.Host
	Path string
	Log  *slog.Logger
}

// Has reports whether the directory has a history that is no copy of a log.
func (d Dir) Has() bool {
	return d.exists(filepath.Join(d.Path, "repo.git")) && !d.exists(filepath.Join(d.Path, remote.BootFile))
}

func (d Dir) exists(name string) bool {
	_, err := d.On.Stat(name)
	return !errors.Is(err, fs.ErrNotExist)
}

// around calls do with the directory that the workspace's is in.
func (d Dir) around(do func(dir vfs.FS) error) error {
	dir, err := d.On.Open(filepath.Dir(d.Path))
	if err != nil {
		return err
	}
	return errors.Join(do(dir), dir.Close())
}

// Leftover reports whether there is something for PutAside.
func (d Dir) Leftover() bool { return d.Has() || d.exists(d.Path+asideSuffix) }

// PutAside makes the directory's own history, with commits after seq, a directory
// journal/orphaned-FIRST-LAST in it, which git reads, and returns its path; empty: it had
// no such commits, and is removed. It may be repeated. Nothing has the workspace open.
func (d Dir) PutAside(ctx context.Context, seq uint64) (at string, err error) {
	base, moved := filepath.Base(d.Path), d.Path+asideSuffix
	if !d.exists(moved) {
		if err := d.around(func(all vfs.FS) error { return all.Rename(base, base+asideSuffix) }); err != nil {
			return "", err
		}
	}
	name, err := d.orphans(ctx, moved, seq)
	if err != nil {
		return "", err
	}
	if name == "" {
		err = d.On.RemoveAll(moved)
	} else {
		at = filepath.Join(d.Path, journal.Dir, name)
		if err = d.On.MkdirAll(filepath.Dir(at)); err == nil {
			err = d.around(func(all vfs.FS) error { return all.Rename(base+asideSuffix, path.Join(base, journal.Dir, name)) })
		}
	}
	if err == nil {
		err = d.around(func(all vfs.FS) error { return all.SyncDir(".") })
	}
	return at, err
}

// orphans names the commits after a number that a history in a directory has; empty:
// there are none. It is opened for that, so that git sees all of them.
func (d Dir) orphans(ctx context.Context, dir string, seq uint64) (name string, err error) {
	files, err := d.On.Open(dir)
	if err != nil {
		return "", err
	}
	s, err := gitstore.Open(ctx, gitstore.Options{FS: files, Log: d.Log, Foreground: true})
	if err != nil {
		if errs.Is(err, errs.Canceled) {
			return "", errors.Join(err, files.Close())
		}
		// A fork, or a damaged one: all of it is kept.
		d.Log.Warn("a history that is put aside cannot be opened", "directory", dir, "error", err)
		return fmt.Sprintf("%s%d", remote.Orphaned, seq+1), files.Close()
	}
	last := s.Tip().Seq
	if err := s.Close(ctx); err != nil || last <= seq {
		return "", err
	}
	return fmt.Sprintf("%s%d-%d", remote.Orphaned, seq+1, last), nil
}

// Fetch gives the directory, which has no history, the one that a log has; base is what
// it continues, if it is a fork's. A run that was cut off is repeated. Commits that were put
// aside stay. Nothing has the workspace open.
func (d Dir) Fetch(ctx context.Context, from sink.Sink, base *gitstore.Base) error {
	coming := d.Path + comingSuffix
	if err := errors.Join(d.On.RemoveAll(coming), d.On.MkdirAll(coming)); err != nil {
		return err
	}
	files, err := d.On.Open(coming)
	if err != nil {
		return err
	}
	_, err = gitstore.Take(ctx, gitstore.Options{FS: files, Sink: from, Base: base, Log: d.Log})
	if err = errors.Join(err, files.Close()); err != nil {
		return errors.Join(err, d.On.RemoveAll(coming))
	}
	name := filepath.Base(d.Path)
	return d.around(func(all vfs.FS) error {
		if err := keepAside(all, name); err != nil {
			return err
		}
		if err := vfs.RemoveAll(all, name); err != nil {
			return err
		}
		return errors.Join(all.Rename(name+comingSuffix, name), all.SyncDir("."))
	})
}

// keepAside moves what was put aside to the history that comes.
func keepAside(all vfs.FS, name string) error {
	list, err := all.ReadDir(path.Join(name, journal.Dir))
	if vfs.IsAbsent(err) {
		return nil
	}
	for _, e := range list {
		if strings.HasPrefix(e.Name, remote.Orphaned) {
			err = errors.Join(err, all.Rename(path.Join(name, journal.Dir, e.Name), path.Join(name+comingSuffix, journal.Dir, e.Name)))
		}
	}
	return err
}
