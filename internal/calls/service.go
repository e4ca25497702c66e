package calls

import (
	"cmp"
	"context"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"umbra/gitstore/message"
	"umbra/gitstore/object"
	"umbra/internal/claims"
	"umbra/internal/errs"
	"umbra/internal/keyed"
	"umbra/internal/state"
	"umbra/internal/task"
	"umbra/internal/vfs"
	"umbra/internal/workspace"
	"umbra/internal/workspaces"
)

// Options of a Service. All but Log, Now and the bounds are needed.
type Options struct {
	Workspaces *workspaces.Manager
	State      *state.DB
	FS         vfs.FS // where the log is
	Log        *slog.Logger
	Now        func() time.Time
	TTL        time.Duration // of a call that names none; 30 minutes
	MaxOpen    int           // calls open at once; 1,000
	// RecordCommands has the SHA-256 of a command recorded, where a call sends it.
	RecordCommands bool
	// Rejected reports what a reviewer took back of a task since a time; nil:
	// nothing does.
	Rejected func(ctx context.Context, w *workspace.Workspace, task string, since uint64) ([]Other, error)
	// TakeBack takes back what a call did against the policy, and returns the commit,
	// zero where there was nothing to do; nil: nothing does.
	TakeBack func(ctx context.Context, w *workspace.Workspace, task, call string, from uint64) (object.ID, error)
}

// Defaults of the Options.
const (
	defaultTTL     = 30 * time.Minute
	defaultMaxOpen = 1000
)

// called is how long after a call what no call made is a user's.
const called = 30 * 24 * time.Hour

// Service is all calls of a data directory. Its methods may be called from any
// goroutine.
type Service struct {
	o     Options
	tasks *task.Service
	keep  *keeper

	mu    sync.Mutex
	last  uint64           // the newest call's order
	books map[string]*book // by workspace
	open  map[string]*live // by id
	past  []recent         // that ended last, the newest last
	busy  keyed.Mutex      // ids and sessions that are being worked on
	sweep *time.Timer      // at the next deadline
	rest  []string         // calls that are unfinished, until Attach
	stop  context.CancelFunc
	ctx   context.Context
	lost  sync.WaitGroup // who ends calls whose time has passed
	idle  func(ctx context.Context, task string)
}

// live is an open call.
type live struct {
	mu  sync.Mutex
	rec Record
	// deadline has a monotonic reading, so that a clock that is set ends no call.
	deadline time.Time
}

// next gives a call its place behind all others, also where the clock was set back.
func (s *Service) next(now time.Time) uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.last = max(s.last+1, uint64(max(0, now.UnixNano())))
	return s.last
}

// snapshot returns the record as it is now.
func (l *live) snapshot() Record {
	l.mu.Lock()
	defer l.mu.Unlock()
	r := l.rec
	r.Commits, r.Shared = slices.Clone(r.Commits), slices.Clone(r.Shared)
	return r
}

// New opens the service; calls that were open are open again. It is to be made
// before anything opens a workspace, so that what is found then is theirs, and
// Attach called before the first request. Close ends it.
func New(o Options) (*Service, error) {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.TTL <= 0 {
		o.TTL = defaultTTL
	}
	if o.MaxOpen <= 0 {
		o.MaxOpen = defaultMaxOpen
	}
	k, err := openKeeper(o.State, o.FS, logName, func(err error) {
		o.Log.Warn("calls could not be written to the database; they are in the log", "error", err)
	})
	if err != nil {
		return nil, err
	}
	s := &Service{o: o, keep: k, books: map[string]*book{}, open: map[string]*live{}}
	s.ctx, s.stop = context.WithCancel(context.Background())
	if s.last, err = k.newest(); err != nil {
		return nil, err
	}
	if o.State.Shared() {
		o.Workspaces.AddHooks(workspaces.Hooks{
			Entered: func(_ context.Context, w *workspace.Workspace) error { return errs.Wrap(s.takeUp(w.ID()), "") },
			Leaving: func(_ context.Context, id string) { s.letGo(id) },
			Lost:    s.letGo,
		})
		for _, r := range o.Workspaces.Physical() { // which no other server can have
			if err := s.takeUp(r.ID); err != nil {
				return nil, err
			}
		}
	} else if err := s.takeUp(""); err != nil {
		return nil, err
	}
	o.Workspaces.SetOwners(func(id string) workspace.Owners { return s.book(id) })
	return s, nil
}

