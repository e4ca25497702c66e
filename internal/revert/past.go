package revert

import (
	"context"
	"slices"

	"umbra/gitstore"
	"umbra/gitstore/message"
	"umbra/gitstore/object"
	"umbra/internal/history"
	"umbra/internal/wspath"
)

// maxLooked bounds how many commits are looked through for who changed a file.
const maxLooked = 100_000

// past knows which commits changed what, from a plan's commit back as far as it was
// asked. Many files of one plan may ask: each commit is read once.
type past struct {
	ctx  context.Context
	st   *gitstore.Store
	tip  uint64      // number of the plan's commit
	ids  []object.ID // of the commits that were read, the newest first
	next object.ID   // the one before these
	// at has the numbers of the commits that name a path or something below it,
	// the newest first.
	at map[string][]uint64
}

func newPast(ctx context.Context, st *gitstore.Store, tip gitstore.Tip) *past {
	return &past{ctx: ctx, st: st, tip: tip.Seq, next: tip.Commit, at: make(map[string][]uint64)}
}

// reach reads the commits after a number that were not read yet.
func (p *past) reach(after uint64) error {
	for len(p.ids) < maxLooked && p.tip-uint64(len(p.ids)) > after {
		c, err := p.st.ReadCommit(p.ctx, p.next)
		if err != nil {
			return err
		}
		n := p.tip - uint64(len(p.ids))
		for i := range c.Message.Entries {
			e := &c.Message.Entries[i]
			p.note(e.Path, n)
			if e.OldPath != "" {
				p.note(e.OldPath, n)
			}
		}
		if c.Message.Condensed || len(c.Message.Entries) == 0 { // the trees have the rest
			if err := p.st.DiffTrees(p.ctx, c.Parent, c.ID, wspath.Root, func(t gitstore.TreeChange) error {
				p.note(string(t.Path), n)
				return nil
			}); err != nil {
				return err
			}
		}
		p.ids, p.next = append(p.ids, c.ID), c.Parent
	}
	return nil
}

func (p *past) note(path string, n uint64) {
	path = trimSlash(path)
	for _, at := range append(parents(path), path) {
		if list := p.at[at]; len(list) == 0 || list[len(list)-1] != n {
			p.at[at] = append(list, n)
		}
	}
}

// changes gives the commits after one sequence number, and before another if
// that is not 0, that changed the file at a path, the newest first, with its state
// before and after; fn ends it with false.
func (p *past) changes(path string, after, before uint64, fn func(c *gitstore.Commit, was, is history.State) bool) error {
	if err := p.reach(after); err != nil {
		return err
	}
	for _, n := range p.at[path] {
		if n <= after {
			break
		}
		if before != 0 && n >= before {
			continue
		}
		c, err := p.st.ReadCommit(p.ctx, p.ids[p.tip-n])
		if err != nil {
			return err
		}
		was, err := p.stood(c.Parent, path)
		if err != nil {
			return err
		}
		is, err := p.stood(c.ID, path)
		if err != nil {
			return err
		}
		if (!was.Same(is) || names(c.Message, path)) && !fn(c, was, is) {
			return nil
		}
	}
	return nil
}

func (p *past) stood(commit object.ID, path string) (history.State, error) {
	if commit.IsZero() { // before where the history begins
		return history.State{Path: path}, nil
	}
	snap, err := p.st.SnapshotOf(p.ctx, commit)
	if err != nil {
		return history.State{}, err
	}
	return at(snap, path)
}

// names reports whether a commit names a file at a path, before it or after: where
// one replaced another of the same bytes, no tree shows it.
func names(m *message.Message, path string) bool {
	return slices.ContainsFunc(m.Entries, func(e message.Entry) bool { return e.Path == path || e.OldPath == path })
}
