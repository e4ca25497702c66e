package gitstore

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"umbra/gitstore/journal"
	"umbra/gitstore/pack"
	"umbra/gitstore/packset"
	"umbra/gitstore/refs"
	"umbra/gitstore/repo"
	"umbra/gitstore/storedir"
	"umbra/internal/errs"
)

// publisher lets stock git see what is durable: it closes journals and moves
// the refs.
type publisher struct {
	s    *Store
	wake chan struct{}

	tmu      sync.Mutex
	oldest   time.Time // when the oldest commit that stock git does not see was made
	activity time.Time // of the newest commit
	last     time.Time // end of the last publication
	behind   []string  // refs that could not be moved, and why

	// unlink are names in journal/ whose contents are in objects/pack; they are
	// removed once the ref log is durable. mu is held.
	unlink []string
	// kept is a publication that is not in the ref log yet; nothing else is
	// detached until it is. mu is held.
	kept   *publication
	noted  uint64        // number of the newest commit in the ref log; mu
	pos    uint64        // position in a sink's log that the ref log includes; mu
	closed uint64        // number of the newest journal in unlink, or before
	loose  atomic.Int64  // refs written since loose ones were counted last
	shown  atomic.Uint64 // number of the newest commit that stock git sees
	// foreign counts our refs that another process had moved.
	foreign atomic.Int64
}

const (
	// idleAfter is how long no commit came before a journal is closed early.
	idleAfter  = 20 * time.Millisecond
	retryAfter = time.Second
)

// noteActivity notifies the publisher of a durable group.
func (s *Store) noteActivity() {
	p := &s.pub
	now := time.Now()
	p.tmu.Lock()
	p.activity = now
	first := p.oldest.IsZero()
	if first {
		p.oldest = now
	}
	p.tmu.Unlock()
	if first {
		s.kickPublisher()
	}
}

func (s *Store) kickPublisher() {
	select {
	case s.pub.wake <- struct{}{}:
	default:
	}
}

// pending lists the refs that could not be moved, and why.
func (p *publisher) pending() []string {
	p.tmu.Lock()
	defer p.tmu.Unlock()
	return p.behind
}

// due reports when the next publication is: once it has been quiet for a moment,
// but not within VisibleAfter of the last one; and VisibleAfter after the
// oldest unseen commit at the latest. Zero: nothing to publish.
func (p *publisher) due() time.Time {
	p.tmu.Lock()
	defer p.tmu.Unlock()
	if p.oldest.IsZero() {
		return time.Time{}
	}
	latest := p.oldest.Add(p.s.opt.VisibleAfter)
	early := p.activity.Add(idleAfter)
	if again := p.last.Add(p.s.opt.VisibleAfter); early.Before(again) {
		early = again
	}
	if early.Before(latest) {
		return early
	}
	return latest
}

// quiet returns how long ago the last commit was.
func (p *publisher) quiet() time.Duration {
	p.tmu.Lock()
	defer p.tmu.Unlock()
	return time.Since(p.activity)
}

// run publishes when it is due, until ctx ends.
func (p *publisher) run(ctx context.Context) {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for ctx.Err() == nil {
		wait := time.Hour
		if due := p.due(); !due.IsZero() {
			wait = time.Until(due)
		}
		if wait > 0 {
			timer.Reset(wait)
			select {
			case <-ctx.Done():
				return
			case <-p.wake:
				p.s.prepareAhead()
				continue
			case <-timer.C:
			}
		}
		if due := p.due(); !due.IsZero() && !time.Now().Before(due) {
			lctx, cancel := context.WithTimeout(ctx, repo.LockPatience)
			_, err := p.publish(lctx)
			cancel()
			if err != nil && ctx.Err() == nil {
				p.s.r.Log.Warn("publishing failed; it is retried", "error", err)
				p.retry()
			}
		}
	}
}

// prepareAhead makes the next journal when the open one fills up, so that no
// writer waits for it.
func (s *Store) prepareAhead() {
	s.r.Committing.Lock()
	j := s.logs.open
	s.r.Committing.Unlock()
	if j != nil && j.HalfFull() {
		s.logs.set.Ready(j.Used())
	}
}

// retry makes the next publication due a moment from now.
func (p *publisher) retry() {
	p.tmu.Lock()
	defer p.tmu.Unlock()
	p.oldest = time.Now().Add(retryAfter - p.s.opt.VisibleAfter)
	p.last = time.Now()
}

