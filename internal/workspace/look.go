package workspace

import (
	"context"
	"crypto/sha1"
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
	"umbra/internal/wspath"
)

// seen is what was found at a path of the disk.
type seen struct {
	kind   Kind
	info   vfs.Info
	mode   object.Mode // git's, of files and links
	id     object.ID   // of files and links, if identified
	target string      // a link's
	known  bool        // id is set
}

// kindOf tells the kind of what lstat found.
func kindOf(m fs.FileMode) Kind {
	switch {
	case m.IsRegular():
		return KindFile
	case m.IsDir():
		return KindDir
	case m&fs.ModeSymlink != 0:
		return KindSymlink
	}
	return KindSpecial
}

// gitMode gives the mode that git records for a file or link.
func gitMode(info vfs.Info) object.Mode {
	switch {
	case info.IsSymlink():
		return object.Symlink
	case rootfs.Executable(info.Mode.Perm()):
		return object.Executable
	}
	return object.Regular
}

// lstat looks at a path without reading; nothing there is no error.
func (w *Workspace) lstat(p wspath.Path) (seen, error) {
	info, err := w.fs.Lstat(string(p))
	switch {
	case err == nil:
		s := seen{kind: kindOf(info.Mode), info: info}
		if s.kind == KindFile || s.kind == KindSymlink {
			s.mode = gitMode(info)
		}
		return s, nil
	case isAbsent(err):
		return seen{}, nil
	}
	return seen{}, errs.Wrap(err, string(p))
}

// isAbsent reports whether an error says that nothing stands there.
func isAbsent(err error) bool { return vfs.IsAbsent(err) }

// identify finds out which blob a file or link is, reading it if its stat data
// does not tell.
func (w *Workspace) identify(ctx context.Context, p wspath.Path, s *seen) error {
	if s.known {
		return nil
	}
	switch s.kind {
	case KindSymlink:
		target, err := w.fs.Readlink(string(p))
		if err != nil {
			return errs.Wrap(err, string(p))
		}
		s.target, s.id, s.known = target, object.Hash(object.Blob, []byte(target)), true
	case KindFile:
		if w.virtual != nil {
			e, _, err := w.store.Snapshot().Lookup(p)
			s.id, s.known = e.ID, err == nil
			return err
		}
		if id, ok := w.index.Lookup(p, s.info); ok {
			s.id, s.known = id, true
			return nil
		}
		at := w.now()
		id, info, err := w.hashFile(ctx, p)
		if err != nil {
			return err
		}
		s.info, s.mode, s.id, s.known = info, gitMode(info), id, true
		w.index.Put(p, info, id, s.mode, at)
	}
	return nil
}

// tries is how often a file that changes while it is read is read again.
const tries = 5

// errChanging is answered for a file that never holds still.
func errChanging(p wspath.Path) error {
	return &errs.Error{Kind: errs.Conflict, Code: "file_changing", Detail: "The file keeps changing while it is read.", Path: string(p)}
}

// errSpecial is answered for FIFOs, sockets and devices, which are never
// opened.
func errSpecial(p wspath.Path) error {
	return &errs.Error{Kind: errs.Conflict, Code: "special_file", Detail: "That is no regular file.", Path: string(p)}
}

// openRegular opens a regular file and tells its stat; a FIFO does not block.
func (w *Workspace) openRegular(p wspath.Path) (vfs.File, vfs.Info, error) {
	f, err := w.fs.Open(string(p))
	if err != nil {
		return nil, vfs.Info{}, errs.Wrap(err, string(p))
	}
	info, err := f.Stat()
	if err == nil && !info.IsRegular() {
		err = errSpecial(p)
	}
	if err != nil {
		f.Close()
		return nil, info, errs.Wrap(err, string(p))
	}
	return f, info, nil
}

// sameContent reports whether a file cannot have been written between two
// looks, as far as its stat data tells.
func sameContent(a, b vfs.Info) bool {
	return a.Dev == b.Dev && a.Ino == b.Ino && a.Size == b.Size && a.MtimeNs == b.MtimeNs && a.Mode.Type() == b.Mode.Type()
}

// stable calls read with a file until the file was the same before and after.
func (w *Workspace) stable(ctx context.Context, p wspath.Path, read func(f vfs.File, size int64) error) (vfs.Info, error) {
	for range tries {
		if err := ctx.Err(); err != nil {
			return vfs.Info{}, errs.Wrap(err, string(p))
		}
		info, same, err := w.readOnce(p, read)
		if err != nil || same {
			return info, err
		}
	}
	return vfs.Info{}, errChanging(p)
}

func (w *Workspace) readOnce(p wspath.Path, read func(f vfs.File, size int64) error) (vfs.Info, bool, error) {
	f, before, err := w.openRegular(p)
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
	return after, sameContent(before, after) && before.CtimeNs == after.CtimeNs, nil
}

// hashFile gives the blob id of a file's bytes, in constant memory.
func (w *Workspace) hashFile(ctx context.Context, p wspath.Path) (id object.ID, info vfs.Info, err error) {
	info, err = w.stable(ctx, p, func(f vfs.File, size int64) error {
		id, err = hashBlob(ctx, f, size)
		return err
	})
	return id, info, err
}

// hashBlob hashes size bytes as a blob; io.ErrUnexpectedEOF if there are fewer.
func hashBlob(ctx context.Context, r io.ReaderAt, size int64) (id object.ID, err error) {
	h := sha1.New()
	h.Write(object.Header(object.Blob, size))
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

// capture makes a blob of what a file or link holds now, and updates what was
// seen. The caller commits or discards it.
func (w *Workspace) capture(ctx context.Context, p wspath.Path, s *seen) (gitstore.Blob, error) {
	if s.kind == KindSymlink {
		target, err := w.fs.Readlink(string(p))
		if err != nil {
			return gitstore.Blob{}, errs.Wrap(err, string(p))
		}
		b := w.store.NewBlob([]byte(target))
		if err := b.Err(); err != nil {
			return b, err
		}
		s.target, s.id, s.known = target, b.ID(), true
		return b, nil
	}
	at := w.now()
	var b gitstore.Blob
	info, err := w.stable(ctx, p, func(f vfs.File, size int64) error {
		w.store.Discard(b)
		var err error
		b, err = w.store.StreamBlob(ctx, f, size)
		return err
	})
	if err != nil {
		w.store.Discard(b)
		return gitstore.Blob{}, err
	}
	s.info, s.mode, s.id, s.known = info, gitMode(info), b.ID(), true
	w.index.Put(p, info, b.ID(), s.mode, at)
	return b, nil
}

// remember notes in the index what a path holds.
func (w *Workspace) remember(p wspath.Path, info vfs.Info, id object.ID, mode object.Mode, at time.Time) {
	if mode != object.Symlink {
		w.index.Put(p, info, id, mode, at)
	}
}
