package disk

import (
	"context"
	"errors"
	"hash"
	"io"
	"io/fs"
	"time"

	"umbra/gitstore"
	"umbra/gitstore/object"
	"umbra/internal/errs"
	"umbra/internal/rootfs"
	"umbra/internal/vfs"
	"umbra/internal/workspace/op"
	"umbra/internal/wspath"
)

// Seen is what was found at a path of the disk.
type Seen struct {
	Kind   op.Kind
	Info   vfs.Info
	Mode   object.Mode // git's, of files and links
	ID     object.ID   // of files and links, if identified
	target string      // a link's
	Known  bool        // ID is set
}

// KindOf returns the kind of an lstat's result.
func KindOf(m fs.FileMode) op.Kind {
	switch {
	case m.IsRegular():
		return op.KindFile
	case m.IsDir():
		return op.KindDir
	case m&fs.ModeSymlink != 0:
		return op.KindSymlink
	}
	return op.KindSpecial
}

// GitMode gives the mode that git records for a file or link.
func GitMode(info vfs.Info) object.Mode {
	switch {
	case info.IsSymlink():
		return object.Symlink
	case rootfs.Executable(info.Mode.Perm()):
		return object.Executable
	}
	return object.Regular
}

// Lstat checks a path without reading; nothing there is no error.
func (d *Disk) Lstat(p wspath.Path) (Seen, error) {
	info, err := d.FS.Lstat(string(p))
	switch {
	case err == nil:
		s := Seen{Kind: KindOf(info.Mode), Info: info}
		if s.Kind == op.KindFile || s.Kind == op.KindSymlink {
			s.Mode = GitMode(info)
		}
		return s, nil
	case IsAbsent(err):
		return Seen{}, nil
	}
	return Seen{}, errs.Wrap(err, string(p))
}

// IsAbsent reports whether an error means that nothing exists there.
func IsAbsent(err error) bool { return vfs.IsAbsent(err) }

// Identify finds out which blob a file or link is, reading it if its stat data
// does not show it.
func (d *Disk) Identify(ctx context.Context, p wspath.Path, s *Seen) error {
	if s.Known {
		return nil
	}
	switch s.Kind {
	case op.KindSymlink:
		target, err := d.FS.Readlink(string(p))
		if err != nil {
			return errs.Wrap(err, string(p))
		}
		s.target, s.ID, s.Known = target, object.Hash(object.Blob, []byte(target)), true
	case op.KindFile:
		if id, known, err := d.blobOf(p, s.Info); known || err != nil {
			s.ID, s.Known = id, known
			return err
		}
		at := d.Now()
		id, info, err := d.HashFile(ctx, p)
		if err != nil {
			return err
		}
		s.Info, s.Mode, s.ID, s.Known = info, GitMode(info), id, true
		d.Index.Put(p, info, id, s.Mode, at)
	}
	return nil
}

// Tries is how often a file that changes while it is read is read again.
const Tries = 5

// ErrChanging is answered for a file that never holds still.
func ErrChanging(p wspath.Path) error {
	return &errs.Error{Kind: errs.Conflict, Code: "file_changing", Detail: "The file keeps changing while it is read.", Path: string(p)}
}

// ErrSpecial is answered for FIFOs, sockets and devices, which are never
// opened.
func ErrSpecial(p wspath.Path) error {
	return &errs.Error{Kind: errs.Conflict, Code: "special_file", Detail: "The path is not a regular file.", Path: string(p)}
}

// Known returns which blob a file is where that needs no read.
func (d *Disk) Known(p wspath.Path, s Seen) (object.ID, bool) {
	id, known, err := d.blobOf(p, s.Info)
	return id, known && err == nil
}

// OpenRegular opens a regular file and returns its stat; a FIFO does not block.
func (d *Disk) OpenRegular(p wspath.Path) (vfs.File, vfs.Info, error) {
	f, err := d.FS.Open(string(p))
	if err != nil {
		return nil, vfs.Info{}, errs.Wrap(err, string(p))
	}
	info, err := f.Stat()
	if err == nil && !info.IsRegular() {
		err = ErrSpecial(p)
	}
	if err != nil {
		f.Close()
		return nil, info, errs.Wrap(err, string(p))
	}
	return f, info, nil
}

// SameContent reports whether a file cannot have been written between two
// looks, as far as its stat data shows.
func SameContent(a, b vfs.Info) bool {
	return a.Dev == b.Dev && a.Ino == b.Ino && a.Size == b.Size && a.MtimeNs == b.MtimeNs && a.Mode.Type() == b.Mode.Type()
}

// Stable calls read with a file until the file was the same before and after.
func (d *Disk) Stable(ctx context.Context, p wspath.Path, read func(f vfs.File, size int64) error) (vfs.Info, error) {
	for range Tries {
		if err := ctx.Err(); err != nil {
			return vfs.Info{}, errs.Wrap(err, string(p))
		}
		info, same, err := d.readOnce(p, read)
		if err != nil || same {
			return info, err
		}
	}
	return vfs.Info{}, ErrChanging(p)
}

