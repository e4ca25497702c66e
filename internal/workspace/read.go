package workspace

import (
	"context"

	"umbra/gitstore/object"
	"umbra/internal/errs"
	"umbra/internal/vfs"
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
	if err := w.checkFolder(); err != nil {
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
	if w.IsOwn(q) {
		return nil, &errs.Error{Kind: errs.BadPath, Code: "bad_path", Detail: "The path lies in a folder of the server's own.", Path: string(p)}
	}
	s, err := w.lstat(q)
	if err != nil {
		return nil, err
	}
	switch s.kind {
	case KindNone, KindSymlink:
		return nil, errNotFound(p)
	case KindDir:
		return nil, &errs.Error{Kind: errs.Conflict, Code: "is_a_directory", Detail: "The path is a directory.", Path: string(q)}
	case KindSpecial:
		return nil, errSpecial(q)
	}
	for range tries {
		o, same, err := w.openOnce(ctx, q)
		if err != nil || same {
			if isAbsent(err) {
				err = errNotFound(p)
			}
			return o, err
		}
	}
	return nil, errChanging(q)
}

// openKnown opens a file that the index knows by just this path, which so has
// no links in it, and that is still the same: most reads end here. Nil for
// anything else.
func (w *Workspace) openKnown(p wspath.Path) *Opened {
	info, err := w.fs.Lstat(string(p))
	if err != nil || !info.IsRegular() {
		return nil
	}
	id, known := w.index.Lookup(p, info)
	if !known {
		return nil
	}
	f, now, err := w.openRegular(p)
	if err != nil {
		return nil
	}
	if !sameContent(info, now) || info.CtimeNs != now.CtimeNs {
		f.Close()
		return nil
	}
	return &Opened{File: f, Info: now, Path: p, Mode: gitMode(now), Blob: id}
}

func (w *Workspace) openOnce(ctx context.Context, q wspath.Path) (*Opened, bool, error) {
	at := w.now()
	f, info, err := w.openRegular(q)
	if err != nil {
		return nil, false, err
	}
	o := &Opened{File: f, Info: info, Path: q, Mode: gitMode(info)}
	if t, ok := f.(*treefs.File); ok {
		o.Blob, o.Info.MtimeNs = t.ID, w.treeTime(q)
		return o, true, nil
	}
	if id, ok := w.index.Lookup(q, info); ok {
		o.Blob = id
		return o, true, nil
	}
	id, err := hashBlob(ctx, f, info.Size)
	after, serr := f.Stat()
	if err == nil && serr == nil && sameContent(info, after) {
		o.Blob = id
		if info.CtimeNs == after.CtimeNs {
			w.index.Put(q, info, id, o.Mode, at)
			return o, true, nil
		}
		// A write of ours gives the file that it replaces another name, and another
		// ctime: where writes come fast, that is each time.
		if now, lerr := w.fs.Lstat(string(q)); isAbsent(lerr) || lerr == nil && now.Ino != info.Ino {
			return o, true, nil
		}
	}
	f.Close()
	if err != nil && after.Size == info.Size {
		return nil, false, errs.Wrap(err, string(q))
	}
	return nil, false, errs.Wrap(serr, string(q))
}
