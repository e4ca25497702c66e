// Package lineage finds every content that a path had: under its own name and under
// the names that recorded renames gave the file.
//
// It reads history only and takes no locks; Grown reports what was committed since.
package lineage

import (
	"context"
	"maps"
	"slices"
	"strings"

	"umbra/gitstore"
	"umbra/gitstore/message"
	"umbra/gitstore/object"
	"umbra/internal/errs"
	"umbra/internal/wspath"
)

// Lineage is every content that a path had: under its own name at any time, and
// under the names that recorded renames gave the file, before and after.
//
// It is found in two passes: back through the history, following renames to what
// the file was called before, down to where it was made; and forward from there,
// following renames away from these names.
type Lineage struct {
	store *gitstore.Store
	path  string
	Names map[string]bool    // that the file had
	Blobs map[object.ID]bool // that these names had
	// back are the names of the first pass, by the numbers of the commits after
	// which they hold: steps, newest first.
	back []step
	end  map[string]bool // the names at the newest commit
	seq  uint64          // its number
}

// step says that the file's names were others before a commit.
type step struct {
	seq    uint64
	before map[string]bool
}

// Of returns a path's contents up to the tip, and reports the progress to its last
// argument.
func Of(ctx context.Context, store *gitstore.Store, p wspath.Path, tell func(done, all int64)) (*Lineage, error) {
	l := &Lineage{store: store, path: string(p), Names: map[string]bool{string(p): true}, Blobs: make(map[object.ID]bool), seq: store.Tip().Seq}
	first, err := l.backward(ctx, tell)
	if err == nil {
		err = l.forward(ctx, first, tell)
	}
	if err != nil {
		return nil, err
	}
	return l, nil
}

// backward fills back; it gives the number of the oldest commit there is.
func (l *Lineage) backward(ctx context.Context, tell func(done, all int64)) (first uint64, err error) {
	names := map[string]bool{l.path: true}
	for seq := l.seq; seq > 0; seq-- {
		c, err := l.commit(ctx, seq)
		if errs.Is(err, errs.Gone) || errs.Is(err, errs.NotFound) && seq < l.seq {
			return seq + 1, nil
		}
		if err != nil {
			return 0, err
		}
		tell(int64(l.seq-seq), 2*int64(l.seq))
		if !l.concerns(c, names) {
			continue
		}
		before, after, err := l.trees(ctx, c)
		if err != nil {
			return 0, err
		}
		was := map[string]bool{l.path: true}
		for n := range names {
			if n == l.path {
				if from, ok := renamedTo(c.Message, n); ok {
					was[from] = true
				}
				continue
			}
			if from, ok := renamedTo(c.Message, n); ok {
				was[from] = true
			} else if there, err := has(before, n); err != nil {
				return 0, err
			} else if there {
				was[n] = true
			}
		}
		if err := l.take(after, names); err != nil {
			return 0, err
		}
		if err := l.take(before, was); err != nil {
			return 0, err
		}
		if !maps.Equal(was, names) {
			l.back = append(l.back, step{seq, was})
			names = was
		}
	}
	return 1, nil
}

// forward follows what was renamed away from the names of the first pass.
func (l *Lineage) forward(ctx context.Context, first uint64, tell func(done, all int64)) error {
	steps := slices.Clone(l.back)
	slices.Reverse(steps) // oldest first: until the commit of a step, its names hold
	away := make(map[string]bool)
	for seq := first; seq <= l.seq; seq++ {
		known := map[string]bool{l.path: true}
		for len(steps) > 0 && steps[0].seq < seq {
			steps = steps[1:]
		}
		if len(steps) > 0 {
			known = steps[0].before // as they were before this commit, or a later one
		}
		c, err := l.commit(ctx, seq)
		if err != nil {
			return err
		}
		tell(int64(l.seq+seq), 2*int64(l.seq))
		all := maps.Clone(known)
		maps.Copy(all, away)
		if !l.concerns(c, all) {
			continue
		}
		before, after, err := l.trees(ctx, c)
		if err != nil {
			return err
		}
		if err := l.take(before, all); err != nil {
			return err
		}
		next := make(map[string]bool)
		for n := range all {
			if to, ok := renamedFrom(c.Message, n); ok {
				next[to] = true
				continue
			}
			if !away[n] {
				continue
			}
			if there, err := has(after, n); err != nil {
				return err
			} else if there {
				next[n] = true
			}
		}
		away = next
		if err := l.take(after, away); err != nil {
			return err
		}
	}
	l.end = away
	l.end[l.path] = true
	return l.tip()
}

