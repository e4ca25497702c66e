package taskfiles

import (
	"context"

	"umbra/internal/errs"
	"umbra/internal/workspace"
	"umbra/internal/wspath"
)

// KeepOp returns the operation that makes a directory of a virtual workspace:
// an empty file KeepName in it. recursive allows missing parents.
//
// errs.Conflict target_exists, not_a_directory; errs.NotFound
// parent_not_found.
func KeepOp(ctx context.Context, w *workspace.Workspace, p wspath.Path, recursive bool) (workspace.Op, error) {
	_, err := w.Stat(ctx, p)
	switch {
	case err == nil:
		return workspace.Op{}, &errs.Error{Kind: errs.Conflict, Code: "target_exists", Detail: "The target already exists.", Path: string(p)}
	case !errs.Is(err, errs.NotFound):
		return workspace.Op{}, err
	}
	if dir := p.Dir(); !recursive && !dir.IsRoot() {
		_, err := w.Stat(ctx, dir)
		if errs.Is(err, errs.NotFound) {
			return workspace.Op{}, &errs.Error{Kind: errs.NotFound, Code: "parent_not_found", Detail: "The parent directory does not exist.", Path: string(p)}
		}
		if err != nil {
			return workspace.Op{}, err
		}
	}
	return workspace.Op{Kind: workspace.OpWrite, Path: p.Join(KeepName), If: workspace.Condition{NoneMatchAny: true}}, nil
}

// UnkeepOp returns the operation that removes a directory of a virtual workspace
// that a client sees as empty: the removal of the file that keeps it. ok is
// false where the directory has another entry, or is not one that is kept so.
func UnkeepOp(ctx context.Context, w *workspace.Workspace, p wspath.Path) (op workspace.Op, ok bool, err error) {
	if !Virtual(w) {
		return workspace.Op{}, false, nil
	}
	entries, _, err := List(ctx, w, p, ListOptions{Limit: 1})
	if err != nil || len(entries) > 0 {
		return workspace.Op{}, false, err
	}
	return workspace.Op{Kind: workspace.OpDelete, Path: p.Join(KeepName)}, true, nil
}
