package task

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"path/filepath"
	"strings"
	"time"

	"umbra/gitstore"
	"umbra/gitstore/message"
	"umbra/gitstore/object"
	"umbra/internal/clock"
	"umbra/internal/errs"
	"umbra/internal/idem"
	"umbra/internal/policy"
	"umbra/internal/witness"
	"umbra/internal/workspace"
	"umbra/internal/workspaces"
)

// The keys of the info tag's further trailers.
const (
	extraDeleted = "Deleted"     // when the task was deleted
	extraAuto    = "Made-By"     // the session or toolset that made the task for itself
	extraParent  = "Parent-Task" // the task that a child task represents on a workspace of the server's own
)

// extra gives a further trailer's value, "" if there is none.
func extra(in message.Info, key string) string {
	for _, t := range in.Extra {
		if t.Key == key {
			return t.Value
		}
	}
	return ""
}

// Bounds of what a task's record holds, in bytes.
const (
	MaxGoal     = 64 << 10
	maxMetadata = 256 << 10
)

// CreateOptions says what task to make.
type CreateOptions struct {
	Goal string
	Root string // absolute path of the folder; empty for a virtual workspace
	// Virtual makes the task on a workspace without a folder: the one of
	// Namespace, or, where that is nil, a new one.
	Virtual   bool
	Namespace []string
	ID        string // empty: one is made
	Metadata  json.RawMessage
	Force     bool // take a folder as wide as a home directory
	Own       bool // the folder is one of the server's own, whatever clients may open
	Actor     string
	// MadeBy names the session or toolset that makes the task for itself.
	MadeBy                    string
	RequestID, IdempotencyKey string
	// parent is the task whose child this one is.
	parent string
	// Only and AllowPaths are the task's own rules (package policy): the only paths
	// that it may change, and protected ones that it may.
	Only, AllowPaths []string
	// Hold has rejections of the task's hunks wait until no call of it is open.
	Hold bool
	// Allow judges the folder by its canonical path before it is opened.
	Allow func(root string) error
	Sees  Sees
}

func (o *CreateOptions) validate() error {
	switch {
	case strings.TrimSpace(o.Goal) == "":
		return invalid("goal", "A goal is required.")
	case len(o.Goal) > MaxGoal:
		return invalid("goal", "The goal is longer than 64 KiB.")
	case o.Virtual && o.Root != "":
		return invalid("workspace", "A virtual workspace has no directory; leave workspace out.")
	case !o.Virtual && o.Namespace != nil:
		return invalid("namespace", "A namespace is for virtual workspaces.")
	case o.Virtual && workspaces.CheckNamespace(o.Namespace) != nil:
		return invalid("namespace", "The namespace must be a list of 1 to 64 texts that are not empty, 4096 bytes in all.")
	case o.Virtual:
	case o.Root == "":
		return invalid("workspace", "A workspace is required.")
	case strings.IndexByte(o.Root, 0) >= 0 || !filepath.IsAbs(o.Root):
		return invalid("workspace", "The workspace must be an absolute path.")
	case o.ID != "" && !ValidID(o.ID):
		return badID("task_id", "task_id")
	}
	for field, list := range map[string][]string{"only": o.Only, "allow": o.AllowPaths} {
		if len(list) > policy.MaxRules {
			return invalid(field, "The list has more rules than a task may have.")
		}
		for _, rule := range list {
			if err := policy.Valid(rule); err != nil {
				return invalid(field, "A rule must be a pattern as in .gitignore, without negation.")
			}
		}
	}
	return validMetadata(o.Metadata)
}

func validMetadata(m json.RawMessage) error {
	switch trimmed := bytes.TrimSpace(m); {
	case len(m) > maxMetadata:
		return invalid("metadata", "The metadata is larger than 256 KiB.")
	case len(trimmed) > 0 && trimmed[0] != '{':
		return invalid("metadata", "The metadata must be an object.")
	}
	return nil
}

func invalid(field, detail string) error {
	e := errs.New(errs.Unprocessable, "validation_failed", "")
	e.Detail = detail
	return e.With("field", field)
}

// Made is a task just made, or made before by the same request.
type Made struct {
	*Ref
	Warnings []string
	Replayed bool
}

