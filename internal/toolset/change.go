package toolset

import (
	"context"
	"errors"
	"slices"
	"time"

	"umbra/internal/errs"
	"umbra/internal/idem"
	"umbra/internal/state"
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
	if t, ok, err := s.madeBefore(o.IdempotencyKey); ok || err != nil {
		return t, ok, err
	}
	if o.TaskID != "" {
		if err := s.usable(ctx, o.TaskID, o.Who.Sees); err != nil {
			return Toolset{}, false, err
		}
	}
	now := s.o.Now().UTC()
	r := Record{ID: newID(), Task: o.TaskID, Created: now, KeyHash: o.IdempotencyKey, Idle: o.Idle, Lazy: o.Lazy && o.TaskID == "", Hidden: true}
	if r.Idle > 0 {
		r.Until = now.Add(r.Idle)
	}
	r, err = s.make(ctx, r, mounts, o.Who)
	if taken, ok := errors.AsType[*errTaken](err); ok {
		// Another server got the same request.
		if t, ok, err := s.madeBefore(o.IdempotencyKey); ok || err != nil {
			return t, ok, err
		}
		return Toolset{}, false, errs.New(errs.Unavailable, "owner_moving", "Another server is making the toolset %s for this request; retry.", taken.id)
	}
	if err != nil {
		return Toolset{}, false, err
	}
	return s.changedView(r), false, nil
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

// changedView returns the view of a toolset that was just made or changed.
func (s *Service) changedView(r Record) Toolset {
	l := s.liveOf(r, nil)
	s.use(l)
	t, _ := s.view(l, nil)
	return t
}

// remembers reports whether a request that is repeated gets the toolset that it made.
func (s *Service) remembers(r Record) bool { return idem.Remembered(r.Created, s.o.Now()) }

// madeBefore finds the toolset that a request made before.
func (s *Service) madeBefore(hash string) (t Toolset, ok bool, err error) {
	if hash == "" {
		return Toolset{}, false, nil
	}
	var r Record
	err = s.o.State.View(func(tx *state.Tx) (err error) {
		r, ok, err = records.WithKey(tx, hash)
		return err
	})
	if err != nil || !ok || !s.remembers(r) {
		return Toolset{}, false, errs.Wrap(err, "")
	}
	t, ok = s.view(s.liveOf(r, nil), nil)
	return t, ok, nil
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
	return s.changedView(r), nil
}

func errFixed() error {
	return errs.New(errs.Conflict, "toolset_fixed", "The default toolset is what the configuration says.")
}

// make keeps a new record and gives it its mounts; making is held. *errTaken.
func (s *Service) make(ctx context.Context, r Record, mounts []Mount, who Who) (Record, error) {
	if err := s.look(mounts, who); err != nil {
		return Record{}, err
	}
	planned := r
	ids := planned.plan(len(mounts), s.o.Now())
	if err := s.insert(planned); err != nil {
		return Record{}, err
	}
	return s.mount(ctx, planned, r, ids, mounts, who)
}

// plan adds the ids of tasks that may come to be, so that no crash leaves one that
// is never completed.
func (r *Record) plan(n int, now time.Time) []string {
	ids := make([]string, n)
	for i := range ids {
		ids[i] = r.newTask()
	}
	r.loosen(now, ids...)
	return ids
}

// change gives a toolset other mounts; making is held.
func (s *Service) change(ctx context.Context, before Record, mounts []Mount, who Who) (Record, error) {
	if err := s.look(mounts, who); err != nil {
		return Record{}, err
	}
	var ids []string
	planned, err := s.update(before.ID, func(r *Record) error {
		ids = r.plan(len(mounts), s.o.Now())
		return nil
	})
	if err != nil {
		return Record{}, err
	}
	return s.mount(ctx, planned, before, ids, mounts, who)
}

// mount makes the planned tasks and takes the mounts over. Where another server has
// changed these meanwhile, it is Conflict "toolset_changed".
func (s *Service) mount(ctx context.Context, planned, before Record, ids []string, mounts []Mount, who Who) (Record, error) {
	made := before
	made.Made, made.Mounts, made.Loose = planned.Made, mounts, nil
	err := s.serve(ctx, &made, ids, before, who)
	unused := slices.DeleteFunc(slices.Clone(ids), func(id string) bool { return made.Own[id] })
	var gone []string
	var r Record
	if err == nil {
		r, err = s.update(before.ID, func(r *Record) error {
			if r.Hidden != before.Hidden || !sameMounts(r.Mounts, before.Mounts) {
				return errs.New(errs.Conflict, "toolset_changed", "The mounts were changed meanwhile.")
			}
			gone = nil
			for _, id := range before.Tasks {
				if before.Own[id] && !made.Own[id] {
					gone = append(gone, id)
				}
			}
			r.Mounts, r.Tasks, r.Own, r.Lazy, r.Hidden = made.Mounts, made.Tasks, made.Own, made.Lazy, false
			for _, c := range r.Clients {
				for ws, id := range c.Tasks {
					if !r.mounts(ws) {
						gone = append(gone, id)
						r.Clients = without(r.Clients, ws)
					}
				}
			}
			r.tighten(ids)
			r.loosen(s.o.Now(), append(slices.Clone(unused), gone...)...)
			return nil
		})
	}
	if err != nil {
		if serr := s.settle(context.WithoutCancel(ctx), before.ID, ids, before.Hidden, who.RequestID); serr != nil {
			s.o.Log.Warn("a toolset that was not made could not be settled", "toolset", before.ID, "error", serr)
		}
		return Record{}, err
	}
	// It is made; what is left of before goes now, or at the next start.
	if err := s.settle(context.WithoutCancel(ctx), r.ID, append(unused, gone...), false, who.RequestID); err != nil {
		s.o.Log.Warn("a toolset's former tasks could not be completed", "toolset", r.ID, "error", err)
	}
	return r, nil
}

// settle completes own tasks that no mount uses; drop removes the toolset too, which is
// being made, or goes.
func (s *Service) settle(ctx context.Context, id string, tasks []string, drop bool, requestID string) error {
	for _, task := range tasks {
		if err := s.o.Tasks.Complete(ctx, task, requestID); err != nil {
			return err
		}
	}
	if drop {
		return errs.Wrap(records.Remove(s.o.State, id), "")
	}
	if len(tasks) == 0 {
		return nil
	}
	_, err := s.update(id, func(r *Record) error {
		r.tighten(tasks)
		return nil
	})
	return err
}

// settleAll settles what was left half done for a while.
func (s *Service) settleAll(ctx context.Context, since time.Duration) {
	ids, err := records.IDs(s.o.State, unsettled, 0, 0, "")
	if err != nil {
		s.o.Log.Warn("toolsets could not be settled", "error", err)
	}
	for _, id := range ids {
		l, err := s.lookup(id)
		if err == nil && (l == nil || s.o.Now().Sub(l.rec.Loosened) < since || ctx.Err() != nil) {
			continue
		}
		if err == nil {
			err = s.settle(ctx, id, l.rec.Loose, l.rec.Hidden, "")
		}
		if err != nil {
			s.o.Log.Warn("a toolset could not be settled; it is tried again at the next start", "toolset", id, "error", err)
		}
	}
}

// Delete drops a toolset and completes the tasks that it made. NotFound
// "toolset_not_found"; Conflict "toolset_fixed".
func (s *Service) Delete(ctx context.Context, id string, who Who) error {
	_, err := s.remove(ctx, id, who, func(*Record) bool { return true })
	return err
}

// errStays ends an update that is not wanted any more.
var errStays = errors.New("the toolset stays")

// remove deletes a toolset if it is still to be.
func (s *Service) remove(ctx context.Context, id string, who Who, still func(*Record) bool) (removed bool, err error) {
	s.making.Lock()
	defer s.making.Unlock()
	l, err := s.lookup(id)
	if err != nil {
		return false, err
	}
	if !s.visible(l, who.Sees) {
		return false, notFound()
	}
	r, err := s.update(id, func(r *Record) error {
		switch {
		case r.Hidden:
			return notFound()
		case !still(r):
			return errStays
		case r.Fixed:
			return errFixed()
		}
		r.Hidden = true
		for task := range r.Own {
			r.loosen(s.o.Now(), task)
		}
		for _, c := range r.Clients {
			for _, task := range c.Tasks {
				r.loosen(s.o.Now(), task)
			}
		}
		return nil
	})
	if errors.Is(err, errStays) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	s.mu.Lock()
	delete(s.ready, id)
	delete(s.used, id)
	s.mu.Unlock()
	s.changed(id)
	if err := s.settle(context.WithoutCancel(ctx), id, r.Loose, true, who.RequestID); err != nil {
		s.o.Log.Warn("a toolset's end is not finished; it is at the next start", "toolset", id, "error", err)
	}
	return true, nil
}

// Default gives the id of the default toolset, made at its first use and again
// where the configuration says otherwise than before.
func (s *Service) Default(ctx context.Context) (string, error) {
	if s.defaultMade.Load() {
		l, err := s.lookup(DefaultID)
		if err != nil {
			return "", err
		}
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
	l, err := s.lookup(DefaultID)
	if err != nil {
		return "", err
	}
	if l != nil && s.visible(l, nil) {
		if err := s.look(mounts, Who{}); err != nil {
			return "", err
		}
		if s.serves(l, mounts) {
			s.defaultMade.Store(true)
			return DefaultID, nil
		}
	}
	if l == nil {
		r := Record{ID: DefaultID, Created: s.o.Now().UTC(), Fixed: true, Lazy: true, Hidden: true}
		_, err = s.make(ctx, r, mounts, Who{})
		if _, ok := errors.AsType[*errTaken](err); ok {
			return "", errs.New(errs.Unavailable, "owner_moving", "Another server is making the default toolset; retry.")
		}
	} else {
		before := l.rec
		before.Lazy = true
		_, err = s.change(ctx, before, mounts, Who{})
	}
	if err != nil {
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
