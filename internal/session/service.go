package session

import (
	"cmp"
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"

	"umbra/internal/errs"
	"umbra/internal/state"
	"umbra/internal/task"
	"umbra/internal/workspaces"
)

// Options of a Service.
type Options struct {
	State      *state.DB
	Tasks      *task.Service
	Workspaces *workspaces.Manager
	Idle       time.Duration // a session that was not used for so long ends; 0: 2 h
	Log        *slog.Logger
	Now        func() time.Time
}

const (
	defaultIdle = 2 * time.Hour
	// flushEvery bounds how much of the last use a kill can lose.
	flushEvery = 30 * time.Second
)

// Service is all sessions of a data directory. Its methods may be called
// concurrently.
type Service struct {
	o Options

	mu    sync.Mutex
	byID  map[string]*entry
	byKey map[string]string // KeyHash to id

	stop context.CancelFunc
	done sync.WaitGroup
}

// entry is a session in memory.
type entry struct {
	rec   Record
	users int  // requests inside
	dirty bool // LastUsed is newer than what is kept
}

// New reads the sessions, settles what a stop left half done, and begins to
// end those that are idle. Close ends it.
func New(ctx context.Context, o Options) (*Service, error) {
	o.Idle = cmp.Or(o.Idle, defaultIdle)
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	s := &Service{o: o, byID: map[string]*entry{}, byKey: map[string]string{}}
	all, err := state.All[Record](o.State, bucket)
	if err != nil {
		return nil, err
	}
	for _, r := range all {
		s.add(r)
	}
	for _, r := range all {
		if !r.Pending {
			continue
		}
		if err := s.settle(ctx, r); err != nil {
			o.Log.Warn("a session could not be settled", "session", r.ID, "error", err)
		}
	}
	run, cancel := context.WithCancel(context.WithoutCancel(ctx))
	s.stop = cancel
	s.done.Go(func() { s.run(run) })
	return s, nil
}

// Close ends the work beside requests and keeps what is not kept yet.
func (s *Service) Close() error {
	s.stop()
	s.done.Wait()
	return s.flush()
}

func (s *Service) add(r Record) {
	s.byID[r.ID] = &entry{rec: r}
	if r.KeyHash != "" {
		s.byKey[r.KeyHash] = r.ID
	}
}

// put keeps a record, durably, and then takes it over.
func (s *Service) put(r Record) error {
	if err := s.o.State.Put(bucket, r.ID, r); err != nil {
		return errs.Wrap(err, "")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if e := s.byID[r.ID]; e != nil {
		r.LastUsed = later(r.LastUsed, e.rec.LastUsed)
		e.rec = r
		return nil
	}
	s.add(r)
	return nil
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

func (s *Service) remove(r Record) error {
	if err := s.o.State.Delete(bucket, r.ID); err != nil {
		return errs.Wrap(err, "")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.byID, r.ID)
	if s.byKey[r.KeyHash] == r.ID {
		delete(s.byKey, r.KeyHash)
	}
	return nil
}

// settle makes a session whose task was being made what it would have become.
func (s *Service) settle(ctx context.Context, r Record) error {
	ref, err := s.o.Tasks.Get(ctx, r.Task, nil)
	if errs.Is(err, errs.NotFound) {
		return s.remove(r)
	}
	if err != nil {
		return err
	}
	defer ref.Release()
	r.Pending, r.Workspace = false, ref.ID()
	return s.put(r)
}

// Session is one session as it is told.
type Session struct {
	Record
	Root string // of its workspace: the canonical host path
}

// tell gives a session that a caller may know of; mu is held.
func (s *Service) tell(e *entry, sees task.Sees) (Session, bool) {
	if e.rec.Pending || e.rec.Ended || s.idle(e) {
		return Session{}, false
	}
	ws, ok := s.o.Workspaces.Record(e.rec.Workspace)
	if !ok || sees != nil && !sees(ws.Root) {
		return Session{}, false
	}
	return Session{Record: e.rec, Root: ws.Root}, true
}

func (s *Service) idle(e *entry) bool {
	return e.users == 0 && s.o.Now().Sub(e.rec.LastUsed) > s.o.Idle
}

// Use begins a request on a session; done ends it. NotFound "session_not_found"
// if there is none that the caller sees.
func (s *Service) Use(id string, sees task.Sees) (ses Session, done func(), err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.byID[id]
	if e == nil {
		return Session{}, nil, notFound()
	}
	ses, ok := s.tell(e, sees)
	if !ok {
		return Session{}, nil, notFound()
	}
	e.users++
	return ses, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		e.users--
		e.rec.LastUsed, e.dirty = s.o.Now().UTC(), true
	}, nil
}

// Visible gives nil if the caller may know of a session, or if there is none.
func (s *Service) Visible(id string, sees task.Sees) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.byID[id]
	if e == nil {
		return nil
	}
	if ws, ok := s.o.Workspaces.Record(e.rec.Workspace); ok && sees != nil && !sees(ws.Root) {
		return notFound()
	}
	return nil
}

// Where returns the workspace of a session, "" if there is none.
func (s *Service) Where(id string) (workspaceID string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if e := s.byID[id]; e != nil {
		return e.rec.Workspace, nil
	}
	return "", nil
}

// List gives the sessions that the caller sees, the oldest first.
func (s *Service) List(sees task.Sees) []Session {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make([]Session, 0, len(s.byID))
	for _, e := range s.byID {
		if ses, ok := s.tell(e, sees); ok {
			out = append(out, ses)
		}
	}
	slices.SortFunc(out, func(a, b Session) int {
		return cmp.Or(a.Created.Compare(b.Created), cmp.Compare(a.ID, b.ID))
	})
	return out
}
