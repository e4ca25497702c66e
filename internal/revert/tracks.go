package revert

import (
	"context"
	"slices"

	"umbra/gitstore"
	"umbra/gitstore/message"
	"umbra/gitstore/object"
	"umbra/internal/history"
	"umbra/internal/lineage"
	"umbra/internal/workspace"
	"umbra/internal/wspath"
)

// folder is one directory under all the names that it had. Directories are
// identified by their history, since two may have had the same path. One that the
// selected entries neither made nor moved needs none: it is where its name says.
type folder struct {
	// name is where it is without the selected entries; of one that they made,
	// where it was made.
	name string
	last string // where it is now; empty: nowhere
	made bool   // without the selected entries it is nowhere

	moved    bool // as one: itself, not only with one around it
	filled   bool // with files in it, at least once
	recorded bool // by the commits; else inferred from the files' names

	entries     []*history.Entry // about it as an empty one, oldest first
	conflict    *Conflict
	skipped     bool
	goes, comes bool // there is something to remove, to make

	was string // where it was before the commit of the number seq
	seq uint64
}

// first is where a folder comes back to; empty: nowhere.
func (f *folder) first() string {
	if f.made {
		return ""
	}
	return f.name
}

// before is where a folder was before a commit.
func (f *folder) before(seq uint64) string {
	if f.seq == seq {
		return f.was
	}
	return f.last
}

// tracker follows folders through commits, oldest first.
type tracker struct {
	ctx  context.Context
	st   *gitstore.Store
	base gitstore.Snapshot // what the task began with

	all    []*folder
	movers []*folder               // those that moved
	at     map[string]*folder      // by where they are
	gone   map[string]*folder      // by where they were removed
	of     map[uint64]*folder      // by an entry about it
	old    map[string]bool         // names of folders that others made first
	wanted map[*history.Entry]bool // those that are undone

	seq     uint64 // of the commit
	id      object.ID
	changed []*folder
	parent  *gitstore.Snapshot // the tree before the commit, once it was asked for
	filled  []wspath.Path      // directories that existed before it, next to those of parent
}

// trackFolders follows the folders that selected entries made, moved or
// removed, through these and through what others gave other names (others,
// ascending). Where all of a task is undone it follows the task's own reverts
// too: they put back and made folders as its other changes do.
func trackFolders(ctx context.Context, st *gitstore.Store, base gitstore.Snapshot, task *history.Task, sel *selection, others []lineage.Move) ([]*folder, error) {
	t := &tracker{ctx: ctx, st: st, base: base, at: make(map[string]*folder), gone: make(map[string]*folder), of: make(map[uint64]*folder), old: make(map[string]bool), wanted: make(map[*history.Entry]bool)}
	if len(sel.entries) == 0 {
		return nil, nil
	}
	for _, e := range sel.entries {
		t.wanted[e] = true
	}
	entries := sel.entries
	if sel.all {
		entries = task.Every()
		own := make(map[uint64]bool, len(entries))
		for _, e := range entries {
			own[e.Seq] = true
		}
		others = slices.DeleteFunc(slices.Clone(others), func(m lineage.Move) bool { return own[m.Seq] })
	}
	for len(entries) > 0 {
		n := 1
		for n < len(entries) && entries[n].Commit == entries[0].Commit {
			n++
		}
		for len(others) > 0 && others[0].Seq < entries[0].Seq {
			t.byOthers(others[0])
			others = others[1:]
		}
		if err := t.commit(entries[:n]); err != nil {
			return nil, err
		}
		entries = entries[n:]
	}
	for _, m := range others {
		t.byOthers(m)
	}
	return t.all, nil
}

// commit follows what a commit's selected entries did. Entries have its result,
// from names before it to names after it; moves of whole directories are in the
// order in which they were done.
func (t *tracker) commit(entries []*history.Entry) error {
	t.seq, t.id, t.changed, t.parent = entries[0].Seq, entries[0].Commit, nil, nil
	moves, recorded, err := movesOf(t.ctx, t.st, entries)
	if err != nil {
		return err
	}
	subjects := make([]*folder, len(entries)) // of those about empty folders
	for i, e := range entries {
		if e.IsFolder() && e.Operation != message.Mkdir {
			subjects[i] = t.know(trimSlash(e.Path))
		}
	}
	for _, m := range moves {
		f := t.know(string(m.From))
		t.moves(f, recorded)
		f.filled = true
		t.carry(m)
	}
	for i, e := range entries {
		if f := subjects[i]; f != nil {
			to := ""
			if e.Operation == message.Rename {
				to = trimSlash(e.NewPath)
				t.moves(f, true)
			} else {
				t.gone[trimSlash(e.Path)] = f
			}
			t.put(f, to)
			t.note(f, e)
		}
	}
	for _, e := range entries {
		if err := t.arrive(e); err != nil {
			return err
		}
	}
	return nil
}

