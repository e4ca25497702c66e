package vfs

import (
	"errors"
	"io/fs"
	"os"
	"sync/atomic"
)

// Inject gives f with h asked before each call, of its Files and Subs too.
func Inject(f FS, h *Hook) FS { return &injectFS{in: f, h: h, top: "."} }

type injectFS struct {
	in  FS
	h   *Hook
	top string // the name of a Sub's root
}

var _ FS = (*injectFS)(nil)

// change asks the hook, then does.
func (i *injectFS) change(op, name string, do func() error) error {
	if _, err := i.h.before(op, joinName(i.top, name), false); err != nil {
		return err
	}
	return do()
}

// injectRead is change for calls that look and give something.
func injectRead[T any](i *injectFS, op, name string, do func(string) (T, error)) (T, error) {
	if _, err := i.h.before(op, joinName(i.top, name), true); err != nil {
		var none T
		return none, err
	}
	return do(name)
}

func (i *injectFS) file(f File, name string) *injectFile {
	file := &injectFile{in: f, h: i.h}
	name = joinName(i.top, name)
	file.name.Store(&name)
	return file
}

func (i *injectFS) Open(name string) (File, error) { return i.OpenFile(name, os.O_RDONLY, 0) }

func (i *injectFS) OpenFile(name string, flag int, perm fs.FileMode) (File, error) {
	op, reads := OpOpen, true
	if flag&(os.O_CREATE|os.O_TRUNC) != 0 {
		op, reads = OpCreate, false
	}
	if _, err := i.h.before(op, joinName(i.top, name), reads); err != nil {
		return nil, err
	}
	f, err := i.in.OpenFile(name, flag, perm)
	if err != nil {
		return nil, err
	}
	return i.file(f, name), nil
}

// Plain is osFS's, where the FS below has it.
func (i *injectFS) Plain(dir string) (dev uint64, plain bool, err error) {
	p, ok := i.in.(interface {
		Plain(dir string) (uint64, bool, error)
	})
	if !ok {
		return 0, false, nil
	}
	if _, err := i.h.before(OpStat, joinName(i.top, dir), true); err != nil {
		return 0, false, err
	}
	return p.Plain(dir)
}

// CreateUnlinked's file goes by its directory's name until LinkFile names it.
func (i *injectFS) CreateUnlinked(dir string, perm fs.FileMode) (File, error) {
	if _, err := i.h.before(OpTmpfile, joinName(i.top, dir), false); err != nil {
		return nil, err
	}
	f, err := i.in.CreateUnlinked(dir, perm)
	if err != nil {
		return nil, err
	}
	return i.file(f, dir), nil
}

func (i *injectFS) LinkFile(f File, name string) error {
	return i.change(OpLinkFile, name, func() error {
		file, ok := f.(*injectFile)
		if !ok {
			return i.in.LinkFile(f, name)
		}
		if err := i.in.LinkFile(file.in, name); err != nil {
			return err
		}
		name := joinName(i.top, name)
		file.name.Store(&name)
		return nil
	})
}

func (i *injectFS) Lstat(name string) (Info, error) {
	return injectRead(i, OpLstat, name, i.in.Lstat)
}

func (i *injectFS) Stat(name string) (Info, error) {
	return injectRead(i, OpStat, name, i.in.Stat)
}

func (i *injectFS) Readlink(name string) (string, error) {
	return injectRead(i, OpReadlink, name, i.in.Readlink)
}

func (i *injectFS) ReadDir(name string) ([]DirEntry, error) {
	return injectRead(i, OpReadDir, name, i.in.ReadDir)
}

func (i *injectFS) Mkdir(name string, perm fs.FileMode) error {
	return i.change(OpMkdir, name, func() error { return i.in.Mkdir(name, perm) })
}

func (i *injectFS) Symlink(target, name string) error {
	return i.change(OpSymlink, name, func() error { return i.in.Symlink(target, name) })
}

func (i *injectFS) Link(oldname, newname string) error {
	return i.change(OpLink, newname, func() error { return i.in.Link(oldname, newname) })
}

func (i *injectFS) Rename(oldname, newname string) error {
	return i.change(OpRename, newname, func() error { return i.in.Rename(oldname, newname) })
}

func (i *injectFS) RenameNoReplace(oldname, newname string) error {
	return i.change(OpRenameNoReplace, newname, func() error { return i.in.RenameNoReplace(oldname, newname) })
}

func (i *injectFS) Exchange(a, b string) error {
	return i.change(OpExchange, b, func() error { return i.in.Exchange(a, b) })
}

// ExchangeWith is Crosser's, where the FS below has it.
func (i *injectFS) ExchangeWith(name string, other FS, otherName string) error {
	c, other, err := i.crosser("exchange", name, other, otherName)
	if err != nil {
		return err
	}
	return i.change(OpExchange, name, func() error { return c.ExchangeWith(name, other, otherName) })
}

