package task

import (
	"context"
	"encoding/json"

	"umbra/internal/clock"
	"umbra/internal/errs"
	"umbra/internal/idem"
	"umbra/internal/workspace"
)

// For gives the task that a tag means on one of the server's own workspaces
// (code, output): the task itself if it is there, else its child there, which
// is made at the first use, records what the task does there, and ends with it.
// NotFound "task_not_found"; Conflict "task_ended", "task_paused". The caller
// releases it.
func (s *Service) For(ctx context.Context, id string, w *workspace.Workspace, sees Sees, by workspace.By) (*Ref, error) {
	parent, err := s.Get(ctx, id, sees)
	if err != nil {
		return nil, err
	}
	if parent.ID() == w.ID() {
		return parent, nil
	}
	defer parent.Release()
	defer s.making.Lock("children of " + id)()
	if child, err := s.child(ctx, id, w.ID()); err != nil || child != nil {
		if err != nil {
			return nil, err
		}
		if err := s.mayWriteFor(ctx, parent, child, by); err != nil {
			child.Release()
			return nil, err
		}
		return child, nil
	}
	if err := s.MayWrite(parent); err != nil {
		return nil, err
	}
	metadata, err := json.Marshal(map[string]string{"parent_task": id})
	if err != nil {
		return nil, errs.Wrap(err, "")
	}
	own, err := s.o.Workspaces.Get(ctx, w.ID())
	if err != nil {
		return nil, err
	}
	made, err := s.createOn(ctx, own, CreateOptions{Goal: parent.Task.Info.Goal, Metadata: metadata, Actor: parent.Task.Info.Actor,
		RequestID: by.RequestID, parent: id}, clock.Boot())
	if err != nil {
		own.Release()
		return nil, err
	}
	return made.Ref, nil
}

// mayWriteFor asks whether a task's status lets its child write. What an
// idempotency key's commit answered is answered again whatever the status is.
func (s *Service) mayWriteFor(ctx context.Context, parent, child *Ref, by workspace.By) error {
	err := s.MayWrite(parent)
	if err == nil || by.IdempotencyKey == "" {
		return err
	}
	if _, made, ferr := child.Store().FindKey(ctx, by.IdempotencyKey, idem.Since(s.o.Now())); ferr == nil && made {
		return nil
	}
	return err
}

// child opens a task's child on a workspace, nil if it has none there.
func (s *Service) child(ctx context.Context, parent, workspaceID string) (*Ref, error) {
	children, err := s.index.children(parent)
	if err != nil {
		return nil, errs.Wrap(err, "")
	}
	for _, rec := range children {
		if rec.Workspace == workspaceID {
			return s.Get(ctx, rec.ID, nil)
		}
	}
	return nil, nil
}

// endChildren gives a task's children the status that it ended with. The
// task's own end is durable by now: what fails here is logged, and a change
// for the child is refused by the parent's status all the same.
func (s *Service) endChildren(ctx context.Context, parent string, status Status, requestID string) {
	defer s.making.Lock("children of " + parent)()
	children, err := s.index.children(parent)
	if err != nil {
		s.o.Log.Warn("the children of a task could not be read", "parent", parent, "error", err)
	}
	for _, rec := range children {
		if rec.Status.Ended() {
			continue
		}
		err := func() error {
			child, err := s.Get(ctx, rec.ID, nil)
			if err != nil {
				return err
			}
			defer child.Release()
			return s.Patch(ctx, child, Patch{Status: &status}, requestID)
		}()
		if err != nil {
			s.o.Log.Warn("a child task could not be ended", "task", rec.ID, "parent", parent, "error", err)
		}
	}
}