// takeUp has calls open again that are open in the records, and finds those that are
// unfinished: all, in a shared database those of a workspace.
func (s *Service) takeUp(workspaceID string) error {
	list, err := s.keep.open(workspaceID)
	if err != nil {
		return err
	}
	slices.SortFunc(list, func(a, b Record) int { return cmp.Compare(a.order(), b.order()) })
	for _, r := range list {
		if r.unfinished() {
			s.mu.Lock()
			s.rest = append(s.rest, r.ID)
			s.mu.Unlock()
			continue
		}
		now := s.o.Now()
		l := &live{rec: r, deadline: now.Add(r.left(now))}
		if r.Hosted {
			l.deadline = now
		}
		s.mu.Lock()
		s.open[r.ID] = l
		s.last = max(s.last, r.order())
		s.mu.Unlock()
		s.book(r.Workspace).enter(l)
	}
	if s.tasks != nil && len(list) > 0 {
		s.goOn()
	}
	return nil
}

// goOn has calls ended whose time has passed, and what is left of ends done.
func (s *Service) goOn() {
	s.schedule()
	s.mu.Lock()
	rest := s.rest
	s.rest = nil
	s.mu.Unlock()
	if len(rest) == 0 {
		return
	}
	s.lost.Go(func() {
		for _, id := range rest {
			if _, err := s.end(s.ctx, id, Lost, nil, nil); err != nil && s.ctx.Err() == nil {
				s.o.Log.Warn("the end of a call could not be finished; ending it again does", "call", id, "error", err)
			}
		}
	})
}

// letGo drops the calls of a workspace that has another owner.
func (s *Service) letGo(workspaceID string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for id, l := range s.open {
		if l.snapshot().Workspace == workspaceID {
			delete(s.open, id)
		}
	}
	delete(s.books, workspaceID)
}

// Attach gives the service the tasks that calls belong to.
func (s *Service) Attach(tasks *task.Service) {
	s.tasks = tasks
	tasks.SetEnding(s.endTask)
	s.goOn()
}

// SetIdle has a function called when the last open call of a task has ended, before
// the end is answered. To be called before the first request.
func (s *Service) SetIdle(fn func(ctx context.Context, task string)) { s.idle = fn }

// Close writes what is not in the database yet. Open calls stay open.
func (s *Service) Close() error {
	s.mu.Lock()
	if s.sweep != nil {
		s.sweep.Stop()
	}
	s.mu.Unlock()
	s.stop()
	s.lost.Wait()
	return s.keep.close()
}

// book is the calls of one workspace, as it asks for them.
type book struct {
	claims.Book
	s  *Service
	id string

	mu    sync.Mutex
	lives map[string]*live
	seen  *sighting // when the last call began or ended; nil: not known yet
	old   bool      // seen is of before this start of the server
}

func (s *Service) book(id string) *book {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.bookLocked(id)
}

func (s *Service) bookLocked(id string) *book {
	b := s.books[id]
	if b == nil {
		b = &book{s: s, id: id, lives: map[string]*live{}}
		s.books[id] = b
	}
	return b
}

// enter adds an open call.
func (b *book) enter(l *live) {
	b.mu.Lock()
	b.lives[l.rec.ID] = l
	b.mu.Unlock()
	b.Begin(l.rec.claim())
}

// leave takes a call out that has ended.
func (b *book) leave(id string) {
	b.End(id)
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.lives, id)
}

// Called reports that the workspace has had a call within the last 30 days.
func (b *book) Called() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.seen == nil {
		at, err := b.s.keep.lastSeen(b.id)
		if err != nil {
			return len(b.lives) > 0
		}
		b.seen, b.old = &at, true
	}
	return len(b.lives) > 0 || b.seen.within(called, b.s.o.Now(), b.old)
}

func (b *book) note(at sighting) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.seen, b.old = &at, false
}

func (b *book) find(id string) *live {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.lives[id]
}

// Judge implements workspace.Owners.
func (b *book) Judge(f claims.Found) (*workspace.Owner, claims.Certainty) {
	v := b.Book.Judge(f)
	if v.Call != nil {
		if l := b.find(v.Call.ID); l != nil {
			return l.owner(), v.Certainty
		}
		return nil, ""
	}
	if len(v.Claimants) == 0 {
		return nil, ""
	}
	return b.shared(v), v.Certainty
}

// owner is the call as the owner of changes.
func (l *live) owner() *workspace.Owner {
	l.mu.Lock()
	defer l.mu.Unlock()
	return ownerOf(&l.rec, func(seq uint64) {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.rec.Commits = append(l.rec.Commits, seq)
	})
}

