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

	"umbra/gitstore"
	"umbra/gitstore/object"
	"umbra/internal/errs"
	"umbra/internal/layer"
	"umbra/internal/workspace"
	"umbra/internal/wspath"
)

// copier fills a new directory with the files of a workspace. Where the file system
// has reflinks, files that are on the parent's disk as history has them share
// their blocks.
type copier struct {
	ctx context.Context
	w   *workspace.Workspace
	to  string
	// noClone is set once a reflink failed: the file system has none.
	noClone bool
	// over is set where to is a layer over the parent's directory; hide covers the
	// ignored files there instead of copying them.
	over, hide bool
}

// tracked writes the files of a tree.
func (c *copier) tracked(snap gitstore.Snapshot) error {
	made := map[string]bool{".": true}
	return snap.Walk(wspath.Root, func(e gitstore.Entry) error {
		if err := c.ctx.Err(); err != nil {
			return errs.Wrap(err, "")
		}
		name := filepath.Join(c.to, string(e.Path))
		if dir := filepath.Dir(string(e.Path)); !made[dir] {
			if err := os.MkdirAll(filepath.Dir(name), 0o777); err != nil {
				return errs.Wrap(err, "")
			}
			made[dir] = true
		}
		if e.Mode == object.Symlink {
			target, err := c.w.Store().ReadBlob(c.ctx, e.ID, wspath.MaxPath)
			if err != nil {
				return err
			}
			return errs.Wrap(os.Symlink(string(target), name), string(e.Path))
		}
		return c.file(e, name)
	})
}

func (c *copier) file(e gitstore.Entry, name string) error {
	perm := fs.FileMode(0o666)
	if e.Mode == object.Executable {
		perm = 0o777
	}
	f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_EXCL, perm)
	if err != nil {
		return errs.Wrap(err, string(e.Path))
	}
	err = c.content(f, e)
	return errs.Wrap(errors.Join(err, f.Close()), string(e.Path))
}

// content fills a file with a blob: from the parent's disk if a reflink of the
// file there has the same bytes.
func (c *copier) content(f *os.File, e gitstore.Entry) error {
	if !c.noClone && c.w.Root() != "" {
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

// clone makes a file share the blocks of the parent's, and reports whether they are
// those of the blob. Otherwise the file is empty again.
func (c *copier) clone(f *os.File, e gitstore.Entry) (bool, error) {
	root, err := os.OpenRoot(c.w.Root())
	if err != nil {
		return false, nil
	}
	defer root.Close()
	from, err := root.Open(string(e.Path))
	if err != nil {
		return false, nil // the blob is in history
	}
	defer from.Close()
	info, err := from.Stat()
	if err != nil || !info.Mode().IsRegular() {
		return false, nil
	}
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
			if d.IsDir() {
				return filepath.SkipDir
			}
			return nil
		}
		for _, snap := range []gitstore.Snapshot{tip, at} {
			if _, there, err := snap.Lookup(p); err != nil || there {
				return err
			}
		}
		to := filepath.Join(c.to, rel)
		if c.over {
			if err := os.MkdirAll(filepath.Dir(to), 0o777); err != nil {
				return errs.Wrap(err, "")
			}
		}
		if c.hide {
			if err := layer.MakeWhiteout(to); err != nil || !d.IsDir() {
				return errs.Wrap(err, "")
			}
			return filepath.SkipDir
		}
		return c.ignoredEntry(from, to, d)
	})
}

func (c *copier) ignoredEntry(from, to string, d fs.DirEntry) error {
	info, err := d.Info()
	if err != nil {
		return nil // it went
	}
	switch {
	case d.IsDir():
		err = os.Mkdir(to, info.Mode().Perm()|0o700)
	case info.Mode()&fs.ModeSymlink != 0:
		var target string
		if target, err = os.Readlink(from); err == nil {
			err = os.Symlink(target, to)
		}
	case info.Mode().IsRegular():
		err = c.ignoredFile(from, to, info.Mode().Perm())
	}
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) || errors.Is(err, fs.ErrExist) {
		return nil
	}
	return errs.Wrap(err, "")
}

func (c *copier) ignoredFile(from, to string, perm fs.FileMode) error {
	src, err := os.Open(from)
	if err != nil {
		return err
	}
	defer src.Close()
	f, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, perm)
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
