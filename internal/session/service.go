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

// Service is all sessions of a data directory, or of a cluster. Its methods may be
// called concurrently. A session is read by its key; in memory are those that a request
// is inside of, and last uses that are not kept yet.
type Service struct {
	o Options

	mu   sync.Mutex
	uses map[string]*uses

	stop context.CancelFunc
	done sync.WaitGroup
}

// uses is what this server knows of the use of a session.
type uses struct {
	inside int       // requests
	last   time.Time // the end of the last one
	dirty  bool      // last is not kept yet
}

// New settles what a stop left half done, and begins to end the sessions that are
// idle. Close ends it.
func New(ctx context.Context, o Options) (*Service, error) {
	o.Idle = cmp.Or(o.Idle, defaultIdle)
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	s := &Service{o: o, uses: map[string]*uses{}}
	if err := records.Index(o.State); err != nil {
		return nil, err
	}
	if !o.State.Shared() {
		s.settleAll(ctx, 0)
	}
	run, cancel := context.WithCancel(context.WithoutCancel(ctx))
	s.stop = cancel
	s.done.Go(func() { s.run(run) })
	return s, nil
}

// Close ends the background work and saves what is not saved yet.
func (s *Service) Close() error {
	s.stop()
	s.done.Wait()
	return s.flush()
}

// settle makes a session whose task was being made what it would have become.
func (s *Service) settle(ctx context.Context, r Record) error {
	ref, err := s.o.Tasks.Get(ctx, r.Task, nil)
	if errs.Is(err, errs.NotFound) {
		return s.remove(r.ID)
	}
	if err != nil {
		return err
	}
	defer ref.Release()
	_, _, err = s.update(r.ID, func(r *Record) bool {
		r.Pending, r.Workspace = false, ref.ID()
		return true
	})
	return err
}

// settleAll settles the sessions whose tasks have been in the making for a while.
func (s *Service) settleAll(ctx context.Context, since time.Duration) {
	ids, err := records.IDs(s.o.State, unsettled, 0, 0, "")
	if err != nil {
		s.o.Log.Warn("sessions could not be settled", "error", err)
	}
	for _, id := range ids {
		r, found, err := s.get(id)
		if err == nil && found && r.Pending && s.o.Now().Sub(r.Created) >= since {
			err = s.settle(ctx, r)
		}
		if err != nil {
			s.o.Log.Warn("a session could not be settled", "session", id, "error", err)
		}
	}
}

// Session is one session as callers see it.
type Session struct {
	Record
	Root string // of its workspace: the canonical host path
}

// view returns a session if the caller may see it.
func (s *Service) view(r Record, sees task.Sees) (Session, bool) {
	if r.Pending || r.Ended || s.idle(r) {
		return Session{}, false
	}
	ws, ok := s.o.Workspaces.Record(r.Workspace)
	if !ok || sees != nil && !sees(ws.Root) {
		return Session{}, false
	}
	return Session{Record: r, Root: ws.Root}, true
}

func (s *Service) idle(r Record) bool {
	if s.o.Now().Sub(r.LastUsed) <= s.o.Idle {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	u := s.uses[r.ID]
	return u == nil || u.inside == 0 && s.o.Now().Sub(u.last) > s.o.Idle
}

// Use begins a request on a session; done ends it. NotFound "session_not_found"
// if there is none that the caller sees.
func (s *Service) Use(id string, sees task.Sees) (ses Session, done func(), err error) {
	r, found, err := s.get(id)
	if err != nil {
		return Session{}, nil, err
	}
	ses, ok := s.view(r, sees)
	if !found || !ok {
		return Session{}, nil, notFound()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	u := s.uses[id]
	if u == nil {
		u = &uses{last: r.LastUsed}
		s.uses[id] = u
	}
	u.inside++
	return ses, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		u.inside--
		u.last, u.dirty = s.o.Now().UTC(), true
	}, nil
}

// Visible gives nil if the caller may know of a session, or if there is none.
func (s *Service) Visible(id string, sees task.Sees) error {
	r, found, err := s.get(id)
	if err != nil || !found {
		return err
	}
	if ws, ok := s.o.Workspaces.Record(r.Workspace); ok && sees != nil && !sees(ws.Root) {
		return notFound()
	}
	return nil
}

// DirectoryAt is workspaces.Manager's.
func (s *Service) DirectoryAt(path string) (id, server string, err error) {
	return s.o.Workspaces.DirectoryAt(path)
}

// Where returns the workspace of a session, "" if there is none.
func (s *Service) Where(id string) (workspaceID string, err error) {
	r, _, err := s.get(id)
	return r.Workspace, err
}

// List gives the sessions that the caller sees, the oldest first.
func (s *Service) List(sees task.Sees) ([]Session, error) {
	all, err := state.All[Record](s.o.State, bucket)
	if err != nil {
		return nil, errs.Wrap(err, "")
	}
	s.mu.Lock()
	for i := range all {
		s.latest(&all[i])
	}
	s.mu.Unlock()
	out := make([]Session, 0, len(all))
	for _, r := range all {
		if ses, ok := s.view(r, sees); ok {
			out = append(out, ses)
		}
	}
	slices.SortFunc(out, func(a, b Session) int {
		return cmp.Or(a.Created.Compare(b.Created), cmp.Compare(a.ID, b.ID))
	})
	return out, nil
}