// Create opens the folder and starts a task on it; durable when it returns.
// The caller releases what it gives. Unprocessable "validation_failed" with
// the field; Conflict "task_exists", "workspace_overlaps"; Invalid with the
// codes of a folder that cannot be opened.
func (s *Service) Create(ctx context.Context, o CreateOptions) (*Made, error) {
	if err := o.validate(); err != nil {
		return nil, err
	}
	started := clock.Boot()
	for {
		id, err := s.begunOn(ctx, o)
		if err != nil {
			return nil, err
		}
		if id != "" {
			return s.CreateOf(ctx, id, o)
		}
		w, warnings, err := s.openFor(ctx, o)
		if err != nil {
			return nil, err
		}
		made, err := s.createOn(ctx, w, o, started)
		if err == nil {
			made.Warnings = warnings
			return made, nil
		}
		w.Release()
		if !errors.Is(err, errBegun) {
			return nil, err
		}
		if o.Virtual && o.Namespace == nil { // it was made for this task
			if err := s.o.Workspaces.Forget(ctx, w.ID(), true); err != nil {
				return nil, err
			}
		}
	}
}

// errBegun is for a request that another server began on another workspace.
var errBegun = errors.New("task: another server began this request")

// begunOn returns the workspace on which this very request began to make its task, where it
// is a new one each time; empty: it did not.
func (s *Service) begunOn(ctx context.Context, o CreateOptions) (workspaceID string, err error) {
	if o.IdempotencyKey == "" || !o.Virtual || o.Namespace != nil {
		return "", nil
	}
	_ = s.readUnread(ctx) // it may be among them
	rec, ok, err := s.index.withKey(o.IdempotencyKey)
	if err != nil || !ok || rec.Deleted || !idem.Remembered(rec.Created, s.o.Now()) {
		return "", errs.Wrap(err, "")
	}
	if _, known := s.Workspace(rec.Workspace, o.Sees); !known {
		return "", nil
	}
	return rec.Workspace, nil
}

// CreateOn is Create on a workspace that the caller holds open. Root, Virtual,
// Namespace, Force, Own, Allow and Sees play no part.
func (s *Service) CreateOn(ctx context.Context, w *workspace.Workspace, o CreateOptions) (*Made, error) {
	o.Root, o.Virtual, o.Namespace = w.Root(), w.Root() == "", nil
	if err := o.validate(); err != nil {
		return nil, err
	}
	started := clock.Boot()
	own, err := s.o.Workspaces.Get(ctx, w.ID())
	if err != nil {
		return nil, err
	}
	made, err := s.createOn(ctx, own, o, started)
	if err != nil {
		own.Release()
	}
	return made, err
}

// CreateOf is CreateOn on the workspace of an id.
func (s *Service) CreateOf(ctx context.Context, id string, o CreateOptions) (*Made, error) {
	w, err := s.o.Workspaces.Get(ctx, id)
	if err != nil {
		return nil, err
	}
	defer w.Release()
	return s.CreateOn(ctx, w, o)
}

// Workspace gives the record of a workspace that the caller may know of.
func (s *Service) Workspace(id string, sees Sees) (workspaces.Record, bool) {
	rec, ok := s.o.Workspaces.Record(id)
	return rec, ok && sees.see(rec.Place())
}

// openFor opens the workspace that a task is to be made on. Who sees only some
// folders opens no virtual one.
func (s *Service) openFor(ctx context.Context, o CreateOptions) (*workspace.Workspace, []string, error) {
	if !o.Virtual {
		return s.o.Workspaces.Open(ctx, o.Root, workspaces.OpenOptions{Force: o.Force || o.Own, Own: o.Own, Allow: o.Allow})
	}
	if !o.Sees.see("") {
		return nil, nil, errs.New(errs.Forbidden, "workspace_not_allowed", "The caller may not open virtual workspaces.")
	}
	w, err := s.o.Workspaces.OpenVirtual(ctx, o.Namespace)
	return w, nil, err
}