func (d *Disk) readOnce(p wspath.Path, read func(f vfs.File, size int64) error) (vfs.Info, bool, error) {
	f, before, err := d.OpenRegular(p)
	if err != nil {
		return before, false, err
	}
	defer f.Close()
	err = read(f, before.Size)
	if errors.Is(err, io.ErrUnexpectedEOF) {
		return before, false, nil // it shrank
	}
	if err != nil {
		return before, false, errs.Wrap(err, string(p))
	}
	after, err := f.Stat()
	if err != nil {
		return before, false, errs.Wrap(err, string(p))
	}
	return after, SameContent(before, after) && before.CtimeNs == after.CtimeNs, nil
}

// HashFile gives the blob id of a file's bytes, in constant memory.
func (d *Disk) HashFile(ctx context.Context, p wspath.Path) (id object.ID, info vfs.Info, err error) {
	info, err = d.Stable(ctx, p, func(f vfs.File, size int64) error {
		id, err = HashBlob(ctx, f, size)
		return err
	})
	return id, info, err
}

// HashBlob hashes size bytes as a blob; io.ErrUnexpectedEOF if there are fewer.
func HashBlob(ctx context.Context, r io.ReaderAt, size int64) (id object.ID, err error) {
	h := object.NewHash(object.Blob, size)
	if err := copyAt(ctx, h, r, size); err != nil {
		return id, err
	}
	h.Sum(id[:0])
	return id, nil
}

// copyAt feeds size bytes to a hash.
func copyAt(ctx context.Context, h hash.Hash, r io.ReaderAt, size int64) error {
	buf := make([]byte, min(max(size, 1), 256<<10))
	for off := int64(0); off < size; {
		if err := ctx.Err(); err != nil {
			return err
		}
		n, err := r.ReadAt(buf[:min(int64(len(buf)), size-off)], off)
		h.Write(buf[:n])
		off += int64(n)
		if off < size && (err != nil || n == 0) {
			if err == nil || err == io.EOF {
				err = io.ErrUnexpectedEOF
			}
			return err
		}
	}
	return nil
}

// Capture makes a blob of what a file or link holds now, and updates what was
// seen. The caller commits or discards it.
func (d *Disk) Capture(ctx context.Context, p wspath.Path, s *Seen) (gitstore.Blob, error) {
	if s.Kind == op.KindSymlink {
		target, err := d.FS.Readlink(string(p))
		if err != nil {
			return gitstore.Blob{}, errs.Wrap(err, string(p))
		}
		b := d.Store.NewBlob([]byte(target))
		if err := b.Err(); err != nil {
			return b, err
		}
		s.target, s.ID, s.Known = target, b.ID(), true
		return b, nil
	}
	at := d.Now()
	var b gitstore.Blob
	info, err := d.Stable(ctx, p, func(f vfs.File, size int64) error {
		d.Store.Discard(b)
		var err error
		b, err = d.Store.StreamBlob(ctx, f, size)
		return err
	})
	if err != nil {
		d.Store.Discard(b)
		return gitstore.Blob{}, err
	}
	s.Info, s.Mode, s.ID, s.Known = info, GitMode(info), b.ID(), true
	d.Index.Put(p, info, b.ID(), s.Mode, at)
	return b, nil
}

// Remember notes in the index what a path holds.
func (d *Disk) Remember(p wspath.Path, info vfs.Info, id object.ID, mode object.Mode, at time.Time) {
	if mode != object.Symlink {
		d.Index.Put(p, info, id, mode, at)
	}
}

// ErrNotFound is answered for what is not there, or out of the root.
func ErrNotFound(p wspath.Path) error {
	return &errs.Error{Kind: errs.NotFound, Code: "file_not_found", Detail: "The file does not exist.", Path: string(p)}
}

func ErrNotDir(p wspath.Path) error {
	return &errs.Error{Kind: errs.Conflict, Code: "not_a_directory", Detail: "A part of the path is a file.", Path: string(p)}
}

// ReadAll reads size bytes; io.ErrUnexpectedEOF if there are fewer.
func ReadAll(r io.ReaderAt, size int64) ([]byte, error) {
	data := make([]byte, size)
	n, err := r.ReadAt(data, 0)
	if int64(n) < size {
		if err == nil || err == io.EOF {
			err = io.ErrUnexpectedEOF
		}
		return nil, err
	}
	return data, nil
}

// IgnoreAbsent is nil for an error which says that nothing is there.
func IgnoreAbsent(err error) error {
	if err == nil || IsAbsent(err) {
		return nil
	}
	return errs.Wrap(err, "")
}
