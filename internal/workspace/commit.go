package workspace

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"umbra/gitstore"
	"umbra/gitstore/message"
	"umbra/gitstore/object"
	"umbra/internal/wspath"
)

// afterHash fills in what an entry's file holds afterwards, and before where
// the inverse will want it.
func (w *Workspace) afterHash(ctx context.Context, e *netEntry) error {
	if e.after.Mode == 0 || e.AfterHash != "" {
		return nil
	}
	if e.content != nil {
		e.AfterHash = e.content.blob.AfterHash()
		w.sums.Put(e.content.blob.ID(), e.AfterHash)
		return nil
	}
	var err error
	e.AfterHash, err = w.sumOf(ctx, e.after.ID)
	return err
}

// sumOf gives the After-Hash of a blob that history has.
func (w *Workspace) sumOf(ctx context.Context, id object.ID) (string, error) {
	if sum, ok := w.sums.Get(id); ok {
		return sum, nil
	}
	b, err := w.store.ExistingBlob(ctx, id)
	if err != nil {
		return "", err
	}
	w.sums.Put(id, b.AfterHash())
	return b.AfterHash(), nil
}

// messageEntries gives the entries as the commit's message lists them. Above
// the number up to which they are listed, only what the trees do not tell is.
func (w *Workspace) messageEntries(ctx context.Context, entries []netEntry) ([]message.Entry, error) {
	out := make([]message.Entry, len(entries))
	for i := range entries {
		if len(entries) <= message.MaxListed {
			if err := w.afterHash(ctx, &entries[i]); err != nil {
				return nil, err
			}
		}
		out[i] = entries[i].Entry
	}
	return out, nil
}

// message makes a request's commit message.
func (p *plan) message(ctx context.Context, entries []netEntry) (message.Message, error) {
	r := p.req
	m := message.Message{Subject: r.Subject(), TaskID: r.By.TaskID, SubtaskID: r.By.SubtaskID, Actor: r.By.Actor, Source: r.By.Source,
		RequestID: r.By.RequestID, IdempotencyKey: r.By.IdempotencyKey, Reverts: r.Reverts,
		RevertsEntries: slices.Concat(r.RevertsEntries, p.net.unsaid(entries)),
		RevertWhat:     r.RevertWhat, Author: r.Author, Description: r.Description, Extra: r.Extra}
	if m.Source == "" {
		m.Source = message.API
	}
	if len(r.Ops) == 1 && len(entries) > 1 {
		op, did := &r.Ops[0], &p.ops[0]
		slash := ""
		if coversFolder(entries, did.Path) || coversFolder(entries, did.To) {
			slash = "/"
		}
		switch op.Kind {
		case OpDelete:
			m.Whole = &message.Whole{Operation: message.Delete, Path: string(did.Path) + slash}
		case OpRename:
			m.Whole = &message.Whole{Operation: message.Rename, Path: string(did.To) + slash, OldPath: string(did.Path) + slash}
		case OpCopy:
			m.Whole = &message.Whole{Operation: message.Create, Path: string(did.To) + slash}
		}
	}
	if p.filled || p.net.filledFolder() { // else the entries tell
		m.Extra = slices.Concat(m.Extra, folderTrailers(p.folders))
	}
	m.Extra = slices.Concat(m.Extra, filledTrailers(p.view.filled, entries), p.named)
	if len(p.steps) > 0 {
		m.Extra = append(m.Extra, remadeTrailers(p.removed, entries)...)
	}
	var err error
	m.Entries, err = p.w.messageEntries(ctx, entries)
	return m, err
}

// coversFolder reports whether entries are of files in a folder: one file that
// takes another's place has two entries as well.
func coversFolder(entries []netEntry, dir wspath.Path) bool {
	in := func(name string) bool { return dir != "" && wspath.Path(name).IsUnder(dir) }
	return slices.ContainsFunc(entries, func(e netEntry) bool { return in(e.Path) || in(e.OldPath) })
}

// commitExternal records what the disk holds otherwise than history, before
// anything replaces it. What history did not track belongs to nobody; what was
// changed of tracked files belongs to the call that made it, or to the only
// executing task.
func (w *Workspace) commitExternal(ctx context.Context, list []external) ([]uint64, error) {
	var groups ownerGroups
	for _, x := range list {
		o := nobody
		if x.old.Mode != 0 {
			o = w.judge(&x, false, true)
		}
		groups.add(o, x)
	}
	return w.commitOwned(ctx, groups, func(list []external, o *Owner) (gitstore.Committed, error) {
		return w.commitExternals(ctx, list, o.Message, false)
	})
}

