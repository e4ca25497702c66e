package revert

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"umbra/gitstore"
	"umbra/gitstore/diff"
	"umbra/gitstore/merge3"
	"umbra/gitstore/object"
	"umbra/internal/errs"
	"umbra/internal/history"
	"umbra/internal/workspace"
	"umbra/internal/wspath"
)

// maxMerged is the size up to which texts are merged; larger files that were also
// changed by others are conflicts.
const maxMerged = 16 << 20

// judge decides what a chain is to become, from its current state.
type judge struct {
	ctx      context.Context
	st       *gitstore.Store
	snap     gitstore.Snapshot
	w        *workspace.Workspace
	past     *past
	force    bool
	since    *since
	selected []*history.Entry
	made     map[object.ID][]byte // what merges of one chain gave, perhaps in no history
	// pinned are those of made that are needed as long as the chain is.
	pinned map[object.ID]bool
}

// maxApart bounds the stretches of a chain to which runs are joined, and so the
// merged texts in memory.
const maxApart = 8

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
	// A file that the task deleted is nowhere: the file at its path now is another
	// one, which may leave it (place).
	now := history.State{Path: c.Now}
	if c.Last().Exists() && !c.Replaced {
		var err error
		if now, err = at(j.snap, c.Now); err != nil {
			return nil, err
		}
	}
	t := &target{chain: c, now: now}
	is, err := j.rebased(c)
	if err != nil {
		return nil, err
	}
	t.chain = is
	list, err := j.stretches(t)
	if err != nil {
		return nil, err
	}
	o, err := j.undo(t, now, list)
	if err == nil && len(list) < len(c.Runs) {
		o, err = j.confirm(t, now, o)
	}
	if err != nil {
		return nil, err
	}
	t.chain = c
	if o.reason != "" {
		return t, j.clash(t, c.Runs[slices.Index(is.Runs, o.at)], o.reason)
	}
	t.want, t.data = o.want, o.data
	t.merged = t.merged || is != c
	return t, nil
}

// outcome is what undoing a chain gives; reason names a conflict with what one of its
// runs (at) left.
type outcome struct {
	want   history.State
	data   []byte // of want, if it may be in no history
	at     *history.Run
	reason string
}

// undo undoes stretches, the newest first.
func (j *judge) undo(t *target, cur history.State, list []stretch) (o outcome, err error) {
	for _, x := range slices.Backward(list) {
		o.at = x.last
		if cur, o.reason, err = j.run(t, cur, x.before, x.last); err != nil || o.reason != "" {
			return o, err
		}
		j.keep(list, cur)
	}
	if o.want = cur; cur.Exists() {
		o.data = j.made[cur.ID]
	}
	return o, nil
}

// keep forgets the merged texts that are not needed any more.
func (j *judge) keep(list []stretch, cur history.State) {
	maps.DeleteFunc(j.made, func(id object.ID, _ []byte) bool {
		return id != cur.ID && !j.pinned[id] && !slices.ContainsFunc(list, func(x stretch) bool { return x.before.ID == id })
	})
}

// confirm holds the outcome of joined runs against that of one run after the other.
// Joined, what others take out of the undone work and put in again is theirs; one
// after the other, what the undone work takes back itself, and others do again, is
// its own. Where the two differ, the one counts in which each line is what it was
// before; if none is, it is a conflict.
func (j *judge) confirm(t *target, now history.State, joined outcome) (outcome, error) {
	runs := make([]stretch, len(t.chain.Runs))
	for i, r := range t.chain.Runs {
		runs[i] = stretch{r.Before, r}
	}
	j.keep(nil, history.State{})
	plain, err := j.undo(t, now, runs)
	if err != nil || joined.reason != "" && plain.reason != "" {
		return joined, err
	}
	both := joined.reason == "" && plain.reason == ""
	if both && joined.want == plain.want {
		return joined, nil
	}
	clash := outcome{at: joined.at, reason: "overlapping"}
	if both && joined.want.Path != plain.want.Path {
		clash.reason = "renamed"
	}
	if both && (joined.want.Path != plain.want.Path || joined.want.Mode != plain.want.Mode) {
		return clash, nil
	}
	text, ok, err := j.woven(t, now)
	if err != nil {
		return clash, err
	}
	id := object.Hash(object.Blob, text)
	for _, o := range []outcome{joined, plain} {
		if o.reason == "" && (ok && o.want.ID == id || !ok && !both) {
			return o, nil
		}
	}
	return clash, nil
}