// Message returns what the commits of a call say of it, with a certainty of exact:
// for changes that come out of its layer.
func (r *Record) Message() message.Message {
	m := ownerOf(r, nil).Message
	m.Extra = append(m.Extra, message.Trailer{Key: message.KeyCertainty, Value: string(claims.Exact)})
	return m
}

func ownerOf(r *Record, recorded func(seq uint64)) *workspace.Owner {
	m := message.Message{Source: message.Call, TaskID: r.Task, SubtaskID: r.Subtask, Actor: r.Actor}
	for _, t := range []message.Trailer{{Key: message.KeyCall, Value: r.ID}, {Key: message.KeyTool, Value: r.Tool}, {Key: message.KeyModel, Value: r.Model},
		{Key: message.KeyPrompt, Value: r.Prompt}, {Key: message.KeyCommandHash, Value: r.Command}} {
		if t.Value != "" {
			m.Extra = append(m.Extra, t)
		}
	}
	return &workspace.Owner{Key: "call " + r.ID, Message: m, Recorded: recorded}
}

// shared is several calls as the owners of changes that each may have made.
func (b *book) shared(v claims.Verdict) *workspace.Owner {
	m := message.Message{Source: message.Shared}
	var lives []*live
	seen := map[string]bool{}
	var tasks []message.Trailer
	for _, c := range v.Claimants {
		m.Extra = append(m.Extra, message.Trailer{Key: message.KeyClaimant, Value: c.ID})
		l := b.find(c.ID)
		var r Record
		if l != nil {
			lives = append(lives, l)
			r = l.snapshot()
		} else if kept, ok, err := b.s.keep.get(c.ID); ok && err == nil {
			r = kept
		}
		name := strings.TrimSpace(r.Task + " " + r.Subtask)
		if name != "" && !seen[name] {
			seen[name] = true
			tasks = append(tasks, message.Trailer{Key: message.KeyClaimantTask, Value: name})
		}
	}
	m.Extra = append(m.Extra, tasks...)
	return &workspace.Owner{Key: v.Key(), Message: m, Recorded: func(seq uint64) {
		for _, l := range lives {
			l.mu.Lock()
			l.rec.Shared = append(l.rec.Shared, seq)
			l.mu.Unlock()
		}
	}}
}

// schedule has calls ended whose time has passed.
func (s *Service) schedule() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.sweep != nil {
		s.sweep.Stop()
		s.sweep = nil
	}
	var next time.Time
	for _, l := range s.open {
		l.mu.Lock()
		if next.IsZero() || l.deadline.Before(next) {
			next = l.deadline
		}
		l.mu.Unlock()
	}
	if next.IsZero() || s.ctx.Err() != nil {
		return
	}
	s.sweep = time.AfterFunc(max(0, next.Sub(s.o.Now())), func() {
		s.lost.Go(s.loseLate)
	})
}

// loseLate ends the calls whose time has passed.
func (s *Service) loseLate() {
	now := s.o.Now()
	for _, l := range s.opened() {
		l.mu.Lock()
		late, id := !l.deadline.After(now), l.rec.ID
		l.mu.Unlock()
		if late && s.ctx.Err() == nil {
			if _, err := s.end(s.ctx, id, Lost, nil, nil); err != nil && s.ctx.Err() == nil {
				s.o.Log.Warn("a call whose time has passed could not be ended", "call", id, "error", err)
				l.mu.Lock()
				l.deadline = now.Add(time.Minute) // tried again
				l.mu.Unlock()
			}
		}
	}
	s.schedule()
}

// endTask ends the open calls of a task that is about to end.
func (s *Service) endTask(ctx context.Context, id string) {
	for _, l := range s.opened() {
		if r := l.snapshot(); r.Task == id {
			if _, err := s.end(ctx, r.ID, Lost, nil, nil); err != nil {
				s.o.Log.Warn("a call whose task ends could not be ended", "call", r.ID, "error", err)
			}
		}
	}
}

// opened returns the open calls.
func (s *Service) opened() []*live {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make([]*live, 0, len(s.open))
	for _, l := range s.open {
		out = append(out, l)
	}
	return out
}

// OpenOf returns how many calls of a task are open.
func (s *Service) OpenOf(taskID string) int {
	n := 0
	for _, l := range s.opened() {
		if r := l.snapshot(); r.Task == taskID {
			n++
		}
	}
	return n
}

func notFound() error {
	return errs.New(errs.NotFound, "call_not_found", "The call does not exist.")
}
