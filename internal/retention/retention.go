// Package retention drops old history and frees its space: in the background, by
// the owner's settings, and for `umbra gc`. It also reports the disk usage of
// workspaces.
//
// Which history may go, and how it goes, is gitstore's; that the records of tasks
// outlive it, internal/task's. Invariants: nothing is dropped while neither an age
// nor a size is set; the background takes a fifth of one core and of the disk at
// most, one workspace at a time.
package retention

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"umbra/gitstore"
	"umbra/internal/audit"
	"umbra/internal/clock"
	"umbra/internal/errs"
	"umbra/internal/task"
	"umbra/internal/workspace"
	"umbra/internal/workspaces"
)

// Options of a Service. Workspaces and Tasks are needed.
type Options struct {
	Workspaces *workspaces.Manager
	Tasks      *task.Service
	// Age drops what is older, Bytes what makes a workspace's history larger;
	// 0: off.
	Age      time.Duration
	Bytes    int64
	Interval time.Duration // between two looks; an hour
	Log      *slog.Logger
	// Others, Turn and Ended are set where several servers share workspaces. Others returns
	// those of some workspaces that another server has. Turn reports whether this server is
	// to look at a workspace that none has open: none did since a time. Ended is called
	// after a look at all.
	Others func(ctx context.Context, ids []string) (map[string]bool, error)
	Turn   func(ctx context.Context, id string, since, now time.Time) (mine bool, err error)
	Ended  func(exists func(id string) bool) error
	Now    func() time.Time
	// Boot is elapsed time that no one sets (clock.Boot), for tests that give Now.
	// Where Now alone is given, wall time is trusted.
	Boot func() time.Duration
	// After is time.After, for tests.
	After func(d time.Duration) <-chan time.Time
}

// Service drops history. Its methods may be called concurrently.
type Service struct {
	o Options

	clockMu sync.Mutex
	clock   *clock.Watch // nil: wall time is trusted

	mu   sync.Mutex
	seen map[string]time.Time // when a workspace that is not open was checked last

	stop context.CancelFunc
	done sync.WaitGroup
}

// rest is how many times as long as it works the background rests.
const rest = 4

// New makes the service, and starts its background where there is something for
// it to do. Close ends it.
func New(o Options) *Service {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	var watch *clock.Watch
	if o.Now == nil || o.Boot != nil {
		watch = clock.NewWatch(o.Now, o.Boot)
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.After == nil {
		o.After = time.After
	}
	if o.Interval <= 0 {
		o.Interval = time.Hour
	}
	ctx, cancel := context.WithCancel(context.Background())
	s := &Service{o: o, clock: watch, seen: make(map[string]time.Time), stop: cancel}
	if o.Age > 0 || o.Bytes > 0 {
		s.done.Go(func() { s.run(ctx) })
	}
	return s
}

// Close ends the background, and waits for it.
func (s *Service) Close() {
	s.stop()
	s.done.Wait()
}

// run checks all workspaces, again and again.
func (s *Service) run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.o.After(s.o.Interval):
		}
		s.Look(ctx)
	}
}

// Look drops, by the settings, what may go in each workspace, at the pace of the
// background.
func (s *Service) Look(ctx context.Context) {
	known := map[string]bool{}
	err := s.o.Workspaces.Each(func(rec workspaces.Record) bool {
		if ctx.Err() != nil {
			return false
		}
		known[rec.ID] = true
		if !s.mine(ctx, rec) {
			return true
		}
		got, err := s.one(ctx, rec.ID, Request{pace: &gitstore.Pace{Rest: rest}}, nil)
		if got.Commits > 0 {
			s.o.Log.Info("old history dropped", "audit", true, "act", audit.Retention, "token", "", "workspace", rec.ID, "commits", got.Commits, "tasks", got.TasksDropped,
				"freed", got.Freed, "waiting", got.Waiting)
		}
		if err != nil && ctx.Err() == nil && !s.forgotten(rec.ID) {
			s.o.Log.Warn("old history was not dropped, or its room not freed; tried again later", "workspace", rec.ID, "error", err)
		}
		return true
	})
	if err == nil && s.o.Ended != nil && ctx.Err() == nil {
		err = s.o.Ended(func(id string) bool { return known[id] })
	}
	if err != nil {
		s.o.Log.Warn("old history was not dropped; tried again later", "error", err)
	}
}

