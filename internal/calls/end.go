package calls

import (
	"cmp"
	"context"
	"slices"

	"umbra/gitstore"
	"umbra/gitstore/message"
	"umbra/gitstore/object"
	"umbra/internal/errs"
	"umbra/internal/task"
	"umbra/internal/workspace"
)

// End says how a call ends.
type End struct {
	Status   Status // OK, Failed or Cancelled
	ExitCode *int
	Paths    []Path // that the call has changed

	Sees task.Sees
}

// Ended is the answer to an end.
type Ended struct {
	Record
	Commits []object.ID
	Entries []workspace.ChangeEntry
	Shared  []SharedPath
	Policy  []AgainstPolicy
}

// AgainstPolicy is a path that a call changed against the owner's policy.
type AgainstPolicy struct {
	Path  string
	Rules []string
}

// against returns what of some entries is against the policy, one item a path.
func against(entries []workspace.ChangeEntry) (out []AgainstPolicy) {
	for i := range entries {
		e := &entries[i]
		path := cmp.Or(e.NewPath, e.Path)
		if len(e.Policy) > 0 && !slices.ContainsFunc(out, func(x AgainstPolicy) bool { return x.Path == path }) {
			out = append(out, AgainstPolicy{path, e.Policy})
		}
	}
	return out
}

// takeBack takes back what a call did against the policy, where the owner needs
// that. The call has ended, whether it works or not.
func (s *Service) takeBack(ctx context.Context, w *workspace.Workspace, rec *Record, own []workspace.ChangeEntry) {
	if s.o.TakeBack == nil || rec.TakenBack != "" || !w.Policy().TakesBack() || len(against(own)) == 0 {
		return
	}
	task := rec.Task
	if s.tasks.Writable(task, w.ID()) != nil {
		task = ""
	}
	id, err := s.o.TakeBack(ctx, w, task, rec.ID, rec.From)
	if err != nil {
		s.o.Log.Warn("what a call did against the policy could not be taken back", "call", rec.ID, "error", err)
	} else if !id.IsZero() {
		rec.TakenBack = id.String()
	}
}

// SharedPath is a path that several calls may have changed.
type SharedPath struct {
	Path      string
	Claimants []string // ids of the calls
}

// End records what is on disk, and ends a call; what was found until now is its.
// A call that has ended answers the same again, whatever e says.
//
// Invalid "invalid_field"; NotFound "call_not_found"; and the errors of
// Workspace.Sync: the call is open then as before. That ctx ends does not stop it.
func (s *Service) End(ctx context.Context, id string, e End) (*Ended, error) {
	if e.Status == "" {
		e.Status = OK
	}
	if !slices.Contains([]Status{OK, Failed, Cancelled}, e.Status) {
		return nil, invalid("status", "status must be \"ok\", \"failed\" or \"cancelled\".")
	}
	if err := validPaths(e.Paths); err != nil {
		return nil, err
	}
	if _, err := s.Get(id, e.Sees); err != nil {
		return nil, err
	}
	// A client that leaves does not keep its call open: what others change from now on
	// is not the call's.
	ctx = context.WithoutCancel(ctx)
	r, err := s.end(ctx, id, e.Status, e.ExitCode, e.Paths)
	if err != nil {
		return nil, err
	}
	return s.answer(ctx, r)
}

// end ends a call, unless it has ended.
func (s *Service) end(ctx context.Context, id string, status Status, exit *int, paths []Path) (Record, error) {
	defer s.busy.Lock("call " + id)()
	s.mu.Lock()
	l := s.open[id]
	s.mu.Unlock()
	if l == nil {
		r, ok, err := s.keep.get(id)
		if err == nil && !ok {
			err = notFound()
		}
		if err == nil && r.unfinished() {
			err = s.finish(ctx, &r)
		}
		return r, err
	}
	rec := l.snapshot()
	w, err := s.o.Workspaces.Get(ctx, rec.Workspace)
	if errs.Is(err, errs.NotFound) {
		return s.forget(l)
	}
	if err != nil {
		return rec, err
	}
	defer w.Release()
	b := s.book(rec.Workspace)
	var more []Path
	if len(paths) > 0 {
		more = declared(w, paths)
		sums := make(map[string]string, len(more))
		for _, p := range more {
			sums[p.Path] = p.Sum
		}
		b.Declare(id, sums)
	}
	var failed error
	err = w.RecordThen(ctx, func() {
		b.leave(id)
		now := s.o.Now()
		l.mu.Lock()
		tip := w.Store().Tip().Seq
		l.rec.EndPaths, l.rec.Status, l.rec.ExitCode, l.rec.Ended, l.rec.Through = more, status, exit, now.UTC(), 0
		l.mu.Unlock()
		seen := sightingAt(now)
		b.note(seen)
		rec = l.snapshot()
		lines := []line{{Call: new(rec)}, {Seen: rec.Workspace, At: &seen}}
		rec.Through = max(1, tip)
		if rec.Agent != "" && rec.Session != "" {
			key := sessionKey(rec.Workspace, rec.Agent, rec.Session)
			known, err := s.keep.session(key)
			if err != nil {
				failed = err
				return
			}
			known.Through = tip
			lines = append(lines, line{Key: key, Session: &known})
		}
		failed = s.keep.put(lines...)
	})
	if err != nil {
		return rec, err
	}
	if failed != nil {
		s.o.Log.Warn("the end of a call could not be written; it is known until the server stops", "call", id, "error", failed)
	}
	if err := s.complete(ctx, w, l, &rec); err != nil {
		return rec, err
	}
	s.mu.Lock()
	delete(s.open, id)
	s.ended(rec)
	s.mu.Unlock()
	s.schedule()
	if s.idle != nil && s.OpenOf(rec.Task) == 0 {
		s.idle(ctx, rec.Task)
	}
	return rec, nil
}

