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

// beginOwn records a merge that gets a task of its own, before that is made.
func (s *Service) beginOwn(into *workspace.Workspace, task, actor string) (done func() error, err error) {
	key := workspaces.NewKey("merge")
	before := into.Store().Tip().Commit
	err = s.o.State.Put(mergesBucket, key, intent{into.ID(), before.String(), task, actor, true})
	return func() error { return errs.Wrap(s.o.State.Delete(mergesBucket, key), "") }, errs.Wrap(err, "")
}

// begin records a merge for merge.Request.Begin.
func (s *Service) begin(into *workspace.Workspace, req merge.Request) func(before object.ID) (func() error, error) {
	return func(before object.ID) (func() error, error) {
		key := workspaces.NewKey("merge")
		err := s.o.State.Put(mergesBucket, key, intent{into.ID(), before.String(), req.By.TaskID, req.By.Actor, false})
		return func() error { return s.o.State.Delete(mergesBucket, key) }, errs.Wrap(err, "")
	}
}

// resume takes back the merges that a stop interrupted, into workspaces that no other
// server can have.
func (s *Service) resume(ctx context.Context) {
	mine := func(into string) bool { return !s.o.State.Shared() || s.o.Workspaces.Pinned(into) }
	s.resumeOn(ctx, mine, func(x intent) error {
		w, err := s.o.Workspaces.Get(ctx, x.Into)
		if err != nil {
			return err
		}
		defer w.Release()
		if err := s.takeMergeBack(ctx, w, x); err != nil || !x.Own {
			return err
		}
		if _, made := w.Store().Task(x.Task); !made { // it was stopped before
			return nil
		}
		return s.endTask(ctx, x.Task)
	})
}

// entered takes back the merges into a workspace that its owner before this server did
// not end. The workspace is used by no request yet, and opening it waits for this.
func (s *Service) entered(ctx context.Context, w *workspace.Workspace) error {
	s.resumeOn(ctx, func(into string) bool { return into == w.ID() }, func(x intent) error {
		if err := s.takeMergeBack(ctx, w, x); err != nil || !x.Own {
			return err
		}
		if _, made := w.Store().Task(x.Task); !made {
			return nil
		}
		s.ending.Go(func() {
			if err := s.endTask(s.ctx, x.Task); err != nil && s.ctx.Err() == nil {
				s.o.Log.Warn("the task of an interrupted merge could not be ended", "task", x.Task, "error", err)
			}
		})
		return nil
	})
	return nil
}

// resumeOn takes back the interrupted merges into some workspaces.
func (s *Service) resumeOn(ctx context.Context, wanted func(into string) bool, takeBack func(intent) error) {
	found, err := state.Map[intent](s.o.State, mergesBucket)
	if err != nil {
		s.o.Log.Warn("interrupted merges are not known", "error", err)
	}
	for key, x := range found {
		if !wanted(x.Into) {
			continue
		}
		err := takeBack(x)
		if err == nil || errs.Is(err, errs.NotFound) { // the target was deleted
			err = s.o.State.Delete(mergesBucket, key)
		}
		if err != nil && ctx.Err() == nil {
			s.o.Log.Warn("an interrupted merge could not be taken back; the next start tries again", slog.String("workspace", x.Into), "error", err)
		}
	}
}

func (s *Service) takeMergeBack(ctx context.Context, w *workspace.Workspace, x intent) error {
	if t, made := w.Store().Task(x.Task); x.Own && (!made || !t.KeepsHistory()) {
		return nil // nothing was done, or it was complete
	}
	before, err := object.ParseID(x.Before)
	if err != nil {
		return err
	}
	return merge.TakeBack(ctx, w, before, workspace.By{TaskID: x.Task, Actor: x.Actor})
}

// endTask ends the task of a merge that failed, unless it has ended.
func (s *Service) endTask(ctx context.Context, id string) error {
	ref, err := s.o.Tasks.Get(ctx, id, nil)
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