// mine reports whether this server is to look at a workspace now.
func (s *Service) mine(ctx context.Context, rec workspaces.Record) bool {
	if s.o.Workspaces.Here(rec) {
		return s.due(rec)
	}
	now := s.o.Now()
	if s.o.Turn == nil || s.o.Workspaces.Elsewhere(rec) || rec.Fork != nil && rec.Fork.Unmade || s.o.Bytes == 0 && now.Sub(rec.Created) < s.o.Age {
		return false // of several servers that share workspaces each does its own
	}
	mine, err := s.o.Turn(ctx, rec.ID, now.Add(-max(s.o.Interval, s.o.Age/8)), now)
	if err != nil && ctx.Err() == nil {
		s.o.Log.Warn("old history was not dropped; tried again later", "workspace", rec.ID, "error", err)
	}
	return mine
}

// due reports whether a workspace is worth a check. Opening one that is unloaded
// costs a scan of its directory: so it is checked only as often as enough of its
// history may be old enough.
func (s *Service) due(rec workspaces.Record) bool {
	if rec.Fork != nil && rec.Fork.Unmade {
		return false // it has nothing of its own
	}
	if s.o.Workspaces.IsOpen(rec.ID) {
		return true
	}
	now := s.o.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	last, looked := s.seen[rec.ID]
	if looked && !rec.LastUsed.After(last) && now.Sub(last) < max(s.o.Interval, s.o.Age/8) {
		return false
	}
	s.seen[rec.ID] = now
	return true
}

// Request says what a collection of garbage is to do.
type Request struct {
	Workspaces []string // ids; none: all
	Now        bool     // free at once, concurrently with git commands that may fail then
	DryRun     bool
	pace       *gitstore.Pace
}

// Result is what was done to one workspace, or would be.
type Result struct {
	Workspace    string
	Root         string // empty: virtual
	Commits      uint64 // dropped
	TasksDropped int    // of which the record alone is left
	TasksCut     int    // that begin at the boundary now
	Begin        gitstore.Boundary
	Freed        int64 // bytes
	Waiting      int64 // bytes that go when the grace ends; of a dry run: that would go
	DiskBytes    int64
	Failed       error // why it could not be done
	// Elsewhere: another server has it, and is to be asked; the counts are of this one, before
	// the other took it.
	Elsewhere bool
}

// Progress is called with the progress of a long work: what it does now, and its parts.
type Progress func(step string, done, all int64)

// Collect applies the settings to workspaces, rewrites their packs where they have
// objects that are not needed any more, and frees the space. A workspace that fails
// does not keep the others from it; NotFound for one that there is not.
func (s *Service) Collect(ctx context.Context, req Request, progress Progress) ([]Result, error) {
	ids := req.Workspaces
	if len(ids) == 0 {
		err := s.o.Workspaces.Each(func(rec workspaces.Record) bool {
			if rec.Fork == nil || !rec.Fork.Unmade {
				ids = append(ids, rec.ID)
			}
			return true
		})
		if err != nil {
			return nil, errs.Wrap(err, "")
		}
	}
	for _, id := range req.Workspaces {
		if _, ok, err := s.o.Workspaces.Lookup(id); err != nil {
			return nil, err
		} else if !ok {
			return nil, errs.New(errs.NotFound, "workspace_not_found", "The workspace %q does not exist.", id)
		}
	}
	var others map[string]bool
	if len(req.Workspaces) != 1 { // which is asked of the server that has it
		var err error
		if others, err = s.others(ctx, ids); err != nil {
			return nil, err
		}
	}
	var out []Result
	for _, id := range ids {
		if others[id] {
			out = append(out, Result{Workspace: id, Elsewhere: true})
			continue
		}
		got, err := s.one(ctx, id, req, progress)
		switch {
		case ctx.Err() != nil:
			return nil, errs.Wrap(context.Cause(ctx), "")
		case err != nil && s.forgotten(id):
			continue
		case len(req.Workspaces) != 1 && errs.CodeOf(err) == "owner_moving":
			got.Elsewhere = true // it was not when others were looked for
		case err != nil:
			s.o.Log.Warn("garbage not collected", "workspace", id, "error", err)
			got.Failed = err
		}
		out = append(out, got)
	}
	return out, nil
}

