package gitstore

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"sort"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"umbra/gitstore/object"
	"umbra/gitstore/pack"
	"umbra/gitstore/refs"
	"umbra/internal/errs"
)

// publisher lets stock git see what is durable: it closes journals and moves
// the refs.
type publisher struct {
	s    *Store
	wake chan struct{}

	mu sync.Mutex // one publication at a time

	tmu      sync.Mutex
	oldest   time.Time // when the oldest commit that stock git does not see was made
	activity time.Time // of the newest commit
	last     time.Time // end of the last publication
	block    string    // what keeps stock git from seeing all

	// unlink are names in journal/ whose contents stand in objects/pack; they
	// go once the note is durable. mu is held.
	unlink []string
	// also are values of refs that a publication set and did not note, since it
	// was cut off or the note could not be written: nobody else's. mu is held.
	also map[string][]ID
	// kept is a publication that failed; it is shown before anything else is
	// detached. mu is held.
	kept   *publication
	closed uint64        // number of the newest journal in unlink, or before
	loose  atomic.Int64  // refs written since loose ones were counted last
	shown  atomic.Uint64 // number of the newest commit that stock git sees
}

const (
	// idleAfter is how long no commit came before a journal is closed early.
	idleAfter = 20 * time.Millisecond
	// lockPatience is how long the background waits for a ref lock before it
	// lets others have their turn; publishPatience how long a caller waits.
	lockPatience    = time.Second
	publishPatience = 10 * time.Second
	retryAfter      = time.Second
)

// noteActivity tells the publisher of a durable group.
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

func (p *publisher) blocked() string {
	p.tmu.Lock()
	defer p.tmu.Unlock()
	return p.block
}

// due tells when the next publication is: once it has been quiet for a moment,
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

// quiet tells for how long nobody has committed.
func (p *publisher) quiet() time.Duration {
	p.tmu.Lock()
	defer p.tmu.Unlock()
	return time.Since(p.activity)
}

// run publishes when it is due, until ctx ends.
func (p *publisher) run(ctx context.Context) {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
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
			lctx, cancel := context.WithTimeout(ctx, lockPatience)
			err := p.publish(lctx)
			cancel()
			if err != nil && ctx.Err() == nil {
				p.s.log.Warn("publishing failed; tried again", "error", err)
				p.retry()
			}
			p.s.kickMaintainer()
		}
	}
}

// prepareAhead makes the next journal when the open one fills up, so that no
// writer waits for it.
func (s *Store) prepareAhead() {
	s.jmu.Lock()
	j := s.open
	s.jmu.Unlock()
	if j != nil && j.halfFull() {
		s.journals.ready(j.used())
	}
}

// retry makes the next publication due a moment from now.
func (p *publisher) retry() {
	p.tmu.Lock()
	defer p.tmu.Unlock()
	p.oldest = time.Now().Add(retryAfter - p.s.opt.VisibleAfter)
	p.last = time.Now()
}

// Publish lets stock git see all that is durable. Where somebody holds a lock
// on a ref for more than ten seconds it gives errs.Unavailable, ref_locked.
func (s *Store) Publish(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, publishPatience)
	defer cancel()
	if err := s.pub.publish(ctx); err != nil {
		return err
	}
	if err := s.writeInfoLog(ctx); err != nil {
		s.log.Warn("reflogs of tasks' records not written", "error", err)
	}
	return nil
}

func (p *publisher) publish(ctx context.Context) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.publishLocked(ctx)
}

// publishLocked is publish for who holds mu.
func (p *publisher) publishLocked(ctx context.Context) error {
	s := p.s
	if err := s.pendingPurge(ctx); err != nil {
		return err
	}
	if used := s.journalsUsed(); used > 0 {
		s.journals.ready(used)
	}
	began := time.Now()
	if p.kept != nil {
		// What failed before is shown first: nothing else is detached until then, or
		// each failure would add a journal to those that wait.
		if err := p.show(ctx, *p.kept, began); err != nil {
			return err
		}
		p.kept = nil
	}
	todo, err := s.detach()
	if err != nil {
		return errs.Wrap(fmt.Errorf("salvaging the open journal: %w", err), "")
	}
	if err := p.show(ctx, todo, began); err != nil {
		p.kept = &todo
		return err
	}
	return nil
}

