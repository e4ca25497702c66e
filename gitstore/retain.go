package gitstore

import (
	"context"
	"errors"
	"time"

	"umbra/gitstore/packset"
	"umbra/gitstore/reach"
	"umbra/internal/errs"
)

// RetainOptions say which part of the history may be dropped.
type RetainOptions struct {
	// Before drops what was committed before it; the zero time drops nothing
	// for its age.
	Before time.Time
	// MaxBytes drops as much of the oldest history as it takes for the rest to
	// need no more bytes; 0 lets nothing go for its size.
	MaxBytes int64
	// Through is the newest commit that the history may begin with; 0: the tip.
	Through uint64
	// Keep is called with the tasks whose refs will be removed, and keeps their
	// records; its error stops the move.
	Keep func([]Task) error
	// Moving, if not nil, is called before the boundary moves, and done after; its error
	// stops the move.
	Moving func() (done func(), err error)
	DryRun bool // only reports what would be done
	Pace   *Pace
}

// RetainReport is what Retain did. From equals To where nothing was dropped.
type RetainReport struct {
	From, To Boundary
	// Commits is how many commits were dropped; Gone and Across are how many
	// tasks lay wholly before the boundary, and across it.
	Commits uint64
	Gone    int
	Across  int
}

// cutTries bounds how often a boundary is chosen again because a task came in its
// way meanwhile.
const cutTries = 5

// Retain moves the boundary of the history to the newest commit before which all
// may go: none passes the base of a task that is executing, paused or pinned, nor
// the newest of our commits that a user's ref, worktree or reflog reaches.
// Sequence numbers and the ids of commits, changes and tasks stay. The objects
// stay until Collect.
// A fork keeps all.
func (s *Store) Retain(ctx context.Context, opt RetainOptions) (RetainReport, error) {
	if s.r.Base != nil {
		return RetainReport{From: s.Boundary(), To: s.Boundary()}, nil
	}
	s.r.Upkeep.Collecting.Lock()
	defer s.r.Upkeep.Collecting.Unlock()
	ctx, cancel := s.untilClosed(ctx)
	defer cancel()
	rep := RetainReport{From: s.Boundary(), To: s.Boundary()}
	if err := s.resumeCut(ctx); err != nil {
		return rep, err
	}
	for try := 1; ; try++ {
		c, err := s.planCut(ctx, &opt)
		if err != nil || c == nil {
			return rep, errs.Wrap(err, "")
		}
		if opt.DryRun {
			err = s.foresee(c)
		} else {
			err = s.doCut(ctx, c)
		}
		if errors.Is(err, errPassed) && try < cutTries {
			continue
		}
		if s.Boundary() == c.to || opt.DryRun && err == nil {
			rep.To, rep.Gone, rep.Across = c.to, len(c.gone), len(c.across)
			rep.Commits = c.to.Seq - max(1, rep.From.Seq)
		}
		return rep, errs.Wrap(err, "")
	}
}

// planCut chooses the boundary; nil where it is to stay.
func (s *Store) planCut(ctx context.Context, opt *RetainOptions) (*cut, error) {
	now, tip := s.Boundary(), s.Tip()
	limit := tip.Seq
	if opt.Through > 0 {
		limit = min(limit, opt.Through)
	}
	bounds := make(map[string]taskBounds)
	for _, t := range s.Tasks() {
		b, err := boundsOf(s.r, &t, s.retention.bounds, tip.Seq)
		if err != nil {
			return nil, err
		}
		bounds[t.ID] = b
		if t.KeepsHistory() {
			limit = min(limit, b.baseSeq)
		}
		if err := opt.Pace.Step(ctx); err != nil {
			return nil, err
		}
	}
	s.retention.bounds = bounds
	if limit <= max(1, now.Seq) {
		return nil, nil
	}
	want, err := s.oldestWanted(ctx, opt, limit)
	if err != nil || want <= max(1, now.Seq) {
		return nil, err
	}
	theirs, err := reach.OpenTheirs(s.r)
	if err != nil {
		return nil, err
	}
	defer theirs.Close()
	persons, err := reach.PeoplesLimit(ctx, s.r, theirs)
	if err != nil {
		return nil, err
	}
	if persons > 0 {
		want = min(want, persons)
	}
	if want <= max(1, now.Seq) {
		return nil, nil
	}
	rec, err := s.r.Index.At(want)
	if err != nil {
		return nil, err
	}
	return &cut{to: Boundary{Commit: rec.Commit, Seq: want}, bounds: bounds, keep: opt.Keep, moving: opt.Moving}, nil
}

