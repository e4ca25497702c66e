package task

import (
	"context"
	"strconv"

	"umbra/gitstore/object"
	"umbra/internal/errs"
)

// At gives the commit that a client names: "base", "head", a change id of the
// task (the state right after it), or a commit's full id. Invalid
// "invalid_parameter"; NotFound "commit_not_found", "change_not_found".
func (s *Service) At(ctx context.Context, r *Ref, at string) (object.ID, error) {
	if err := r.InHistory(); err != nil {
		return object.Zero, err
	}
	t, ok := r.Store().Task(r.Task.ID)
	if !ok {
		return object.Zero, notFound(r.Task.ID)
	}
	switch at {
	case "base":
		return t.Base, nil
	case "head":
		return t.Head, nil
	}
	if id, err := object.ParseID(at); err == nil {
		if _, err := r.Store().Own(ctx, id); errs.Is(err, errs.NotFound) {
			return object.Zero, errs.New(errs.NotFound, "commit_not_found", "The workspace's history has no such commit.")
		} else if err != nil {
			return object.Zero, err
		}
		return id, nil
	}
	n, err := strconv.ParseUint(at, 10, 63)
	if err != nil {
		return object.Zero, errs.New(errs.Invalid, "invalid_parameter",
			"The at parameter must be \"base\", \"head\", a change id or a commit's full id.").With("field", "at")
	}
	rec, ok, err := recordOfChange(ctx, r, n)
	if err != nil {
		return object.Zero, err
	}
	if !ok || n == 0 {
		return object.Zero, errs.New(errs.NotFound, "change_not_found", "The task has no change %d.", n)
	}
	return rec.Commit, nil
}