// finish does what is left of the end of a call that is unfinished: the server was
// stopped in it.
func (s *Service) finish(ctx context.Context, r *Record) error {
	w, err := s.o.Workspaces.Get(ctx, r.Workspace)
	if errs.Is(err, errs.NotFound) {
		r.Through = max(1, r.From)
		return s.keep.put(line{Call: r})
	}
	if err != nil {
		return err
	}
	defer w.Release()
	r.Through = max(1, w.Store().Tip().Seq) // nothing has become its own since
	return s.complete(ctx, w, &live{rec: *r}, r)
}

// Writable reports why the task of a call takes no changes; nil if it does.
func (s *Service) Writable(r *Record) error { return s.tasks.Writable(r.Task, r.Workspace) }

// Applied notes the commit of a layer that was applied after its call had ended; it
// does nothing if the call has it.
func (s *Service) Applied(ctx context.Context, w *workspace.Workspace, id string, commit object.ID) error {
	if commit.IsZero() {
		return nil
	}
	defer s.busy.Lock("call " + id)()
	rec, ok, err := s.record(id)
	if err != nil || !ok || rec.Status == Open {
		return err
	}
	c, err := w.Store().ReadCommit(ctx, commit)
	if err != nil || slices.Contains(rec.Commits, c.Seq) {
		return err
	}
	rec.Commits = append(rec.Commits, c.Seq)
	own, err := s.entries(ctx, w, rec.Commits)
	if err != nil {
		return err
	}
	if rec.Overwrote, err = s.overwrote(ctx, w, &rec, own); err != nil {
		return err
	}
	return s.keep.put(line{Call: &rec})
}

// forget ends a call whose workspace is gone.
func (s *Service) forget(l *live) (Record, error) {
	l.mu.Lock()
	l.rec.Status, l.rec.Ended, l.rec.Through = Lost, s.o.Now().UTC(), max(1, l.rec.From)
	l.mu.Unlock()
	rec := l.snapshot()
	s.book(rec.Workspace).leave(rec.ID)
	s.mu.Lock()
	delete(s.open, rec.ID)
	s.mu.Unlock()
	return rec, s.keep.put(line{Call: &rec})
}

// complete finds the commits of a call that was open over a restart, what it
// overwrote, and whose the shared changes are that all claimants have ended of.
func (s *Service) complete(ctx context.Context, w *workspace.Workspace, l *live, rec *Record) error {
	if err := s.recount(ctx, w, rec); err != nil {
		return err
	}
	own, err := s.entries(ctx, w, rec.Commits)
	if err != nil {
		return err
	}
	if rec.Overwrote, err = s.overwrote(ctx, w, rec, own); err != nil {
		return err
	}
	s.takeBack(ctx, w, rec, own)
	l.mu.Lock()
	l.rec.Through, l.rec.Commits, l.rec.Shared, l.rec.Overwrote, l.rec.TakenBack = rec.Through, rec.Commits, rec.Shared, rec.Overwrote, rec.TakenBack
	l.mu.Unlock()
	if err := s.keep.put(line{Call: rec}); err != nil {
		s.o.Log.Warn("what a call did could not be written", "call", rec.ID, "error", err)
	}
	return s.settle(ctx, w, rec)
}

