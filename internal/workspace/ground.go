package workspace

import (
	"context"
	"errors"
	"syscall"

	"umbra/internal/errs"
	"umbra/internal/wspath"
)

// Standing tells what kind of thing stands on disk at a path, whether history
// has it or not. A link is told as itself; KindNone is nothing, also where a
// part of the way is a file or a link.
func (w *Workspace) Standing(p wspath.Path) (Kind, error) {
	s, err := w.lstatDirect(p)
	return s.kind, err
}

// lstatDirect is lstat for a path whose every part must be a folder: behind a
// link stands another path's file.
func (w *Workspace) lstatDirect(p wspath.Path) (seen, error) {
	for dir := range p.Ancestors() {
		if dir.IsRoot() {
			continue
		}
		s, err := w.lstat(dir)
		if errors.Is(err, syscall.ELOOP) {
			return seen{}, nil
		}
		if err != nil || s.kind == KindSymlink {
			return seen{}, err
		}
	}
	return w.lstat(p)
}

// Under gives all that stands on disk under a folder, as it is: what is ignored
// or special and git's own folders too. What goes meanwhile is left out.
func (w *Workspace) Under(ctx context.Context, dir wspath.Path) (folders, others []wspath.Path, err error) {
	list, err := w.fs.ReadDir(string(dir))
	if isAbsent(err) {
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
		f, o, err := w.Under(ctx, at)
		if err != nil {
			return nil, nil, err
		}
		folders, others = append(folders, f...), append(others, o...)
	}
	return folders, others, nil
}
