package history

import (
	"cmp"
	"context"
	"slices"

	"umbra/gitstore"
	"umbra/gitstore/message"
	"umbra/gitstore/object"
	"umbra/internal/workspace"
)

// refOf names the n-th entry of a commit, from 0.
func refOf(e *workspace.ChangeEntry, n int) message.EntryRef {
	if e.TaskID != "" {
		return message.EntryRef{Task: e.TaskID, ID: e.ID}
	}
	return message.EntryRef{ID: e.Seq, N: uint32(n) + 1}
}

// newEntry makes an Entry of the n-th of a commit, from 0.
func newEntry(e *workspace.ChangeEntry, n int) *Entry {
	return &Entry{ChangeEntry: e, Ref: refOf(e, n), n: uint32(n)}
}

// wholeOf names all entries of an entry's commit, if that has no task.
func wholeOf(r message.EntryRef) message.EntryRef { return message.EntryRef{ID: r.ID} }

// undoing is what commits of other tasks, or of none, say about which entries
// are in effect.
type undoing struct {
	entries []*Entry                         // of those commits, oldest first
	bare    map[object.ID][]message.EntryRef // undone entries that a commit names for itself
	gone    map[message.EntryRef]bool        // never came to anything
}

// add takes in a commit that undoes entries; find returns a known entry.
func (u *undoing) add(c *gitstore.Commit, of []workspace.ChangeEntry, find func(message.EntryRef) *Entry) {
	if c.Message.Source == message.Rollback || c.Message.Source == message.External {
		if u.gone == nil {
			u.gone = make(map[message.EntryRef]bool)
		}
		eachRef(c.Message, func(r message.EntryRef) { u.gone[r] = true })
		return
	}
	bare := c.Message.RevertsEntries
	if c.Message.Condensed {
		bare = match(of, bare, find)
	}
	if len(bare) > 0 {
		if u.bare == nil {
			u.bare = make(map[object.ID][]message.EntryRef)
		}
		u.bare[c.ID] = bare
	}
	for i := range of {
		u.entries = append(u.entries, newEntry(&of[i], i))
	}
}

// eachRef calls fn with the entries that a message undoes.
func eachRef(m *message.Message, fn func(message.EntryRef)) {
	for _, r := range m.RevertsEntries {
		fn(r)
	}
	for i := range m.Entries {
		for _, r := range m.Entries[i].Reverts {
			fn(r)
		}
	}
}

// readUndoing reads what other tasks' commits undo of a task's entries. Where no
// revert crosses tasks it reads the commits of no task alone.
func readUndoing(ctx context.Context, w *workspace.Workspace, task string, entries []Entry) (*undoing, error) {
	back, err := w.Store().TakeBacks(ctx)
	if err != nil {
		return nil, err
	}
	u := &undoing{}
	recs := slices.DeleteFunc(slices.Clone(back), func(r gitstore.Record) bool { return r.Source == message.Revert })
	if first := slices.IndexFunc(back, func(r gitstore.Record) bool { return r.Source == message.Revert }); first >= 0 {
		all, _, err := w.Store().Undoes(ctx, 0)
		if err != nil {
			return nil, err
		}
		for _, r := range all {
			// A later one may undo one of these.
			if r.Source == message.Revert && r.Seq >= back[first].Seq && r.Task != task {
				recs = append(recs, r)
			}
		}
		slices.SortFunc(recs, func(a, b gitstore.Record) int { return cmp.Compare(a.Seq, b.Seq) })
	}
	if len(recs) == 0 {
		return u, nil
	}
	byID := func(r message.EntryRef) *Entry {
		if r.Task != task || len(entries) == 0 || r.ID < entries[0].ID || r.ID-entries[0].ID >= uint64(len(entries)) {
			return nil
		}
		return &entries[r.ID-entries[0].ID]
	}
	return u, readCommits(ctx, w, recs, func(c *gitstore.Commit, of []workspace.ChangeEntry) { u.add(c, of, byID) })
}

// match finds out which of the undone entries that a condensed commit names
// belongs to which of its own, by the files that they are about, and returns
// those that belong to none.
func match(of []workspace.ChangeEntry, refs []message.EntryRef, find func(message.EntryRef) *Entry) (bare []message.EntryRef) {
	byPath := make(map[string]*workspace.ChangeEntry, len(of))
	for i := range of {
		if e := &of[i]; len(e.Reverts) == 0 {
			byPath[e.Path] = e
		}
	}
	var undone []*Entry
	for _, r := range refs {
		if e := find(r); e != nil {
			undone = append(undone, e)
		} else {
			bare = append(bare, r)
		}
	}
	slices.SortFunc(undone, order)
	chains, folders := Chains(undone)
	give := func(entries []*Entry, names ...string) {
		for _, name := range names {
			if e := byPath[name]; e != nil {
				for _, u := range entries {
					e.Reverts = append(e.Reverts, u.Ref)
				}
				return
			}
		}
		for _, u := range entries {
			bare = append(bare, u.Ref)
		}
	}
	for _, c := range chains {
		give(c.Entries(), c.Last().Path, c.First().Path)
	}
	for _, e := range folders {
		give([]*Entry{e}, e.Path)
	}
	return bare
}

// order sorts entries by when they were made.
func order(a, b *Entry) int {
	return cmp.Or(cmp.Compare(a.at(), b.at()), cmp.Compare(a.Seq, b.Seq), cmp.Compare(a.Ref.ID, b.Ref.ID), cmp.Compare(a.Ref.N, b.Ref.N))
}

// mark decides for every entry whether it is in effect, newest first: an entry
// can only be undone by a later one. What a commit names next to its own entries
// (files of which nothing was left to undo) holds as long as any of these is in
// effect. Entries of commits that are in gone never came to anything. Those that
// an entry of another task than own undid are Elsewhere.
//
// It counts. When a revert comes into effect again, because what had undone it
// was undone, its entry may have been undone once more meanwhile: then that was
// taken out of the files twice, and has to come back twice.
func mark(entries []*Entry, own string, bare func(object.ID) []message.EntryRef, gone map[message.EntryRef]bool) {
	taken := make(map[message.EntryRef]int) // out of the files, by entries that are in them so often
	said := make(map[message.EntryRef]bool) // by this commit
	elsewhere := make(map[message.EntryRef]bool)
	note := func(refs []message.EntryRef, times int, other bool) {
		for _, ref := range refs {
			if times != 0 && !said[ref] {
				said[ref] = true
				taken[ref] += times
				if other && times > 0 {
					elsewhere[ref] = true
				}
			}
		}
	}
	for end := len(entries); end > 0; {
		begin := end - 1
		for begin > 0 && entries[begin-1].Commit == entries[begin].Commit {
			begin--
		}
		clear(said)
		holds, other := false, entries[begin].TaskID != own
		for _, e := range entries[begin:end] {
			out, lost := taken[e.Ref], gone[e.Ref]
			e.Elsewhere = elsewhere[e.Ref]
			if e.Ref.Task == "" {
				whole := wholeOf(e.Ref)
				out, lost = out+taken[whole], lost || gone[whole]
			}
			times := 1 - out
			if lost {
				times = 0
			}
			e.Undone = times <= 0
			holds = holds || times > 0
			note(e.Reverts, times, other)
		}
		if holds {
			note(bare(entries[begin].Commit), 1, other)
		}
		end = begin
	}
}