// show closes a publication's journals, moves the refs, and removes what the
// journals were. Doing it again after a failure is safe.
func (p *publisher) show(ctx context.Context, todo publication, began time.Time) error {
	s := p.s
	for _, j := range s.waiting(todo.through) {
		if err := s.closeJournal(j); err != nil {
			return errs.Wrap(fmt.Errorf("closing journal %d: %w", j.number, err), "")
		}
	}
	if err := p.moveRefs(ctx, todo); err != nil {
		return err
	}
	for _, name := range p.unlink {
		if err := s.fs.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			s.log.Warn("journal left behind until the next start", "name", name, "error", err)
		}
	}
	p.unlink = nil
	if todo.tip.Seq > 0 {
		p.shown.Store(todo.tip.Seq)
		s.opt.Meter.Publish.Since(began)
	}
	p.tmu.Lock()
	defer p.tmu.Unlock()
	p.last, p.block = time.Now(), ""
	if !p.oldest.After(began) && !p.activity.After(began) {
		p.oldest = time.Time{}
	} else if p.oldest.Before(began) {
		p.oldest = began // what came since is younger than that
	}
	return nil
}

func (p *publisher) unlinkLater(names ...string) { p.unlink = append(p.unlink, names...) }

// publication is what one publication shows: everything that stands in the
// journals up to one, with the tip and the records of tasks that they lead to.
type publication struct {
	through uint64 // the newest journal's number
	tip     Tip
	tasks   []Task
}

// waiting gives the journals up to a number that are to be closed, oldest first.
func (s *Store) waiting(through uint64) (list []*journal) {
	s.jmu.Lock()
	defer s.jmu.Unlock()
	for _, j := range s.closing {
		if j.number <= through {
			list = append(list, j)
		}
	}
	return list
}

// journalsUsed gives how many bytes the journals hold that a publication would
// close now: what the next one should have room for.
func (s *Store) journalsUsed() (used int64) {
	s.jmu.Lock()
	defer s.jmu.Unlock()
	for _, j := range s.closing {
		used += j.used()
	}
	if s.open != nil && !s.open.empty() {
		used += s.open.used()
	}
	return used
}

// detach takes the open journal from the committer, which goes on in the next.
// An unsound one is salvaged before: the tip may stand in it, and refs never
// name what has no pack. Where that fails nothing is detached.
func (s *Store) detach() (out publication, err error) {
	s.jmu.Lock()
	defer s.jmu.Unlock()
	if err := s.salvageOpen(); err != nil {
		return out, err
	}
	if s.open != nil && !s.open.empty() {
		s.closing = append(s.closing, s.open)
		s.open = nil
	}
	for _, j := range s.closing {
		out.through = max(out.through, j.number)
	}
	out.tip = s.Tip()
	s.tmu.Lock()
	defer s.tmu.Unlock()
	for id := range s.dirtyTasks {
		t := *s.tasks[id]
		out.tasks = append(out.tasks, t)
		t.past = nil
		s.tasks[id] = &t
	}
	clear(s.dirtyTasks)
	sort.Slice(out.tasks, func(a, b int) bool { return out.tasks[a].ID < out.tasks[b].ID })
	return out, nil
}

// closeJournal makes a journal a pack of objects/pack. Doing it again after a
// failure or a crash is safe.
func (s *Store) closeJournal(j *journal) error {
	if err := s.large.publish(); err != nil {
		return err
	}
	j, err := s.salvageClosing(j)
	if err != nil {
		return err
	}
	entries := j.entries()
	sum, err := pack.FinishJournal(j.f, j.used(), uint32(len(entries)))
	if err == nil {
		err = j.f.Sync()
	}
	if err != nil {
		j.unsound = true
		return err
	}
	idx := strings.TrimSuffix(j.name, journalSuffix) + idxSuffix
	if err := s.writeFile(idx, pack.EncodeIdx(entries, sum)); err != nil {
		return err
	}
	if _, err := s.linkPack(j.name, idx, sum, keepNote{through: j.last}); err != nil {
		return err
	}
	s.jmu.Lock()
	for i, c := range s.closing {
		if c == j {
			s.closing = append(s.closing[:i:i], s.closing[i+1:]...)
			break
		}
	}
	s.setLive()
	s.jmu.Unlock()
	j.close()
	s.pub.unlinkLater(j.name, idx)
	s.pub.closed = j.number
	return nil
}

