// Package lineage follows paths through the renames that history records: what one
// commit renamed, what a stretch of history did (Since), which commits may have touched
// a path (Touches), and every name and content that a file ever had (Of).
//
// It reads history only and takes no locks; Grown reports what was committed since.
// docs/ARCHITECTURE.md, Names through history, says which packages ask other questions.
package lineage

import (
	"context"
	"maps"
	"slices"

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
func Of(ctx context.Context, store *gitstore.Store, p wspath.Path, progress func(done, all int64)) (*Lineage, error) {
	l := &Lineage{store: store, path: string(p), Names: map[string]bool{string(p): true}, Blobs: make(map[object.ID]bool), seq: store.Tip().Seq}
	first, err := l.backward(ctx, progress)
	if err == nil {
		err = l.forward(ctx, first, progress)
	}
	if err != nil {
		return nil, err
	}
	return l, nil
}

// backward fills back; it gives the number of the oldest commit there is.
func (l *Lineage) backward(ctx context.Context, progress func(done, all int64)) (first uint64, err error) {
	first = max(1, l.store.Boundary().Seq)
	names := map[string]bool{l.path: true}
	for all := NewTouches(l.store, first, l.seq); ; {
		rec, ok, err := all.Before(ctx, slices.Collect(maps.Keys(names))...)
		if err != nil || !ok {
			return first, err
		}
		progress(int64(l.seq-rec.Seq), 2*int64(l.seq))
		c, err := l.commit(ctx, &rec)
		if err != nil {
			return 0, err
		}
		if !l.concerns(c, names) {
			continue
		}
		before, after, err := l.trees(ctx, c)
		if err != nil {
			return 0, err
		}
		was := map[string]bool{l.path: true}
		for n := range names {
			if from, ok := Before(c.Message, n); ok {
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
			l.back = append(l.back, step{rec.Seq, was})
			names = was
		}
	}
}

// forward follows what was renamed away from the names of the first pass.
func (l *Lineage) forward(ctx context.Context, first uint64, progress func(done, all int64)) error {
	steps := slices.Clone(l.back)
	slices.Reverse(steps) // oldest first: until the commit of a step, its names hold
	away := make(map[string]bool)
	err := l.store.Records(ctx, first, l.seq, func(rec gitstore.Record) error {
		if rec.Seq < first {
			return nil
		}
		known := map[string]bool{l.path: true}
		for len(steps) > 0 && steps[0].seq < rec.Seq {
			steps = steps[1:]
		}
		if len(steps) > 0 {
			known = steps[0].before // as they were before this commit, or a later one
		}
		all := maps.Clone(known)
		maps.Copy(all, away)
		if !touches(&rec, slices.Collect(maps.Keys(all))) {
			return nil
		}
		progress(int64(l.seq+rec.Seq), 2*int64(l.seq))
		c, err := l.commit(ctx, &rec)
		if err != nil || !l.concerns(c, all) {
			return err
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
			if to, ok := After(c.Message, n); ok {
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
		return l.take(after, away)
	})
	if err != nil {
		return err
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
func (l *Lineage) Grown(ctx context.Context) (grown bool, err error) {
	names := slices.Collect(maps.Keys(l.Names))
	err = l.store.Records(ctx, l.seq+1, l.store.Tip().Seq, func(rec gitstore.Record) error {
		if grown || rec.Seq <= l.seq || !touches(&rec, names) {
			return nil
		}
		c, err := l.commit(ctx, &rec)
		grown = err == nil && l.concerns(c, l.Names)
		return err
	})
	return grown, err
}

func (l *Lineage) commit(ctx context.Context, rec *gitstore.Record) (*gitstore.Commit, error) {
	if err := ctx.Err(); err != nil {
		return nil, errs.Wrap(err, "")
	}
	return l.store.ReadCommit(ctx, rec.Commit)
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
