package workspace

import (
	"errors"
	"io/fs"
	"os"
	"sync/atomic"
	"syscall"

	"umbra/internal/errs"
	"umbra/internal/rootfs"
	"umbra/internal/vfs"
	"umbra/internal/workspace/host"
	"umbra/internal/wspath"
)

// directory is where a workspace's files are.
type directory struct {
	dir    string // host path; empty: the workspace is virtual
	gitDir string // host path of the repository
	host   host.Host
	fs     vfs.FS // dir
	root   *rootfs.Root
	files  vfs.FS // the workspace's directory in the data directory
	aside  vfs.FS // its part for displaced files; nil: there is none
	// virtual is set where there is no directory; fs and root then show the newest
	// tree.
	virtual *virtual

	dev, ino uint64        // of the directory that was opened
	standIn  bool          // it was missing then, and fs is an empty one in memory
	back     func() bool   // whether it is at its place again, as far as can be known
	own      []wspath.Path // the server's own directories inside of it
	missing  atomic.Bool   // another directory or none is at dir
	canWrite atomic.Bool
}

// Root returns the canonical host path of the directory.
func (d *directory) Root() string { return d.dir }

// GitDir returns the host path of the repository.
func (d *directory) GitDir() string { return d.gitDir }

// ErrMissing is the error of calls while the directory is missing.
func ErrMissing() error {
	return errs.New(errs.Conflict, "workspace_missing", "The workspace's folder is gone, or another stands in its place.")
}

// checkFolder fails unless the directory that was opened is still at its path.
func (d *directory) checkFolder() error {
	if d.virtual != nil {
		return nil
	}
	info, err := d.host.Stat(d.dir)
	if err == nil && info.Dev == d.dev && info.Ino == d.ino && !d.standIn {
		d.missing.Store(false)
		return nil
	}
	if err != nil && !isAbsent(err) && !errors.Is(err, fs.ErrPermission) {
		return errs.Wrap(err, "")
	}
	d.missing.Store(true)
	return ErrMissing()
}

// FolderIsBack reports whether the directory was missing when the workspace was
// opened and exists now: the workspace has to be opened again.
func (d *directory) FolderIsBack() bool {
	return d.standIn && d.back()
}

// ReadOnly reports whether the directory cannot be written, by trying.
func (d *directory) ReadOnly() bool {
	f, err := d.fs.CreateUnlinked(".", 0o600)
	if err == nil {
		f.Close()
	} else if errors.Is(err, errors.ErrUnsupported) {
		name := wspath.TempName(0xffffffff << 32)
		if f, err = d.fs.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600); err == nil {
			f.Close()
			err = d.fs.Remove(name)
		}
	}
	no := errors.Is(err, fs.ErrPermission) || errors.Is(err, syscall.EROFS)
	d.canWrite.Store(!no)
	return no
}

// IsOwn reports whether a path is, or is in, one of the server's own directories.
func (d *directory) IsOwn(p wspath.Path) bool {
	for _, dir := range d.own {
		if p.Within(dir) {
			return true
		}
	}
	return false
}

// Virtual reports whether the workspace has no directory.
func (d *directory) Virtual() bool { return d.virtual != nil }