// recount reads the call's commits from history: what is counted while the server
// runs is not known after a restart.
func (s *Service) recount(ctx context.Context, w *workspace.Workspace, rec *Record) error {
	rec.Commits, rec.Shared = nil, nil
	var found []gitstore.Record
	err := w.Store().Records(ctx, rec.From+1, rec.Through, func(r gitstore.Record) error {
		if r.Source == message.Call && r.Task == rec.Task || r.Source == message.Shared {
			found = append(found, r)
		}
		return nil
	})
	if err != nil {
		return err
	}
	for _, r := range found {
		c, err := w.Store().ReadCommit(ctx, r.Commit)
		if errs.Is(err, errs.Gone) || errs.Is(err, errs.NotFound) {
			continue // dropped, or rewritten meanwhile
		}
		if err != nil {
			return err
		}
		switch {
		case c.Message.Trailer(message.KeyCall) == rec.ID:
			rec.Commits = append(rec.Commits, r.Seq)
		case slices.Contains(c.Message.Trailers(message.KeyClaimant), rec.ID):
			rec.Shared = append(rec.Shared, r.Seq)
		}
	}
	return nil
}

// entries reads the entries of commits by their numbers; those of dropped ones are
// left out.
func (s *Service) entries(ctx context.Context, w *workspace.Workspace, seqs []uint64) ([]workspace.ChangeEntry, error) {
	var out []workspace.ChangeEntry
	for _, seq := range seqs {
		id, err := w.Store().CommitAt(ctx, seq)
		if errs.Is(err, errs.Gone) {
			continue
		}
		if err != nil {
			return nil, err
		}
		of, err := w.EntriesAt(ctx, id)
		if errs.Is(err, errs.Gone) {
			continue
		}
		if err != nil {
			return nil, err
		}
		out = append(out, of...)
	}
	return out, nil
}

// settle gives shared changes to the one claimant that declared their path when
// it ended, once all claimants have.
func (s *Service) settle(ctx context.Context, w *workspace.Workspace, rec *Record) error {
	if len(rec.Shared) == 0 {
		return nil
	}
	defer s.busy.Lock("claims " + w.ID())()
	for _, seq := range rec.Shared {
		id, err := w.Store().CommitAt(ctx, seq)
		if errs.Is(err, errs.Gone) {
			continue
		}
		if err != nil {
			return err
		}
		c, err := w.Store().ReadCommit(ctx, id)
		if err != nil {
			return err
		}
		claimants, ended, err := s.claimants(c)
		if err != nil {
			return err
		}
		if !ended {
			continue
		}
		if err := s.give(ctx, w, c, claimants); err != nil {
			return err
		}
	}
	return nil
}

// claimants returns the calls that may have made a shared change, and whether all
// of them have ended.
func (s *Service) claimants(c *gitstore.Commit) (list []Record, ended bool, err error) {
	ended = true
	for _, id := range c.Message.Trailers(message.KeyClaimant) {
		r, ok, err := s.record(id)
		if err != nil {
			return nil, false, err
		}
		if !ok {
			continue
		}
		ended = ended && r.Status != Open
		list = append(list, r)
	}
	return list, ended, nil
}

func (s *Service) give(ctx context.Context, w *workspace.Workspace, c *gitstore.Commit, claimants []Record) error {
	if given, err := s.claimedOf(ctx, w, c.Seq); len(given) > 0 || err != nil {
		return err
	}
	entries, err := w.EntriesOf(ctx, c)
	if err != nil {
		return err
	}
	for i := range claimants {
		r := &claimants[i]
		var mine []workspace.ChangeEntry
		for _, e := range entries {
			path := e.Path
			if e.NewPath != "" {
				path = e.NewPath
			}
			if declares(r.EndPaths, path) && !slices.ContainsFunc(claimants, func(o Record) bool {
				return o.ID != r.ID && (declares(o.Paths, path) || declares(o.EndPaths, path))
			}) {
				mine = append(mine, e)
			}
		}
		if len(mine) == 0 {
			continue
		}
		o := ownerOf(r, func(seq uint64) { r.Commits = append(r.Commits, seq) })
		if err := w.Claim(ctx, c, mine, o); err != nil {
			return err
		}
		s.mu.Lock()
		l := s.open[r.ID]
		s.mu.Unlock()
		if l != nil { // the one that is just ending
			l.mu.Lock()
			l.rec.Commits = r.Commits
			l.mu.Unlock()
		}
		if err := s.keep.put(line{Call: r}); err != nil {
			return err
		}
	}
	return nil
}

