// Package treefs shows the newest durable tree of a store as a file system, in place
// of the directory that a virtual workspace does not have.
//
// Invariants: it cannot be changed, a commit changes what it shows; links that lead
// out of the tree are not followed; only temporary names, for new content, are files
// of a real directory.
package treefs

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"io/fs"
	"path"
	"strings"
	"sync"
	"syscall"

	"umbra/gitstore"
	"umbra/gitstore/object"
	"umbra/internal/vfs"
	"umbra/internal/wspath"
)

// FS shows the newest tree of Store. Its methods are vfs.FS's; those that would
// change it fail with EROFS.
type FS struct {
	Store   *gitstore.Store
	Scratch vfs.FS                            // where new content is prepared
	Perm    func(executable bool) fs.FileMode // that a directory would give
}

func pathError(op, name string, err error) error {
	return &fs.PathError{Op: op, Path: name, Err: err}
}

// treeLinks bounds how many links one path may lead through.
const treeLinks = 40

// find gives what a name leads to: links in its folders are followed, and a
// last one too if asked.
func (t *FS) find(op, name string, last bool) (gitstore.Entry, error) {
	snap := t.Store.Snapshot()
	rest := wspath.Path(name).Components()
	at := wspath.Root
	e := gitstore.Entry{Path: wspath.Root, Mode: object.Dir}
	for links := 0; len(rest) > 0; rest = rest[1:] {
		next := at.Join(rest[0])
		found, ok, err := snap.Lookup(next)
		switch {
		case err != nil:
			return e, err
		case !ok:
			return e, pathError(op, name, syscall.ENOENT)
		}
		if found.Mode == object.Symlink && (len(rest) > 1 || last) {
			if links++; links > treeLinks {
				return e, pathError(op, name, syscall.ELOOP)
			}
			target, err := t.Store.ReadBlob(context.Background(), found.ID, wspath.MaxTarget)
			if err != nil {
				return e, err
			}
			to := path.Join(string(at), string(target))
			if path.IsAbs(string(target)) || to == ".." || strings.HasPrefix(to, "../") {
				return e, pathError(op, name, vfs.ErrEscapes)
			}
			rest = append([]string{""}, append(wspath.Path(to).Components(), rest[1:]...)...)
			at, e = wspath.Root, gitstore.Entry{Path: wspath.Root, Mode: object.Dir}
			continue
		}
		if found.Mode != object.Dir && len(rest) > 1 {
			return e, pathError(op, name, syscall.ENOTDIR)
		}
		at, e = next, found
	}
	return e, nil
}

func (t *FS) info(e gitstore.Entry) (vfs.Info, error) {
	i := vfs.Info{Nlink: 1, Ino: binary.BigEndian.Uint64(e.ID[:8])}
	if e.Mode == object.Dir {
		i.Mode = fs.ModeDir | 0o755
		return i, nil
	}
	i.Mode = t.Perm(e.Mode == object.Executable)
	if e.Mode == object.Symlink {
		i.Mode = fs.ModeSymlink | 0o777
	}
	var err error
	i.Size, err = t.Store.BlobSize(context.Background(), e.ID)
	return i, err
}

// Lstat is vfs.FS's.
func (t *FS) Lstat(name string) (vfs.Info, error) { return t.stat("lstat", name, false) }

// Stat is vfs.FS's.
func (t *FS) Stat(name string) (vfs.Info, error) { return t.stat("stat", name, true) }

func (t *FS) stat(op, name string, last bool) (vfs.Info, error) {
	e, err := t.find(op, name, last)
	if err != nil {
		return vfs.Info{}, err
	}
	return t.info(e)
}

// Readlink is vfs.FS's.
func (t *FS) Readlink(name string) (string, error) {
	e, err := t.find("readlink", name, false)
	if err != nil {
		return "", err
	}
	if e.Mode != object.Symlink {
		return "", pathError("readlink", name, syscall.EINVAL)
	}
	target, err := t.Store.ReadBlob(context.Background(), e.ID, wspath.MaxTarget)
	return string(target), err
}

