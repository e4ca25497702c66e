package server

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"syscall"

	"umbra/internal/errs"
	"umbra/internal/fork"
	"umbra/internal/node"
	"umbra/internal/vfs"
	"umbra/internal/workspaces"
)

// adopter lets workspaces whose node is gone go on in directories of this one.
type adopter struct {
	node    *node.Node
	spaces  *workspaces.Manager
	records workspaces.Records
	mu      sync.Mutex // one adoption at a time
}

// adopt is forward.Options.Adopt. The files are written next to the directory, and get its
// name at once: a run that was cut off is gone on with by the next. A directory that the
// workspace has had open stays as it is.
func (a *adopter) adopt(ctx context.Context, id, dir string) (any, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !filepath.IsAbs(dir) {
		return nil, errs.New(errs.Invalid, "validation_failed", "The directory must be an absolute path.")
	}
	_, absent := os.Lstat(dir)
	root, err := a.place(ctx, id, filepath.Clean(dir))
	if err != nil {
		return nil, err
	}
	done, err := a.node.AdoptInto(ctx, a.records, id, root)
	if err != nil {
		if errors.Is(absent, fs.ErrNotExist) {
			_ = os.Remove(root) // which stays if it has something by now
		}
		return nil, err
	}
	if opened, err := a.opened(id); err != nil {
		return nil, err
	} else if !opened {
		if empty, err := isEmpty(root); err != nil {
			return nil, errs.Wrap(err, "")
		} else if empty {
			if err := a.fill(ctx, id, root); err != nil {
				return nil, err
			}
		}
	}
	return done, a.spaces.Arrive(ctx, id)
}

// place returns the canonical path of a directory in which a workspace may go on, and
// makes the directory where it is missing. It is empty, unless the workspace is there
// already.
func (a *adopter) place(ctx context.Context, id, dir string) (root string, err error) {
	before, err := a.node.AdoptedAt(ctx, id)
	if err != nil {
		return "", errs.Wrap(err, "")
	}
	if before != "" {
		if real, err := filepath.EvalSymlinks(filepath.Dir(dir)); err == nil && before == filepath.Join(real, filepath.Base(dir)) {
			if opened, err := a.opened(id); err != nil || opened {
				return before, err
			}
			return before, errs.Wrap(os.MkdirAll(before, 0o777), "")
		}
	}
	made := os.Mkdir(dir, 0o777) == nil // what else is there CheckRoot finds
	root, err = a.spaces.CheckRoot(dir)
	if err == nil {
		if other, known := a.spaces.Find(ctx, root); known && other.ID != id {
			err = errs.New(errs.Conflict, "workspace_exists", "The directory is the workspace %s already.", other.ID)
		}
	}
	if err == nil {
		var empty bool
		if empty, err = isEmpty(root); err == nil && !empty {
			err = errs.New(errs.Conflict, "not_empty", "The directory is not empty.")
		}
	}
	if err != nil && made {
		err = errors.Join(err, os.Remove(dir))
	}
	return root, errs.Wrap(err, "")
}

// opened reports whether a workspace was opened in its directory since it was adopted.
func (a *adopter) opened(id string) (bool, error) {
	r, known, err := a.records.Get(id)
	return known && !r.Restored && r.Server == a.node.Name(), errs.Wrap(err, "")
}

func isEmpty(dir string) (bool, error) {
	list, err := os.ReadDir(dir)
	return len(list) == 0, err
}

// fill gives a workspace's empty directory the files of its newest commit.
func (a *adopter) fill(ctx context.Context, id, root string) error {
	temp := filepath.Join(filepath.Dir(root), ".umbra-adopt-"+id)
	err := os.RemoveAll(temp)
	if err == nil {
		err = os.Mkdir(temp, 0o777)
	}
	if err != nil {
		return errs.Wrap(err, "")
	}
	if err := errors.Join(a.checkout(ctx, id, temp), ctx.Err()); err != nil {
		return errors.Join(errs.Wrap(err, ""), os.RemoveAll(temp))
	}
	if info, err := os.Stat(root); err == nil {
		if err := os.Chmod(temp, info.Mode().Perm()); err != nil {
			return errs.Wrap(err, "")
		}
	}
	err = syscall.Rename(temp, root) // which os.Rename refuses, though it is empty
	if errors.Is(err, fs.ErrExist) || errors.Is(err, syscall.ENOTEMPTY) {
		err = errs.New(errs.Conflict, "not_empty", "The directory is not empty.")
	}
	if err == nil {
		err = syncNames(filepath.Dir(root))
	}
	return errs.Wrap(err, "")
}

// checkout writes the files of a workspace's newest commit, durably.
func (a *adopter) checkout(ctx context.Context, id, dir string) error {
	w, err := a.spaces.Examine(ctx, id)
	if err != nil {
		return err
	}
	defer w.Release()
	if err := fork.Checkout(ctx, w, dir); err != nil {
		return err
	}
	files, err := vfs.OS(dir)
	if err != nil {
		return err
	}
	return errors.Join(vfs.SyncTree(files, "."), files.Close())
}

func syncNames(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
