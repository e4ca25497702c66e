package revert

import (
	"context"

	"umbra/gitstore/object"
	"umbra/internal/history"
	"umbra/internal/workspace"
)

// Against returns what takes back what a call did against the policy
// (calls.Options.TakeBack). What others changed since is left. The commit is zero
// where nothing was to be done.
func Against(cache *history.Cache) func(ctx context.Context, w *workspace.Workspace, task, call string, from uint64) (object.ID, error) {
	return func(ctx context.Context, w *workspace.Workspace, task, call string, from uint64) (object.ID, error) {
		res, err := Do(ctx, w, cache, Request{
			By:         workspace.By{TaskID: task, Actor: "umbra", Message: "policy: taken back"},
			Scope:      Scope{Call: &Call{ID: call, From: from, Against: true}},
			OnConflict: Skip,
		})
		if err != nil {
			return object.Zero, err
		}
		return res.Commit, nil
	}
}
