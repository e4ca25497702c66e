package session

import (
	"context"
	"encoding/json"
	"errors"
	"path/filepath"
	"strings"

	"umbra/internal/errs"
	"umbra/internal/idem"
	"umbra/internal/state"
	"umbra/internal/task"
	"umbra/internal/workspaces"
)

// CreateOptions say what session to make.
type CreateOptions struct {
	Root   string // absolute host path of the folder
	TaskID string // empty: the session makes a task for itself
	// Kept as they are.
	AuthType, Model, Org             string
	Actor, RequestID, IdempotencyKey string
	// Allow judges the folder by its canonical path before it is opened; known
	// says that it is a workspace already.
	Allow func(root string, known bool) error
	Sees  task.Sees
}

// bounds of the texts that are kept, in bytes.
const maxText = 1024

func (o *CreateOptions) validate() error {
	fail := func(field, detail string) error {
		e := errs.New(errs.Invalid, "invalid_field", "")
		e.Detail = detail
		return e.With("field", field)
	}
	switch {
	case o.Root == "":
		return fail("workspaceRoot", "workspaceRoot is required.")
	case strings.IndexByte(o.Root, 0) >= 0 || !filepath.IsAbs(o.Root):
		return fail("workspaceRoot", "workspaceRoot must be an absolute path.")
	case o.TaskID != "" && !task.ValidID(o.TaskID):
		return fail("taskId", "taskId is malformed.")
	}
	for field, text := range map[string]string{"authType": o.AuthType, "model": o.Model, "org": o.Org} {
		if len(text) > maxText {
			return fail(field, field+" is longer than 1024 bytes.")
		}
	}
	return nil
}

// Create opens the folder and starts a session on it; durable when it returns.
// replayed: the request with this idempotency key made it before.
//
// Invalid for a folder that is none; NotFound "task_not_found"; Conflict
// "task_ended", "task_other_workspace", "workspace_overlaps"; what Allow says.
func (s *Service) Create(ctx context.Context, o CreateOptions) (ses Session, replayed bool, err error) {
	if err := o.validate(); err != nil {
		return Session{}, false, err
	}
	if ses, ok, err := s.madeBefore(o.IdempotencyKey); ok || err != nil {
		return ses, ok, err
	}
	now := s.o.Now().UTC()
	r := Record{ID: newID(), Task: o.TaskID, OwnTask: o.TaskID == "", AuthType: o.AuthType, Model: o.Model, Org: o.Org,
		Created: now, LastUsed: now, KeyHash: o.IdempotencyKey}
	if r.OwnTask {
		err = s.withOwnTask(ctx, o, &r)
	} else {
		err = s.withTask(ctx, o, &r)
	}
	if made, ok := errors.AsType[*errMade](err); ok {
		// Another server got the same request.
		if ses, ok := s.view(made.rec, nil); ok {
			return ses, true, nil
		}
		return Session{}, false, errs.New(errs.Unavailable, "owner_moving", "Another server is making the session for this request; retry.")
	}
	if err != nil {
		return Session{}, false, err
	}
	ws, _ := s.o.Workspaces.Record(r.Workspace)
	return Session{Record: r, Root: ws.Root}, false, nil
}

// errMade says that a request with the idempotency key made a session before.
type errMade struct{ rec Record }

func (e *errMade) Error() string { return "session " + e.rec.ID + " was made by this request" }

// remembers reports whether a request that is repeated gets the session that it made.
func (s *Service) remembers(r Record) bool { return idem.Remembered(r.Created, s.o.Now()) }

// madeBefore finds the session that a request made before.
func (s *Service) madeBefore(hash string) (ses Session, ok bool, err error) {
	if hash == "" {
		return Session{}, false, nil
	}
	var r Record
	err = s.o.State.View(func(tx *state.Tx) (err error) {
		r, ok, err = records.WithKey(tx, hash)
		return err
	})
	if err != nil || !ok || !s.remembers(r) {
		return Session{}, false, errs.Wrap(err, "")
	}
	if r, ok, err = s.get(r.ID); err != nil || !ok {
		return Session{}, false, err
	}
	ses, ok = s.view(r, nil)
	return ses, ok, nil
}

// keep inserts a record; *errMade.
func (s *Service) keep(r Record) error {
	made, err := s.insert(r)
	if err == nil && made != nil {
		err = &errMade{*made}
	}
	return err
}

// withOwnTask makes the session with a task of its own. The record comes
// first, so that no crash leaves a task that is never completed.
func (s *Service) withOwnTask(ctx context.Context, o CreateOptions, r *Record) error {
	if _, err := s.o.Workspaces.Look(o.Root, workspaces.OpenOptions{}, o.Allow); err != nil {
		return err
	}
	r.Task, r.Pending = "session-"+r.ID[:8]+r.ID[9:13], true
	if err := s.keep(*r); err != nil {
		return err
	}
	metadata, err := json.Marshal(map[string]string{"session_id": r.ID})
	if err != nil {
		return err
	}
	made, err := s.o.Tasks.Create(ctx, task.CreateOptions{ID: r.Task, Goal: "Session " + r.ID, Root: o.Root, MadeBy: "session " + r.ID,
		Metadata: metadata, Actor: o.Actor, RequestID: o.RequestID, Sees: o.Sees,
		Allow: func(root string) error { return o.Allow(root, true) }})
	if err != nil {
		if rerr := s.remove(r.ID); rerr != nil {
			s.o.Log.Warn("an unused session could not be removed", "session", r.ID, "error", rerr)
		}
		return err
	}
	defer made.Release()
	*r, _, err = s.update(r.ID, func(r *Record) bool {
		r.Workspace, r.Pending = made.ID(), false
		return true
	})
	return err
}

// withTask makes the session for a task that is there.
func (s *Service) withTask(ctx context.Context, o CreateOptions, r *Record) error {
	place, err := s.o.Workspaces.Look(o.Root, workspaces.OpenOptions{}, o.Allow)
	if err != nil {
		return err
	}
	ref, err := s.o.Tasks.GetOn(ctx, o.TaskID, place.Workspace, o.Sees)
	if err != nil {
		return err
	}
	defer ref.Release()
	if task.Status(ref.Task.Info.Status).Ended() {
		return task.Status(ref.Task.Info.Status).Writable()
	}
	r.Workspace = ref.ID()
	return s.keep(*r)
}