// woven gives the text of a file without the undone work by its lines; ok is false
// where some version is no text, or all of them are too large.
func (j *judge) woven(t *target, now history.State) (text []byte, ok bool, err error) {
	var w *weave
	left := 4 * maxMerged
	next := func(s history.State, mine bool) (bool, error) {
		if !s.Exists() || s.Mode == object.Symlink || s.Mode == object.Dir {
			return false, nil
		}
		data, known := j.made[s.ID]
		var err error
		if !known {
			data, err = j.st.ReadBlob(j.ctx, s.ID, int64(left))
		}
		if err != nil || diff.Binary(data) {
			if errs.Is(err, errs.TooLarge) {
				err = nil
			}
			return false, err
		}
		left -= len(data)
		if w == nil {
			w = newWeave(data)
		} else {
			w.next(data, mine)
		}
		return true, nil
	}
	for _, r := range t.chain.Runs {
		for i, s := range []history.State{r.Before, r.After} {
			if ok, err := next(s, i > 0); err != nil || !ok {
				return nil, false, err
			}
		}
	}
	if ok, err := next(now, false); err != nil || !ok {
		return nil, false, err
	}
	return w.text(), true, nil
}

// stretch is runs that follow each other, taken as one: last left what before is
// without all of them.
type stretch struct {
	before history.State
	last   *history.Run
}

// stretches joins a chain's runs, the oldest first: what others did between two is
// done to the file as it is without the first. To undo one run after the other instead,
// the newest first, would mistake a later change by others that does what undoing one
// does for its undoing: of a line that a task deleted and brought back, and that
// another deleted since, the deletion would be the task's. Runs of which others
// changed the same places in between stay apart.
func (j *judge) stretches(t *target) (out []stretch, err error) {
	for _, r := range t.chain.Runs {
		before := r.Before
		if k := len(out) - 1; k >= 0 && k < maxApart {
			without, reason, err := j.run(t, r.Before, out[k].before, out[k].last)
			if err != nil {
				return nil, err
			}
			if reason == "" {
				before, out = without, out[:k]
			}
		}
		out = append(out, stretch{before, r})
		j.keep(out, history.State{})
	}
	return out, nil
}

// clash notes a conflict; under force the state that the task found first is
// restored all the same.
func (j *judge) clash(t *target, r *history.Run, reason string) error {
	t.data, t.merged = nil, false
	t.want = t.chain.First()
	path := t.chain.After(r)
	if last := t.chain.Last().Path; t.now.Exists() && t.chain.Now != last && t.want.Path == last {
		t.want.Path = t.now.Path // another change gave its name
	}
	if t.now.Mode == object.Dir || reason == "deleted" {
		t.now = history.State{Path: t.now.Path} // the file is gone; the one there is another's
	}
	if j.force {
		return j.permissions(t, r)
	}
	newest := newestOf(r)
	t.conflict = &Conflict{Path: path, Reason: reason, Entry: numberOf(newest)}
	by, err := j.changedBy(path, newest.Seq, nextOf(t.chain, r))
	if err == nil && by.Commit.IsZero() {
		by = cameWith(newest) // as another part of it
	}
	t.conflict.By = by
	return err
}

// cameWith names an entry's own commit.
func cameWith(e *history.Entry) ChangedBy {
	return ChangedBy{Commit: e.Commit, Task: e.Ref.Task, Subtask: e.SubtaskID, Actor: e.Actor}
}

func newestOf(r *history.Run) *history.Entry { return r.Entries[len(r.Entries)-1] }

// nextOf returns the number of the chain's own change after a run, 0 if there is
// none: changes in between are others'.
func nextOf(c *history.Chain, r *history.Run) uint64 {
	if i := slices.Index(c.Runs, r); i+1 < len(c.Runs) {
		return c.Runs[i+1].Entries[0].Seq
	}
	return 0
}

// permissions finds the bits of a file that others replaced or removed.
func (j *judge) permissions(t *target, r *history.Run) error {
	recorded, err := j.permissionsAt(t, r, r.After.Path)
	if err != nil || recorded || t.chain.Now == r.After.Path {
		return err
	}
	_, err = j.permissionsAt(t, r, t.chain.Now)
	return err
}

// permissionsAt finds them at a path; recorded says that a commit has them.
func (j *judge) permissionsAt(t *target, r *history.Run, path string) (recorded bool, err error) {
	err = j.past.changes(path, newestOf(r).Seq, nextOf(t.chain, r), func(c *gitstore.Commit, _, _ history.State) bool {
		for i := range c.Message.Entries {
			switch e := &c.Message.Entries[i]; {
			case e.Path == path && e.Permissions != "":
				t.permissions, recorded = e.Permissions, true // the oldest in the end
			case e.OldPath == path:
				// It has another name, and its bits there.
				if is, err := j.w.Stat(j.ctx, wspath.Path(e.Path)); err == nil && is.Kind == workspace.KindFile && !is.Link {
					t.permissions = fmt.Sprintf("%04o", is.Info.Mode.Perm())
				}
			}
		}
		return true
	})
	return recorded, err
}