// MoveFrom is Crosser's, where the FS below has it.
func (i *injectFS) MoveFrom(other FS, otherName, name string) error {
	c, other, err := i.crosser("rename-noreplace", name, other, otherName)
	if err != nil {
		return err
	}
	return i.change(OpRenameNoReplace, name, func() error { return c.MoveFrom(other, otherName, name) })
}

// crosser gives what is below both trees.
func (i *injectFS) crosser(op, name string, other FS, otherName string) (Crosser, FS, error) {
	c, ok := i.in.(Crosser)
	if !ok {
		return nil, nil, linkErr(op, otherName, name, errors.ErrUnsupported)
	}
	if o, ok := other.(*injectFS); ok {
		other = o.in
	}
	return c, other, nil
}

func (i *injectFS) Remove(name string) error {
	return i.change(OpRemove, name, func() error { return i.in.Remove(name) })
}

func (i *injectFS) Chmod(name string, perm fs.FileMode) error {
	return i.change(OpChmod, name, func() error { return i.in.Chmod(name, perm) })
}

func (i *injectFS) SyncDir(name string) error {
	return i.change(OpSyncDir, name, func() error { return i.in.SyncDir(name) })
}

func (i *injectFS) Sub(dir string) (FS, error) {
	return injectRead(i, OpSub, dir, func(string) (FS, error) {
		sub, err := i.in.Sub(dir)
		if err != nil {
			return nil, err
		}
		return &injectFS{in: sub, h: i.h, top: joinName(i.top, dir)}, nil
	})
}

func (i *injectFS) Close() error { return i.in.Close() }

// injectFile is a file of an injectFS.
type injectFile struct {
	in   File
	h    *Hook
	name atomic.Pointer[string]
}

var _ File = (*injectFile)(nil)

func (f *injectFile) before(op string, reads bool) (half bool, err error) {
	return f.h.before(op, *f.name.Load(), reads)
}

func (f *injectFile) change(op string, do func() error) error {
	if _, err := f.before(op, false); err != nil {
		return err
	}
	return do()
}

func (f *injectFile) Read(p []byte) (int, error) {
	if _, err := f.before(OpRead, true); err != nil {
		return 0, err
	}
	return f.in.Read(p)
}

func (f *injectFile) ReadAt(p []byte, off int64) (int, error) {
	if _, err := f.before(OpRead, true); err != nil {
		return 0, err
	}
	return f.in.ReadAt(p, off)
}

func (f *injectFile) Write(p []byte) (int, error) {
	return f.write(p, f.in.Write)
}

func (f *injectFile) WriteAt(p []byte, off int64) (int, error) {
	return f.write(p, func(p []byte) (int, error) { return f.in.WriteAt(p, off) })
}

func (f *injectFile) write(p []byte, do func([]byte) (int, error)) (int, error) {
	half, err := f.before(OpWrite, false)
	switch {
	case err == nil:
		return do(p)
	case half:
		n, below := do(p[:len(p)/2])
		if below != nil {
			return n, below
		}
		return n, err
	}
	return 0, err
}

// sync: a failed one is not tried again by the system either.
func (f *injectFile) sync(op string, do func() error) error {
	_, err := f.before(op, false)
	if err == nil {
		return do()
	}
	if !f.h.Stopped() {
		f.syncFailed()
	}
	return err
}

// syncFailed passes on what an Inject over this one planted.
func (f *injectFile) syncFailed() {
	if m, ok := f.in.(interface{ syncFailed() }); ok {
		m.syncFailed()
	}
}

func (f *injectFile) Sync() error     { return f.sync(OpFsync, f.in.Sync) }
func (f *injectFile) Datasync() error { return f.sync(OpFdatasync, f.in.Datasync) }

func (f *injectFile) StartWriteout() error { return f.change(OpWriteout, f.in.StartWriteout) }

func (f *injectFile) Truncate(size int64) error {
	return f.change(OpTruncate, func() error { return f.in.Truncate(size) })
}

func (f *injectFile) Allocate(size int64) error {
	return f.change(OpAllocate, func() error { return f.in.Allocate(size) })
}

func (f *injectFile) Chmod(perm fs.FileMode) error {
	return f.change(OpChmod, func() error { return f.in.Chmod(perm) })
}

func (f *injectFile) SetMtime(ns int64) error {
	return f.change(OpSetMtime, func() error { return f.in.SetMtime(ns) })
}

func (f *injectFile) Stat() (Info, error) {
	if _, err := f.before(OpStat, true); err != nil {
		return Info{}, err
	}
	return f.in.Stat()
}

func (f *injectFile) Seek(offset int64, whence int) (int64, error) { return f.in.Seek(offset, whence) }
func (f *injectFile) Close() error                                 { return f.in.Close() }

func (f *injectFile) Writers() Writers {
	if f.h.NoLeases.Load() {
		return Unknown
	}
	return f.in.Writers()
}
