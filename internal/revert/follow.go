package revert

import (
	"context"

	"umbra/gitstore"
	"umbra/gitstore/message"
	"umbra/internal/history"
	"umbra/internal/workspace"
)

// mustFollow reports whether somebody else may have given one of the files or
// folders another name: one is not as the selected entries left it.
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

// findMoves reads what was renamed since the first of the selected entries by
// any other.
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
			own[rename{e.Seq, e.Path}] = true
		}
	}
	return st.Records(ctx, p.sel.entries[0].Seq, p.seq, func(r gitstore.Record) error {
		if !r.Renames {
			return nil
		}
		c, err := st.ReadCommit(ctx, r.Commit)
		if err != nil {
			return err
		}
		for i := range c.Message.Entries {
			e := &c.Message.Entries[i]
			if e.Operation != message.Rename || own[rename{r.Seq, e.OldPath}] {
				continue
			}
			if e.Path != trimSlash(e.Path) {
				p.sinceFolders = append(p.sinceFolders, movedIn{folderMove{trimSlash(e.OldPath), trimSlash(e.Path), true}, r.Seq})
			} else {
				p.since = append(p.since, history.Move{Seq: r.Seq, From: e.OldPath, To: e.Path})
			}
		}
		if !mine[r.Seq] {
			for _, m := range workspace.FolderMoves(c.Message) {
				p.sinceFolders = append(p.sinceFolders, movedIn{folderMove{string(m.From), string(m.To), true}, r.Seq})
			}
		}
		return nil
	})
}