// keepPermissions notes unusual permission bits of what went or was replaced on disk.
func (w *Workspace) keepPermissions(entries []netEntry) {
	for i := range entries {
		e := &entries[i]
		if (e.Operation == message.Delete || e.Operation == message.Modify) && e.before.Mode != object.Symlink {
			if perm := w.disk.Index.Perm(e.before.Path, e.before.ID); perm != 0 && perm != w.disk.Root.FilePerm(e.before.Mode == object.Executable) {
				e.Permissions = fmt.Sprintf("%04o", perm)
			}
		}
	}
}

// commitExternals makes one commit of external changes; must, whatever the room.
func (w *Workspace) commitExternals(ctx context.Context, list []external, m message.Message, must bool) (gitstore.Committed, error) {
	entries := make([]netEntry, 0, len(list))
	var edits, puts []gitstore.Edit
	for i := range list {
		x := &list[i]
		if x.mode == 0 {
			edits = append(edits, gitstore.Edit{Path: x.path})
		} else {
			puts = append(puts, x.put())
		}
		entries = append(entries, x.entry())
	}
	// What is gone goes first: a file may stand where a folder was.
	edits = append(edits, puts...)
	w.keepPermissions(entries)
	m.Source = cmp.Or(m.Source, message.External)
	named, err := w.obeys(ctx, m.Source, m.TaskID, entries, true)
	if err != nil {
		return gitstore.Committed{}, err
	}
	m.Extra = slices.Concat(m.Extra, certaintyTrailers(entries), named)
	if m.Entries, err = w.messageEntries(ctx, entries); err != nil {
		return gitstore.Committed{}, err
	}
	before := w.store.Snapshot()
	c, err := w.store.Commit(ctx, gitstore.Draft{Edits: edits, Message: m, Entries: len(entries), Must: must})
	if err != nil || c.NoChange {
		return c, err
	}
	paths := make([]wspath.Path, len(list))
	for i := range list {
		paths[i] = list[i].path
	}
	w.progress.dirty(append(paths, foldersThatCame(before, w.store.Snapshot(), paths)...))
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

// put is the edit that records the file.
func (x *external) put() gitstore.Edit {
	e := gitstore.Edit{Path: x.path, Mode: x.mode, Blob: x.blob}
	if !x.hasBlob {
		e.Blob = gitstore.KnownBlob(x.old.ID)
	}
	return e
}

// entry is the changelog entry of an external change.
func (x *external) entry() netEntry {
	e := netEntry{before: x.old, certainty: x.certainty}
	if x.hasBlob {
		e.blob = &x.blob
	}
	e.Path = string(x.path)
	if x.mode != 0 {
		id := x.old.ID
		if x.hasBlob {
			id = x.blob.ID()
			e.AfterHash = x.blob.AfterHash()
		}
		e.after = gitstore.Entry{Path: x.path, Mode: x.mode, ID: id}
	}
	e.Operation = operationOf(x.old, e.after)
	return e
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

// commitBack makes the commit that takes another one back, which nobody has
// been told of: with source rollback where the disk refused it, external where
// a person's bytes in more stand there instead.
func (w *Workspace) commitBack(ctx context.Context, p *plan, c gitstore.Committed, entries []netEntry, source message.Source, more []external) (gitstore.Committed, error) {
	remove, put, back := takeBack(entries)
	instead := make(map[wspath.Path]*external, len(more))
	for i := range more {
		instead[more[i].path] = &more[i]
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
		if more[i].mode != 0 {
			edits = append(edits, more[i].put())
		}
	}
	all := refs(p.req.By.TaskID, c, len(entries))
	m := message.Message{Source: source, TaskID: p.req.By.TaskID, SubtaskID: p.req.By.SubtaskID, RequestID: p.req.By.RequestID,
		IdempotencyKey: p.req.By.IdempotencyKey, Reverts: []object.ID{c.Commit}}
	if source == message.External {
		m.TaskID, m.SubtaskID = "", ""
	} else {
		m.Actor = p.req.By.Actor
	}
	var list []netEntry
	for _, b := range back {
		key := b.after.Path
		if b.after.Mode == 0 {
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
		if instead[more[i].path] != nil {
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
	if m.Entries, err = w.messageEntries(ctx, list); err != nil {
		return gitstore.Committed{}, err
	}
	return w.store.Commit(ctx, gitstore.Draft{Edits: edits, Message: m, Entries: len(list), AllowEmpty: true, Must: true})
}

// over changes the entry that takes a change back into one that leads to what a
// person put there.
func (x *external) over(b netEntry) netEntry {
	e := x.entry()
	e.before = b.before
	if x.mode == 0 && b.before.Mode == 0 {
		return netEntry{}
	}
	e.Operation = operationOf(e.before, e.after)
	return e
}
