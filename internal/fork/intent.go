package fork

import (
	"context"
	"log/slog"

	"umbra/gitstore/object"
	"umbra/internal/errs"
	"umbra/internal/merge"
	"umbra/internal/state"
	"umbra/internal/task"
	"umbra/internal/workspace"
	"umbra/internal/workspaces"
)

// mergesBucket of the state has the merges that are being carried out.
const mergesBucket = "merges"

// intent is a merge of several commits: what a crash leaves of it is taken back by
// the next start.
type intent struct {
	Into   string `json:"into"`
	Before string `json:"before"` // the newest commit of the target before it
	Task   string `json:"task"`
	Actor  string `json:"actor,omitempty"`
	Own    bool   `json:"own"` // the task was made for the merge
}

// begin records a merge for merge.Request.Begin.
func (s *Service) begin(into *workspace.Workspace, req merge.Request, own bool) func(before object.ID) (func() error, error) {
	return func(before object.ID) (func() error, error) {
		key := workspaces.NewID("merge")
		err := s.o.State.Put(mergesBucket, key, intent{into.ID(), before.String(), req.By.TaskID, req.By.Actor, own})
		return func() error { return s.o.State.Delete(mergesBucket, key) }, errs.Wrap(err, "")
	}
}

// resume takes back the merges that a stop interrupted.
func (s *Service) resume(ctx context.Context) {
	found, err := state.Map[intent](s.o.State, mergesBucket)
	if err != nil {
		s.o.Log.Warn("interrupted merges are not known", "error", err)
	}
	for key, x := range found {
		err := s.takeMergeBack(ctx, x)
		if err == nil || errs.Is(err, errs.NotFound) { // the target was deleted
			err = s.o.State.Delete(mergesBucket, key)
		}
		if err != nil {
			s.o.Log.Warn("an interrupted merge could not be taken back; the next start tries again", slog.String("workspace", x.Into), "error", err)
		}
	}
}

func (s *Service) takeMergeBack(ctx context.Context, x intent) error {
	before, err := object.ParseID(x.Before)
	if err != nil {
		return err
	}
	w, err := s.o.Workspaces.Get(ctx, x.Into)
	if err != nil {
		return err
	}
	defer w.Release()
	if err := merge.TakeBack(ctx, w, before, workspace.By{TaskID: x.Task, Actor: x.Actor}); err != nil || !x.Own {
		return err
	}
	ref, err := s.o.Tasks.Get(ctx, x.Task, nil)
	if err != nil {
		return err
	}
	defer ref.Release()
	failed := task.Failed
	err = s.o.Tasks.Patch(ctx, ref, task.Patch{Status: &failed}, "")
	if errs.Is(err, errs.Conflict) { // it has ended already
		err = nil
	}
	return err
}
