package revert

import (
	"context"

	"umbra/gitstore"
	"umbra/gitstore/message"
	"umbra/internal/history"
	"umbra/internal/lineage"
)

// mustFollow reports whether another change may have renamed one of the files or
// directories: one is not as the selected entries left it.
func (p *plan) mustFollow(chains []part, folders []*history.Entry) (bool, error) {
	if len(folders) > 0 {
		return true, nil
	}
	for _, c := range chains {
		if !c.Last().Exists() {
			continue
		}
		if c.Mixed() {
			return true, nil
		}
		is, err := at(p.snap, c.Last().Path)
		if err != nil || !is.Same(c.Last()) {
			return true, err
		}
	}
	return false, nil
}

// findMoves reads what was renamed since the first of the selected entries by any
// other.
func (p *plan) findMoves(ctx context.Context, st *gitstore.Store) error {
	if len(p.sel.entries) == 0 {
		return nil
	}
	type rename struct {
		seq  uint64
		from string
	}
	own := make(map[rename]bool)
	mine := make(map[uint64]bool) // commits with a selected entry
	for _, e := range p.sel.entries {
		mine[e.Seq] = true
		if e.Operation == message.Rename {
			own[rename{e.Seq, trimSlash(e.Path)}] = true
		}
	}
	all, err := lineage.Since(ctx, st, p.sel.entries[0].Seq, p.seq, func(seq uint64) bool { return mine[seq] })
	for _, m := range all {
		switch {
		case !m.Whole && own[rename{m.Seq, string(m.From)}]:
		case m.Dir:
			p.sinceFolders = append(p.sinceFolders, m)
		default:
			p.since = append(p.since, m)
		}
	}
	return err
}
