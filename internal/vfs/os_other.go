//go:build !linux

package vfs

import (
	"errors"
	"io/fs"
	"os"
	"syscall"
)

// osFS is a real directory where there is no Linux: os.Root does all of it.
// What a system has no call for (files without a name; exchange, except on
// macOS) is errors.ErrUnsupported, and the callers use their fallbacks.
type osFS struct {
	root *os.Root
}

// OS gives the directory dir as an FS.
func OS(dir string) (FS, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	return &osFS{root: root}, nil
}

// mapError makes os.Root's error without an errno, the escape, ErrEscapes.
func mapError(op, name string, err error) error {
	if err == nil || errors.Is(err, fs.ErrClosed) || errors.Is(err, errors.ErrUnsupported) {
		return pathErr(op, name, err)
	}
	if errno, ok := errors.AsType[syscall.Errno](err); ok {
		return &fs.PathError{Op: op, Path: name, Err: errno}
	}
	return &fs.PathError{Op: op, Path: name, Err: ErrEscapes}
}

func (o *osFS) Sub(dir string) (FS, error) {
	if err := checkName(dir); err != nil {
		return nil, pathErr("sub", dir, err)
	}
	root, err := o.root.OpenRoot(dir)
	if err != nil {
		return nil, mapError("sub", dir, err)
	}
	return &osFS{root: root}, nil
}

func (o *osFS) Close() error { return o.root.Close() }

func (o *osFS) Open(name string) (File, error) { return o.OpenFile(name, os.O_RDONLY, 0) }

func (o *osFS) OpenFile(name string, flag int, perm fs.FileMode) (File, error) {
	if err := checkName(name); err != nil {
		return nil, pathErr("open", name, err)
	}
	// os.Root follows a link in the last component, inside the root. Between
	// this look and the open it may become one: contained, but followed.
	if info, err := o.root.Lstat(name); err == nil && info.Mode()&fs.ModeSymlink != 0 && flag&os.O_EXCL == 0 {
		return nil, pathErr("open", name, syscall.ELOOP)
	}
	f, err := o.root.OpenFile(name, flag|syscall.O_NONBLOCK, perm)
	if err != nil {
		return nil, mapError("open", name, err)
	}
	return &osFile{File: f, flag: flag}, nil
}

func (o *osFS) CreateUnlinked(dir string, _ fs.FileMode) (File, error) {
	return nil, pathErr("tmpfile", dir, errors.ErrUnsupported)
}

func (o *osFS) LinkFile(_ File, name string) error {
	return pathErr("linkfile", name, errors.ErrUnsupported)
}

func (o *osFS) Lstat(name string) (Info, error) {
	if err := checkName(name); err != nil {
		return Info{}, pathErr("lstat", name, err)
	}
	fi, err := o.root.Lstat(name)
	if err != nil {
		return Info{}, mapError("lstat", name, err)
	}
	return infoOfFile(fi), nil
}

func (o *osFS) Stat(name string) (Info, error) {
	if err := checkName(name); err != nil {
		return Info{}, pathErr("stat", name, err)
	}
	fi, err := o.root.Stat(name)
	if err != nil {
		return Info{}, mapError("stat", name, err)
	}
	return infoOfFile(fi), nil
}

func (o *osFS) Readlink(name string) (string, error) {
	if err := checkName(name); err != nil {
		return "", pathErr("readlink", name, err)
	}
	target, err := o.root.Readlink(name)
	return target, mapError("readlink", name, err)
}

func (o *osFS) ReadDir(name string) ([]DirEntry, error) {
	info, err := o.Lstat(name)
	if err != nil {
		return nil, err
	}
	if !info.IsDir() {
		return nil, pathErr("readdir", name, syscall.ENOTDIR)
	}
	f, err := o.root.Open(name)
	if err != nil {
		return nil, mapError("readdir", name, err)
	}
	defer f.Close()
	entries, err := f.ReadDir(-1)
	if err != nil {
		return nil, mapError("readdir", name, err)
	}
	list := make([]DirEntry, len(entries))
	for i, e := range entries {
		list[i] = DirEntry{Name: e.Name(), Type: e.Type()}
	}
	return list, nil
}

// entry runs call for a name that must not be the root's.
func (o *osFS) entry(op, name string, call func() error) error {
	if err := checkEntry(name); err != nil {
		return pathErr(op, name, err)
	}
	return mapError(op, name, call())
}

func (o *osFS) Mkdir(name string, perm fs.FileMode) error {
	if name == "." {
		return pathErr("mkdir", name, syscall.EEXIST)
	}
	return o.entry("mkdir", name, func() error { return o.root.Mkdir(name, perm) })
}

func (o *osFS) Symlink(target, name string) error {
	return o.entry("symlink", name, func() error { return o.root.Symlink(target, name) })
}

func (o *osFS) Link(oldname, newname string) error {
	return o.entry("link", newname, func() error {
		return o.entry("link", oldname, func() error { return o.root.Link(oldname, newname) })
	})
}

func (o *osFS) Rename(oldname, newname string) error {
	return o.entry("rename", newname, func() error {
		return o.entry("rename", oldname, func() error { return o.root.Rename(oldname, newname) })
	})
}

func (o *osFS) Remove(name string) error {
	return o.entry("remove", name, func() error { return o.root.Remove(name) })
}

func (o *osFS) Chmod(name string, perm fs.FileMode) error {
	info, err := o.Lstat(name)
	if err != nil {
		return err
	}
	if info.IsSymlink() {
		return pathErr("chmod", name, errors.ErrUnsupported)
	}
	return mapError("chmod", name, o.root.Chmod(name, perm))
}

func (o *osFS) SyncDir(name string) error {
	if err := checkName(name); err != nil {
		return pathErr("syncdir", name, err)
	}
	f, err := o.root.Open(name)
	if err != nil {
		return mapError("syncdir", name, err)
	}
	defer f.Close()
	return mapError("syncdir", name, f.Sync())
}

// osFile adds to os.File what the interface has more.
type osFile struct {
	*os.File
	flag int
}

func (f *osFile) Stat() (Info, error) {
	fi, err := f.File.Stat()
	if err != nil {
		return Info{}, err
	}
	return infoOfFile(fi), nil
}

func (f *osFile) SetMtime(int64) error { return pathErr("setmtime", f.Name(), errors.ErrUnsupported) }

// Allocate makes the file long enough; room is not reserved.
func (f *osFile) Allocate(size int64) error {
	fi, err := f.File.Stat()
	if err != nil || fi.Size() >= size {
		return err
	}
	return f.Truncate(size)
}

func (f *osFile) Datasync() error      { return f.Sync() }
func (f *osFile) StartWriteout() error { return nil }

// Writers is Unknown: there are no leases.
func (f *osFile) Writers() Writers {
	if f.flag&(os.O_WRONLY|os.O_RDWR) != 0 {
		return Yes
	}
	return Unknown
}

// infoOfFile has what every system reports, and numbers where they are known.
func infoOfFile(fi fs.FileInfo) Info {
	info := Info{
		Mode:    fi.Mode(),
		Size:    fi.Size(),
		Nlink:   1,
		MtimeNs: fi.ModTime().UnixNano(),
		CtimeNs: fi.ModTime().UnixNano(),
	}
	addNumbers(&info, fi)
	return info
}
