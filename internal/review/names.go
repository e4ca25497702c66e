package review

import (
	"cmp"
	"slices"

	"umbra/gitstore/message"
	"umbra/gitstore/object"
	"umbra/internal/errs"
	"umbra/internal/history"
	"umbra/internal/lineage"
	"umbra/internal/revert"
	"umbra/internal/workspace"
)

// A task that gives a file the name or the mode back that another one had taken hides
// what that one did, as one that deletes its lines does: see rest.go.

// The words of message.KeyKept for what has no lines.
const (
	keptAll  = "all" // a whole file
	keptName = "name"
	keptMode = "mode"
)

// namesWithoutRest leaves the name and the mode that another task gave a file out of the
// file without the task, where they were rejected as the rest of that one, or undone.
func (c *cutter) namesWithoutRest(task string, n *revert.Net, r *rests) error {
	find := func(took func(e *history.Entry) bool, gave func(e *workspace.ChangeEntry) bool, word string) (*workspace.ChangeEntry, error) {
		i := slices.IndexFunc(n.Entries, took)
		if i < 0 {
			return nil, nil
		}
		return c.givenUp(task, n.Entries[i], gave, word, r)
	}
	was := n.Without
	by, err := find(func(e *history.Entry) bool { return e.Path == was.Path && (e.NewPath != "" || e.Mode == 0) },
		func(e *workspace.ChangeEntry) bool { return e.NewPath != "" }, keptName)
	if err != nil {
		return err
	}
	if by != nil {
		n.Without.Path = by.Path
	}
	if was.Mode != object.Regular && was.Mode != object.Executable {
		return nil
	}
	by, err = find(func(e *history.Entry) bool { return e.BeforeMode == was.Mode && e.Mode != was.Mode },
		func(e *workspace.ChangeEntry) bool { return e.BeforeMode != e.Mode }, keptMode)
	if err == nil && by != nil {
		n.Without.Mode = by.BeforeMode
	}
	return err
}

// givenUp goes back from an entry that took a name or a mode from a file through those
// that had given it one, and returns the oldest of them before which all were rejected,
// or undone; nil: the newest was not.
func (c *cutter) givenUp(task string, took *history.Entry, gave func(e *workspace.ChangeEntry) bool, word string, r *rests) (oldest *workspace.ChangeEntry, err error) {
	st := c.w.Store()
	path, names := took.Path, map[string]bool{took.Path: true}
	touches := lineage.NewTouches(st, max(1, st.Boundary().Seq), took.Seq-1)
	for {
		rec, ok, err := touches.Before(c.ctx, path)
		if err != nil || !ok {
			return oldest, err
		}
		of, err := c.w.EntriesAt(c.ctx, rec.Commit)
		if errs.Is(err, errs.Gone) {
			return oldest, nil
		}
		if err != nil {
			return nil, err
		}
		i := slices.IndexFunc(of, func(e workspace.ChangeEntry) bool { return cmp.Or(e.NewPath, e.Path) == path })
		if i < 0 {
			continue
		}
		e := &of[i]
		if e.BeforeMode == 0 || e.Mode == 0 { // another file before
			return oldest, nil
		}
		if path = e.Path; gave(e) {
			if out, err := c.isGivenUp(task, e, took.Seq, names, word, r); err != nil || !out {
				return oldest, err
			}
			oldest = e
		}
		names[path] = true
	}
}

// isGivenUp is rejected for the name or the mode that an entry gave a file, which was
// taken at a number; names are those that the file had in between.
func (c *cutter) isGivenUp(task string, e *workspace.ChangeEntry, took uint64, names map[string]bool, word string, r *rests) (bool, error) {
	if e.TaskID == "" || e.TaskID == task || e.Source == message.Revert {
		return false, nil
	}
	if !r.rejected(e.TaskID, e.Seq, took) {
		if !r.undone {
			return false, nil
		}
		return c.undone(e.TaskID, e.Commit, cmp.Or(e.NewPath, e.Path))
	}
	k, err := c.keptOf(e.TaskID)
	if err != nil {
		return false, err
	}
	for name := range names {
		if at := k.others[word+" "+name]; at > e.Seq && at <= took {
			return false, nil
		}
	}
	return true, nil
}
