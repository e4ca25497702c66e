// Package vfs is the file system as gitstore and rootfs see it: one directory
// tree, addressed by slash-separated paths relative to its root.
//
// It has three implementations: OS (a real directory, contained by
// os.Root), Mem (in memory, with a crash clone: whatever was not synced may
// vanish, entry by entry), and Inject (a decorator that counts calls, fails
// the n-th with a given error, or stops everything from there on as a kill
// would).
//
// The package never inspects a path as a string to decide whether it stays inside:
// the kernel does, at each call.
package vfs

import (
	"errors"
	"io"
	"io/fs"
	"path"
)

// FS is one directory tree. Names are slash-separated, relative, without empty,
// "." or ".." components, of any bytes but NUL; "." is the root. Another name is
// EINVAL, and so is a change of the root's own entry. Symbolic links in a name's
// directory part are followed while they stay inside the root (ErrEscapes); the
// last component is followed only where said. Errors are *fs.PathError or
// *os.LinkError with an errno inside, so that errors.Is(err, fs.ErrNotExist),
// syscall.ENOSPC etc. work; after Close they are fs.ErrClosed. Permission bits
// of what is made pass the umask. All methods may be called concurrently.
type FS interface {
	// Open opens for reading without following a link in the last component
	// (ELOOP) and without blocking (O_NONBLOCK): a FIFO opens at once; the
	// caller checks Stat before it reads.
	Open(name string) (File, error)
	// OpenFile opens with os.O_* flags, last component not followed.
	OpenFile(name string, flag int, perm fs.FileMode) (File, error)
	// CreateUnlinked makes a file without a name in dir (O_TMPFILE), open for
	// reading and writing. dir may be a link inside the root. ErrUnsupported
	// (errors.ErrUnsupported) where the file system has no such thing.
	CreateUnlinked(dir string, perm fs.FileMode) (File, error)
	// LinkFile gives a name to a file made by CreateUnlinked (linkat through
	// /proc/self/fd). EEXIST if the name is taken. f must be of this FS or of
	// a relative of it by Sub. A file with names gets one more; one whose last
	// name was removed gets none (ENOENT).
	LinkFile(f File, name string) error

	Lstat(name string) (Info, error)
	// Stat follows links, inside the root.
	Stat(name string) (Info, error)
	Readlink(name string) (string, error)
	// ReadDir lists in no particular order, without "." and "..". A link as
	// the last component is ENOTDIR.
	ReadDir(name string) ([]DirEntry, error)

	Mkdir(name string, perm fs.FileMode) error
	Symlink(target, name string) error
	Link(oldname, newname string) error
	// Rename replaces newname, as rename(2).
	Rename(oldname, newname string) error
	// RenameNoReplace fails with EEXIST if newname exists (renameat2), and
	// with ErrUnsupported as Exchange does.
	RenameNoReplace(oldname, newname string) error
	// Exchange swaps two names atomically (renameat2 RENAME_EXCHANGE).
	// ErrUnsupported where the file system has no such thing.
	Exchange(a, b string) error
	// Remove unlinks a file or removes an empty directory.
	Remove(name string) error
	// Chmod refuses a link (ErrUnsupported).
	Chmod(name string, perm fs.FileMode) error

	// SyncDir makes the directory's entries durable (fsync of the directory,
	// which may be a link inside the root). The entry of the directory itself
	// is its parent's.
	SyncDir(name string) error
	// Sub gives the tree below a directory, or a link to one inside the root,
	// as an FS of its own, which stays that directory's if it is renamed. Its
	// Close is another.
	Sub(dir string) (FS, error)
	// Close frees the handle on the root.
	Close() error
}

// Crosser is what an FS offers that can rename between its own tree and another
// of its kind on the same file system; another kind or file system is EXDEV.
// Names are as FS has them, errors too.
type Crosser interface {
	// ExchangeWith swaps a name with one of another tree, as FS.Exchange does.
	ExchangeWith(name string, other FS, otherName string) error
	// MoveFrom gives what has a name in another tree one in this, which must be
	// free, as FS.RenameNoReplace does.
	MoveFrom(other FS, otherName, name string) error
}

