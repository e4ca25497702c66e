package workspace

import (
	"context"
	"time"

	"umbra/internal/workspace/browse"
	"umbra/internal/wspath"
)

// inside counts a request in and checks that the content is there; leave must be
// called if there is no error.
func (w *Workspace) inside() (leave func(), err error) {
	if err := w.enter(); err != nil {
		return nil, err
	}
	if err := w.disk.Check(); err != nil {
		w.leave()
		return nil, err
	}
	return w.leave, nil
}

// OpenFile opens what is on disk now, as browse.Reader.OpenFile does; also
// errs.Conflict workspace_missing. The caller closes it.
func (w *Workspace) OpenFile(ctx context.Context, p wspath.Path) (*browse.Opened, error) {
	leave, err := w.inside()
	if err != nil {
		return nil, err
	}
	defer leave()
	return w.reader.OpenFile(ctx, p)
}

// Stat returns what is at a path, as browse.Reader.Stat does; also errs.Conflict
// workspace_missing.
func (w *Workspace) Stat(ctx context.Context, p wspath.Path) (browse.Looked, error) {
	leave, err := w.inside()
	if err != nil {
		return browse.Looked{}, err
	}
	defer leave()
	return w.reader.Stat(ctx, p)
}

// Peek returns what is at a path, as browse.Reader.Peek does.
func (w *Workspace) Peek(ctx context.Context, p wspath.Path) (browse.Peeked, error) {
	if err := w.enter(); err != nil {
		return browse.Peeked{}, err
	}
	defer w.leave()
	return w.reader.Peek(ctx, p)
}

// Mtime returns the modification time of what is at a path that Apply returned. Errors as of
// Stat.
func (w *Workspace) Mtime(ctx context.Context, p wspath.Path) (time.Time, error) {
	return w.reader.Mtime(ctx, p)
}

// List lists a directory, as browse.Reader.List does; also errs.Conflict
// workspace_missing.
func (w *Workspace) List(ctx context.Context, p wspath.Path, o browse.ListOptions) (part []browse.Listed, total int, err error) {
	leave, err := w.inside()
	if err != nil {
		return nil, 0, err
	}
	defer leave()
	return w.reader.List(ctx, p, o)
}

// Tree reads what is under a directory down to a depth, as browse.Reader.Tree does;
// also errs.Conflict workspace_missing.
func (w *Workspace) Tree(ctx context.Context, p wspath.Path, depth, max int, o browse.ListOptions) (root *browse.Node, truncated bool, err error) {
	leave, err := w.inside()
	if err != nil {
		return nil, false, err
	}
	defer leave()
	return w.reader.Tree(ctx, p, depth, max, o)
}