// Publish lets stock git see all that is durable. It fails if the newest commit is
// not visible then, or another process holds the lock of a ref for more than ten
// seconds: errs.Unavailable, ref_locked. Any other ref that cannot be moved is
// retried later, and is in Warnings. With a sink it waits until all packs are on the
// local disk.
func (s *Store) Publish(ctx context.Context) error {
	if s.r.Held != nil && s.r.Base != nil { // which was opened again since the fork was made
		if err := s.opt.Base.Store.Publish(ctx); err != nil {
			return err
		}
	}
	if err := s.r.Whole(ctx); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, repo.PublishPatience)
	defer cancel()
	failed, err := s.pub.publish(ctx)
	if err != nil {
		return err
	}
	for _, f := range failed {
		if _, locked := errors.AsType[*refs.LockedError](f.Err); locked || f.Name == refs.ShadowRef {
			return repo.LockedOut(f.Err)
		}
	}
	if err := s.r.WriteInfoLog(ctx); err != nil {
		s.r.Log.Warn("reflogs of tasks' records not written", "error", err)
	}
	return nil
}

// publish fails unless all that is durable is in the ref log, and returns the refs
// that have not followed.
func (p *publisher) publish(ctx context.Context) ([]refs.Failed, error) {
	p.s.r.Publishing.Lock()
	defer p.s.r.Publishing.Unlock()
	return p.publishLocked(ctx)
}

// publishLocked is like publish; the caller must hold mu.
func (p *publisher) publishLocked(ctx context.Context) ([]refs.Failed, error) {
	s := p.s
	if err := s.purger.GoOn(ctx); err != nil {
		return nil, err
	}
	if used := s.journalsUsed(); used > 0 {
		s.logs.set.Ready(used)
	}
	began := time.Now()
	if p.kept != nil {
		if err := p.record(*p.kept); err != nil {
			return nil, err
		}
		p.kept = nil
	}
	todo, unsound := s.detach()
	if err := p.record(todo); err != nil {
		p.kept = &todo
		return nil, err
	}
	failed := p.project(ctx)
	for _, name := range p.unlink {
		if err := s.r.FS.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			s.r.Log.Warn("journal left behind until the next start", "name", name, "error", err)
		}
	}
	p.unlink = nil
	if unsound != nil {
		return failed, errs.Wrap(fmt.Errorf("salvaging the open journal: %w", unsound), "")
	}
	if todo.tip.Seq > 0 {
		s.opt.Meter.Publish.Since(began)
		s.kickMaintainer() // there is a pack more
	}
	p.tmu.Lock()
	defer p.tmu.Unlock()
	p.last = time.Now()
	switch {
	case len(failed) > 0:
		p.oldest = time.Now().Add(retryAfter - s.opt.VisibleAfter)
	case !p.oldest.After(began) && !p.activity.After(began):
		p.oldest = time.Time{}
	case p.oldest.Before(began):
		p.oldest = began // what came since is younger than that
	}
	return failed, nil
}

// record closes a publication's journals, then adds what they lead to to the ref
// log: from then on that is a fact, whatever becomes of the journals and of git's
// refs. Doing it again after a failure is safe.
func (p *publisher) record(todo publication) error {
	s := p.s
	for _, j := range s.waiting(todo.through) {
		if err := s.closeJournal(j); err != nil {
			return errs.Wrap(fmt.Errorf("closing journal %d: %w", j.Number, err), "")
		}
	}
	var values []refs.Value
	for _, id := range slices.Sorted(maps.Keys(todo.tasks)) {
		t := todo.tasks[id]
		values = append(values, refs.Value{Name: storedir.Tasks + t.ID + "/base", ID: t.Base},
			refs.Value{Name: storedir.Tasks + t.ID + "/head", ID: t.Head}, refs.Value{Name: storedir.Tasks + t.ID + "/info", ID: t.InfoTag})
	}
	if todo.tip.Seq > 0 {
		values = append(values, refs.Value{Name: refs.ShadowRef, ID: todo.tip.Commit})
	}
	if err := s.r.Note.Append(todo.through, values...); err != nil {
		return errs.Wrap(err, "")
	}
	for _, t := range todo.tasks {
		s.r.LogInfo(t)
	}
	if todo.tip.Seq > 0 {
		p.noted = todo.tip.Seq
	}
	p.pos = max(p.pos, todo.pos)
	return nil
}

// project moves git's refs to what the ref log says, and returns those that could
// not be moved: they stay pending. publishing is held.
func (p *publisher) project(ctx context.Context) []refs.Failed {
	s := p.s
	todo := s.r.Note.Pending()
	foreign, failed := s.r.Refs.Update(ctx, todo)
	s.reportForeign(foreign)
	bad := make(map[string]bool, len(failed))
	behind := make([]string, 0, len(failed))
	for _, f := range failed {
		bad[f.Name] = true
		behind = append(behind, whyBehind(f))
	}
	for _, u := range todo {
		if !bad[u.Name] {
			s.r.Note.Moved(u.Name)
			p.loose.Add(1)
		}
	}
	if !bad[refs.ShadowRef] {
		p.shown.Store(p.noted)
	}
	if len(failed) > 0 {
		s.r.Log.Warn("git's refs are behind; they are retried", "error", refs.Join(failed))
	}
	p.tmu.Lock()
	defer p.tmu.Unlock()
	p.behind = behind
	return failed
}