// oldestWanted gives the newest commit up to a limit before which all may go, by
// age or size; 0: nothing may.
func (s *Store) oldestWanted(ctx context.Context, opt *RetainOptions, limit uint64) (uint64, error) {
	want := uint64(0)
	if !opt.Before.IsZero() {
		// Dates need not ascend: all that goes is old enough. The newest of it is
		// where history begins: what it changed is not known any more.
		for seq := s.r.Index.Begin(); seq <= limit; seq++ {
			rec, err := s.r.Index.At(seq)
			if err != nil {
				return 0, err
			}
			if rec.WhenUnix >= opt.Before.Unix() {
				break
			}
			want = seq
		}
	}
	if opt.MaxBytes > 0 && s.HistoryBytes() > opt.MaxBytes {
		bySize, err := s.fits(ctx, opt, limit)
		if err != nil {
			return 0, err
		}
		want = max(want, bySize)
	}
	return want, nil
}

// fits gives the oldest commit from which on the history takes no more than
// MaxBytes, but none after the limit.
func (s *Store) fits(ctx context.Context, opt *RetainOptions, limit uint64) (uint64, error) {
	if err := s.Publish(ctx); err != nil { // what is in a journal has no size of its own
		return 0, err
	}
	used := s.r.Packs.InUse()
	defer func() { packset.ReleaseAll(used) }()
	table, err := reach.NewTable(ctx, used, nil, opt.Pace)
	if err != nil {
		return 0, err
	}
	theirs, err := reach.OpenTheirs(s.r)
	if err != nil {
		return 0, err
	}
	defer theirs.Close()
	m, err := reach.NewMarker(ctx, s.r, table, theirs, opt.Pace)
	if err != nil {
		return 0, err
	}
	var near ID
	begin, tip := s.r.Index.Begin(), s.Tip().Seq
	for seq := tip; seq >= begin; seq-- {
		if near, err = m.Commit(seq, near); err != nil {
			return 0, err
		}
		if m.Bytes > opt.MaxBytes {
			return min(seq+1, limit, tip), nil
		}
	}
	return 0, nil
}

// foresee counts what a cut would do, and does nothing.
func (s *Store) foresee(c *cut) error {
	for _, t := range s.Tasks() {
		b, err := boundsOf(s.r, &t, c.bounds, s.Tip().Seq)
		switch {
		case err != nil:
			return err
		case b.baseSeq >= c.to.Seq:
		case b.headSeq < c.to.Seq:
			c.gone = append(c.gone, t)
		default:
			c.across = append(c.across, &t)
		}
	}
	return nil
}

// doCut does all the steps of a cut.
func (s *Store) doCut(ctx context.Context, c *cut) error {
	// The boundary's commit must be in a pack before the file shallow names it.
	if err := s.Publish(ctx); err != nil {
		return err
	}
	if err := s.r.NoteDropped(ctx, c.to.Seq); err != nil {
		return err
	}
	if err := s.foresee(c); err != nil {
		return err
	}
	c.kept = make(map[string]bool)
	for i := range c.gone {
		c.kept[c.gone[i].ID] = true
	}
	if c.keep != nil && len(c.gone) > 0 {
		if err := c.keep(c.gone); err != nil {
			return err
		}
	}
	if c.moving != nil {
		done, err := c.moving()
		if err != nil {
			return err
		}
		defer done()
	}
	p := newPending()
	p.cut = c
	if err := s.enqueue(ctx, p); err != nil {
		return err
	}
	if p.err != nil {
		return p.err
	}
	s.retention.undone = c
	return s.resumeCut(ctx)
}

// resumeCut does what an earlier run could not finish; cmu is held.
func (s *Store) resumeCut(ctx context.Context) error {
	if s.retention.undone == nil {
		return nil
	}
	if err := s.finishCut(ctx, s.retention.undone); err != nil {
		return err
	}
	s.retention.undone = nil
	return nil
}
