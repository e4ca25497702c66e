package browse

import (
	"context"
	"errors"
	"io/fs"
	"syscall"
	"time"

	"umbra/gitstore"
	"umbra/gitstore/object"
	"umbra/internal/errs"
	"umbra/internal/vfs"
	"umbra/internal/workspace/disk"
	"umbra/internal/workspace/op"
	"umbra/internal/workspace/plan"
	"umbra/internal/wspath"
)

// Looked is what is at a path of the disk.
type Looked struct {
	Path wspath.Path // links resolved, as far as they lead somewhere
	Kind op.Kind     // of the target where a link was followed; KindSymlink: it leads nowhere
	Info vfs.Info    // likewise
	// Link says that the path itself is a symbolic link, and Target where to.
	Link   bool
	Target string
	// Blob is the id of a file's bytes; zero where it cannot be read, and for
	// everything else.
	Blob object.ID
}

// Stat checks a path, following a link in it as long as it stays inside the
// root. A link that leads nowhere, or in a circle, is described itself.
// errs.NotFound file_not_found, also for what leads out; errs.Conflict
// not_a_directory where a part of the path is a file, workspace_missing.
func (r *Reader) Stat(ctx context.Context, p wspath.Path) (Looked, error) {
	l, s, err := r.stat(p)
	if err == nil {
		err = r.disk.Stamp(ctx, l.Path, &l.Info)
		s.Info.MtimeNs = l.Info.MtimeNs
	}
	if err != nil || s.Kind != op.KindFile {
		return l, err
	}
	switch err := r.disk.Identify(ctx, l.Path, &s); {
	case err == nil:
		l.Blob, l.Info = s.ID, s.Info
	case disk.IsAbsent(err), errs.Is(err, errs.NotFound):
		return Looked{}, disk.ErrNotFound(p)
	case errs.Is(err, errs.Forbidden), errs.Is(err, errs.Conflict):
		// Unreadable, or changing all the time: its content is unknown.
	default:
		return Looked{}, err
	}
	return l, nil
}

// stat is Stat without the bytes.
func (r *Reader) stat(p wspath.Path) (Looked, disk.Seen, error) {
	v := plan.NewView(r.disk, gitstore.Snapshot{}, nil)
	q, err := v.Resolve(p, false)
	if err != nil {
		return Looked{}, disk.Seen{}, err
	}
	s, err := r.disk.Lstat(q)
	if err != nil {
		return Looked{}, s, err
	}
	l := Looked{Path: q, Kind: s.Kind, Info: s.Info}
	switch s.Kind {
	case op.KindNone:
		return Looked{}, s, disk.ErrNotFound(p)
	case op.KindSymlink:
	default:
		return l, s, nil
	}
	l.Link = true
	if l.Target, err = r.disk.FS.Readlink(string(q)); err != nil {
		if disk.IsAbsent(err) || errors.Is(err, syscall.EINVAL) {
			return Looked{}, s, disk.ErrNotFound(p) // replaced since
		}
		return Looked{}, s, errs.Wrap(err, string(p))
	}
	// The kernel says where it leads; the words only name the place.
	switch _, err := r.disk.FS.Stat(string(q)); {
	case err == nil:
	case errors.Is(err, vfs.ErrEscapes):
		return Looked{}, s, disk.ErrNotFound(p)
	case disk.IsAbsent(err), errors.Is(err, syscall.ELOOP), errors.Is(err, fs.ErrPermission):
		return l, s, nil
	default:
		return Looked{}, s, errs.Wrap(err, string(p))
	}
	if q, err = v.Resolve(q, true); err != nil {
		return Looked{}, s, err
	}
	if s, err = r.disk.Lstat(q); err != nil {
		return Looked{}, s, err
	}
	if s.Kind == op.KindNone || s.Kind == op.KindSymlink {
		return Looked{}, s, disk.ErrNotFound(p) // replaced since
	}
	l.Path, l.Kind, l.Info = q, s.Kind, s.Info
	return l, s, nil
}

// Mtime gives the modification time of what is at a path that Apply
// answered with. Errors as of Stat.
func (r *Reader) Mtime(ctx context.Context, p wspath.Path) (time.Time, error) {
	info, err := r.disk.FS.Lstat(string(p))
	if err == nil {
		err = r.disk.Stamp(ctx, p, &info)
	}
	if disk.IsAbsent(err) {
		err = disk.ErrNotFound(p)
	}
	return time.Unix(0, info.MtimeNs), errs.Wrap(err, string(p))
}

// folderAt finds the folder that a listing is about, links followed.
func (r *Reader) folderAt(p wspath.Path) (wspath.Path, error) {
	l, _, err := r.stat(p)
	if err != nil {
		return "", err
	}
	switch {
	case l.Kind == op.KindSymlink:
		return "", disk.ErrNotFound(p)
	case l.Kind != op.KindDir:
		return "", &errs.Error{Kind: errs.Invalid, Code: "not_a_directory", Detail: "The path is not a directory.", Path: string(p)}
	}
	return l.Path, nil
}