// arrive follows the folders that an entry put something into.
func (t *tracker) arrive(e *history.Entry) error {
	switch e.Operation {
	case message.Delete, message.Modify, message.Chmod, message.Rmdir:
		return nil
	}
	path := trimSlash(lastName(e))
	dirs := parents(path)
	for _, dir := range slices.Backward(dirs) { // the outer ones first
		if t.at[dir] != nil {
			continue
		}
		name := t.without(dir)
		made, err := t.isMade(dir, name)
		if err != nil {
			return err
		}
		if made || name != dir {
			was, _ := t.wasAt(dir)
			f := t.add(&folder{name: name, made: made}, dir)
			if !made {
				f.was = was
			}
		}
	}
	if e.Operation != message.Mkdir {
		return nil
	}
	f := t.gone[path]
	for _, r := range e.Reverts { // wherever it was removed
		if of := t.of[r.ID]; of != nil && r.Task == e.TaskID {
			f = of
		}
	}
	if f == nil || f.last != "" {
		f = t.add(&folder{name: t.without(path), made: true}, path)
	} else {
		t.put(f, path) // made again
	}
	t.note(f, e)
	return nil
}

// note has an entry undone with a folder, if it is one of those.
func (t *tracker) note(f *folder, e *history.Entry) {
	t.of[e.ID] = f
	if t.wanted[e] {
		f.entries = append(f.entries, e)
	}
}

// know returns the directory at a path, which was there before the commit.
func (t *tracker) know(path string) *folder {
	if f := t.at[path]; f != nil {
		return f
	}
	f := t.add(&folder{name: t.without(path), made: t.isAway(path)}, path)
	f.was = path
	return f
}

func (t *tracker) add(f *folder, path string) *folder {
	t.all = append(t.all, f)
	t.put(f, path)
	return f
}

// put notes where a folder is now. An empty one in its place is gone.
func (t *tracker) put(f *folder, path string) {
	if f.seq != t.seq {
		f.was, f.seq = f.last, t.seq
		t.changed = append(t.changed, f)
	}
	if t.at[f.last] == f {
		delete(t.at, f.last)
	}
	if f.last = path; path == "" {
		return
	}
	if o := t.at[path]; o != nil {
		t.put(o, "")
	}
	t.at[path] = f
}

// moves notes that a folder moves as one.
func (t *tracker) moves(f *folder, recorded bool) {
	f.recorded = recorded && (f.recorded || !f.moved)
	if !f.moved {
		f.moved = true
		t.movers = append(t.movers, f)
	}
}

// carry moves all folders that are at or under a path.
func (t *tracker) carry(m wspath.Move) {
	along := make(map[*folder]wspath.Path)
	for _, f := range t.all {
		if to, ok := m.Follow(wspath.Path(f.last)); ok && f.last != "" {
			along[f] = to
		}
	}
	for _, f := range t.all {
		if to, ok := along[f]; ok {
			t.put(f, string(to))
		}
	}
}

// around gives the innermost folder that is at a path or holds it.
func (t *tracker) around(path string) *folder {
	if f := t.at[path]; f != nil {
		return f
	}
	for _, dir := range parents(path) {
		if f := t.at[dir]; f != nil {
			return f
		}
	}
	return nil
}

// without returns the name of the entry at a path as it is without the selected
// entries.
func (t *tracker) without(path string) string {
	if f := t.around(path); f != nil {
		return f.name + path[len(f.last):]
	}
	return path
}

// isAway reports whether the folder that had a path without the selected entries
// is elsewhere now, so that the one there came later.
func (t *tracker) isAway(path string) bool {
	if t.around(path) != nil {
		return false
	}
	return slices.ContainsFunc(t.movers, func(f *folder) bool {
		return f.last != f.name && (path == f.name || under(path, f.name))
	})
}

// isMade reports whether a folder that the commit put something into was made by
// it: it did not exist at the task's base, nor before the commit.
func (t *tracker) isMade(path, name string) (bool, error) {
	if t.isAway(path) {
		return true, nil
	}
	if t.old[name] {
		return false, nil
	}
	if was, err := at(t.base, name); err != nil {
		return false, err
	} else if was.Mode == object.Dir {
		t.old[name] = true
		return false, nil
	}
	was, ok := t.wasAt(path)
	if !ok {
		return true, nil
	}
	if t.parent == nil {
		c, err := t.st.ReadCommit(t.ctx, t.id)
		if err != nil {
			return false, err
		}
		snap, err := t.st.SnapshotOf(t.ctx, c.Parent)
		if err != nil {
			return false, err
		}
		t.parent, t.filled = &snap, workspace.Filled(c.Message)
	}
	stood, err := at(*t.parent, was)
	existed := stood.Mode == object.Dir || slices.Contains(t.filled, wspath.Path(was))
	if err == nil && existed {
		t.old[name] = true
	}
	return !existed, err
}

// wasAt returns where the directory at a path was before the commit; ok is false if
// it did not exist.
func (t *tracker) wasAt(path string) (was string, ok bool) {
	if f := t.around(path); f != nil {
		if was = f.before(t.seq); was == "" {
			return "", false
		}
		return was + path[len(f.last):], true
	}
	return path, !slices.ContainsFunc(t.changed, func(f *folder) bool { return f.was != "" && (path == f.was || under(path, f.was)) })
}

// byOthers follows a rename by others. Without the selected entries it is the same
// rename of the names there.
func (t *tracker) byOthers(m lineage.Move) {
	t.seq, t.changed = m.Seq, nil
	at := string(m.From)
	away := t.isAway(at)
	from, to := t.without(at), t.without(string(m.To))
	for _, f := range t.all {
		self := f.last == at
		if !away && (f.name == from && !(self && f.name != f.last) || under(f.name, from)) {
			f.name = to + f.name[len(from):]
		}
	}
	t.carry(m.Move)
}