// whyBehind is what an owner reads of a ref that could not be moved.
func whyBehind(f refs.Failed) string {
	why := "it could not be moved"
	if locked, ok := errors.AsType[*refs.LockedError](f.Err); ok {
		why = "another process holds the lock " + locked.Name
	} else if errno, ok := errors.AsType[syscall.Errno](f.Err); ok {
		why += ": " + errno.Error()
	}
	return f.Name + " is behind history, stock git does not see the newest commits: " + why
}

func (p *publisher) unlinkLater(names ...string) { p.unlink = append(p.unlink, names...) }

// publication is a prefix of the closed journals, with the tip and the records of
// tasks that they lead to.
type publication struct {
	through uint64 // the newest journal's number
	tip     Tip
	tasks   map[string]*Task
	pos     uint64 // in a sink's log
}

// add folds a journal in.
func (o *publication) add(j *journal.Journal) {
	end := endOf(j)
	o.through, o.tip, o.pos = max(o.through, j.Number), end.tip, max(o.pos, end.pos)
	maps.Copy(o.tasks, end.tasks)
}

// waiting gives the journals up to a number that are to be closed, oldest first.
func (s *Store) waiting(through uint64) (list []*journal.Journal) {
	s.r.Committing.Lock()
	defer s.r.Committing.Unlock()
	for _, j := range s.logs.closing {
		if j.Number <= through {
			list = append(list, j)
		}
	}
	return list
}

// journalsUsed gives how many bytes the journals hold that a publication would
// close now: what the next one should have room for.
func (s *Store) journalsUsed() (used int64) {
	s.r.Committing.Lock()
	defer s.r.Committing.Unlock()
	for _, j := range s.logs.closing {
		used += j.Used()
	}
	if s.logs.open != nil && !s.logs.open.Empty() {
		used += s.logs.open.Used()
	}
	return used
}

// detach takes the open journal from the committer, which goes on in the next, and
// returns what all closed ones lead to. An unsound one is salvaged before. If that
// fails it is left, with the error, and the publication is of those before it.
func (s *Store) detach() (out publication, unsound error) {
	s.r.Committing.Lock()
	defer s.r.Committing.Unlock()
	if unsound = s.salvageOpen(); unsound == nil && s.logs.open != nil && !s.logs.open.Empty() {
		s.logs.closing = append(s.logs.closing, s.logs.open)
		s.logs.open = nil
	}
	out.tasks = make(map[string]*Task)
	for _, j := range s.logs.closing {
		out.add(j)
	}
	return out, unsound
}

// closeJournal makes a journal a pack of objects/pack. Doing it again after a
// failure or a crash is safe.
func (s *Store) closeJournal(j *journal.Journal) error {
	if err := s.r.Large.Publish(s.Tip().Seq, s.pub.unlinkLater); err != nil {
		return err
	}
	j, err := s.salvageClosing(j)
	if err != nil {
		return err
	}
	entries, sum, err := j.Finish()
	if err != nil {
		return err
	}
	idx := strings.TrimSuffix(j.Name, journal.Suffix) + storedir.Idx
	if err := storedir.WriteFile(s.r.FS, idx, pack.EncodeIdx(entries, sum)); err != nil {
		return err
	}
	if _, err := s.r.Packs.Link(j.Name, idx, sum, packset.Keep{Through: endOf(j).tip.Seq, Plain: !s.shares()}); err != nil {
		return err
	}
	s.r.Committing.Lock()
	for i, c := range s.logs.closing {
		if c == j {
			s.logs.closing = append(s.logs.closing[:i:i], s.logs.closing[i+1:]...)
			break
		}
	}
	s.setLive()
	s.r.Committing.Unlock()
	j.Close()
	s.pub.unlinkLater(j.Name, idx)
	s.pub.closed = j.Number
	return nil
}

func (s *Store) reportForeign(foreign []refs.Foreign) {
	s.pub.foreign.Add(int64(len(foreign)))
	for _, f := range foreign {
		switch {
		case f.KeptAs != "":
			s.r.Warn("another process moved %s to %s; it was put back, and that value is kept as %s", f.Ref, f.ID, f.KeptAs)
		case f.Damaged:
			s.r.Warn("%s was damaged; ours was put back", f.Ref)
		case f.ID.IsZero():
			s.r.Warn("%s was missing; ours was put back", f.Ref)
		default:
			s.r.Warn("another process moved %s to %s, which does not exist; it was put back", f.Ref, f.ID)
		}
	}
}
