package browse

import (
	"context"
	"errors"
	"io"

	"umbra/gitstore"
	"umbra/gitstore/object"
	"umbra/internal/errs"
	"umbra/internal/vfs"
	"umbra/internal/workspace/disk"
	"umbra/internal/workspace/op"
	"umbra/internal/workspace/plan"
	"umbra/internal/workspace/treefs"
	"umbra/internal/wspath"
)

// Opened is a file on disk, open for reading. It is the file that was at the
// path when it was opened: one of our writes puts another in its place and does
// not change it.
type Opened struct {
	vfs.File
	Info vfs.Info    // its MtimeNs is 0 where only Mtime finds the time, in a history that is being fetched
	Path wspath.Path // links resolved
	Mode object.Mode
	// Blob is the id of the bytes that the file had when it was opened.
	Blob object.ID
}

// OpenFile opens what is on disk now. Links are followed inside the root.
// errs.NotFound file_not_found, errs.Conflict is_a_directory, not_a_directory,
// special_file, workspace_missing. The caller closes it.
func (r *Reader) OpenFile(ctx context.Context, p wspath.Path) (*Opened, error) {
	if o := r.openKnown(p); o != nil {
		return o, nil
	}
	v := plan.NewView(r.disk, gitstore.Snapshot{}, nil)
	q, err := v.Resolve(p, true)
	if err != nil {
		return nil, err
	}
	if r.disk.IsOwn(q) {
		return nil, &errs.Error{Kind: errs.BadPath, Code: "bad_path", Detail: "The path is in a directory of the server's own.", Path: string(p)}
	}
	s, err := r.disk.Lstat(q)
	if err != nil {
		return nil, err
	}
	switch s.Kind {
	case op.KindNone, op.KindSymlink:
		return nil, disk.ErrNotFound(p)
	case op.KindDir:
		return nil, &errs.Error{Kind: errs.Conflict, Code: "is_a_directory", Detail: "The path is a directory.", Path: string(q)}
	case op.KindSpecial:
		return nil, disk.ErrSpecial(q)
	}
	for range disk.Tries {
		o, same, err := r.openOnce(ctx, q)
		if err != nil || same {
			if disk.IsAbsent(err) {
				err = disk.ErrNotFound(p)
			}
			return o, err
		}
	}
	return nil, disk.ErrChanging(q)
}

// openKnown opens a file that the index knows by just this path, which so has
// no links in it, and that is still the same: most reads end here. Nil for
// anything else.
func (r *Reader) openKnown(p wspath.Path) *Opened {
	info, err := r.disk.FS.Lstat(string(p))
	if err != nil || !info.IsRegular() {
		return nil
	}
	id, known := r.disk.Index.Lookup(p, info)
	if !known {
		return nil
	}
	f, now, err := r.disk.OpenRegular(p)
	if err != nil {
		return nil
	}
	if !disk.SameContent(info, now) || info.CtimeNs != now.CtimeNs {
		f.Close()
		return nil
	}
	return &Opened{File: f, Info: now, Path: p, Mode: disk.GitMode(now), Blob: id}
}

func (r *Reader) openOnce(ctx context.Context, q wspath.Path) (*Opened, bool, error) {
	at := r.disk.Now()
	f, info, err := r.disk.OpenRegular(q)
	if err != nil {
		return nil, false, err
	}
	o := &Opened{File: f, Info: info, Path: q, Mode: disk.GitMode(info)}
	if t, ok := f.(*treefs.File); ok {
		o.Blob = t.ID
		if err := r.disk.StampNear(ctx, q, &o.Info); err != nil {
			f.Close()
			return nil, false, err
		}
		return o, true, nil
	}
	if id, ok := r.disk.Index.Lookup(q, info); ok {
		o.Blob = id
		return o, true, nil
	}
	id, err := disk.HashBlob(ctx, f, info.Size)
	after, serr := f.Stat()
	if err == nil && serr == nil && disk.SameContent(info, after) {
		o.Blob = id
		if info.CtimeNs == after.CtimeNs {
			r.disk.Index.Put(q, info, id, o.Mode, at)
			return o, true, nil
		}
		// One of our writes gives the file that it replaces another name, and another
		// ctime: where writes come fast, that is each time.
		if now, lerr := r.disk.FS.Lstat(string(q)); disk.IsAbsent(lerr) || lerr == nil && now.Ino != info.Ino {
			return o, true, nil
		}
	}
	f.Close()
	if errors.Is(err, io.ErrUnexpectedEOF) {
		err = nil // it shrank
	}
	return nil, false, errs.Wrap(errors.Join(err, serr), string(q))
}
