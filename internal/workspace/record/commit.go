package record

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"umbra/gitstore"
	"umbra/gitstore/message"
	"umbra/gitstore/object"
	"umbra/internal/workspace/op"
	"umbra/internal/wspath"
)

// afterHash fills in what an entry's file holds afterwards, and before where
// the inverse will want it.
func (r *Recorder) afterHash(ctx context.Context, e *Entry) error {
	if e.After.Mode == 0 || e.AfterHash != "" {
		return nil
	}
	if e.Content != nil {
		e.AfterHash = e.Content.Blob.AfterHash()
		r.Sums.Put(e.Content.Blob.ID(), e.AfterHash)
		return nil
	}
	var err error
	e.AfterHash, err = r.sumOf(ctx, e.After.ID)
	return err
}

// sumOf gives the After-Hash of a blob that history has.
func (r *Recorder) sumOf(ctx context.Context, id object.ID) (string, error) {
	if sum, ok := r.Sums.Get(id); ok {
		return sum, nil
	}
	b, err := r.Disk.Store.ExistingBlob(ctx, id)
	if err != nil {
		return "", err
	}
	r.Sums.Put(id, b.AfterHash())
	return b.AfterHash(), nil
}

// MessageEntries gives the entries as the commit's message lists them. Above
// the number up to which they are listed, only what the trees do not show is.
func (r *Recorder) MessageEntries(ctx context.Context, entries []Entry) ([]message.Entry, error) {
	out := make([]message.Entry, len(entries))
	for i := range entries {
		if len(entries) <= message.MaxListed {
			if err := r.afterHash(ctx, &entries[i]); err != nil {
				return nil, err
			}
		}
		out[i] = entries[i].Entry
	}
	return out, nil
}

// CommitExternal records what the disk holds otherwise than history, before
// anything replaces it. What history did not track belongs to no task; what was
// changed of tracked files belongs to the call that made it, or to the only
// executing task.
func (r *Recorder) CommitExternal(ctx context.Context, list []External) ([]uint64, error) {
	var groups Groups
	for _, x := range list {
		o := Nobody
		if x.Old.Mode != 0 {
			o = r.Judge(&x, nil, false, true)
		}
		groups.Add(o, x)
	}
	return r.CommitOwned(ctx, groups, func(list []External, o *Owner) (gitstore.Committed, error) {
		return r.commitExternals(ctx, list, o.Message, false)
	})
}

// keepPermissions notes unusual permission bits of what went or was replaced on disk.
func (r *Recorder) keepPermissions(entries []Entry) {
	for i := range entries {
		e := &entries[i]
		if (e.Operation == message.Delete || e.Operation == message.Modify) && e.Before.Mode != object.Symlink {
			if perm, ok := r.Disk.Index.Perm(e.Before.Path, e.Before.ID); ok && perm != r.Disk.Root.FilePerm(e.Before.Mode == object.Executable) {
				e.Permissions = fmt.Sprintf("%04o", perm)
			}
		}
	}
}

// commitExternals makes one commit of external changes; must, whatever the room.
func (r *Recorder) commitExternals(ctx context.Context, list []External, m message.Message, must bool) (gitstore.Committed, error) {
	entries := make([]Entry, 0, len(list))
	var edits, puts []gitstore.Edit
	for i := range list {
		x := &list[i]
		if x.Mode == 0 {
			edits = append(edits, gitstore.Edit{Path: x.Path})
		} else {
			puts = append(puts, x.put())
		}
		entries = append(entries, x.entry())
	}
	// What is gone goes first: a file may be where a directory was.
	edits = append(edits, puts...)
	r.keepPermissions(entries)
	m.Source = cmp.Or(m.Source, message.External)
	named, err := r.Obeys(ctx, &m, entries, nil, true)
	if err != nil {
		return gitstore.Committed{}, err
	}
	m.Extra = slices.Concat(m.Extra, certaintyTrailers(entries), named)
	if m.Entries, err = r.MessageEntries(ctx, entries); err != nil {
		return gitstore.Committed{}, err
	}
	before := r.Disk.Store.Snapshot()
	c, err := r.Disk.Store.Commit(ctx, gitstore.Draft{Edits: edits, Message: m, Entries: len(entries), Must: must})
	if err != nil || c.NoChange {
		return c, err
	}
	paths := make([]wspath.Path, len(list))
	for i := range list {
		paths[i] = list[i].Path
	}
	r.Progress.Dirty(append(paths, foldersThatCame(before, r.Disk.Store.Snapshot(), paths)...))
	return c, nil
}

