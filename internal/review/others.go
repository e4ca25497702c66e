package review

import (
	"context"

	"umbra/internal/calls"
	"umbra/internal/workspace"
)

// Others gives a call's begin what a reviewer took back of its task after a commit's
// number (calls.Options.Rejected).
func Others(ctx context.Context, w *workspace.Workspace, task string, after uint64) ([]calls.Other, error) {
	list, err := Rejections(ctx, w, task, after)
	out := make([]calls.Other, len(list))
	for i, x := range list {
		out[i] = calls.Other{Path: x.Path, Operation: string(Rejected), Task: task, Actor: x.Actor, Source: string(x.Commit.Message.Source), Message: x.Message, At: x.Commit.When}
	}
	return out, err
}