func (s *Service) createOn(ctx context.Context, w *workspace.Workspace, o CreateOptions, started time.Duration) (*Made, error) {
	_ = s.readUnread(ctx) // a task that this request made may be among them
	defer s.making.Lock(w.ID())()
	now := s.o.Now().UTC()
	rec, ok, err := s.index.withKey(o.IdempotencyKey)
	if err != nil {
		return nil, errs.Wrap(err, "")
	}
	if ok && rec.Workspace == w.ID() && idem.Remembered(rec.Created, now) {
		if t, ok := w.Store().Task(rec.ID); ok {
			return &Made{Ref: &Ref{Workspace: w, Task: t}, Replayed: true}, nil
		}
	}
	end, epoch, err := s.begin(ctx, w)
	if err != nil {
		return nil, errs.Wrap(err, "")
	}
	defer end()
	rec = Record{ID: o.ID, Workspace: w.ID(), Created: now, Status: Executing, Auto: o.MadeBy != "", Pending: true, KeyHash: o.IdempotencyKey}
	if err := s.reserve(ctx, w, &rec); err != nil {
		return nil, err
	}
	info := message.Info{TaskID: rec.ID, Goal: o.Goal, Status: string(Executing), Actor: o.Actor, Created: now, Updated: now,
		Metadata: o.Metadata, RequestID: o.RequestID, IdempotencyKey: o.IdempotencyKey}
	if o.MadeBy != "" {
		info.Extra = append(info.Extra, message.Trailer{Key: extraAuto, Value: o.MadeBy})
	}
	for _, rule := range o.Only {
		info.Extra = append(info.Extra, message.Trailer{Key: policy.KeyOnly, Value: rule})
	}
	for _, rule := range o.AllowPaths {
		info.Extra = append(info.Extra, message.Trailer{Key: policy.KeyAllow, Value: rule})
	}
	if o.Hold {
		info.Extra = append(info.Extra, message.Trailer{Key: message.KeyHold, Value: "true"})
	}
	if o.parent != "" {
		rec.Parent = o.parent
		info.Extra = append(info.Extra, message.Trailer{Key: extraParent, Value: o.parent})
	}
	t, err := s.putNew(ctx, w, rec, info, started)
	if err != nil {
		return nil, err
	}
	rec.Pending = false
	if err := s.index.keep(rec, epoch); err != nil {
		return nil, err
	}
	s.hub.notify(w.ID(), rec.ID, note{task: t, seq: w.Store().Tip().Seq})
	return &Made{Ref: &Ref{Workspace: w, Task: t}}, nil
}

// reserve takes an id that nothing of the workspace's history has.
func (s *Service) reserve(ctx context.Context, w *workspace.Workspace, rec *Record) error {
	given := rec.ID != ""
	for {
		if !given {
			rec.ID = newID()
		}
		taken, err := inHistory(ctx, w, rec.ID)
		if err != nil {
			return err
		}
		if !taken {
			reserved, err := s.index.reserve(*rec)
			if reserved || err != nil {
				return errs.Wrap(err, "")
			}
		}
		if given {
			return errs.New(errs.Conflict, "task_exists", "The task_id is taken; it must be new.").With("task_id", rec.ID)
		}
	}
}

func inHistory(ctx context.Context, w *workspace.Workspace, id string) (bool, error) {
	if _, ok := w.Store().Task(id); ok {
		return true, nil
	}
	recs, err := w.Store().TaskRecords(ctx, id)
	return len(recs) > 0, err
}

// putNew records earlier changes on disk and concurrently makes the task's own
// folders, and then writes the record in the repository. A failure releases the id.
func (s *Service) putNew(ctx context.Context, w *workspace.Workspace, rec Record, info message.Info, started time.Duration) (t gitstore.Task, err error) {
	folders := s.beginFolders(rec.ID)
	defer func() {
		folders.wait()
		if _, ok := w.Store().Task(rec.ID); err == nil || ok {
			return
		}
		s.index.release(rec.ID)
		_ = s.dropFolders(rec.ID)
	}()
	// The base is the folder as it is now, and what changed before is not the
	// new task's.
	if _, err := w.Reconcile(ctx, workspace.SyncOptions{Attribute: true}, started); err != nil {
		return gitstore.Task{}, err
	}
	if err := <-folders.made; err != nil {
		return gitstore.Task{}, err
	}
	if t, err = w.Store().PutTask(ctx, info, object.Zero); err != nil {
		return gitstore.Task{}, err
	}
	witness.Committed(ctx, w.Store(), w.Store().Tip().Seq)
	return t, nil
}

// Patch says what of a task changes; nil leaves it.
type Patch struct {
	Status   *Status
	Goal     *string
	Metadata json.RawMessage // nil leaves it
	Pinned   *bool
}

func (p *Patch) validate() error {
	if p.Goal != nil {
		if strings.TrimSpace(*p.Goal) == "" {
			return invalid("goal", "The goal must not be empty.")
		}
		if len(*p.Goal) > MaxGoal {
			return invalid("goal", "The goal is longer than 64 KiB.")
		}
	}
	return validMetadata(p.Metadata)
}

