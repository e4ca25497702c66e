package taskfiles

import (
	"context"
	"errors"
	"io/fs"

	"umbra/internal/errs"
	"umbra/internal/taskfiles/pattern"
	"umbra/internal/workspace"
	"umbra/internal/wspath"
)

// Glob returns up to limit entries below a directory whose path, seen from
// there, matches a pattern, sorted bytewise, and whether there are more. A
// pattern with a leading slash is matched from the workspace's root.
//
// errs.Invalid invalid_pattern, not_directory; errs.NotFound file_not_found.
func Glob(ctx context.Context, w *workspace.Workspace, p wspath.Path, text string, limit int) (found []Entry, truncated bool, err error) {
	g, err := pattern.Compile(text)
	if err != nil {
		return nil, false, badPattern("pattern", err)
	}
	at, err := directory(ctx, w, p)
	if err != nil {
		return nil, false, err
	}
	seen := func(shown wspath.Path) string {
		if g.Absolute {
			return string(shown)
		}
		rel, _ := shown.Rel(p)
		return string(rel)
	}
	k := &walker{ctx: ctx, w: w, keep: !Virtual(w), descend: func(shown wspath.Path) bool { return g.Below(seen(shown)) }}
	k.visit = func(shown, at wspath.Path, t fs.FileMode) error {
		if g.DirsOnly && !t.IsDir() || !g.Match(seen(shown)) {
			return nil
		}
		if len(found) == limit {
			truncated = true
			return errStop
		}
		e, ok, err := peek(ctx, w, shown, at)
		if err == nil && ok {
			found = append(found, e)
		}
		return err
	}
	if err := k.folder(p, at, true); err != nil && !errors.Is(err, errStop) {
		return nil, false, err
	}
	return found, truncated, nil
}

func badPattern(field string, err error) error {
	return errs.New(errs.Invalid, "invalid_pattern", "%s: %s.", field, err.Error()).With("field", field)
}