// run undoes on a state what made one run's result of what was before; reason names
// a conflict.
func (j *judge) run(t *target, cur, before history.State, r *history.Run) (next history.State, reason string, err error) {
	after := r.After
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
	case cur.Same(after) && !before.Exists():
		return before, "", nil
	case !before.Exists():
		return cur, "modified", nil
	case cur.Mode == object.Dir:
		return cur, "occupied", nil
	}
	name, ok := nameWithout(cur.Path, before.Path, after.Path)
	switch {
	case !ok:
		return cur, "renamed", nil
	case cur.Same(after):
		before.Path = name
		return before, "", nil
	}
	if before.Path != after.Path && cur.Path == after.Path && !r.Renamed {
		if other, err := j.replaced(after.Path, newestOf(r).Seq, nextOf(t.chain, r)); err != nil || other {
			return cur, "deleted", err
		}
	}
	before.Path = name
	return j.merge(t, cur, before, after)
}

// nameWithout is the name that a file has without a run that gave it one; false
// where another change gave it yet another.
func nameWithout(cur, before, after string) (string, bool) {
	switch cur {
	case before:
		return cur, true
	case after:
		return before, true
	}
	return cur, before == after
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
	case after.ID == before.ID, cur.ID == before.ID:
		return next, "", nil
	case cur.ID == after.ID:
		next.ID = before.ID
		return next, "", nil
	case cur.Mode == object.Symlink || before.Mode == object.Symlink:
		return cur, "modified", nil
	}
	data, reason, err := j.text(cur.ID, before.ID, after.ID)
	if err != nil || reason != "" {
		return cur, reason, err
	}
	next.ID = object.Hash(object.Blob, data)
	j.made[next.ID] = data
	return next, "", nil
}

func (j *judge) text(cur, before, after object.ID) ([]byte, string, error) {
	var sides [3][]byte
	for i, id := range []object.ID{after, cur, before} {
		if made, ok := j.made[id]; ok {
			sides[i] = made
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
	res, err := merge3.Merge(sides[0], sides[1], sides[2], merge3.Options{Touching: true})
	switch {
	case err != nil:
		return nil, "binary", nil // or too large: what cannot be merged line by line
	case !res.Clean:
		if text, ok := mergeLineEnds(sides[0], sides[1], sides[2]); ok {
			return text, "", nil
		}
		return nil, "overlapping", nil
	case res.Merged == nil:
		return []byte{}, "", nil
	}
	return res.Merged, "", nil
}

// disown decides which of two files is at a path where both are believed to be: the
// one that is as it was left, else the one that came later. The other is gone.
func (p *plan) disown(j *judge) error {
	holder := make(map[string]*target)
	for _, t := range p.targets {
		if !t.now.Exists() || t.now.Mode == object.Dir {
			continue
		}
		path, gone := t.now.Path, holder[t.now.Path]
		holder[path] = t
		if gone == nil {
			continue
		}
		if now, is, was := t.now, t.chain.Last(), gone.chain.Last(); was.Same(now) && !is.Same(now) ||
			was.Same(now) == is.Same(now) && gone.newest().ID > t.newest().ID {
			holder[path], gone = gone, t
		}
		if err := j.clash(gone, gone.chain.Runs[len(gone.chain.Runs)-1], "deleted"); err != nil {
			return err
		}
	}
	return nil
}

// replaced reports whether the file at a path was removed after one sequence
// number, and before another if that is not 0, so that the file there now is
// another one and must not take the old one's name.
func (j *judge) replaced(path string, after, before uint64) (other bool, err error) {
	err = j.past.changes(path, after, before, func(c *gitstore.Commit, was, is history.State) bool {
		other = !was.Exists() || !is.Exists()
		for i := range c.Message.Entries {
			e := &c.Message.Entries[i]
			other = other || e.OldPath != "" && e.Path == path
		}
		return !other
	})
	return other, err
}

// changedBy finds the newest commit after one sequence number, and before
// another if that is not 0, that changed the file at a path.
func (j *judge) changedBy(path string, after, before uint64) (by ChangedBy, err error) {
	err = j.past.changes(path, after, before, func(c *gitstore.Commit, _, _ history.State) bool {
		by = ChangedBy{Commit: c.ID, Task: c.Message.TaskID, Subtask: c.Message.SubtaskID, Actor: c.Message.Actor}
		return false
	})
	return by, err
}
