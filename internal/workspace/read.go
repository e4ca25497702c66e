package workspace

import (
	"context"

	"umbra/gitstore/object"
	"umbra/internal/errs"
	"umbra/internal/vfs"
	"umbra/internal/workspace/disk"
	"umbra/internal/workspace/treefs"
	"umbra/internal/wspath"
)

// Opened is a file on disk, open for reading. It is the file that stood at the
// path when it was opened: a write of ours puts another in its place and does
// not change it.
type Opened struct {
	vfs.File
	Info vfs.Info
	Path wspath.Path // links resolved
	Mode object.Mode
	// Blob is the id of the bytes that the file had when it was opened.
	Blob object.ID
}

// OpenFile opens what is on disk now. Links are followed inside the root.
// errs.NotFound file_not_found, errs.Conflict is_a_directory, not_a_directory,
// special_file, workspace_missing. The caller closes it.
func (w *Workspace) OpenFile(ctx context.Context, p wspath.Path) (*Opened, error) {
	if err := w.enter(); err != nil {
		return nil, err
	}
	defer w.leave()
	if err := w.disk.Check(); err != nil {
		return nil, err
	}
	if o := w.openKnown(p); o != nil {
		return o, nil
	}
	v := newView(w, w.store.Snapshot(), nil)
	q, err := v.resolve(p, true)
	if err != nil {
		return nil, err
	}
	if w.disk.IsOwn(q) {
		return nil, &errs.Error{Kind: errs.BadPath, Code: "bad_path", Detail: "The path lies in a folder of the server's own.", Path: string(p)}
	}
	s, err := w.disk.Lstat(q)
	if err != nil {
		return nil, err
	}
	switch s.Kind {
	case KindNone, KindSymlink:
		return nil, disk.ErrNotFound(p)
	case KindDir:
		return nil, &errs.Error{Kind: errs.Conflict, Code: "is_a_directory", Detail: "The path is a directory.", Path: string(q)}
	case KindSpecial:
		return nil, disk.ErrSpecial(q)
	}
	for range disk.Tries {
		o, same, err := w.openOnce(ctx, q)
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
func (w *Workspace) openKnown(p wspath.Path) *Opened {
	info, err := w.disk.FS.Lstat(string(p))
	if err != nil || !info.IsRegular() {
		return nil
	}
	id, known := w.disk.Index.Lookup(p, info)
	if !known {
		return nil
	}
	f, now, err := w.disk.OpenRegular(p)
	if err != nil {
		return nil
	}
	if !disk.SameContent(info, now) || info.CtimeNs != now.CtimeNs {
		f.Close()
		return nil
	}
	return &Opened{File: f, Info: now, Path: p, Mode: disk.GitMode(now), Blob: id}
}

func (w *Workspace) openOnce(ctx context.Context, q wspath.Path) (*Opened, bool, error) {
	at := w.now()
	f, info, err := w.disk.OpenRegular(q)
	if err != nil {
		return nil, false, err
	}
	o := &Opened{File: f, Info: info, Path: q, Mode: disk.GitMode(info)}
	if t, ok := f.(*treefs.File); ok {
		o.Blob = t.ID
		w.disk.Stamp(q, &o.Info)
		return o, true, nil
	}
	if id, ok := w.disk.Index.Lookup(q, info); ok {
		o.Blob = id
		return o, true, nil
	}
	id, err := disk.HashBlob(ctx, f, info.Size)
	after, serr := f.Stat()
	if err == nil && serr == nil && disk.SameContent(info, after) {
		o.Blob = id
		if info.CtimeNs == after.CtimeNs {
			w.disk.Index.Put(q, info, id, o.Mode, at)
			return o, true, nil
		}
		// A write of ours gives the file that it replaces another name, and another
		// ctime: where writes come fast, that is each time.
		if now, lerr := w.disk.FS.Lstat(string(q)); disk.IsAbsent(lerr) || lerr == nil && now.Ino != info.Ino {
			return o, true, nil
		}
	}
	f.Close()
	if err != nil && after.Size == info.Size {
		return nil, false, errs.Wrap(err, string(q))
	}
	return nil, false, errs.Wrap(serr, string(q))
}