// foldersThatCame gives the folders above paths that one tree has and another
// has not: where a person made, moved or removed them, their names are as little
// on stable storage as what is in them.
func foldersThatCame(before, after gitstore.Snapshot, paths []wspath.Path) []wspath.Path {
	var out []wspath.Path
	seen := make(map[wspath.Path]bool)
	for _, p := range paths {
		for dir := range p.Ancestors() {
			if dir.IsRoot() || seen[dir] {
				break
			}
			seen[dir] = true
			was, _, err := before.Lookup(dir)
			is, _, aerr := after.Lookup(dir)
			if err == nil && aerr == nil && was.Mode == object.Dir && is.Mode == object.Dir {
				break // and so are those above
			}
			out = append(out, dir)
		}
	}
	return out
}

// refs names the entries of a commit, for what takes them back.
func refs(task string, c gitstore.Committed, n int) []message.EntryRef {
	if task == "" {
		return []message.EntryRef{{ID: c.Seq}}
	}
	out := make([]message.EntryRef, n)
	for i := range out {
		out[i] = message.EntryRef{Task: task, ID: c.Change + uint64(i)}
	}
	return out
}

// CommitBack makes the commit that takes another one back, which was not yet
// reported to anyone: with source rollback where the disk refused it, external where
// a user's bytes in more are there instead.
func (r *Recorder) CommitBack(ctx context.Context, by *op.By, c gitstore.Committed, entries []Entry, source message.Source, more []External) (gitstore.Committed, error) {
	remove, put, back := takeBack(entries)
	instead := make(map[wspath.Path]*External, len(more))
	for i := range more {
		instead[more[i].Path] = &more[i]
	}
	var edits []gitstore.Edit
	for _, path := range remove {
		edits = append(edits, gitstore.Edit{Path: path})
	}
	for _, e := range put {
		if x := instead[e.Path]; x == nil {
			edits = append(edits, gitstore.Edit{Path: e.Path, Mode: e.Mode, Blob: gitstore.KnownBlob(e.ID)})
		}
	}
	for i := range more {
		if more[i].Mode != 0 {
			edits = append(edits, more[i].put())
		}
	}
	all := refs(by.TaskID, c, len(entries))
	m := message.Message{Source: source, TaskID: by.TaskID, SubtaskID: by.SubtaskID, RequestID: by.RequestID,
		IdempotencyKey: by.IdempotencyKey, Reverts: []object.ID{c.Commit}}
	if source == message.External {
		m.TaskID, m.SubtaskID = "", ""
	} else {
		m.Actor = by.Actor
	}
	var list []Entry
	for _, b := range back {
		key := b.After.Path
		if b.After.Mode == 0 {
			key = wspath.Path(strings.TrimSuffix(b.Path, "/"))
		}
		if x := instead[key]; x != nil {
			delete(instead, key)
			b = x.over(b)
			if b.Operation == "" {
				continue
			}
		}
		list = append(list, b)
	}
	for i := range more {
		if instead[more[i].Path] != nil {
			list = append(list, more[i].entry())
		}
	}
	if len(list) <= message.MaxListed && len(all) == len(list) {
		for i := range list {
			list[i].Reverts = []message.EntryRef{all[i]}
		}
	} else {
		m.RevertsEntries = all
	}
	var err error
	if m.Entries, err = r.MessageEntries(ctx, list); err != nil {
		return gitstore.Committed{}, err
	}
	return r.Disk.Store.Commit(ctx, gitstore.Draft{Edits: edits, Message: m, Entries: len(list), AllowEmpty: true, Must: true})
}
