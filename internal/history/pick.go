package history

import (
	"context"
	"slices"

	"umbra/gitstore"
	"umbra/gitstore/message"
	"umbra/gitstore/object"
	"umbra/internal/workspace"
)

// Picks selects entries of a whole workspace, whatever tasks they belong to.
type Picks struct {
	// From is the number of the first commit that is read, Only, if not 0, that
	// of the one commit that is.
	From, Only uint64
	Record     func(*gitstore.Record) bool       // which commits are read; nil: all
	Entry      func(*workspace.ChangeEntry) bool // which of their entries are picked; nil: all
}

// Picker reads what a Picks selects, and again only what came since. It is for
// one goroutine.
type Picker struct {
	w      *workspace.Workspace
	picks  Picks
	picked []*Entry
	known  map[message.EntryRef]int
	undone undoing
	// What was read: commits up to through, undos of them, as of a history that
	// begins at from and was rewritten so often.
	through        uint64
	undos          int
	from, rewrites uint64
	task           *Task
	chosen         []*Entry
}

// NewPicker makes a Picker.
func NewPicker(w *workspace.Workspace, picks Picks) *Picker { return &Picker{w: w, picks: picks} }

// idOf numbers the n-th entry of a commit, from 0, within a workspace.
func idOf(seq uint64, n uint32) uint64 { return seq<<24 | uint64(n+1)&0xffffff }

// Task returns the picked entries, with what undid them, as if they were a
// task's: it has no id, its entries are numbered by their place in history, and
// Entry.Ref is what they are called there. chosen are the picked ones among
// them, oldest first. Its base is the state before the first of them. Both are
// shared: they must not be changed.
func (p *Picker) Task(ctx context.Context) (t *Task, chosen []*Entry, err error) {
	st := p.w.Store()
	rewrites, through, from := st.Rewrites(), st.Tip().Seq, st.Boundary().Seq
	if p.known == nil || from != p.from || rewrites != p.rewrites {
		*p = Picker{w: p.w, picks: p.picks, known: make(map[message.EntryRef]int), from: from, rewrites: rewrites}
	}
	if p.task != nil && p.through == through {
		return p.task, p.chosen, nil
	}
	if err := p.read(ctx, through); err != nil {
		return nil, nil, err
	}
	if p.task, p.chosen, err = p.build(ctx); err != nil {
		return nil, nil, err
	}
	p.task.Through, p.task.Rewrites = through, rewrites
	return p.task, p.chosen, nil
}

func (p *Picker) read(ctx context.Context, through uint64) error {
	st := p.w.Store()
	if p.picks.Only != 0 && p.picks.Only <= p.from {
		return gitstore.ErrDropped()
	}
	first, last := max(p.picks.From, p.picks.Only, p.through+1, p.from+1), through
	if p.picks.Only != 0 {
		last = min(p.picks.Only, through)
	}
	var recs []gitstore.Record
	if first <= last {
		if err := st.Records(ctx, first, last, func(r gitstore.Record) error {
			if r.Seq >= first && r.Source != message.Baseline && (p.picks.Record == nil || p.picks.Record(&r)) {
				recs = append(recs, r)
			}
			return nil
		}); err != nil {
			return err
		}
	}
	if err := readCommits(ctx, p.w, recs, func(_ *gitstore.Commit, of []workspace.ChangeEntry) {
		for i := range of {
			if p.picks.Entry == nil || p.picks.Entry(&of[i]) {
				e := newEntry(&of[i], i)
				p.known[e.Ref] = len(p.picked)
				p.picked = append(p.picked, e)
			}
		}
	}); err != nil {
		return err
	}
	recs, all, err := st.Undoes(ctx, p.undos)
	if err != nil {
		return err
	}
	start := max(p.picks.From, p.picks.Only)
	recs = slices.DeleteFunc(recs, func(r gitstore.Record) bool { return r.Seq <= start })
	find := func(r message.EntryRef) *Entry {
		if i, ok := p.known[r]; ok {
			return p.picked[i]
		}
		return nil
	}
	if err := readCommits(ctx, p.w, recs, func(c *gitstore.Commit, of []workspace.ChangeEntry) { p.undone.add(c, of, find) }); err != nil {
		return err
	}
	p.undos, p.through = all, through
	return nil
}

// build makes the task of what was read.
func (p *Picker) build(ctx context.Context) (*Task, []*Entry, error) {
	all := make([]*Entry, 0, len(p.picked)+len(p.undone.entries))
	for _, e := range p.picked {
		c := *e
		all = append(all, &c)
	}
	for _, e := range p.undone.entries {
		if _, ok := p.known[e.Ref]; !ok {
			c := *e
			all = append(all, &c)
		}
	}
	slices.SortStableFunc(all, order)
	mark(all, "", func(c object.ID) []message.EntryRef { return p.undone.bare[c] }, p.undone.gone)
	// Only what was picked, what undid it, and so on.
	in := make(map[message.EntryRef]uint64, len(p.picked))
	t := &Task{Entries: make([]Entry, 0, len(all))}
	var picked []int
	for _, e := range all {
		_, chosen := p.known[e.Ref]
		member := func(r message.EntryRef) bool { return in[r] != 0 }
		if !chosen && !slices.ContainsFunc(e.Reverts, member) && !slices.ContainsFunc(p.undone.bare[e.Commit], member) {
			continue
		}
		c := *e
		c.Elsewhere = false
		c.TakenBack = p.undone.gone[e.Ref] || e.Ref.Task == "" && p.undone.gone[wholeOf(e.Ref)]
		x := *e.ChangeEntry
		x.ID, x.TaskID, x.Reverts = idOf(e.Seq, e.n), "", nil
		for _, r := range e.Reverts {
			if id := in[r]; id != 0 {
				x.Reverts = append(x.Reverts, message.EntryRef{ID: id})
			}
		}
		c.ChangeEntry = &x
		c.undoes = len(e.Reverts) > len(c.Reverts)
		in[e.Ref] = c.ID
		t.Entries = append(t.Entries, c)
		if chosen {
			picked = append(picked, len(t.Entries)-1)
		}
	}
	chosen := make([]*Entry, len(picked))
	for i, at := range picked {
		chosen[i] = &t.Entries[at]
	}
	if len(chosen) > 0 {
		c, err := p.w.Store().ReadCommit(ctx, chosen[0].Commit)
		if err != nil {
			return nil, nil, err
		}
		t.Base = c.Parent
	}
	return t, chosen, nil
}