// moveRefs sets the refs of a publication, tasks' first, then notes them.
func (p *publisher) moveRefs(ctx context.Context, todo publication) error {
	s := p.s
	var want []refs.Update
	set := func(name string, id object.ID) {
		noted, _ := s.note.Get(name)
		if noted != id {
			u := refs.Update{Name: name, New: id, Noted: noted}
			u.Also = p.also[name]
			want = append(want, u)
		}
	}
	for _, t := range todo.tasks {
		set(tasksPrefix+t.ID+"/base", t.Base)
		set(tasksPrefix+t.ID+"/head", t.Head)
		set(tasksPrefix+t.ID+"/info", t.InfoTag)
	}
	if todo.tip.Seq > 0 {
		set(shadowRef, todo.tip.Commit)
	}
	noted, _ := s.note.Get(shownName)
	shown := numberID(max(p.closed, idNumber(noted)))
	if len(want) == 0 && shown == noted {
		return nil
	}
	// From here on a ref may be what it shall be, noted or not.
	if p.also == nil {
		p.also = make(map[string][]ID)
	}
	for _, u := range want {
		if !slices.Contains(p.also[u.Name], u.New) {
			p.also[u.Name] = append(slices.Clip(p.also[u.Name]), u.New)
		}
	}
	foreign, err := s.refs.Update(ctx, want)
	s.reportForeign(foreign)
	if err != nil {
		var locked *refs.LockedError
		if errors.As(err, &locked) {
			p.tmu.Lock()
			p.block = "the lock " + locked.Name + " is held by another process: stock git does not see the newest commits"
			p.tmu.Unlock()
			return &errs.Error{Kind: errs.Unavailable, Code: "ref_locked", Err: err,
				Detail: "Another process holds " + locked.Name + "; nothing is lost, but stock git does not see the newest commits yet."}
		}
		return errs.Wrap(err, "")
	}
	p.loose.Add(int64(len(want)))
	// The lines of one write are not one unit to a power failure: that the
	// journals are shown is noted once the refs' values surely are.
	if err := s.note.Append(want); err != nil {
		return errs.Wrap(err, "")
	}
	if err := s.note.Append([]refs.Update{{Name: shownName, New: shown}}); err != nil {
		return errs.Wrap(err, "")
	}
	p.also = nil
	for i := range todo.tasks {
		s.logInfo(&todo.tasks[i])
	}
	return nil
}

// shownName is the line of the note that holds, in place of an object id, the
// number of the newest journal of which all is shown. One found at a start
// that is no newer was only not removed; replaying it would bring old records
// of tasks back.
const shownName = "refs/umbra/shown"

func numberID(n uint64) (id ID) {
	binary.BigEndian.PutUint64(id[len(id)-8:], n)
	return id
}

func idNumber(id ID) uint64 { return binary.BigEndian.Uint64(id[len(id)-8:]) }

func (s *Store) reportForeign(foreign []refs.Foreign) {
	for _, f := range foreign {
		switch {
		case f.KeptAs != "":
			s.warn("%s was moved by somebody else to %s; ours was put back, theirs is %s", f.Ref, f.ID, f.KeptAs)
		case f.Damaged:
			s.warn("%s was damaged; ours was put back", f.Ref)
		case f.ID.IsZero():
			s.warn("%s was missing; ours was put back", f.Ref)
		default:
			s.warn("%s was moved by somebody else to %s, which is not there; ours was put back", f.Ref, f.ID)
		}
	}
}
