package task

import (
	"cmp"
	"context"
	"time"

	"umbra/gitstore"
	"umbra/gitstore/message"
	"umbra/gitstore/object"
	"umbra/internal/errs"
	"umbra/internal/workspace"
)

// Dropped is what a task was when its refs went, with the part of history that
// it was in: nothing else names it any more.
type Dropped struct {
	Base     string       `json:"base"` // commits, which are no more there
	Head     string       `json:"head"`
	Changes  uint64       `json:"changes"`
	Info     message.Info `json:"info"`
	Subtasks []Subtask    `json:"subtasks,omitempty"`
	Last     time.Time    `json:"last"` // of the last change
}

// task gives the task as the repository had it.
func (d *Dropped) task(id string) gitstore.Task {
	t := gitstore.Task{ID: id, Info: d.Info, Changes: d.Changes}
	t.Base, _ = object.ParseID(d.Base)
	t.Head, _ = object.ParseID(d.Head)
	if string(t.Info.Metadata) == "null" {
		t.Info.Metadata = nil // as none is kept
	}
	return t
}

// KeepRecords takes over the records of tasks whose refs are about to go;
// durable when it returns. As long as the repository has a task, it is the
// repository that is believed.
func (s *Service) KeepRecords(ctx context.Context, w *workspace.Workspace, tasks []gitstore.Task) error {
	recs := make([]Record, 0, len(tasks))
	for _, t := range tasks {
		rec, ok, err := s.index.get(t.ID)
		if err != nil {
			return errs.Wrap(err, "")
		}
		if ok && rec.Deleted {
			continue // its id stays taken, and that is all
		}
		sum, err := s.sums.of(ctx, w, t)
		if err != nil {
			return err
		}
		if !ok {
			rec = RecordOf(t, w.ID())
		}
		rec.Dropped = &Dropped{Base: t.Base.String(), Head: t.Head.String(), Changes: t.Changes, Info: t.Info, Subtasks: sum.subtasks, Last: sum.last}
		recs = append(recs, rec)
	}
	if err := s.index.putAll(recs); err != nil {
		return errs.Wrap(err, "")
	}
	for i := range recs {
		s.dropEmptyFolders(recs[i].ID)
	}
	return nil
}

// droppedView is viewOf for a task without refs.
func (s *Service) droppedView(w *workspace.Workspace, id string) (*View, error) {
	rec, ok, err := s.index.get(id)
	if err != nil {
		return nil, errs.Wrap(err, "")
	}
	ws, known := s.o.Workspaces.Record(w.ID())
	if !ok || !known || !rec.isDropped {
		return nil, notFound(id)
	}
	d, err := s.index.dropped(id)
	if err != nil {
		return nil, errs.Wrap(err, "")
	}
	if d == nil {
		return nil, notFound(id)
	}
	v := s.viewBase(w, ws, d.task(id))
	v.Subtasks, v.BaseDropped = d.Subtasks, true
	if d.Last.After(v.Updated) {
		v.Updated = d.Last
	}
	return v, nil
}

// noted returns the view of a task as an event of a stream has it.
func (s *Service) noted(ctx context.Context, w *workspace.Workspace, t gitstore.Task) (*View, error) {
	if _, ok := w.Store().Task(t.ID); !ok {
		return s.droppedView(w, t.ID)
	}
	return s.viewOf(ctx, w, t)
}

// InHistory gives nil for a task that is in what is left of the history, and
// errs.Gone "history_dropped" for one of which only the record is left.
func (r *Ref) InHistory() error {
	if r.Dropped {
		return gitstore.ErrDropped()
	}
	return nil
}

// Reaches gives nil if the events after a number are there still: errs.Gone
// "history_dropped" where the history begins later.
func Reaches(w *workspace.Workspace, after int64) error {
	if b := w.Store().Boundary(); after >= 0 && uint64(after) < b.Seq {
		return gitstore.ErrDropped()
	}
	return nil
}

// deleteDropped is Delete for a task without refs.
func (s *Service) deleteDropped(r *Ref) error {
	rec, ok, err := s.index.get(r.Task.ID)
	if err != nil {
		return errs.Wrap(err, "")
	}
	if !ok || rec.Deleted {
		return notFound(r.Task.ID)
	}
	rec.Deleted = true
	if err := s.index.put(rec); err != nil {
		return errs.Wrap(err, "")
	}
	s.hub.notify(r.ID(), r.Task.ID, note{gone: true})
	if err := cmp.Or(s.dropShared(r.Task.ID), s.dropFolders(r.Task.ID)); err != nil {
		s.o.Log.Warn("a task's directories could not be removed", "task", r.Task.ID, "error", err)
	}
	return nil
}
