package revert

import (
	"cmp"
	"context"
	"maps"
	"slices"

	"umbra/gitstore"
	"umbra/gitstore/message"
	"umbra/gitstore/object"
	"umbra/internal/history"
	"umbra/internal/workspace"
)

// A run of a chain may have found work of others that was undone since. To put that
// back with what the run replaced would make what is left depend on the order of the
// reverts. So both sides of such a run are taken as they are without that work; of the
// revert of a revert, as they are with what is in effect again.

// since knows, for one plan, what was undone of the files after they were changed.
type since struct {
	tasks  []*history.Task
	byPath map[string][]sinceEntry                // of the paths that were asked for
	undone map[uint64][]map[message.EntryRef]bool // by a commit's number, of each task
}

// sinceEntry is an entry of one of the tasks.
type sinceEntry struct {
	*history.Entry
	task int
}

// newSince reads the tasks of which something was undone after a commit, of those that
// may have changed one of some paths. It is nil where there are none.
func newSince(ctx context.Context, w *workspace.Workspace, cache *history.Cache, after uint64, paths map[string]bool) (*since, error) {
	st := w.Store()
	recs, _, err := st.Undoes(ctx, 0)
	if err != nil {
		return nil, err
	}
	if !slices.ContainsFunc(recs, func(r gitstore.Record) bool { return r.Seq > after && r.Source == message.Revert }) {
		return nil, nil
	}
	ids, err := undoneTasks(ctx, st, recs)
	if err != nil {
		return nil, err
	}
	if err := onlyTouching(ctx, st, ids, paths); err != nil || len(ids) == 0 {
		return nil, err
	}
	s := &since{byPath: make(map[string][]sinceEntry), undone: make(map[uint64][]map[message.EntryRef]bool)}
	for _, id := range slices.Sorted(maps.Keys(ids)) {
		t, err := cache.Task(ctx, w, id)
		if err != nil {
			return nil, err
		}
		for i := range t.Entries {
			if e := &t.Entries[i]; !e.TakenBack && e.Source != message.Rollback && paths[e.Path] {
				s.byPath[e.Path] = append(s.byPath[e.Path], sinceEntry{e, len(s.tasks)})
			}
		}
		s.tasks = append(s.tasks, t)
	}
	for _, list := range s.byPath {
		slices.SortStableFunc(list, func(a, b sinceEntry) int { return cmp.Compare(a.Seq, b.Seq) })
	}
	return s, nil
}

// undoneTasks returns the tasks that reverts were made by, or undid something of. What a
// revert undoes is its own task's, unless its record says otherwise.
func undoneTasks(ctx context.Context, st *gitstore.Store, recs []gitstore.Record) (map[string]bool, error) {
	ids := make(map[string]bool)
	for i := range recs {
		if recs[i].Source != message.Revert {
			continue
		}
		ids[recs[i].Task] = true
		if recs[i].Task != "" && !recs[i].Foreign {
			continue
		}
		c, err := st.ReadCommit(ctx, recs[i].Commit)
		if err != nil {
			return nil, err
		}
		for _, r := range c.Message.RevertsEntries {
			ids[r.Task] = true
		}
		for j := range c.Message.Entries {
			for _, r := range c.Message.Entries[j].Reverts {
				ids[r.Task] = true
			}
		}
	}
	delete(ids, "")
	return ids, nil
}

// maxTouched bounds the paths for which records are looked through.
const maxTouched = 64

// onlyTouching leaves out the tasks that changed none of some paths.
func onlyTouching(ctx context.Context, st *gitstore.Store, ids, paths map[string]bool) error {
	if len(ids) == 0 || len(paths) > maxTouched {
		return nil
	}
	touches := func(recs []gitstore.Record, err error) (bool, error) {
		for i := range recs {
			if is, err := touchesAny(ctx, st, &recs[i], paths); err != nil || is {
				return is, err
			}
		}
		return false, err
	}
	// A shared change is of tasks that its record does not name.
	shared, _, err := st.Claimed(ctx, 0)
	if is, err := touches(shared, err); err != nil || is {
		return err
	}
	for id := range ids {
		is, err := touches(st.TaskRecords(ctx, id))
		if err != nil {
			return err
		}
		if !is {
			delete(ids, id)
		}
	}
	return nil
}

// touchesAny reports whether a commit changed one of some paths. Where the record only
// says that it may have, the commit is read.
func touchesAny(ctx context.Context, st *gitstore.Store, r *gitstore.Record, paths map[string]bool) (bool, error) {
	may := false
	for path := range paths {
		may = may || r.MayTouch(path)
	}
	if !may || r.Entries <= 1 {
		return may, nil
	}
	c, err := st.ReadCommit(ctx, r.Commit)
	if err != nil {
		return false, err
	}
	m := c.Message
	return m.Condensed || len(m.Entries) == 0 || slices.ContainsFunc(m.Entries, func(e message.Entry) bool { return paths[e.Path] || paths[e.OldPath] }), nil
}

// at returns which entries of each task were undone as of a commit.
func (s *since) at(seq uint64, off func(*history.Entry) bool) []map[message.EntryRef]bool {
	out := make([]map[message.EntryRef]bool, len(s.tasks))
	for i, t := range s.tasks {
		out[i] = t.UndoneAt(seq, off)
	}
	return out
}

func (s *since) then(seq uint64) []map[message.EntryRef]bool {
	if s.undone[seq] == nil {
		s.undone[seq] = s.at(seq, func(*history.Entry) bool { return false })
	}
	return s.undone[seq]
}

