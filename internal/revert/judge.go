package revert

import (
	"context"

	"umbra/gitstore"
	"umbra/gitstore/merge3"
	"umbra/gitstore/object"
	"umbra/internal/errs"
	"umbra/internal/history"
	"umbra/internal/wspath"
)

// maxMerged is the size up to which texts are merged; larger files that
// somebody else changed too are conflicts.
const maxMerged = 16 << 20

// judge decides what a chain is to become, from what stands there now.
type judge struct {
	ctx   context.Context
	st    *gitstore.Store
	snap  gitstore.Snapshot
	force bool
}

// at gives what the tree has at a path; a folder counts as occupied by what is
// no file.
func at(snap gitstore.Snapshot, path string) (history.State, error) {
	e, ok, err := snap.Lookup(wspath.Path(path))
	if err != nil || !ok {
		return history.State{Path: path}, err
	}
	return history.State{Path: path, Mode: e.Mode, ID: e.ID}, nil
}

func (j *judge) chain(c *history.Chain) (*target, error) {
	// A file that the task deleted is nowhere: what stands at its place now is
	// another one, which may leave it (place).
	now := history.State{Path: c.Last().Path}
	if c.Last().Exists() {
		var err error
		if now, err = at(j.snap, c.Last().Path); err != nil {
			return nil, err
		}
	}
	t := &target{chain: c, now: now}
	cur := now
	for i := len(c.Runs) - 1; i >= 0; i-- {
		r := c.Runs[i]
		next, reason, err := j.run(t, cur, r)
		if err != nil {
			return nil, err
		}
		if reason != "" {
			return t, j.clash(t, r, reason)
		}
		cur = next
	}
	t.want = cur
	return t, nil
}

// clash notes a conflict; under force the state that the task found first
// stands all the same.
func (j *judge) clash(t *target, r *history.Run, reason string) error {
	t.data, t.merged = nil, false
	t.want = t.chain.First()
	if j.force {
		return nil
	}
	newest := r.Entries[len(r.Entries)-1]
	t.conflict = &Conflict{Path: r.After.Path, Reason: reason, Entry: newest.ID}
	by, err := j.changedBy(t.conflict.Path, newest.Seq)
	t.conflict.By = by
	return err
}

// run undoes one run on a state; reason tells a conflict.
func (j *judge) run(t *target, cur history.State, r *history.Run) (next history.State, reason string, err error) {
	before, after := r.Before, r.After
	switch {
	case !after.Exists() && !before.Exists():
		return cur, "", nil // made and deleted again
	case !after.Exists():
		if cur.Exists() {
			return cur, "occupied", nil
		}
		return before, "", nil
	case !cur.Exists() && !before.Exists():
		return history.State{Path: before.Path}, "", nil // gone already
	case !cur.Exists():
		return cur, "deleted", nil
	case cur.Same(after):
		t.data = nil
		return before, "", nil
	case !before.Exists():
		return cur, "modified", nil
	case cur.Mode == object.Dir:
		return cur, "occupied", nil
	}
	return j.merge(t, cur, before, after)
}

// merge undoes a run on a file that something else changed since.
func (j *judge) merge(t *target, cur, before, after history.State) (history.State, string, error) {
	next := history.State{Path: before.Path, Mode: cur.Mode, ID: cur.ID}
	if after.Mode != before.Mode {
		if cur.Mode != after.Mode && cur.Mode != before.Mode {
			return cur, "modified", nil
		}
		if (after.Mode == object.Symlink) != (before.Mode == object.Symlink) && cur.ID != after.ID {
			return cur, "modified", nil // a link's target is no version of a file's text
		}
		next.Mode = before.Mode
	}
	t.merged = true
	switch {
	case after.ID == before.ID, cur.ID == before.ID && t.data == nil:
		return next, "", nil
	case cur.ID == after.ID:
		next.ID = before.ID
		t.data = nil
		return next, "", nil
	case cur.Mode == object.Symlink || before.Mode == object.Symlink:
		return cur, "modified", nil
	}
	data, reason, err := j.text(t, cur.ID, before.ID, after.ID)
	if err != nil || reason != "" {
		return cur, reason, err
	}
	next.ID, t.data = object.Hash(object.Blob, data), data
	return next, "", nil
}

func (j *judge) text(t *target, cur, before, after object.ID) ([]byte, string, error) {
	var sides [3][]byte
	for i, id := range []object.ID{after, cur, before} {
		if i == 1 && t.data != nil {
			sides[i] = t.data // merged by a later run, in no history yet
			continue
		}
		data, err := j.st.ReadBlob(j.ctx, id, maxMerged)
		if errs.Is(err, errs.TooLarge) {
			return nil, "binary", nil
		}
		if err != nil {
			return nil, "", err
		}
		sides[i] = data
	}
	res, err := merge3.Merge(sides[0], sides[1], sides[2], merge3.Options{})
	switch {
	case err != nil:
		return nil, "binary", nil // or too large: what cannot be merged line by line
	case !res.Clean:
		return nil, "overlapping", nil
	case res.Merged == nil:
		return []byte{}, "", nil
	}
	return res.Merged, "", nil
}

// maxLooked bounds how many commits are looked through for who changed a file.
const maxLooked = 20_000

// changedBy finds the newest commit after seq that changed what stands at a
// path.
func (j *judge) changedBy(path string, seq uint64) (ChangedBy, error) {
	tip := j.st.Tip()
	id := tip.Commit
	now, err := at(j.snap, path)
	if err != nil {
		return ChangedBy{}, err
	}
	for n := tip.Seq; n > seq && tip.Seq-n < maxLooked; n-- {
		c, err := j.st.ReadCommit(j.ctx, id)
		if err != nil {
			return ChangedBy{}, err
		}
		before, err := j.st.SnapshotOf(j.ctx, c.Parent)
		if err != nil {
			return ChangedBy{}, err
		}
		was, err := at(before, path)
		if err != nil {
			return ChangedBy{}, err
		}
		if !was.Same(now) {
			return ChangedBy{Commit: c.ID, Task: c.Message.TaskID, Subtask: c.Message.SubtaskID, Actor: c.Message.Actor}, nil
		}
		id = c.Parent
	}
	return ChangedBy{}, nil
}