// answer reads what an ended call is answered with.
func (s *Service) answer(ctx context.Context, r Record) (*Ended, error) {
	if now, ok, err := s.record(r.ID); err == nil && ok && !now.unfinished() {
		r = now // with what became its own since
	}
	out := &Ended{Record: r}
	w, err := s.o.Workspaces.Get(ctx, r.Workspace)
	if errs.Is(err, errs.NotFound) {
		return out, nil
	}
	if err != nil {
		return nil, err
	}
	defer w.Release()
	if out.Commits, err = commitsAt(ctx, w, r.Commits); err != nil {
		return nil, err
	}
	if out.Entries, err = s.entries(ctx, w, r.Commits); err != nil {
		return nil, err
	}
	if out.TakenBack == "" { // the server may have been stopped before it could
		if s.takeBack(ctx, w, &out.Record, out.Entries); out.TakenBack != "" {
			if err := s.keep.put(line{Call: &out.Record}); err != nil {
				return nil, err
			}
		}
	}
	shared, err := s.entries(ctx, w, r.Shared)
	if err != nil {
		return nil, err
	}
	out.Policy = against(slices.Concat(out.Entries, shared))
	claimed := make(map[string]bool) // by commit and path
	for _, seq := range r.Shared {
		mine, err := s.claimedOf(ctx, w, seq)
		if err != nil {
			return nil, err
		}
		for _, key := range mine {
			claimed[key] = true
		}
	}
	seen := make(map[string]bool)
	for _, e := range shared {
		if claimed[e.Commit.String()+e.Path] || seen[e.Path] {
			continue
		}
		seen[e.Path] = true
		out.Shared = append(out.Shared, SharedPath{e.Path, e.Claimants})
	}
	return out, nil
}

// CommitsOf returns the ids of a call's commits, as they are now.
func (s *Service) CommitsOf(ctx context.Context, r *Record) ([]object.ID, error) {
	if len(r.Commits) == 0 {
		return nil, nil
	}
	w, err := s.o.Workspaces.Read(ctx, r.Workspace)
	if errs.Is(err, errs.NotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer w.Release()
	return commitsAt(ctx, w, r.Commits)
}

// commitsAt gives the ids of commits by their numbers, without dropped ones.
func commitsAt(ctx context.Context, w *workspace.Workspace, seqs []uint64) (out []object.ID, err error) {
	for _, seq := range seqs {
		id, err := w.Store().CommitAt(ctx, seq)
		if errs.Is(err, errs.Gone) {
			continue
		}
		if err != nil {
			return nil, err
		}
		out = append(out, id)
	}
	return out, nil
}

// claimedOf names the entries of a shared change that became one call's.
func (s *Service) claimedOf(ctx context.Context, w *workspace.Workspace, seq uint64) (out []string, err error) {
	recs, _, err := w.Store().Claimed(ctx, 0)
	if err != nil {
		return nil, err
	}
	for i := len(recs) - 1; i >= 0 && recs[i].Seq > seq; i-- {
		if !recs[i].Claims {
			continue
		}
		of, err := w.EntriesAt(ctx, recs[i].Commit)
		if err != nil {
			return nil, err
		}
		for _, e := range of {
			if e.ClaimsSeq == seq {
				out = append(out, e.Claims.String()+e.Path)
			}
		}
	}
	return out, nil
}

// Durable returns when a power failure does not take a call's record as it is now.
func (s *Service) Durable(id string) error { return errs.Wrap(s.keep.sync(id), "") }

// Get returns a call. NotFound "call_not_found" if there is none that the caller
// sees.
func (s *Service) Get(id string, sees task.Sees) (Record, error) {
	r, ok, err := s.record(id)
	if err != nil {
		return r, err
	}
	ws, known := s.o.Workspaces.Record(r.Workspace)
	if !ok || !known || sees != nil && !sees(ws.Place()) {
		return r, notFound()
	}
	return r, nil
}

// DirectoryAt is workspaces.Manager's.
func (s *Service) DirectoryAt(path string) (id, server string, err error) {
	return s.o.Workspaces.DirectoryAt(path)
}

// Where returns the workspace of a call, "" if there is none.
func (s *Service) Where(id string) (workspaceID string, err error) {
	r, ok, err := s.record(id)
	if !ok || err != nil {
		return "", err
	}
	return r.Workspace, nil
}

// Touch starts a call's time again. Conflict "call_ended".
func (s *Service) Touch(id string, sees task.Sees) (Record, error) {
	if r, err := s.Get(id, sees); err != nil {
		return r, err
	}
	defer s.busy.Lock("call " + id)() // what an end writes is not to be followed by what was before it
	s.mu.Lock()
	l := s.open[id]
	s.mu.Unlock()
	if l == nil {
		return Record{}, errs.New(errs.Conflict, "call_ended", "The call has ended.").With("call_id", id)
	}
	now := s.o.Now()
	l.mu.Lock()
	l.rec.touch(now)
	l.deadline = now.Add(l.rec.TTL)
	l.mu.Unlock()
	s.schedule()
	r := l.snapshot()
	return r, s.keep.put(line{Call: &r})
}
