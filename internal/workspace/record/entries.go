package record

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"umbra/gitstore"
	"umbra/gitstore/message"
	"umbra/gitstore/object"
	"umbra/internal/workspace/op"
	"umbra/internal/wspath"
)

// ChangeOf gives an entry's own fields; those of its commit are the
// caller's.
func ChangeOf(e Entry) op.ChangeEntry {
	c := op.ChangeEntry{Operation: e.Operation, Path: e.Path, Before: e.Before.ID, BeforeMode: e.Before.Mode, After: e.After.ID, Mode: e.After.Mode,
		AfterHash: e.AfterHash, Permissions: e.Permissions, Reverts: e.Reverts}
	if e.OldPath != "" {
		c.Path, c.NewPath = e.OldPath, e.Path
	}
	return c
}

// beyondTrees reports whether a condensed message still lists an entry: the
// trees do not have all of it (package message).
func beyondTrees(e *message.Entry) bool {
	return e.OldPath != "" || e.Permissions != "" || e.Operation == message.Rename || e.Operation == message.Mkdir || e.Operation == message.Rmdir
}

// OrderEntries gives entries in the order in which they are numbered: where the
// message is condensed, the listed ones first, then the others by path.
func OrderEntries(entries []Entry) []Entry {
	if len(entries) <= message.MaxListed {
		return entries
	}
	listed := make([]Entry, 0, len(entries))
	var others []Entry
	for _, e := range entries {
		if beyondTrees(&e.Entry) {
			listed = append(listed, e)
		} else {
			others = append(others, e)
		}
	}
	slices.SortStableFunc(others, func(a, b Entry) int { return strings.Compare(a.Path, b.Path) })
	return append(listed, others...)
}

// EntriesOf gives the changelog entries of a commit: from its trailers, and
// where those are condensed from the trees. The baseline has none.
func (r *Recorder) EntriesOf(ctx context.Context, c *gitstore.Commit) ([]op.ChangeEntry, error) {
	m := c.Message
	if m.Source == message.Baseline {
		return nil, nil
	}
	if claimed := m.Trailer(message.KeyClaims); claimed != "" {
		return r.claimedEntries(ctx, c, claimed)
	}
	after, err := r.Disk.Store.SnapshotOf(ctx, c.ID) // remembered, as the parent is where commits are read in order
	if err != nil {
		return nil, err
	}
	before := gitstore.Snapshot{}
	if !c.Parent.IsZero() {
		if before, err = r.Disk.Store.SnapshotOf(ctx, c.Parent); err != nil {
			return nil, err
		}
	}
	out := make([]op.ChangeEntry, 0, len(m.Entries))
	for i := range m.Entries {
		e := Entry{Entry: m.Entries[i]}
		if err := sides(&e, before, after, c.Parent.IsZero()); err != nil {
			return nil, err
		}
		out = append(out, ChangeOf(e))
	}
	if m.Condensed {
		rest, err := r.unlisted(ctx, c)
		if err != nil {
			return nil, err
		}
		out = append(out, rest...)
	}
	fillCall(out, m)
	folders, rejects, against := len(op.FolderMoves(m)) > 0, m.Trailer(message.KeyRejects) != "", m.Policy()
	for i := range out {
		e := &out[i]
		e.Folders, e.Rejects, e.Policy = folders, rejects, against[cmp.Or(e.NewPath, e.Path)]
		e.Seq, e.When, e.Commit = c.Seq, c.When, c.ID
		e.TaskID, e.SubtaskID, e.Actor, e.Source, e.Message = m.TaskID, m.SubtaskID, m.Actor, m.Source, m.Subject
		if m.Change > 0 {
			e.ID = m.Change + uint64(i)
		}
		// A commit that takes another one back names its entries in their order.
		if m.Source != message.Revert && len(m.RevertsEntries) == len(out) && len(e.Reverts) == 0 {
			e.Reverts = m.RevertsEntries[i : i+1]
		}
	}
	return out, nil
}

// sides fills in what was at an entry's path before and after.
func sides(e *Entry, before, after gitstore.Snapshot, first bool) error {
	if strings.HasSuffix(e.Path, "/") {
		return nil
	}
	was, is := wspath.Path(e.Path), wspath.Path(e.Path)
	if e.OldPath != "" {
		was = wspath.Path(e.OldPath)
	}
	file := func(s gitstore.Snapshot, p wspath.Path) (gitstore.Entry, error) {
		x, ok, err := s.Lookup(p)
		if err != nil || !ok || x.Mode == object.Dir {
			return gitstore.Entry{}, err
		}
		return x, nil
	}
	var err error
	if !first && e.Operation != message.Create && e.Operation != message.Symlink {
		if e.Before, err = file(before, was); err != nil {
			return err
		}
	}
	if e.Operation != message.Delete {
		e.After, err = file(after, is)
	}
	return err
}

// unlisted gives the entries of a condensed commit that its message does not
// list, in the order in which they are numbered.
func (r *Recorder) unlisted(ctx context.Context, c *gitstore.Commit) ([]op.ChangeEntry, error) {
	// Which side of a path's change a listed entry has already.
	oldListed, newListed := make(map[wspath.Path]bool), make(map[wspath.Path]bool)
	for i := range c.Message.Entries {
		e := &c.Message.Entries[i]
		newListed[wspath.Path(e.Path)] = true
		if e.OldPath != "" {
			oldListed[wspath.Path(e.OldPath)] = true
		} else {
			oldListed[wspath.Path(e.Path)] = true
		}
	}
	var entries []Entry
	err := r.Disk.Store.DiffTrees(ctx, c.Parent, c.ID, wspath.Root, func(t gitstore.TreeChange) error {
		if oldListed[t.Path] {
			t.Old = gitstore.Entry{}
		}
		if newListed[t.Path] {
			t.New = gitstore.Entry{}
		}
		if t.Old.Mode == 0 && t.New.Mode == 0 {
			return nil
		}
		e := Entry{Before: t.Old, After: t.New}
		e.Path = string(t.Path)
		e.Operation = operationOf(t.Old, t.New)
		entries = append(entries, e)
		return nil
	})
	if err != nil {
		return nil, err
	}
	slices.SortStableFunc(entries, func(a, b Entry) int { return strings.Compare(a.Path, b.Path) })
	out := make([]op.ChangeEntry, len(entries))
	for i := range entries {
		if err := r.afterHash(ctx, &entries[i]); err != nil {
			return nil, err
		}
		out[i] = ChangeOf(entries[i])
	}
	return out, nil
}
