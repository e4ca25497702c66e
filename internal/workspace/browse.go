package workspace

import (
	"context"
	"errors"
	"io/fs"
	"syscall"
	"time"

	"umbra/gitstore/object"
	"umbra/internal/errs"
	"umbra/internal/vfs"
	"umbra/internal/workspace/disk"
	"umbra/internal/wspath"
)

// Looked is what stands at a path of the disk.
type Looked struct {
	Path wspath.Path // links resolved, as far as they lead somewhere
	Kind Kind        // of the target where a link was followed; KindSymlink: it leads nowhere
	Info vfs.Info    // likewise
	// Link says that the path itself is a symbolic link, and Target where to.
	Link   bool
	Target string
	// Blob is the id of a file's bytes; zero where it cannot be read, and for
	// everything else.
	Blob object.ID
}

// Stat looks at a path, following a link in it as long as it stays inside the
// root. A link that leads nowhere, or in a circle, is told as itself.
// errs.NotFound file_not_found, also for what leads out; errs.Conflict
// not_a_directory where a part of the path is a file, workspace_missing.
func (w *Workspace) Stat(ctx context.Context, p wspath.Path) (Looked, error) {
	if err := w.enter(); err != nil {
		return Looked{}, err
	}
	defer w.leave()
	if err := w.disk.Check(); err != nil {
		return Looked{}, err
	}
	l, s, err := w.stat(p)
	if err == nil {
		w.disk.Stamp(l.Path, &l.Info)
		s.Info.MtimeNs = l.Info.MtimeNs
	}
	if err != nil || s.Kind != KindFile {
		return l, err
	}
	switch err := w.disk.Identify(ctx, l.Path, &s); {
	case err == nil:
		l.Blob, l.Info = s.ID, s.Info
	case disk.IsAbsent(err), errs.Is(err, errs.NotFound):
		return Looked{}, disk.ErrNotFound(p)
	case errs.Is(err, errs.Forbidden), errs.Is(err, errs.Conflict):
		// Unreadable, or never still: what it holds cannot be told.
	default:
		return Looked{}, err
	}
	return l, nil
}

// stat is Stat without the bytes.
func (w *Workspace) stat(p wspath.Path) (Looked, disk.Seen, error) {
	v := newView(w, w.store.Snapshot(), nil)
	q, err := v.resolve(p, false)
	if err != nil {
		return Looked{}, disk.Seen{}, err
	}
	s, err := w.disk.Lstat(q)
	if err != nil {
		return Looked{}, s, err
	}
	l := Looked{Path: q, Kind: s.Kind, Info: s.Info}
	switch s.Kind {
	case KindNone:
		return Looked{}, s, disk.ErrNotFound(p)
	case KindSymlink:
	default:
		return l, s, nil
	}
	l.Link = true
	if l.Target, err = w.disk.FS.Readlink(string(q)); err != nil {
		if disk.IsAbsent(err) || errors.Is(err, syscall.EINVAL) {
			return Looked{}, s, disk.ErrNotFound(p) // replaced since
		}
		return Looked{}, s, errs.Wrap(err, string(p))
	}
	// The kernel says where it leads; the words only name the place.
	switch _, err := w.disk.FS.Stat(string(q)); {
	case err == nil:
	case errors.Is(err, vfs.ErrEscapes):
		return Looked{}, s, disk.ErrNotFound(p)
	case disk.IsAbsent(err), errors.Is(err, syscall.ELOOP), errors.Is(err, fs.ErrPermission):
		return l, s, nil
	default:
		return Looked{}, s, errs.Wrap(err, string(p))
	}
	if q, err = v.resolve(q, true); err != nil {
		return Looked{}, s, err
	}
	if s, err = w.disk.Lstat(q); err != nil {
		return Looked{}, s, err
	}
	if s.Kind == KindNone || s.Kind == KindSymlink {
		return Looked{}, s, disk.ErrNotFound(p) // replaced since
	}
	l.Path, l.Kind, l.Info = q, s.Kind, s.Info
	return l, s, nil
}

// Mtime gives the modification time of what stands at a path that Apply
// answered with; false if nothing does any more.
func (w *Workspace) Mtime(p wspath.Path) (time.Time, bool) {
	info, err := w.disk.FS.Lstat(string(p))
	w.disk.Stamp(p, &info)
	return time.Unix(0, info.MtimeNs), err == nil
}

// folderAt finds the folder that a listing is about, links followed.
func (w *Workspace) folderAt(p wspath.Path) (wspath.Path, error) {
	l, _, err := w.stat(p)
	if err != nil {
		return "", err
	}
	switch {
	case l.Kind == KindSymlink:
		return "", disk.ErrNotFound(p)
	case l.Kind != KindDir:
		return "", &errs.Error{Kind: errs.Invalid, Code: "not_a_directory", Detail: "That is no folder.", Path: string(p)}
	}
	return l.Path, nil
}
