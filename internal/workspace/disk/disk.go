package disk

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"slices"
	"sync/atomic"
	"syscall"
	"time"

	"umbra/gitstore"
	"umbra/gitstore/object"
	"umbra/internal/errs"
	"umbra/internal/ignore"
	"umbra/internal/rootfs"
	"umbra/internal/vfs"
	"umbra/internal/workspace/host"
	"umbra/internal/workspace/index"
	"umbra/internal/wspath"
)

// Disk is the content of a workspace: a directory, or the newest tree of its
// history. Its methods may be called from any goroutine.
type Disk struct {
	medium
	Dir   string // host path of the directory; empty: the workspace is virtual
	Host  host.Host
	FS    vfs.FS // what is in the directory, or in the tree
	Root  *rootfs.Root
	Files vfs.FS // the workspace's directory in the data directory
	Store *gitstore.Store
	Index *index.Index
	Epoch string        // names the boot and the mounts (host.Host)
	Own   []wspath.Path // the server's own directories inside of it
	Now   func() time.Time

	aside    vfs.FS // for displaced files, in Files; nil: there is none
	canWrite atomic.Bool
}

// medium is what a directory and a tree do each in their own way.
type medium interface {
	// Physical reports whether there is a directory, which other processes change
	// and to which changes have to be materialized.
	Physical() bool
	// Check fails with ErrMissing unless the content that was opened is still there.
	Check() error
	// Missing reports whether the last Check failed.
	Missing() bool
	// Back reports whether the directory was missing when it was opened and exists
	// now.
	Back() bool
	// blobOf returns which blob a file is, where that is known without reading it.
	blobOf(p wspath.Path, info vfs.Info) (id object.ID, known bool, err error)
	// Stamp sets the modification time of what is at a path.
	Stamp(ctx context.Context, p wspath.Path, info *vfs.Info) error
	// StampNear is like Stamp; 0 where the time would have to be fetched.
	StampNear(ctx context.Context, p wspath.Path, info *vfs.Info) error
	// Wrote notes that a commit made a file what it is.
	Wrote(e gitstore.Entry, when time.Time)
	// GitRules returns the exclude file and the index of the project's own
	// repository, nil where there is none.
	GitRules() ([]byte, *ignore.Index, error)
	// EvictIdle frees what GitRules kept and was not used lately.
	EvictIdle(now time.Time)
	// header ties the file of the index to the content; nil: it is not written.
	header() []byte
	use(*gitstore.Store)
}

// DiskOptions are what a Disk is opened with.
type Options struct {
	Root string // canonical host path of the directory; empty: the newest tree
	Dir  string // host path of the workspace's part of the data directory
	Host host.Host
	// Dev and Ino are those of the directory that the workspace was bound to.
	Dev, Ino uint64
	// Absent is set where that directory is not at Root. An empty one in memory is
	// in its place then, which nothing reads: every request checks first.
	Absent  bool
	Back    func() bool // whether it is at Root again
	Own     []wspath.Path
	Staging *rootfs.Staging // where new content is prepared; nil: next to its target
	Log     *slog.Logger
	Now     func() time.Time
}

// OpenDisk opens the content of a workspace. Use must be called before anything
// else is done with it.
func Open(o Options) (*Disk, error) {
	d := &Disk{Dir: o.Root, Host: o.Host, Index: index.New(), Own: o.Own, Now: o.Now}
	d.canWrite.Store(true)
	var err error
	if d.Files, err = o.Host.Open(o.Dir); err != nil {
		return nil, errs.Wrap(err, "")
	}
	if o.Root == "" {
		d.Epoch = o.Host.Epoch(o.Dir)
		err = d.openTree()
	} else {
		d.Epoch = o.Host.Epoch(o.Root, o.Dir)
		err = d.openFolder(o)
	}
	if err != nil {
		return nil, errors.Join(errs.Wrap(err, ""), d.Files.Close())
	}
	return d, nil
}

// Use sets the history that the content belongs to.
func (d *Disk) Use(s *gitstore.Store) {
	d.Store = s
	d.use(s)
}

// Close closes what OpenDisk opened. The store is the caller's.
func (d *Disk) Close() error {
	var err error
	if d.aside != nil {
		err = d.aside.Close()
	}
	return errors.Join(err, d.Files.Close(), d.FS.Close())
}

// ErrMissing is the error of calls while the directory is missing.
func ErrMissing() error {
	return errs.New(errs.Conflict, "workspace_missing", "The workspace's directory is gone, or another one is in its place.")
}

// ErrVirtual is returned for what only a directory can be asked.
func ErrVirtual() error {
	return errs.New(errs.Conflict, "workspace_virtual", "The workspace is virtual: it has no directory.")
}

// ReadOnly reports whether the directory cannot be written, by trying.
func (d *Disk) ReadOnly() bool {
	f, err := d.FS.CreateUnlinked(".", 0o600)
	if err == nil {
		f.Close()
	} else if errors.Is(err, errors.ErrUnsupported) {
		name := wspath.TempName(0xffffffff << 32)
		if f, err = d.FS.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600); err == nil {
			f.Close()
			err = d.FS.Remove(name)
		}
	}
	no := errors.Is(err, fs.ErrPermission) || errors.Is(err, syscall.EROFS)
	d.canWrite.Store(!no)
	return no
}

// CanWrite reports whether the directory could be written when that was last tried.
func (d *Disk) CanWrite() bool { return d.canWrite.Load() }

// Readable fails for a directory that cannot be listed.
func (d *Disk) Readable() error {
	_, err := d.FS.ReadDir(".")
	if errors.Is(err, fs.ErrPermission) {
		return errs.New(errs.Invalid, "workspace_not_readable", "The workspace cannot be read.")
	}
	return errs.Wrap(err, "")
}

// IsOwn reports whether a path is, or is in, one of the server's own directories.
func (d *Disk) IsOwn(p wspath.Path) bool {
	return slices.ContainsFunc(d.Own, p.Within)
}

// SaveIndex writes what is known of the files if it has changed since it was last
// written.
func (d *Disk) SaveIndex() error {
	if h := d.header(); h != nil {
		return d.Index.Save(d.Files, h)
	}
	return nil
}

// LoadIndex reads what the last run knew of the files.
func (d *Disk) LoadIndex() error {
	if h := d.header(); h != nil {
		return d.Index.Load(d.Files, h)
	}
	return nil
}