// File is an open file or directory. ReadAt, WriteAt and what has no position may
// be called concurrently, and Close with all of them; errors as FS's.
type File interface {
	io.Reader
	io.ReaderAt
	io.Writer
	io.WriterAt
	io.Seeker
	io.Closer
	Stat() (Info, error)
	Truncate(size int64) error
	Chmod(perm fs.FileMode) error
	// SetMtime sets the time of the last modification, in nanoseconds since 1970;
	// a file system that is coarser rounds it down. ErrUnsupported on other systems
	// than Linux.
	SetMtime(ns int64) error
	// Allocate makes the file at least size bytes long and reserves their room
	// (fallocate), so that a full disk shows now; what is new reads as zeros.
	// Where the file system cannot reserve, the file is made longer only.
	Allocate(size int64) error
	// Sync is fsync, Datasync fdatasync.
	Sync() error
	Datasync() error
	// StartWriteout begins writing dirty pages and does not wait
	// (sync_file_range SYNC_FILE_RANGE_WRITE). It promises nothing.
	StartWriteout() error
	// Writers reports whether any process has the file open or mapped for
	// writing (a read lease is refused, fcntl(2) F_SETLEASE). A handle that can
	// write counts itself: ask one from Open. Unknown where the system does not
	// say: another owner's file without CAP_LEASE, a network file system, another
	// system than Linux.
	Writers() Writers
}

// Writers is an answer to whether a file may still be written. Unknown is never
// No.
type Writers uint8

// The answers.
const (
	Unknown Writers = iota
	No
	Yes
)

// Info is the result of lstat.
type Info struct {
	Mode    fs.FileMode // type and permission bits as in package fs
	Size    int64       // bytes
	Dev     uint64
	Ino     uint64
	Nlink   uint64
	UID     uint32
	GID     uint32
	MtimeNs int64 // nanoseconds since 1970
	CtimeNs int64
}

// IsDir and the like look at the type bits.
func (i Info) IsDir() bool     { return i.Mode.IsDir() }
func (i Info) IsRegular() bool { return i.Mode.IsRegular() }
func (i Info) IsSymlink() bool { return i.Mode&fs.ModeSymlink != 0 }

// DirEntry is one name in a directory. Type holds the type bits alone.
type DirEntry struct {
	Name string
	Type fs.FileMode
}

// OpenSized opens a file to read it, and returns its length in bytes.
func OpenSized(f FS, name string) (File, int64, error) {
	file, err := f.Open(name)
	if err != nil {
		return nil, 0, err
	}
	info, err := file.Stat()
	if err != nil {
		return nil, 0, errors.Join(err, file.Close())
	}
	return file, info.Size, nil
}

// ReadFile reads a whole small file.
func ReadFile(f FS, name string) ([]byte, error) {
	h, err := f.Open(name)
	if err != nil {
		return nil, err
	}
	defer h.Close()
	return io.ReadAll(h)
}

// RemoveAll removes a file, or a directory with all that is in it, if it exists.
func RemoveAll(f FS, name string) error {
	info, err := f.Lstat(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if info.IsDir() {
		list, err := f.ReadDir(name)
		if err != nil {
			return err
		}
		for _, e := range list {
			if err := RemoveAll(f, path.Join(name, e.Name)); err != nil {
				return err
			}
		}
	}
	if err := f.Remove(name); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// MkdirAll makes a directory and those above it that do not exist.
func MkdirAll(f FS, dir string, perm fs.FileMode) error {
	if dir == "." {
		return nil
	}
	if err := MkdirAll(f, path.Dir(dir), perm); err != nil {
		return err
	}
	if err := f.Mkdir(dir, perm); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return nil
}
