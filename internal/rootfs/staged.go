package rootfs

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"syscall"

	"umbra/internal/filestamp"
	"umbra/internal/vfs"
	"umbra/internal/wspath"
)

// Staged is new content on its way: a file without a name (O_TMPFILE), or one
// with a temporary name where the file system has no such thing, of mode 0600.
// It is written once, then placed or discarded. Not for concurrent use.
type Staged struct {
	r      *Root
	file   vfs.File
	shared bool   // it was made in staging
	name   string // its temporary name, empty while it has none
	aside  bool   // which is one in the folder aside
	dev    uint64
	ino    uint64
	size   int64

	mtime  int64 // of the finished content
	placed bool
	// parked is its name in staging while it is closed, empty otherwise. closes
	// says that it is opened for one call at a time only.
	parked string
	closes bool
	last   vfs.Info // as it was when it was last closed
	// nameless: it had a name and lost it, so that it can only be copied.
	nameless bool
}

// Stage opens room for new content for a target: in the folder for staging, in
// the target's own, or in the nearest one above that exists.
func (r *Root) Stage(target wspath.Path) (*Staged, error) {
	return r.stage(target, r.staging != nil && !r.apart.Load())
}

func (r *Root) stage(target wspath.Path, shared bool) (*Staged, error) {
	for dir := target.Dir(); ; dir = dir.Dir() {
		s, err := r.stageFor(dir, shared)
		if err == nil || dir.IsRoot() {
			return s, err
		}
		// Whether the target can be placed there is for the caller to judge: a
		// directory that is missing, a file or a link now may be replaced before.
		if !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, syscall.ENOTDIR) && !errors.Is(err, syscall.ELOOP) && !errors.Is(err, vfs.ErrEscapes) {
			return s, err
		}
	}
}

// stageFor makes a file in staging if one made in the folder would be the same,
// else in the folder.
func (r *Root) stageFor(dir wspath.Path, shared bool) (*Staged, error) {
	p, ok := r.fs.(plainer)
	if !shared || !ok {
		return r.stageIn(dir)
	}
	dev, plain, err := p.Plain(string(dir))
	if errors.Is(err, fs.ErrPermission) || err == nil && (!plain || dev != r.staging.dev) {
		return r.stageIn(dir)
	}
	if err != nil {
		return nil, err
	}
	f, err := r.staging.create()
	if err != nil {
		return r.stageIn(dir)
	}
	r.staging.held.Add(1)
	return &Staged{r: r, file: f, shared: true}, nil
}

func (r *Root) stageIn(dir wspath.Path) (*Staged, error) {
	if !r.noUnlinked.Load() {
		f, err := r.fs.CreateUnlinked(string(dir), 0o600)
		if err == nil {
			return &Staged{r: r, file: f}, nil
		}
		if !errors.Is(err, errors.ErrUnsupported) {
			return nil, err
		}
		r.noUnlinked.Store(true)
	}
	making := tempIn(dir.Join("x"), makingDigits())
	f, err := r.fs.OpenFile(making, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return nil, err
	}
	s := &Staged{r: r, file: f, name: making}
	info, err := f.Stat()
	if err == nil {
		s.ino = info.Ino
		name := tempIn(dir.Join("x"), s.ino)
		if err = r.fs.RenameNoReplace(making, name); err == nil {
			s.name = name
			return s, nil
		}
	}
	s.Discard()
	return nil, err
}

// Write appends.
func (s *Staged) Write(p []byte) (int, error) {
	n, err := s.file.WriteAt(p, s.size)
	s.size += int64(n)
	return n, err
}

// ReadAt reads what was written.
func (s *Staged) ReadAt(p []byte, off int64) (int, error) {
	closeAgain, err := s.open()
	if err != nil {
		return 0, err
	}
	defer closeAgain()
	return s.file.ReadAt(p, off)
}

// Size is the number of bytes written.
func (s *Staged) Size() int64 { return s.size }

// Reserve takes room for a size that is known beforehand.
func (s *Staged) Reserve(size int64) error { return s.file.Allocate(size) }

