package toolset

import (
	"context"
	"slices"
	"time"

	"umbra/internal/errs"
	"umbra/internal/idem"
	"umbra/internal/task"
)

// CreateOptions say what toolset to make.
type CreateOptions struct {
	Mounts []Spec
	TaskID string // empty: each workspace gets a task of its own
	// Lazy makes no task now: each client's is made at its first change.
	Lazy           bool
	IdempotencyKey string
	Idle           time.Duration // unused for so long it goes, at most MaxIdle; 0: it stays
	Who            Who
}

// Create makes a toolset, with a baseline of each folder that was no workspace
// yet; durable when it returns. replayed: the request with this idempotency key
// made it before.
//
// Invalid "invalid_field" and the codes of folders that are none, with the
// field; NotFound "task_not_found"; Conflict "task_ended", "task_paused",
// "workspace_overlaps"; what Allow says.
func (s *Service) Create(ctx context.Context, o CreateOptions) (t Toolset, replayed bool, err error) {
	if o.Idle < 0 || o.Idle > MaxIdle {
		return Toolset{}, false, wrong("idleSeconds", "idleSeconds must be 1 to 86400.")
	}
	mounts, err := s.check(o.Mounts, o.Who)
	if err != nil {
		return Toolset{}, false, err
	}
	s.making.Lock()
	defer s.making.Unlock()
	if t, ok := s.withKey(o.IdempotencyKey); ok {
		return t, true, nil
	}
	if o.TaskID != "" {
		if err := s.usable(ctx, o.TaskID, o.Who.Sees); err != nil {
			return Toolset{}, false, err
		}
	}
	r := Record{ID: newID(), Task: o.TaskID, Created: s.o.Now().UTC(), KeyHash: o.IdempotencyKey, Idle: o.Idle, Lazy: o.Lazy && o.TaskID == "", Hidden: true}
	if r, err = s.change(ctx, r, mounts, o.Who); err != nil {
		return Toolset{}, false, err
	}
	return s.told(r), false, nil
}

// usable gives nil if the caller may give a task to a toolset.
func (s *Service) usable(ctx context.Context, id string, sees task.Sees) error {
	if !task.ValidID(id) {
		return wrong("taskId", "taskId is malformed.")
	}
	ref, err := s.o.Tasks.Get(ctx, id, sees)
	if err != nil {
		return err
	}
	defer ref.Release()
	return task.Status(ref.Task.Info.Status).Writable()
}

// told is the view of a toolset for who has just made or changed it.
func (s *Service) told(r Record) Toolset {
	s.mu.RLock()
	l := s.byID[r.ID]
	s.mu.RUnlock()
	t, _ := s.tell(l, nil)
	return t
}

// withKey finds the toolset that a request made before.
func (s *Service) withKey(hash string) (Toolset, bool) {
	if hash == "" {
		return Toolset{}, false
	}
	s.mu.RLock()
	l := s.byID[s.byKey[hash]]
	s.mu.RUnlock()
	if l == nil || !idem.Remembered(l.rec.Created, s.o.Now()) {
		return Toolset{}, false
	}
	return s.tell(l, nil)
}

// SetMounts replaces a toolset's mounts; the calls that begin afterwards see the
// new ones. Errors as Create's; NotFound "toolset_not_found"; Conflict
// "toolset_fixed" for the default one.
func (s *Service) SetMounts(ctx context.Context, id string, specs []Spec, who Who) (Toolset, error) {
	mounts, err := s.check(specs, who)
	if err != nil {
		return Toolset{}, err
	}
	s.making.Lock()
	defer s.making.Unlock()
	l, err := s.find(id, who.Sees)
	if err != nil {
		return Toolset{}, err
	}
	if l.rec.Fixed {
		return Toolset{}, errFixed()
	}
	r, err := s.change(ctx, l.rec, mounts, who)
	if err != nil {
		return Toolset{}, err
	}
	s.changed(id)
	return s.told(r), nil
}

func errFixed() error {
	return errs.New(errs.Conflict, "toolset_fixed", "The default toolset is what the configuration says.")
}

