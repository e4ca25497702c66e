package history

import (
	"context"
	"slices"

	"umbra/internal/errs"
	"umbra/internal/workspace"
)

// SubtaskSummary gives what the work of one subtask comes to, alone: what the
// task's other work did to the same files counts as other work. NotFound
// "subtask_not_found" if the task has no change of it.
func (c *Cache) SubtaskSummary(ctx context.Context, w *workspace.Workspace, id, subtask string) (*Summary, error) {
	t, err := c.Task(ctx, w, id)
	if err != nil {
		return nil, err
	}
	if !slices.ContainsFunc(t.Entries, func(e Entry) bool { return e.Of(subtask) }) {
		return nil, errs.New(errs.NotFound, "subtask_not_found", "The task has no subtask of that name.")
	}
	chains, _ := t.Chains(slices.DeleteFunc(t.Work(), func(e *Entry) bool { return !e.Of(subtask) }), nil)
	return summarize(ctx, w.Store(), chains, nil)
}