// ReadDir is vfs.FS's.
func (t *FS) ReadDir(name string) ([]vfs.DirEntry, error) {
	e, err := t.find("readdir", name, false)
	if err != nil {
		return nil, err
	}
	if e.Mode != object.Dir {
		return nil, pathError("readdir", name, syscall.ENOTDIR)
	}
	list, err := t.Store.Snapshot().List(e.Path)
	if err != nil {
		return nil, err
	}
	out := make([]vfs.DirEntry, len(list))
	for i, c := range list {
		out[i].Name = c.Path.Base()
		switch c.Mode {
		case object.Dir:
			out[i].Type = fs.ModeDir
		case object.Symlink:
			out[i].Type = fs.ModeSymlink
		}
	}
	return out, nil
}

// Open is vfs.FS's.
func (t *FS) Open(name string) (vfs.File, error) {
	e, err := t.find("open", name, false)
	if err != nil {
		return nil, err
	}
	if e.Mode == object.Symlink {
		return nil, pathError("open", name, syscall.ELOOP)
	}
	info, err := t.info(e)
	if err != nil {
		return nil, err
	}
	return &File{store: t.Store, ID: e.ID, info: info, name: name}, nil
}

// OpenFile opens for reading, or makes a file of new content where no nameless
// one can be made.
func (t *FS) OpenFile(name string, flag int, perm fs.FileMode) (vfs.File, error) {
	if wspath.IsTemp(path.Base(name)) {
		return t.Scratch.OpenFile(path.Base(name), flag, perm)
	}
	if flag != 0 {
		return nil, pathError("open", name, syscall.EROFS)
	}
	return t.Open(name)
}

// CreateUnlinked is vfs.FS's; the folder does not matter.
func (t *FS) CreateUnlinked(_ string, perm fs.FileMode) (vfs.File, error) {
	return t.Scratch.CreateUnlinked(".", perm)
}

// RenameNoReplace renames files of new content.
func (t *FS) RenameNoReplace(oldname, newname string) error {
	if wspath.IsTemp(path.Base(oldname)) && wspath.IsTemp(path.Base(newname)) {
		return t.Scratch.RenameNoReplace(path.Base(oldname), path.Base(newname))
	}
	return pathError("rename", oldname, syscall.EROFS)
}

// Remove removes files of new content.
func (t *FS) Remove(name string) error {
	if wspath.IsTemp(path.Base(name)) {
		return t.Scratch.Remove(path.Base(name))
	}
	return pathError("remove", name, syscall.EROFS)
}

// LinkFile is refused, as all that follows: the tree changes by commits.
func (t *FS) LinkFile(_ vfs.File, name string) error {
	return pathError("link", name, syscall.EROFS)
}

// Mkdir is refused.
func (t *FS) Mkdir(name string, _ fs.FileMode) error {
	return pathError("mkdir", name, syscall.EROFS)
}

// Symlink is refused.
func (t *FS) Symlink(_, name string) error { return pathError("symlink", name, syscall.EROFS) }

// Link is refused.
func (t *FS) Link(_, name string) error { return pathError("link", name, syscall.EROFS) }

// Rename is refused.
func (t *FS) Rename(name, _ string) error { return pathError("rename", name, syscall.EROFS) }

// Exchange is refused.
func (t *FS) Exchange(a, _ string) error { return pathError("exchange", a, syscall.EROFS) }

// Chmod is refused.
func (t *FS) Chmod(name string, _ fs.FileMode) error {
	return pathError("chmod", name, syscall.EROFS)
}

// SyncDir has nothing to do: what is shown is durable.
func (t *FS) SyncDir(string) error { return nil }