// change gives a toolset new mounts; making is held. The record first says
// which tasks may come to be, so that no crash leaves one that is never
// completed.
func (s *Service) change(ctx context.Context, before Record, mounts []Mount, who Who) (Record, error) {
	if err := s.look(mounts, who); err != nil {
		return Record{}, err
	}
	r := before
	r.Mounts = mounts
	ids := make([]string, len(mounts))
	for i := range ids {
		ids[i] = r.newTask()
	}
	planned := before
	planned.Made, planned.Loose = r.Made, append(slices.Clip(before.Loose), ids...)
	if err := s.put(planned); err != nil {
		return Record{}, err
	}
	if err := s.serve(ctx, &r, ids, before, who); err != nil {
		if serr := s.settle(context.WithoutCancel(ctx), planned, who.RequestID); serr != nil {
			s.o.Log.Warn("a toolset that was not made could not be settled", "toolset", before.ID, "error", serr)
		}
		return Record{}, err
	}
	for _, c := range before.Clients {
		for ws, id := range c.Tasks {
			if !r.mounts(ws) {
				r.Loose = append(slices.Clip(r.Loose), id)
				r.Clients = without(r.Clients, ws)
			}
		}
	}
	for _, id := range before.Tasks {
		if before.Own[id] && !r.Own[id] {
			r.Loose = append(slices.Clip(r.Loose), id)
		}
	}
	r.Hidden = false
	if err := s.put(r); err != nil {
		return Record{}, err
	}
	// It is; what is left of before goes now, or at the next start.
	if err := s.settle(context.WithoutCancel(ctx), r, who.RequestID); err != nil {
		s.o.Log.Warn("a toolset's former tasks could not be completed", "toolset", r.ID, "error", err)
	}
	return r, nil
}

// settle completes the own tasks that no mount uses, and drops a toolset that
// is being made, or goes.
func (s *Service) settle(ctx context.Context, r Record, requestID string) error {
	if len(r.Loose) == 0 && !r.Hidden {
		return nil
	}
	for _, id := range r.Loose {
		if err := s.o.Tasks.Complete(ctx, id, requestID); err != nil {
			return err
		}
	}
	if r.Hidden {
		return s.drop(r)
	}
	r.Loose = nil
	return s.put(r)
}

// Delete drops a toolset and completes the tasks that it made. NotFound
// "toolset_not_found"; Conflict "toolset_fixed".
func (s *Service) Delete(ctx context.Context, id string, who Who) error {
	return s.remove(ctx, id, who, func(*live) bool { return true })
}

// remove deletes a toolset if it is still to be.
func (s *Service) remove(ctx context.Context, id string, who Who, still func(*live) bool) error {
	s.making.Lock()
	defer s.making.Unlock()
	s.mu.RLock()
	l := s.byID[id]
	s.mu.RUnlock()
	if !s.visible(l, who.Sees) {
		return notFound()
	}
	if !still(l) {
		return nil
	}
	if l.rec.Fixed {
		return errFixed()
	}
	r := l.rec
	r.Hidden = true
	for task := range r.Own {
		r.Loose = append(slices.Clip(r.Loose), task)
	}
	for _, c := range r.Clients {
		for _, task := range c.Tasks {
			r.Loose = append(slices.Clip(r.Loose), task)
		}
	}
	if err := s.put(r); err != nil {
		return err
	}
	s.changed(id)
	if err := s.settle(context.WithoutCancel(ctx), r, who.RequestID); err != nil {
		s.o.Log.Warn("a toolset's end is not finished; it is at the next start", "toolset", id, "error", err)
	}
	return nil
}

// Default gives the id of the default toolset, made at its first use and again
// where the configuration says otherwise than before.
func (s *Service) Default(ctx context.Context) (string, error) {
	if s.defaultMade.Load() {
		s.mu.RLock()
		l := s.byID[DefaultID]
		s.mu.RUnlock()
		if s.visible(l, nil) && s.serves(l, l.rec.Mounts) {
			return DefaultID, nil
		}
	}
	s.making.Lock()
	defer s.making.Unlock()
	mounts, err := s.check(s.o.Default, Who{})
	if err != nil {
		return "", err
	}
	s.mu.RLock()
	l := s.byID[DefaultID]
	s.mu.RUnlock()
	if l != nil && s.visible(l, nil) {
		if err := s.look(mounts, Who{}); err != nil {
			return "", err
		}
		if s.serves(l, mounts) {
			s.defaultMade.Store(true)
			return DefaultID, nil
		}
	}
	r := Record{ID: DefaultID, Created: s.o.Now().UTC(), Fixed: true, Lazy: true, Hidden: true}
	if l != nil {
		r = l.rec
		r.Hidden, r.Lazy = false, true
	}
	if _, err := s.change(ctx, r, mounts, Who{}); err != nil {
		return "", err
	}
	s.defaultMade.Store(true)
	s.changed(DefaultID)
	return DefaultID, nil
}

// serves reports whether a toolset has just these mounts, with tasks that may
// still write.
func (s *Service) serves(l *live, mounts []Mount) bool {
	return slices.EqualFunc(l.rec.Mounts, mounts, func(a, b Mount) bool {
		return a.Prefix == b.Prefix && a.Scope == b.Scope && a.Kind == b.Kind && a.Workspace == b.Workspace &&
			(l.rec.Lazy || s.o.Tasks.Writable(l.rec.Tasks[a.Workspace], a.Workspace) == nil)
	})
}