// Finish ends the writing: the size is made what was written, and the write-out
// is begun, so that a power cut after the exchange finds the bytes on disk
// (RENAME_EXCHANGE does not flush, unlike rename over a file).
func (s *Staged) Finish() error {
	info, err := s.file.Stat()
	if err != nil {
		return err
	}
	s.dev, s.ino = info.Dev, info.Ino
	if info.Size != s.size {
		if err := s.file.Truncate(s.size); err != nil {
			return err
		}
		if info, err = s.file.Stat(); err != nil {
			return err
		}
	}
	s.mtime = info.MtimeNs
	return s.file.StartWriteout()
}

// Stamp marks the finished file as the one that was to hold a blob (package
// filestamp), as far as the file system keeps such times.
func (s *Staged) Stamp(blob [20]byte) {
	at := filestamp.Mtime(s.mtime, s.ino, blob)
	if s.file == nil || s.file.SetMtime(at) != nil {
		return
	}
	if info, err := s.file.Stat(); err == nil { // rounded, maybe
		s.mtime = info.MtimeNs
	}
}

// Discard drops content that is not placed, and closes what is. It returns the
// name that could not be removed, nil otherwise.
func (s *Staged) Discard() (left *Displaced) {
	if s == nil {
		return nil
	}
	s.closeFile()
	s.unpark()
	if s.name != "" {
		if err := s.r.at(s.aside).Remove(s.name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			left = &Displaced{Temp: s.name, aside: s.aside}
		}
		s.name, s.aside = "", false
	}
	return left
}

// Info checks the file as it is now.
func (s *Staged) Info() (vfs.Info, error) {
	if s.file != nil {
		return s.file.Stat()
	}
	if s.last.Ino == 0 {
		return vfs.Info{}, &fs.PathError{Op: "stat", Path: "staged file", Err: syscall.ESTALE}
	}
	return s.last, nil
}

// Wrote reports whether another process wrote to the file since it was prepared, by its
// stat data.
func (s *Staged) Wrote(info vfs.Info) bool { return info.MtimeNs != s.mtime }

// Place gives the content its name, which must be free: fs.ErrExist if
// something is there. The bits are set before.
func (s *Staged) Place(target wspath.Path, perm fs.FileMode) error {
	closeAgain, err := s.open()
	if err != nil {
		return err
	}
	defer closeAgain()
	if err := s.file.Chmod(perm); err != nil {
		return err
	}
	switch {
	case s.aside:
		err = s.come(string(target))
	case s.name != "":
		err = s.r.fs.RenameNoReplace(s.name, string(target))
	case s.nameless:
		err = &fs.PathError{Op: "place", Path: string(target), Err: syscall.ENOENT}
	default:
		err = s.link(string(target))
	}
	if err == nil {
		s.name, s.placed = "", true
		s.unpark()
	}
	return err
}

// Swap puts the content in place of what is at the target, with the
// permission bits perm, and returns the displaced file, together with an error if
// it could not be checked. fs.ErrNotExist if the target does not exist any more.
func (s *Staged) Swap(target wspath.Path, perm fs.FileMode) (*Displaced, error) {
	closeAgain, err := s.open()
	if err != nil {
		return nil, err
	}
	defer closeAgain()
	if err := s.file.Chmod(perm); err != nil {
		return nil, err
	}
	d, err := s.swap(target)
	if d != nil {
		s.unpark()
	}
	return d, err
}

func (s *Staged) swap(target wspath.Path) (*Displaced, error) {
	if s.nameless {
		return nil, &fs.PathError{Op: "swap", Path: string(target), Err: syscall.ENOENT}
	}
	if d, err := s.swapAside(target); d != nil || err != nil {
		return d, err
	}
	temp := tempIn(target, s.ino)
	switch {
	case s.aside:
		if err := s.come(temp); err != nil {
			return nil, err
		}
	case s.name == "":
		if err := s.link(temp); err != nil {
			return nil, err
		}
	case s.name != temp:
		if err := s.r.fs.RenameNoReplace(s.name, temp); err != nil {
			return nil, err
		}
	}
	s.name = temp
	d, err := s.r.exchange(temp, target)
	if d != nil {
		s.name, s.placed = "", true
	}
	return d, err
}