// Sub is not needed of a tree.
func (t *FS) Sub(dir string) (vfs.FS, error) {
	return nil, pathError("sub", dir, errors.ErrUnsupported)
}

// Close frees nothing: the store and the scratch folder are the workspace's.
func (t *FS) Close() error { return nil }

// File is one file or folder of a tree, open for reading. Its content is
// read when it is first needed: whole if it is small, else as a stream that is
// opened again where a read goes back.
type File struct {
	store *gitstore.Store
	ID    object.ID
	info  vfs.Info
	name  string

	mu     sync.Mutex
	pos    int64 // of Read and Seek
	data   *bytes.Reader
	stream io.ReadCloser
	at     int64 // where the stream is
	closed bool
}

// treeInline is up to what a blob is read whole, in bytes.
const treeInline = 1 << 20

func (f *File) Read(p []byte) (int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	n, err := f.readAt(p, f.pos)
	f.pos += int64(n)
	return n, err
}

func (f *File) ReadAt(p []byte, off int64) (int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	n := 0
	for n < len(p) {
		m, err := f.readAt(p[n:], off+int64(n))
		if n += m; err != nil {
			return n, err
		}
	}
	return n, nil
}

// readAt reads some bytes; mu is held.
func (f *File) readAt(p []byte, off int64) (int, error) {
	switch {
	case f.closed:
		return 0, pathError("read", f.name, fs.ErrClosed)
	case f.info.IsDir():
		return 0, pathError("read", f.name, syscall.EISDIR)
	case off < 0:
		return 0, pathError("read", f.name, syscall.EINVAL)
	case off >= f.info.Size:
		return 0, io.EOF
	case f.info.Size <= treeInline:
		if f.data == nil {
			data, err := f.store.ReadBlob(context.Background(), f.ID, treeInline)
			if err != nil {
				return 0, err
			}
			f.data = bytes.NewReader(data)
		}
		return f.data.ReadAt(p, off)
	}
	if f.stream == nil || f.at > off {
		f.closeStream()
		r, _, err := f.store.OpenBlob(context.Background(), f.ID)
		if err != nil {
			return 0, err
		}
		f.stream, f.at = r, 0
	}
	if f.at < off {
		n, err := io.CopyN(io.Discard, f.stream, off-f.at)
		if f.at += n; err != nil {
			return 0, err
		}
	}
	n, err := f.stream.Read(p)
	f.at += int64(n)
	return n, err
}

func (f *File) closeStream() {
	if f.stream != nil {
		_ = f.stream.Close() // it was read only
		f.stream = nil
	}
}

func (f *File) Seek(offset int64, whence int) (int64, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch whence {
	case io.SeekCurrent:
		offset += f.pos
	case io.SeekEnd:
		offset += f.info.Size
	}
	if offset < 0 {
		return 0, pathError("seek", f.name, syscall.EINVAL)
	}
	f.pos = offset
	return offset, nil
}

func (f *File) Close() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.closeStream()
	f.closed, f.data = true, nil
	return nil
}

func (f *File) Stat() (vfs.Info, error)            { return f.info, nil }
func (f *File) Write([]byte) (int, error)          { return 0, pathError("write", f.name, syscall.EBADF) }
func (f *File) WriteAt([]byte, int64) (int, error) { return f.Write(nil) }
func (f *File) Truncate(int64) error               { return pathError("truncate", f.name, syscall.EBADF) }
func (f *File) Chmod(fs.FileMode) error            { return pathError("chmod", f.name, syscall.EROFS) }
func (f *File) SetMtime(int64) error               { return pathError("setmtime", f.name, syscall.EROFS) }
func (f *File) Allocate(int64) error               { return pathError("allocate", f.name, syscall.EBADF) }
func (f *File) Sync() error                        { return nil }
func (f *File) Datasync() error                    { return nil }
func (f *File) StartWriteout() error               { return nil }
func (f *File) Writers() vfs.Writers               { return vfs.No }
