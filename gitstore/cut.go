package gitstore

import (
	"context"
	"errors"
	"maps"
	"slices"

	"umbra/gitstore/journal"
	"umbra/gitstore/object"
	"umbra/gitstore/refs"
	"umbra/gitstore/repo"
	"umbra/gitstore/storedir"
	"umbra/internal/errs"
)

// cut is one move of the boundary.
//
// Its steps, each durable before the next, so that a crash between any two
// leaves a repository that git finds sound, and the next run goes on:
//
//  1. The ids of what is dropped are written down (`dropped`).
//  2. One group of the journal holds new info tags, on the boundary's commit, of
//     the tasks that lie across. With it the boundary moves in memory.
//  3. The ref log, and then git's refs, have them, and no more those of tasks
//     wholly before it.
//  4. git's file `shallow` names the boundary's commit, then the ref log does.
//
// Nothing is removed by any of them: that is Collect's, after the last.
type cut struct {
	to Boundary
	// bounds are the tasks as they were when the boundary was chosen.
	bounds map[string]taskBounds
	// keep is called with the tasks that end before the boundary; their ids follow.
	keep   func([]Task) error
	moving func() (done func(), err error) // of RetainOptions
	kept   map[string]bool

	gone   []Task  // lie wholly before
	across []*Task // as they are after the move
}

// taskBounds are where a task's commits lie.
type taskBounds struct {
	base, head       ID
	baseSeq, headSeq uint64
}

// drops reports whether a cut of this group takes a task's refs. A nil one takes
// none.
func (c *cut) drops(task string) bool {
	return c != nil && slices.ContainsFunc(c.gone, func(t Task) bool { return t.ID == task })
}

// errPassed is given to a cut that a task has come in the way of.
var errPassed = errors.New("a task's base lies before the new boundary")

// withinHistory gives nil for a commit at or after the boundary.
func (s *Store) withinHistory(id ID) error {
	b := s.r.Begins.Load()
	if b == nil || id == s.Tip().Commit {
		return nil
	}
	c, err := s.ReadCommit(context.Background(), id)
	if err == nil && c.Seq < b.Seq {
		err = ErrDropped()
	}
	return err
}

// boundsOf gives where a task's commits lie. known saves reading them again;
// what no journal has yet has the number newest, or one near it.
func boundsOf(r *repo.Repo, t *Task, known map[string]taskBounds, newest uint64) (taskBounds, error) {
	was, out := known[t.ID], taskBounds{base: t.Base, head: t.Head}
	seq := func(id, old ID, oldSeq uint64) (uint64, error) {
		if id == old {
			return oldSeq, nil
		}
		c, err := r.ReadCommit(context.Background(), id)
		if errs.Is(err, errs.NotFound) || errs.Is(err, errs.Gone) {
			return newest, nil
		}
		if err != nil {
			return 0, err
		}
		return c.Seq, nil
	}
	var err error
	if out.baseSeq, err = seq(t.Base, was.base, was.baseSeq); err != nil {
		return out, err
	}
	out.headSeq, err = seq(t.Head, was.head, was.headSeq)
	return out, err
}

// addCut judges the tasks as of this group, and appends the tags of those that
// lie across.
func (g *group) addCut(c *cut, track func(object.ID, journal.Loc)) (bool, error) {
	s := g.s
	all := make(map[string]*Task)
	s.r.TaskMap.Mu.RLock()
	maps.Copy(all, s.r.TaskMap.ByID)
	s.r.TaskMap.Mu.RUnlock()
	maps.Copy(all, g.tasks)
	c.gone, c.across = nil, nil
	for _, id := range slices.Sorted(maps.Keys(all)) {
		t := *all[id]
		b, err := boundsOf(s.r, &t, c.bounds, g.tip.Seq)
		if err != nil {
			return false, err
		}
		switch {
		case b.baseSeq >= c.to.Seq:
		case t.KeepsHistory():
			return false, errPassed
		case b.headSeq < c.to.Seq:
			if !c.kept[id] {
				return false, errPassed // its record has to be kept first
			}
			c.gone = append(c.gone, t)
		default:
			if t.Info.BaseWas == "" {
				t.Info.BaseWas = t.Base.String()
			}
			// The earlier tags are on dropped commits, and must not be looked up.
			t.Base, t.Past = c.to.Commit, nil
			if t.InfoTag, err = g.emitInfo(&t.Info, t.Base, track); err != nil {
				return false, err
			}
			c.across = append(c.across, &t)
		}
	}
	for _, t := range c.across {
		g.tasks[t.ID] = t
	}
	g.cut = c
	return true, nil
}

// acceptCut moves the boundary in memory: committing is held, and the group is durable.
func (s *Store) acceptCut(g *group) {
	c := g.cut
	if c == nil {
		return
	}
	s.r.TaskMap.Mu.Lock()
	for i := range c.gone {
		delete(s.r.TaskMap.ByID, c.gone[i].ID)
	}
	s.r.TaskMap.Mu.Unlock()
	s.r.Begins.Store(&c.to)
	s.r.Index.Drop(c.to.Seq)
}

// finishCut does what is left to do of a cut whose group is durable. Doing it
// again is safe.
func (s *Store) finishCut(ctx context.Context, c *cut) error {
	if err := s.dropRefs(ctx, c.gone); err != nil {
		return err
	}
	for _, t := range c.across {
		if err := s.r.DropInfoLog(t.ID); err != nil {
			return err
		}
	}
	if err := s.r.DropCommitGraph(); err != nil {
		return err
	}
	if err := s.r.ShallowAt(ctx, c.to); err != nil {
		return repo.LockedOut(err)
	}
	if err := s.r.NoteBoundary(c.to.Commit); err != nil {
		return errs.Wrap(err, "")
	}
	s.r.Index.Shrink()
	return nil
}

// dropRefs removes all refs of tasks, with their reflogs, once everything else
// is shown. No publication runs meanwhile.
func (s *Store) dropRefs(ctx context.Context, gone []Task) error {
	ctx, cancel := context.WithTimeout(ctx, repo.PublishPatience)
	defer cancel()
	p := &s.pub
	s.r.Publishing.Lock()
	defer s.r.Publishing.Unlock()
	if _, err := p.publishLocked(ctx); err != nil {
		return err
	}
	var values []refs.Value
	dropped := make(map[string]bool)
	for i := range gone {
		for _, which := range []string{"base", "head", "info"} {
			name := storedir.Tasks + gone[i].ID + "/" + which
			values, dropped[name] = append(values, refs.Value{Name: name}), true
		}
	}
	if err := s.r.Note.Append(0, values...); err != nil {
		return errs.Wrap(err, "")
	}
	failed := slices.DeleteFunc(p.project(ctx), func(f refs.Failed) bool { return !dropped[f.Name] })
	if err := refs.Join(failed); err != nil {
		return repo.LockedOut(err)
	}
	for i := range gone {
		if err := s.r.DropInfoLog(gone[i].ID); err != nil {
			return err
		}
	}
	return nil
}