// Complete ends a task for what made it, unless it has ended, or was never created.
func (s *Service) Complete(ctx context.Context, id, requestID string) error {
	ref, err := s.Get(ctx, id, nil)
	if errs.Is(err, errs.NotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	defer ref.Release()
	status := Completed
	err = s.Patch(ctx, ref, Patch{Status: &status}, requestID)
	if errs.Is(err, errs.Conflict) || errs.Is(err, errs.NotFound) {
		return nil
	}
	return err
}

// Patch changes a task's record; durable when it returns, and r.Task is what
// it is then. Conflict "task_ended" for a status after the last one.
func (s *Service) Patch(ctx context.Context, r *Ref, p Patch, requestID string) error {
	if err := p.validate(); err != nil {
		return err
	}
	if s.ending != nil && p.Status != nil && p.Status.Ended() && Status(r.Task.Info.Status).next(*p.Status) == nil {
		s.ending(ctx, r.Task.ID)
	}
	if err := s.patch(ctx, r, p, requestID); err != nil {
		return err
	}
	if p.Status != nil && p.Status.Ended() {
		s.endChildren(ctx, r.Task.ID, *p.Status, requestID)
	}
	return nil
}

func (s *Service) patch(ctx context.Context, r *Ref, p Patch, requestID string) error {
	defer s.making.Lock(r.ID())()
	if err := r.InHistory(); err != nil {
		return err
	}
	t, ok := r.Store().Task(r.Task.ID)
	if !ok || extra(t.Info, extraDeleted) != "" {
		return notFound(r.Task.ID)
	}
	info, changed := t.Info, false
	if p.Status != nil && Status(info.Status) != *p.Status {
		if err := Status(info.Status).next(*p.Status); err != nil {
			return err
		}
		info.Status, changed = string(*p.Status), true
	}
	if p.Goal != nil && *p.Goal != info.Goal {
		info.Goal, changed = *p.Goal, true
	}
	if p.Metadata != nil && !bytes.Equal(p.Metadata, info.Metadata) {
		info.Metadata, changed = p.Metadata, true
	}
	if p.Pinned != nil && *p.Pinned != info.Pinned {
		info.Pinned, changed = *p.Pinned, true
	}
	if !changed {
		r.Task = t
		return nil
	}
	info.RequestID = requestID
	t, err := s.rewrite(ctx, r, info)
	if err != nil {
		return err
	}
	r.Task = t
	s.hub.notify(r.ID(), t.ID, note{task: t, seq: r.Store().Tip().Seq})
	return nil
}

// rewrite puts a task's new info into the repository and the index.
func (s *Service) rewrite(ctx context.Context, r *Ref, info message.Info) (gitstore.Task, error) {
	if _, ok, err := s.index.get(r.Task.ID); !ok || err != nil {
		return gitstore.Task{}, cmp.Or(errs.Wrap(err, ""), notFound(r.Task.ID))
	}
	end, epoch, err := s.begin(ctx, r.Workspace)
	if err != nil {
		return gitstore.Task{}, errs.Wrap(err, "")
	}
	defer end()
	info.Updated = s.o.Now().UTC()
	t, err := r.Store().PutTask(ctx, info, object.Zero)
	if err != nil {
		return gitstore.Task{}, err
	}
	witness.Committed(ctx, r.Store(), r.Store().Tip().Seq)
	return t, s.index.keep(RecordOf(t, r.ID()), epoch)
}

// Delete removes a task that is over, with its folders; its history stays and
// its id stays taken. Conflict "task_executing" while it may still write.
func (s *Service) Delete(ctx context.Context, r *Ref, requestID string) error {
	defer s.making.Lock(r.ID())()
	if r.Dropped {
		return s.deleteDropped(r)
	}
	t, ok := r.Store().Task(r.Task.ID)
	if !ok || extra(t.Info, extraDeleted) != "" {
		return notFound(r.Task.ID)
	}
	if st := Status(t.Info.Status); !st.Ended() {
		return errs.New(errs.Conflict, "task_executing", "The task is %s; end it first.", string(st))
	}
	info := t.Info
	info.Extra = append(info.Extra[:len(info.Extra):len(info.Extra)],
		message.Trailer{Key: extraDeleted, Value: s.o.Now().UTC().Format(time.RFC3339)})
	info.RequestID = requestID
	if _, err := s.rewrite(ctx, r, info); err != nil {
		return err
	}
	s.hub.notify(r.ID(), t.ID, note{gone: true})
	// The task is gone from here on; folders that stay go at the next start.
	if err := cmp.Or(s.dropShared(t.ID), s.dropFolders(t.ID)); err != nil {
		s.o.Log.Warn("a task's directories could not be removed", "task", t.ID, "error", err)
	}
	return nil
}
