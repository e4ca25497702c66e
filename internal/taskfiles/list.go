package taskfiles

import (
	"context"
	"errors"
	"io/fs"

	"umbra/gitstore/object"
	"umbra/internal/errs"
	"umbra/internal/history"
	"umbra/internal/workspace"
	"umbra/internal/wspath"
)

// ListOptions say which page of a directory to list.
type ListOptions struct {
	Recursive bool
	After     wspath.Path // exclusive; empty: from the start
	Limit     int         // entries
}

// List returns one page of what is in a directory, sorted bytewise by path, and
// whether more follows. Ignored and hidden names are included.
//
// errs.Invalid not_directory; errs.NotFound file_not_found.
func List(ctx context.Context, w *workspace.Workspace, p wspath.Path, o ListOptions) (page []Entry, more bool, err error) {
	at, err := directory(ctx, w, p)
	if err != nil {
		return nil, false, err
	}
	k := &walker{ctx: ctx, w: w, keep: !Virtual(w), after: string(o.After), descend: func(wspath.Path) bool { return o.Recursive }}
	k.visit = func(shown, at wspath.Path, _ fs.FileMode) error {
		if len(page) == o.Limit {
			more = true
			return errStop
		}
		e, ok, err := peek(ctx, w, shown, at)
		if err == nil && ok {
			page = append(page, e)
		}
		return err
	}
	if err := k.folder(p, at, true); err != nil && !errors.Is(err, errStop) {
		return nil, false, err
	}
	return page, more, nil
}

// directory returns the place of a directory with links resolved.
func directory(ctx context.Context, w *workspace.Workspace, p wspath.Path) (wspath.Path, error) {
	if p.IsRoot() {
		return p, nil
	}
	l, err := w.Stat(ctx, p)
	switch {
	case errs.CodeOf(err) == "not_a_directory" && err != nil:
		return "", notDirectory(p)
	case err != nil:
		return "", err
	case l.Kind == workspace.KindSymlink:
		return "", notFound(p)
	case l.Kind != workspace.KindDir:
		return "", notDirectory(p)
	}
	return l.Path, nil
}

func notDirectory(p wspath.Path) error {
	return &errs.Error{Kind: errs.Invalid, Code: "not_directory", Detail: "The path is not a directory.", Path: string(p)}
}

func notFound(p wspath.Path) error {
	return &errs.Error{Kind: errs.NotFound, Code: "file_not_found", Detail: "The file does not exist.", Path: string(p)}
}

// peek checks one path of a walk; ok is false for what is gone or special.
func peek(ctx context.Context, w *workspace.Workspace, shown, at wspath.Path) (e Entry, ok bool, err error) {
	l, err := w.Peek(ctx, at)
	if errs.Is(err, errs.NotFound) {
		return Entry{}, false, nil
	}
	if err != nil {
		return Entry{}, false, err
	}
	switch l.Kind {
	case workspace.KindFile, workspace.KindDir, workspace.KindSymlink:
		return Entry{Path: shown, Kind: l.Kind, Info: l.Info, Mode: l.Mode, Target: l.Target, Blob: l.Blob, Link: l.Kind == workspace.KindSymlink}, true, nil
	}
	return Entry{}, false, nil
}

// Stat returns what is at a path. A link is followed if follow is set and it
// leads somewhere inside the workspace; else the link itself is described.
//
// errs.NotFound file_not_found; errs.Conflict special_file.
func Stat(ctx context.Context, w *workspace.Workspace, p wspath.Path, follow bool) (Entry, error) {
	if Virtual(w) && p.Base() == KeepName {
		return Entry{}, notFound(p)
	}
	l, err := w.Stat(ctx, p)
	if err != nil && !(errs.Is(err, errs.NotFound) && !follow) {
		if errs.CodeOf(err) == "not_a_directory" {
			return Entry{}, notFound(p)
		}
		return Entry{}, err
	}
	if !follow {
		at, perr := parent(ctx, w, p)
		if perr != nil {
			return Entry{}, perr
		}
		e, ok, perr := peek(ctx, w, p, at)
		switch {
		case perr != nil:
			return Entry{}, perr
		case ok && e.Link, err != nil && ok:
			return e, nil
		case err != nil:
			return Entry{}, err
		}
	}
	e := Entry{Path: p, Kind: l.Kind, Info: l.Info, Target: l.Target, Blob: l.Blob, Link: l.Link}
	switch l.Kind {
	case workspace.KindDir:
		e.Mode = object.Dir
	case workspace.KindFile:
		e.Mode = object.Regular
		if l.Info.Mode.Perm()&0o100 != 0 {
			e.Mode = object.Executable
		}
	case workspace.KindSymlink:
		e.Mode = object.Symlink
	default:
		return Entry{}, &errs.Error{Kind: errs.Conflict, Code: "special_file", Detail: "The path is not a regular file, directory or link.", Path: string(p)}
	}
	return e, nil
}

// parent returns a path whose directories are resolved and whose last component
// is not.
func parent(ctx context.Context, w *workspace.Workspace, p wspath.Path) (wspath.Path, error) {
	if p.IsRoot() {
		return p, nil
	}
	dir := p.Dir()
	if !dir.IsRoot() {
		l, err := w.Stat(ctx, dir)
		if err != nil || l.Kind != workspace.KindDir {
			return "", notFound(p)
		}
		dir = l.Path
	}
	return dir.Join(p.Base()), nil
}

// Created returns the changelog entry by which a task made the file that is now
// at a path, followed back through the task's renames; nil where the task did
// not make it.
func Created(ctx context.Context, w *workspace.Workspace, cache *history.Cache, taskID string, p wspath.Path) (*workspace.ChangeEntry, error) {
	t, err := cache.Task(ctx, w, taskID)
	if err != nil {
		return nil, err
	}
	return createdIn(t.Entries, string(p)), nil
}