// tip takes what the newest tree has, also where no entry has it.
func (l *Lineage) tip() error {
	id, err := l.store.CommitAt(context.Background(), l.seq)
	if err != nil {
		return err
	}
	snap, err := l.store.SnapshotOf(context.Background(), id)
	if err != nil {
		return err
	}
	return l.take(snap, l.end)
}

// Grown reports whether a commit that came since concerns the file.
func (l *Lineage) Grown(ctx context.Context) (bool, error) {
	for seq := l.seq + 1; seq <= l.store.Tip().Seq; seq++ {
		c, err := l.commit(ctx, seq)
		if err != nil {
			return false, err
		}
		if l.concerns(c, l.Names) {
			return true, nil
		}
	}
	return false, nil
}

func (l *Lineage) commit(ctx context.Context, seq uint64) (*gitstore.Commit, error) {
	id, err := l.store.CommitAt(ctx, seq)
	if err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, errs.Wrap(err, "")
	}
	return l.store.ReadCommit(ctx, id)
}

// concerns reports whether a commit may have changed one of the names. One that
// does not list its entries may.
func (l *Lineage) concerns(c *gitstore.Commit, names map[string]bool) bool {
	if c.Message.Condensed || c.Message.Source == message.Baseline || c.Parent.IsZero() {
		return true
	}
	for i := range c.Message.Entries {
		e := &c.Message.Entries[i]
		if names[e.Path] || names[e.OldPath] {
			return true
		}
		if strings.HasSuffix(e.Path, "/") && e.OldPath != "" {
			for n := range names {
				if strings.HasPrefix(n, e.Path) || strings.HasPrefix(n, e.OldPath) {
					return true
				}
			}
		}
	}
	return false
}

func (l *Lineage) trees(ctx context.Context, c *gitstore.Commit) (before, after gitstore.Snapshot, err error) {
	if after, err = l.store.SnapshotOf(ctx, c.ID); err == nil && !c.Parent.IsZero() {
		before, err = l.store.SnapshotOf(ctx, c.Parent)
	}
	return before, after, err
}

// take notes what files of these names hold in a tree.
func (l *Lineage) take(s gitstore.Snapshot, names map[string]bool) error {
	for n := range names {
		l.Names[n] = true
		e, ok, err := lookupFile(s, n)
		if err != nil {
			return err
		}
		if ok {
			l.Blobs[e.ID] = true
		}
	}
	return nil
}

func has(s gitstore.Snapshot, name string) (bool, error) {
	_, ok, err := lookupFile(s, name)
	return ok, err
}

func lookupFile(s gitstore.Snapshot, name string) (gitstore.Entry, bool, error) {
	if s.Tree().IsZero() {
		return gitstore.Entry{}, false, nil
	}
	e, ok, err := s.Lookup(wspath.Path(name))
	return e, ok && e.Mode != object.Dir, err
}

// renamedTo gives the name that a commit's renames took a file from.
func renamedTo(m *message.Message, name string) (from string, ok bool) {
	for i := range m.Entries {
		e := &m.Entries[i]
		if e.OldPath == "" {
			continue
		}
		if e.Path == name {
			return e.OldPath, true
		}
		if rest, in := strings.CutPrefix(name, e.Path); in && strings.HasSuffix(e.Path, "/") {
			return e.OldPath + rest, true
		}
	}
	return "", false
}

// renamedFrom gives the name that a commit's renames gave a file.
func renamedFrom(m *message.Message, name string) (to string, ok bool) {
	for i := range m.Entries {
		e := &m.Entries[i]
		if e.OldPath == "" {
			continue
		}
		if e.OldPath == name {
			return e.Path, true
		}
		if rest, in := strings.CutPrefix(name, e.OldPath); in && strings.HasSuffix(e.OldPath, "/") {
			return e.Path + rest, true
		}
	}
	return "", false
}
