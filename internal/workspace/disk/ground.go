package disk

import (
	"context"
	"errors"
	"syscall"

	"umbra/internal/errs"
	"umbra/internal/vfs"
	"umbra/internal/workspace/op"
	"umbra/internal/wspath"
)

// LstatDirect is lstat for a path whose every part must be a folder: behind a
// link is another path's file.
func (d *Disk) LstatDirect(p wspath.Path) (Seen, error) {
	for dir := range p.Ancestors() {
		if dir.IsRoot() {
			continue
		}
		s, err := d.Lstat(dir)
		if errors.Is(err, syscall.ELOOP) || errors.Is(err, vfs.ErrEscapes) { // a link further up
			return Seen{}, nil
		}
		if err != nil || s.Kind == op.KindSymlink {
			return Seen{}, err
		}
	}
	return d.Lstat(p)
}

// Under returns everything on disk below a directory, as it is: what is ignored
// or special and git's own folders too. What goes meanwhile is left out.
func (d *Disk) Under(ctx context.Context, dir wspath.Path) (folders, others []wspath.Path, err error) {
	list, err := d.FS.ReadDir(string(dir))
	if IsAbsent(err) {
		return nil, nil, nil
	}
	if err == nil {
		err = ctx.Err()
	}
	if err != nil {
		return nil, nil, errs.Wrap(err, string(dir))
	}
	for _, e := range list {
		at := dir.Join(e.Name)
		if !e.Type.IsDir() {
			others = append(others, at)
			continue
		}
		folders = append(folders, at)
		f, o, err := d.Under(ctx, at)
		if err != nil {
			return nil, nil, err
		}
		folders, others = append(folders, f...), append(others, o...)
	}
	return folders, others, nil
}
