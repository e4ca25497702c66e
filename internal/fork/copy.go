package fork

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"syscall"

	"umbra/gitstore"
	"umbra/gitstore/object"
	"umbra/internal/errs"
	"umbra/internal/layer"
	"umbra/internal/task"
	"umbra/internal/workspace"
	"umbra/internal/wspath"
)

// copier fills a new directory with the files of a workspace. Files that are on the
// parent's disk as history has them are taken from there, with their time, bits and
// attributes, and share their blocks where the file system has reflinks. Nothing is read
// or written through a link that leads out of either directory.
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
	// room reports whether so many bytes may be written; nil: they may.
	room func(bytes int64) error
	made map[string]bool // directories
	dirs []string        // the same, those above first
}

// newCopier opens the directories. The caller calls close.
func newCopier(ctx context.Context, w *workspace.Workspace, to string) (*copier, error) {
	c := &copier{ctx: ctx, w: w, made: map[string]bool{".": true}, dirs: []string{"."}}
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
	return snap.Walk(wspath.Root, func(e gitstore.Entry) error {
		if err := c.ctx.Err(); err != nil {
			return errs.Wrap(err, "")
		}
		if err := c.dir(filepath.Dir(string(e.Path)), 0o777); err != nil {
			return errs.Wrap(err, "")
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

// dir makes a directory, and those above it.
func (c *copier) dir(name string, perm fs.FileMode) error {
	if c.made[name] {
		return nil
	}
	if err := c.dir(filepath.Dir(name), 0o777); err != nil {
		return err
	}
	if err := c.to.Mkdir(name, perm); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	c.made[name] = true
	c.dirs = append(c.dirs, name)
	return nil
}

// finish gives the directories the bits and times of the parent's. Nothing is put into them
// afterwards.
func (c *copier) finish() error {
	if c.from == nil {
		return nil
	}
	for _, name := range slices.Backward(c.dirs) {
		info, err := c.from.Lstat(name)
		if err != nil || !info.IsDir() {
			continue // the fork's is of another time
		}
		c.owned(name, info)
		if err := c.to.Chmod(name, info.Mode().Perm()|0o700); err != nil {
			return errs.Wrap(err, name)
		}
		if err := c.to.Chtimes(name, info.ModTime(), info.ModTime()); err != nil {
			return errs.Wrap(err, name)
		}
	}
	return nil
}

// owned gives what a server of the administrator makes to the owner of the parent's, where
// the file system can.
func (c *copier) owned(name string, info fs.FileInfo) {
	if os.Geteuid() == 0 {
		st := info.Sys().(*syscall.Stat_t)
		_ = c.to.Lchown(name, int(st.Uid), int(st.Gid))
	}
}

func (c *copier) file(e gitstore.Entry) error {
	perm := fs.FileMode(0o666)
	if e.Mode == object.Executable {
		perm = 0o777
	}
	name := string(e.Path)
	f, err := c.to.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_EXCL, perm)
	if err != nil {
		return errs.Wrap(err, name)
	}
	same, err := c.take(f, e)
	if err == nil && !same {
		err = c.content(f, e)
	}
	return errs.Wrap(errors.Join(err, f.Close()), name)
}

// content fills a file with a blob of history.
func (c *copier) content(f *os.File, e gitstore.Entry) error {
	r, size, err := c.w.Store().OpenBlob(c.ctx, e.ID)
	if err != nil {
		return err
	}
	if err = c.takes(size); err == nil {
		_, err = io.Copy(f, r)
	}
	return errors.Join(err, r.Close())
}

// takes fails where there is no room for so many bytes.
func (c *copier) takes(bytes int64) error {
	if c.room == nil {
		return nil
	}
	return c.room(bytes)
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

// take fills a file with the parent's, and reports whether that has the bytes of the blob.
// Otherwise the file is empty, and they are in history.
func (c *copier) take(f *os.File, e gitstore.Entry) (bool, error) {
	if c.from == nil {
		return false, nil
	}
	from, info, err := c.open(string(e.Path))
	if err != nil {
		return false, nil
	}
	defer from.Close()
	size, err := c.w.Store().BlobSize(c.ctx, e.ID)
	if err != nil || size != info.Size() {
		return false, err
	}
	h := object.NewHash(object.Blob, size)
	var n int64
	if c.cloned(f, from) {
		n, err = io.Copy(h, f)
	} else if err = c.takes(size); err == nil {
		n, err = io.Copy(io.MultiWriter(f, h), io.LimitReader(from, size+1))
	}
	if err != nil {
		return false, err
	}
	if n == size && object.ID(h.Sum(nil)) == e.ID {
		return true, c.keep(f, from, string(e.Path), info, (info.Mode()&0o100 != 0) == (e.Mode == object.Executable))
	}
	_, err = f.Seek(0, io.SeekStart)
	return false, errors.Join(err, f.Truncate(0))
}

// cloned makes a file share the blocks of another, where the file system can.
func (c *copier) cloned(to, from *os.File) bool {
	c.noClone = c.noClone || reflink(to, from) != nil
	return !c.noClone
}

// keep gives a file what the parent's has besides its bytes, and its bits unless history
// has others.
func (c *copier) keep(to, from *os.File, name string, info fs.FileInfo, bits bool) error {
	c.owned(name, info)
	if bits {
		if err := to.Chmod(info.Mode().Perm()); err != nil {
			return err
		}
	}
	attributes(to, from)
	return c.to.Chtimes(name, info.ModTime(), info.ModTime())
}

// ignored copies what the parent's history does not have: ignored files, and .git.
// Unreadable files are left out, and all but files, directories and symbolic links; each
// name of a file with several becomes a file.
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
			if err := c.dir(filepath.Dir(rel), 0o777); err != nil {
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
		err = c.dir(name, info.Mode().Perm()|0o700)
	case info.Mode()&fs.ModeSymlink != 0:
		var target string
		if target, err = c.from.Readlink(name); err == nil {
			err = c.to.Symlink(target, name)
		}
		c.owned(name, info)
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
	if !c.cloned(f, src) {
		if err = c.takes(info.Size()); err == nil {
			err = layer.CopyData(f, src, info.Size())
		}
	}
	if err == nil {
		err = c.keep(f, src, name, info, true)
	}
	return errors.Join(err, f.Close())
}

// pathName is the name of a fork that is given a path alone; empty if that of the directory
// is not formed as one.
func (f *Make) pathName() string {
	if base := filepath.Base(f.Path); f.Path != "" && task.ValidID(base) {
		return base
	}
	return ""
}
