package history

import (
	"context"
	"slices"
	"strings"

	"umbra/gitstore"
	"umbra/gitstore/diff"
	"umbra/gitstore/object"
	"umbra/internal/workspace"
	"umbra/internal/wspath"
)

// Pair is one file in two states of the workspace.
type Pair struct{ Old, New State }

// Between gives the files that the task touched, as they are in two commits,
// no matter who changed them in between: threaded through the names that the task
// gave them on the way. path, if not empty, chooses one file by any of its
// names; ok is false where the task never touched it.
func (c *Cache) Between(ctx context.Context, w *workspace.Workspace, id string, from, to object.ID, path string) (pairs []Pair, ok bool, err error) {
	t, err := c.Task(ctx, w, id)
	if err != nil {
		return nil, false, err
	}
	st := w.Store()
	a, err := st.ReadCommit(ctx, from)
	if err != nil {
		return nil, false, err
	}
	b, err := st.ReadCommit(ctx, to)
	if err != nil {
		return nil, false, err
	}
	lo, hi := min(a.Seq, b.Seq), max(a.Seq, b.Seq)
	oldSnap, err := st.SnapshotOf(ctx, from)
	if err != nil {
		return nil, false, err
	}
	newSnap, err := st.SnapshotOf(ctx, to)
	if err != nil {
		return nil, false, err
	}
	var within, all []*Entry
	for i := range t.Entries {
		e := &t.Entries[i]
		all = append(all, e)
		if e.Seq > lo && e.Seq <= hi {
			within = append(within, e)
		}
	}
	add := func(first, last string) error {
		if a.Seq > b.Seq {
			first, last = last, first
		}
		x, err := fileAt(oldSnap, first)
		if err != nil {
			return err
		}
		y, err := fileAt(newSnap, last)
		if err != nil {
			return err
		}
		if (x.Exists() || y.Exists()) && !(x.Same(y) && x.Path == y.Path) {
			pairs = append(pairs, Pair{x, y})
		}
		return nil
	}
	seen := make(map[string]bool)
	chains, _ := Chains(within)
	for _, ch := range chains {
		if path != "" && !ch.Named(path) {
			continue
		}
		ok = true
		seen[ch.First().Path], seen[ch.Last().Path] = true, true
		if err := add(ch.First().Path, ch.Last().Path); err != nil {
			return nil, false, err
		}
	}
	// Files that the task touched outside of the range may differ in it too.
	chains, _ = Chains(all)
	for _, ch := range chains {
		p := ch.Last().Path
		if path != "" {
			if !ch.Named(path) {
				continue
			}
			ok, p = true, path
		}
		if !seen[p] {
			seen[p] = true
			if err := add(p, p); err != nil {
				return nil, false, err
			}
		}
	}
	return pairs, ok, nil
}

// fileAt gives the file at a path of a tree; a folder is none.
func fileAt(snap gitstore.Snapshot, path string) (State, error) {
	e, ok, err := snap.Lookup(wspath.Path(path))
	if err != nil || !ok || e.Mode == object.Dir {
		return State{Path: path}, err
	}
	return State{Path: path, Mode: e.Mode, ID: e.ID}, nil
}

// Sides reads both versions: errs.TooLarge above max bytes.
func (p Pair) Sides(ctx context.Context, st *gitstore.Store, max int64) (old, now diff.File, err error) {
	if old, err = side(ctx, st, p.Old, max); err != nil {
		return old, now, err
	}
	now, err = side(ctx, st, p.New, max)
	return old, now, err
}

// Find gives the line of the summary about a file, by its name now or any it
// had in the task.
func (s *Summary) Find(path string) *File {
	i, found := slices.BinarySearchFunc(s.Files, path, func(f File, p string) int { return strings.Compare(f.Path, p) })
	if found {
		return &s.Files[i]
	}
	for i := range s.Files {
		if s.Files[i].chain.Named(path) {
			return &s.Files[i]
		}
	}
	return nil
}

// Touched reports whether a task has an entry about a path, in effect or not.
func (t *Task) Touched(path string) bool {
	for i := range t.Entries {
		if t.Entries[i].Path == path || t.Entries[i].NewPath == path {
			return true
		}
	}
	return false
}
