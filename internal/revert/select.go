package revert

import (
	"context"
	"slices"

	"umbra/gitstore"
	"umbra/gitstore/message"
	"umbra/internal/errs"
	"umbra/internal/history"
	"umbra/internal/lineage"
	"umbra/internal/wspath"
)

// selection is the entries to undo, oldest first, and how the commit names them.
type selection struct {
	entries []*history.Entry
	what    string // "task", "subtask add-types", …
	// all: everything of the task, so that its own reverts may be seen through.
	all bool
	// Entries that are left, oldest first.
	external, shared []Left
}

// part is a chain with those of its entries that are to be undone. There are
// none in a file that a revert of the task itself made, by bringing back a file
// that was elsewhere by then: it goes with the rest.
type part struct {
	*history.Chain
	work []*history.Entry
}

// chains threads the selected entries to files.
//
// Where all of a task is undone and no other change came between its changes of a
// file, what the task found first is what the file is without it, whatever
// the task undid itself on the way: then the chain is the one of all entries.
//
// moves are the renames that others made since (history.ChainsAmong).
func (sel *selection) chains(t *history.Task, moves []lineage.Move) (parts []part, folders []*history.Entry) {
	rest := sel.entries
	if sel.all {
		every := t.Every()
		wanted := make(map[*history.Entry]bool, len(sel.entries))
		for _, e := range sel.entries {
			wanted[e] = true
		}
		whole, _ := history.ChainsAmong(every, moves)
		works := make([][]*history.Entry, len(whole))
		forced := make(map[string]bool) // where a revert left another state than it found its work on
		for i, c := range whole {
			for _, e := range c.Entries() {
				if wanted[e] {
					works[i] = append(works[i], e)
				}
			}
			if a, b := c.First(), c.Last(); len(works[i]) == 0 && a.Exists() && (a.Path != b.Path || !a.Same(b)) {
				forced[a.Path], forced[b.Path] = true, true
			}
		}
		for i, c := range whole {
			if len(works[i]) == 0 && (c.First().Exists() || !c.Last().Exists()) || c.Mixed() || forced[c.First().Path] || forced[c.Last().Path] {
				continue
			}
			parts = append(parts, part{c, works[i]})
			for _, e := range works[i] {
				delete(wanted, e)
			}
		}
		rest = slices.DeleteFunc(slices.Clone(rest), func(e *history.Entry) bool { return !wanted[e] })
	}
	others, folders := t.Chains(rest, moves)
	for _, c := range others {
		parts = append(parts, part{c, c.Entries()})
	}
	return parts, folders
}

// choose finds the entries of a scope that are in effect. NotFound for a
// subtask, change or file that the task does not know.
func choose(ctx context.Context, st *gitstore.Store, t *history.Task, req *Request) (selection, error) {
	sc := req.Scope
	var sel selection
	switch {
	case sc.Change != 0:
		e := t.Find(sc.Change)
		if e == nil && sc.Change <= t.Dropped {
			return sel, gitstore.ErrDropped()
		}
		if e == nil {
			return sel, errs.New(errs.NotFound, "change_not_found", "The task has no change %d.", sc.Change)
		}
		sel.what = "change " + itoa(sc.Change)
		if !e.Undone && e.Source != message.Rollback {
			sel.entries = []*history.Entry{e}
		}
	case sc.Subtask != "":
		sel.what = "subtask " + sc.Subtask
		known := false
		for i := range t.Entries {
			known = known || t.Entries[i].Of(sc.Subtask)
		}
		if !known && t.Dropped > 0 {
			return sel, gitstore.ErrDropped()
		}
		if !known {
			return sel, errs.New(errs.NotFound, "subtask_not_found", "The task has no subtask of that name.")
		}
		for _, e := range t.Work() {
			if e.Of(sc.Subtask) {
				sel.entries = append(sel.entries, e)
			}
		}
	case sc.Path != "":
		sel.what = "file " + sc.Path
		entries, err := ofPath(ctx, st, t, sc.Path)
		if err != nil {
			return sel, err
		}
		sel.entries = entries
	default:
		if t.BaseDropped {
			return sel, gitstore.ErrDropped() // what it began with is not known any more
		}
		sel.what = "task"
		sel.entries, sel.all = t.Work(), true
	}
	if sc.Change == 0 { // that names the entry
		sel.leave(req)
	}
	return sel, nil
}

// leave takes out of the selection what the request does not include.
func (sel *selection) leave(req *Request) {
	kept := make([]*history.Entry, 0, len(sel.entries))
	for _, e := range sel.entries {
		left := Left{Path: lastName(e), Entry: numberOf(e), At: e.When}
		switch {
		case e.Source == message.External && !req.IncludeExternal:
			sel.external = append(sel.external, left)
		case e.Source == message.Shared && !req.IncludeShared:
			sel.shared = append(sel.shared, left)
		default:
			kept = append(kept, e)
		}
	}
	sel.all = sel.all && len(kept) == len(sel.entries)
	sel.entries = kept
}

// numberOf is an entry's number in its task, 0 without one.
func numberOf(e *history.Entry) uint64 {
	if e.Ref.Task == "" {
		return 0
	}
	return e.Ref.ID
}

// ofPath gives the entries of the files that end at a path or under it; if
// there are none, of those that once had that name.
func ofPath(ctx context.Context, st *gitstore.Store, t *history.Task, path string) ([]*history.Entry, error) {
	chains, folders := t.Chains(t.Work(), nil)
	wanted := make(map[*history.Entry]bool)
	for _, c := range chains {
		if p := c.Last().Path; p == path || under(p, path) {
			for _, e := range c.Entries() {
				wanted[e] = true
			}
		}
	}
	if len(wanted) == 0 {
		for _, c := range chains {
			if c.Named(path) {
				for _, e := range c.Entries() {
					wanted[e] = true
				}
			}
		}
	}
	for _, e := range folders {
		if p := trimSlash(lastName(e)); p == path || under(p, path) {
			wanted[e] = true
		}
	}
	if len(wanted) == 0 {
		return nil, untouched(st, t, path)
	}
	var out []*history.Entry
	for _, e := range t.Work() {
		if wanted[e] {
			out = append(out, e)
		}
	}
	return out, nil
}

// untouched distinguishes a file that the task has no effect on from one that does
// not exist.
func untouched(st *gitstore.Store, t *history.Task, path string) error {
	for i := range t.Entries {
		if e := &t.Entries[i]; e.Path == path || e.NewPath == path {
			return nil
		}
	}
	_, ok, err := st.Snapshot().Lookup(wspath.Path(path))
	if err != nil || ok {
		return err
	}
	return &errs.Error{Kind: errs.NotFound, Code: "file_not_found", Detail: "The file does not exist.", Path: path}
}