// rebased is a chain of which others' work was undone since, as it is without that work.
func (j *judge) rebased(c *history.Chain) (*history.Chain, error) {
	j.made, j.pinned = make(map[object.ID][]byte), make(map[object.ID]bool)
	s := j.since
	if s == nil {
		return c, nil
	}
	last := c.Runs[len(c.Runs)-1]
	list := s.byPath[c.First().Path]
	if !slices.ContainsFunc(list, func(e sinceEntry) bool { return e.Undone && e.Seq < last.Entries[0].Seq }) {
		return c, nil
	}
	type change struct {
		commit object.ID
		path   string
	}
	own, off := make(map[change]bool), make(map[change]bool)
	for _, e := range c.Entries() {
		own[change{e.Commit, e.Path}] = true
	}
	for _, e := range j.selected {
		off[change{e.Commit, e.Path}] = true
	}
	mine := func(e *history.Entry) bool { return own[change{e.Commit, e.Path}] }
	now := s.at(^uint64(0), func(e *history.Entry) bool { return mine(e) || off[change{e.Commit, e.Path}] })
	out := &history.Chain{Now: c.Now, Replaced: c.Replaced}
	changed := false
	for _, r := range c.Runs {
		x := *r
		if ok, err := j.rebase(&x, now, mine, maxDepth); err != nil {
			return nil, err
		} else if ok {
			changed = changed || x.Before != r.Before || x.After != r.After
		} else {
			x = *r
		}
		out.Runs = append(out.Runs, &x)
	}
	if !changed {
		return c, nil
	}
	return out, nil
}

// maxDepth bounds how far what was undone is followed to what that had found.
const maxDepth = 8

// rebase takes out of both sides of a run what was in effect when it began and is not
// in effect as of now; false where that cannot be separated.
func (j *judge) rebase(r *history.Run, now []map[message.EntryRef]bool, mine func(*history.Entry) bool, depth int) (bool, error) {
	path, first, end := r.Before.Path, r.Entries[0].Seq, newestOf(r).Seq
	if r.After.Path != path || r.Renamed {
		return true, nil
	}
	var lost []*history.Entry
	then := j.since.then(first - 1)
	for _, e := range j.since.byPath[path] {
		if e.Seq >= first {
			break
		}
		if !mine(e.Entry) && !then[e.task][e.Ref] && now[e.task][e.Ref] {
			if e.NewPath != "" {
				return false, nil
			}
			lost = append(lost, e.Entry)
		}
	}
	if len(lost) == 0 {
		return true, nil
	}
	if depth == 0 {
		return false, nil
	}
	for _, side := range []struct {
		s   *history.State
		seq uint64
	}{{&r.Before, first - 1}, {&r.After, end}} {
		if ok, err := j.strip(side.s, lost, j.since.then(side.seq), depth); err != nil || !ok {
			return false, err
		}
	}
	return true, nil
}

// strip takes entries out of a file as it was when these others were undone.
func (j *judge) strip(s *history.State, lost []*history.Entry, then []map[message.EntryRef]bool, depth int) (bool, error) {
	chains, _ := history.Chains(lost)
	if len(chains) != 1 {
		return false, nil
	}
	none := func(*history.Entry) bool { return false }
	cur := *s
	for _, r := range slices.Backward(chains[0].Runs) {
		x := *r
		if ok, err := j.rebase(&x, then, none, depth-1); err != nil || !ok {
			return false, err
		}
		next, reason, err := j.run(&target{chain: chains[0]}, cur, x.Before, &x)
		if err != nil || reason != "" {
			return false, err
		}
		cur = next
		j.pin(x.Before, x.After, cur)
	}
	*s = cur
	return true, nil
}

// silent returns the files of which a revert that is itself undone had nothing to undo: its
// commit names their entries, and has none of them. What others did is undone since, so
// there may be something to bring back.
func (p *plan) silent(ctx context.Context, w *workspace.Workspace, cache *history.Cache, chains []part) ([]part, error) {
	known := make(map[string]bool)
	for _, c := range chains {
		for _, r := range c.Runs {
			known[r.Before.Path], known[r.After.Path] = true, true
		}
		known[c.Now] = true
	}
	count := make(map[object.ID]int)
	for _, e := range p.sel.entries {
		if e.IsRevert() {
			count[e.Commit]++
		}
	}
	var out []part
	for _, e := range p.sel.entries {
		n := count[e.Commit]
		delete(count, e.Commit)
		if n == 0 {
			continue
		}
		c, err := w.Store().ReadCommit(ctx, e.Commit)
		if err != nil {
			return nil, err
		}
		if n < len(c.Message.Entries) {
			continue // in effect as long as one of its entries is
		}
		for _, r := range c.Message.RevertsEntries {
			if r.Task == "" {
				continue
			}
			t, err := cache.Task(ctx, w, r.Task)
			if err != nil {
				return nil, err
			}
			was := t.Find(r.ID)
			if was == nil || was.NewPath != "" || was.IsFolder() || known[was.Path] {
				continue
			}
			known[was.Path] = true
			snap, err := w.Store().SnapshotOf(ctx, c.ID)
			if err != nil {
				return nil, err
			}
			s, err := at(snap, was.Path)
			if err != nil {
				return nil, err
			}
			is := *e.ChangeEntry
			is.Path, is.NewPath, is.ID, is.Reverts = was.Path, "", 0, nil
			is.BeforeMode, is.Before, is.Mode, is.After = s.Mode, s.ID, s.Mode, s.ID
			x := *e
			x.ChangeEntry, x.Ref = &is, message.EntryRef{}
			out = append(out, part{Chain: &history.Chain{Now: was.Path, Runs: []*history.Run{{Before: s, After: s, Entries: []*history.Entry{&x}}}}})
		}
	}
	return out, nil
}

// pin keeps the bytes of states that may be in no history.
func (j *judge) pin(list ...history.State) {
	for _, s := range list {
		if j.made[s.ID] != nil {
			j.pinned[s.ID] = true
		}
	}
}