// link gives the file its first name. That a file of staging is not let in is
// syscall.EXDEV, whatever the reason: what was prepared in the target's folder
// may be.
func (s *Staged) link(name string) error {
	return s.letIn(name, s.r.fs.LinkFile(s.file, name))
}

func (s *Staged) letIn(name string, err error) error {
	if !s.shared || !errors.Is(err, syscall.EXDEV) && !errors.Is(err, fs.ErrPermission) {
		return err
	}
	if errors.Is(err, syscall.EXDEV) {
		s.r.apart.Store(true)
	}
	return &fs.PathError{Op: "link", Path: name, Err: syscall.EXDEV}
}

// Copy makes the same content once more, for a target: in its own folder, and
// with another inode.
func (s *Staged) Copy(target wspath.Path) (*Staged, error) {
	closeAgain, err := s.open()
	if err != nil {
		return nil, err
	}
	defer closeAgain()
	c, err := s.r.stage(target, false)
	if err != nil {
		return nil, err
	}
	if _, err = io.Copy(c, io.NewSectionReader(s.file, 0, s.size)); err == nil {
		err = c.Finish()
	}
	if err != nil {
		c.Discard()
		return nil, err
	}
	return c, nil
}

// Attributes is what a File offers where it can copy owner, ACL and extended
// attributes from another; what may not be set is left.
type Attributes interface {
	CopyAttributes(from vfs.File)
}

// TakeAttributes copies owner, ACL and extended attributes of what is at a
// path, as far as the server may set them.
func (s *Staged) TakeAttributes(from wspath.Path) {
	closeAgain, err := s.open()
	if err != nil {
		return
	}
	defer closeAgain()
	a, ok := s.file.(Attributes)
	if !ok {
		return
	}
	f, err := s.r.fs.Open(string(from))
	if err != nil {
		return
	}
	defer f.Close()
	a.CopyAttributes(f)
}

// Reclaim takes content back that was placed and has come out again: it can be
// placed once more.
func (s *Staged) Reclaim(out *Displaced) {
	s.name, s.aside, s.placed = out.Temp, out.aside, false
	if s.closes {
		s.takeBack()
	}
}

// Is reports whether a file on disk is this content, unchanged since it was
// finished.
func (s *Staged) Is(info vfs.Info) bool {
	if s.file != nil { // newer than info
		own, err := s.file.Stat()
		if err != nil || own.Size != s.size || own.MtimeNs != s.mtime {
			return false
		}
	}
	return info.Dev == s.dev && info.Ino == s.ino && info.Size == s.size && info.MtimeNs == s.mtime
}

// Placed reports whether the content has its name in the workspace.
func (s *Staged) Placed() bool { return s.placed }

// Follow notes that a folder was renamed: a temporary name in it is another one
// now.
func (s *Staged) Follow(from, to wspath.Path) {
	if s == nil || s.name == "" || s.aside {
		return
	}
	if rel, ok := wspath.Path(s.name).Rel(from); ok {
		s.name = string(to.Join(string(rel)))
	}
}

// Leave removes the temporary name if it is in a folder that is to go. The
// bytes are still there, for Copy.
func (s *Staged) Leave(dir wspath.Path) {
	if s == nil || s.name == "" || s.aside || wspath.Path(s.name).Dir() != dir {
		return
	}
	if s.parked == "" {
		if _, err := s.keepOpen(); err != nil {
			return // closed, it has nothing but its name
		}
	}
	if s.r.fs.Remove(s.name) == nil {
		s.name, s.nameless = "", true
	}
}

// Lost reports whether the temporary name leads nowhere any more, because the
// folder that it is in is gone: the bytes are still there, for Copy.
func (s *Staged) Lost() bool {
	if s.nameless {
		return true
	}
	if s.name == "" {
		return false
	}
	_, err := s.r.at(s.aside).Lstat(s.name)
	return errors.Is(err, fs.ErrNotExist)
}
