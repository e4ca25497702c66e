package history

import (
	"context"

	"umbra/internal/errs"
	"umbra/internal/workspace"
)

// SubtaskSummary gives what the work of one subtask comes to, alone: what the
// task's other work did to the same files counts as somebody else's. NotFound
// "subtask_not_found" if the task has no change of it.
func (c *Cache) SubtaskSummary(ctx context.Context, w *workspace.Workspace, id, subtask string) (*Summary, error) {
	t, err := c.Task(ctx, w, id)
	if err != nil {
		return nil, err
	}
	known := false
	only := &Task{ID: t.ID, Base: t.Base, Through: t.Through}
	for i := range t.Entries {
		if t.Entries[i].SubtaskID == subtask {
			known = true
			only.Entries = append(only.Entries, t.Entries[i])
		}
	}
	if !known {
		return nil, errs.New(errs.NotFound, "subtask_not_found", "The task has no subtask of that name.")
	}
	return summarise(ctx, w.Store(), only, nil)
}
