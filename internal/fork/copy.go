package fork

import (
	"context"
	"crypto/sha1"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"umbra/gitstore"
	"umbra/gitstore/object"
	"umbra/internal/errs"
	"umbra/internal/layer"
	"umbra/internal/workspace"
	"umbra/internal/wspath"
)

// copier fills a new directory with the files of a workspace. Where the file system
// has reflinks, files that are on the parent's disk as history has them share
// their blocks. Nothing is read or written through a link that leads out of either
// directory.
type copier struct {
	ctx  context.Context
	w    *workspace.Workspace
	from *os.Root // the parent's directory; nil: there is none
	to   *os.Root
	// noClone is set once a reflink failed: the file system has none.
	noClone bool
	// over is set where to is a layer over the parent's directory; hide covers the
	// ignored files there instead of copying them.
	over, hide bool
}

// newCopier opens the directories. The caller calls close.
func newCopier(ctx context.Context, w *workspace.Workspace, to string) (*copier, error) {
	c := &copier{ctx: ctx, w: w}
	var err error
	if c.to, err = os.OpenRoot(to); err != nil {
		return nil, errs.Wrap(err, "")
	}
	if w.Root() == "" {
		return c, nil
	}
	if c.from, err = os.OpenRoot(w.Root()); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, errs.Wrap(errors.Join(err, c.close()), "")
	}
	return c, nil
}

func (c *copier) close() error {
	var err error
	if c.from != nil {
		err = c.from.Close()
	}
	return errors.Join(err, c.to.Close())
}

// Checkout writes the files of a workspace's newest commit into an empty directory.
func Checkout(ctx context.Context, w *workspace.Workspace, to string) error {
	c, err := newCopier(ctx, w, to)
	if err != nil {
		return err
	}
	return errors.Join(c.tracked(w.Store().Snapshot()), c.close())
}

// tracked writes the files of a tree.
func (c *copier) tracked(snap gitstore.Snapshot) error {
	made := map[string]bool{".": true}
	return snap.Walk(wspath.Root, func(e gitstore.Entry) error {
		if err := c.ctx.Err(); err != nil {
			return errs.Wrap(err, "")
		}
		if dir := filepath.Dir(string(e.Path)); !made[dir] {
			if err := c.to.MkdirAll(dir, 0o777); err != nil {
				return errs.Wrap(err, "")
			}
			made[dir] = true
		}
		if e.Mode == object.Symlink {
			target, err := c.w.Store().ReadBlob(c.ctx, e.ID, wspath.MaxPath)
			if err != nil {
				return err
			}
			return errs.Wrap(c.to.Symlink(string(target), string(e.Path)), string(e.Path))
		}
		return c.file(e)
	})
}

func (c *copier) file(e gitstore.Entry) error {
	perm := fs.FileMode(0o666)
	if e.Mode == object.Executable {
		perm = 0o777
	}
	f, err := c.to.OpenFile(string(e.Path), os.O_RDWR|os.O_CREATE|os.O_EXCL, perm)
	if err != nil {
		return errs.Wrap(err, string(e.Path))
	}
	err = c.content(f, e)
	return errs.Wrap(errors.Join(err, f.Close()), string(e.Path))
}

// content fills a file with a blob: from the parent's disk if a reflink of the
// file there has the same bytes.
func (c *copier) content(f *os.File, e gitstore.Entry) error {
	if !c.noClone && c.from != nil {
		same, err := c.clone(f, e)
		if err != nil || same {
			return err
		}
	}
	r, _, err := c.w.Store().OpenBlob(c.ctx, e.ID)
	if err != nil {
		return err
	}
	_, err = io.Copy(f, r)
	return errors.Join(err, r.Close())
}

// open opens a regular file of the parent's directory. It does not wait for the other
// end of a FIFO that has its name.
func (c *copier) open(name string) (*os.File, fs.FileInfo, error) {
	f, err := c.from.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, nil, err
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = fs.ErrNotExist
	}
	if err != nil {
		return nil, nil, errors.Join(err, f.Close())
	}
	return f, info, nil
}

// clone makes a file share the blocks of the parent's, and reports whether they are
// those of the blob. Otherwise the file is empty again.
func (c *copier) clone(f *os.File, e gitstore.Entry) (bool, error) {
	from, info, err := c.open(string(e.Path))
	if err != nil {
		return false, nil // the blob is in history
	}
	defer from.Close()
	if err := reflink(f, from); err != nil {
		c.noClone = true
		return false, nil
	}
	h := sha1.New()
	fmt.Fprintf(h, "blob %d\x00", info.Size())
	n, err := io.Copy(h, f)
	if err != nil {
		return false, err
	}
	if n == info.Size() && object.ID(h.Sum(nil)) == e.ID {
		return true, nil
	}
	_, err = f.Seek(0, io.SeekStart)
	return false, errors.Join(err, f.Truncate(0))
}

// ignored copies what the parent's history does not have: ignored files, and .git.
// Unreadable files are left out, and all but files, directories and symbolic links.
func (c *copier) ignored(at gitstore.Snapshot) error {
	if c.from == nil {
		return nil
	}
	root := c.w.Root()
	tip := c.w.Store().Snapshot()
	return filepath.WalkDir(root, func(from string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrPermission) || errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return errs.Wrap(err, "")
		}
		if err := c.ctx.Err(); err != nil {
			return errs.Wrap(err, "")
		}
		rel, err := filepath.Rel(root, from)
		if err != nil || rel == "." {
			return err
		}
		p := wspath.Path(filepath.ToSlash(rel))
		if c.w.IsOwn(p) || wspath.IsTemp(d.Name()) {
			return passed(d)
		}
		for _, snap := range []gitstore.Snapshot{at, tip} {
			e, there, err := snap.Lookup(p)
			if err != nil {
				return err
			}
			if there && d.IsDir() && e.Mode != object.Dir && snap == at {
				return passed(d) // what the fork has instead has nothing below it
			}
			if there {
				return nil
			}
		}
		if c.over {
			if err := c.to.MkdirAll(filepath.Dir(rel), 0o777); err != nil {
				return errs.Wrap(err, "")
			}
		}
		if c.hide {
			if err := layer.MakeWhiteout(filepath.Join(c.to.Name(), rel)); err != nil {
				return errs.Wrap(err, "")
			}
			return passed(d)
		}
		return c.ignoredEntry(rel, d)
	})
}

// passed is what a walk returns for an entry that is left out with all below it.
func passed(d fs.DirEntry) error {
	if d.IsDir() {
		return filepath.SkipDir
	}
	return nil
}

func (c *copier) ignoredEntry(name string, d fs.DirEntry) error {
	info, err := d.Info()
	if err != nil {
		return nil // it went
	}
	switch {
	case d.IsDir():
		err = c.to.Mkdir(name, info.Mode().Perm()|0o700)
	case info.Mode()&fs.ModeSymlink != 0:
		var target string
		if target, err = c.from.Readlink(name); err == nil {
			err = c.to.Symlink(target, name)
		}
	case info.Mode().IsRegular():
		err = c.ignoredFile(name)
	}
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) || errors.Is(err, fs.ErrExist) {
		return nil
	}
	return errs.Wrap(err, "")
}

func (c *copier) ignoredFile(name string) error {
	src, info, err := c.open(name)
	if err != nil {
		return err
	}
	defer src.Close()
	f, err := c.to.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, info.Mode().Perm())
	if err != nil {
		return err
	}
	if !c.noClone {
		if err := reflink(f, src); err == nil {
			return f.Close()
		}
		c.noClone = true
	}
	_, err = io.Copy(f, src)
	return errors.Join(err, f.Close())
}
