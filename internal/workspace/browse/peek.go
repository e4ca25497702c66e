package browse

import (
	"context"

	"umbra/gitstore/object"
	"umbra/internal/errs"
	"umbra/internal/vfs"
	"umbra/internal/workspace/disk"
	"umbra/internal/workspace/op"
	"umbra/internal/wspath"
)

// Peeked is one path of a workspace as a listing shows it.
type Peeked struct {
	Kind   op.Kind
	Info   vfs.Info    // links are not followed
	Mode   object.Mode // Git's mode of a file or link; object.Dir for a directory
	Target string      // of a symbolic link
	// Blob is the ID of a file's bytes if the file is small or its ID is known
	// without reading it; else zero.
	Blob object.ID
}

// peekBytes is the size up to which Peek reads a file to identify it.
const peekBytes = 1 << 20

// Peek returns what is at a path without following a link in its last
// component and without reading a large file. The path must have its directories'
// links resolved, as paths of Tree below a resolved directory have.
//
// errs.NotFound file_not_found; errs.Conflict workspace_missing.
func (r *Reader) Peek(ctx context.Context, p wspath.Path) (Peeked, error) {
	s, err := r.disk.Lstat(p)
	if err != nil {
		return Peeked{}, err
	}
	out := Peeked{Kind: s.Kind, Info: s.Info, Mode: s.Mode, Blob: s.ID}
	switch s.Kind {
	case op.KindNone:
		return Peeked{}, disk.ErrNotFound(p)
	case op.KindDir:
		out.Mode = object.Dir
	case op.KindSymlink:
		if out.Target, err = r.disk.FS.Readlink(string(p)); err != nil {
			if disk.IsAbsent(err) {
				return Peeked{}, disk.ErrNotFound(p)
			}
			return Peeked{}, errs.Wrap(err, string(p))
		}
	case op.KindFile:
		if id, ok := r.disk.Known(p, s); ok {
			out.Blob = id
		} else if s.Info.Size <= peekBytes && r.disk.Identify(ctx, p, &s) == nil {
			// A file that cannot be read, or keeps changing, has no ID.
			out.Blob, out.Info = s.ID, s.Info
		}
	}
	if err := r.disk.Stamp(ctx, p, &out.Info); err != nil {
		return Peeked{}, err
	}
	return out, nil
}