// forgotten reports whether a workspace is not known any more, which explains an error of
// what was done to it.
func (s *Service) forgotten(id string) bool {
	_, known, err := s.o.Workspaces.Lookup(id)
	return err == nil && !known
}

// others returns which of several workspaces another server has.
func (s *Service) others(ctx context.Context, ids []string) (map[string]bool, error) {
	if s.o.Others == nil {
		return nil, nil
	}
	others, err := s.o.Others(ctx, ids)
	if err != nil {
		return nil, errs.Wrap(err, "")
	}
	for _, id := range ids {
		if rec, ok := s.o.Workspaces.Record(id); ok && s.o.Workspaces.Elsewhere(rec) {
			others[id] = true
		}
	}
	return others, nil
}

func (s *Service) one(ctx context.Context, id string, req Request, progress Progress) (Result, error) {
	rec, ok, err := s.o.Workspaces.Lookup(id)
	out := Result{Workspace: id, Root: rec.Root}
	if err != nil {
		return out, err
	}
	if !ok {
		return out, errs.New(errs.NotFound, "workspace_not_found", "The workspace does not exist.")
	}
	w, err := s.o.Workspaces.Get(ctx, id)
	if err != nil {
		return out, err
	}
	defer w.Release()
	step := func(step string, done, all int64) {
		if progress != nil {
			progress(id+": "+step, done, all)
		}
	}
	from := w.Store().Boundary()
	if s.o.Age > 0 || s.o.Bytes > 0 {
		step("looking for old history", 0, 0)
		opt := gitstore.RetainOptions{MaxBytes: s.o.Bytes, DryRun: req.DryRun, Pace: req.pace,
			Keep: func(tasks []gitstore.Task) error { return s.o.Tasks.KeepRecords(ctx, w, tasks) }}
		if s.o.Age > 0 && s.ageCounts(req.pace != nil) {
			opt.Before = s.o.Now().Add(-s.o.Age)
		}
		rep, err := w.Retain(ctx, opt)
		from, out.Commits, out.TasksDropped, out.TasksCut = rep.To, rep.Commits, rep.Gone, rep.Across
		if err != nil {
			return out, err
		}
	}
	background := req.pace != nil
	if !background || out.Commits > 0 || s.unswept(w) {
		rep, cerr := w.Store().Collect(ctx, gitstore.CollectOptions{Now: req.Now, Thorough: !background, DryRun: req.DryRun, From: from, Pace: req.pace, Progress: step})
		out.Freed, out.Waiting = rep.Freed, rep.Waiting
		err = errors.Join(err, cerr)
	}
	out.Begin, out.DiskBytes = from, w.Store().DiskBytes()
	return out, err
}

// settling is how long after a start the background drops nothing by age: the
// clock may be wrong then, as of a machine whose battery is empty.
const settling = 24 * time.Hour

// ageCounts reports whether history may be dropped by its age. It may not once
// the clock was set: what looks old may be new.
func (s *Service) ageCounts(background bool) bool {
	s.clockMu.Lock()
	defer s.clockMu.Unlock()
	if s.clock == nil {
		return true
	}
	if step := s.clock.Step(); step != 0 {
		s.o.Log.Warn("the clock was set: nothing is dropped by its age until the next start", "by", step.Round(time.Second).String())
		return false
	}
	return !background || s.clock.Elapsed() >= min(settling, s.o.Age)
}

// unswept reports whether history was dropped whose objects may still exist: once
// for each start of the server.
func (s *Service) unswept(w *workspace.Workspace) bool {
	return !w.Store().Boundary().Whole() && !w.Store().Swept()
}
