package revert

import (
	"context"
	"slices"

	"umbra/gitstore"
	"umbra/gitstore/message"
	"umbra/gitstore/object"
	"umbra/internal/history"
	"umbra/internal/workspace"
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
// other. Renames without effect are left out: a commit that the disk refused names
// directories that it moved, and the one that took it back does not.
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
	seqs := make(map[object.ID]uint64) // of commits that are not selected
	return st.Records(ctx, p.sel.entries[0].Seq, p.seq, func(r gitstore.Record) error {
		if !r.Renames {
			return nil
		}
		c, err := st.ReadCommit(ctx, r.Commit)
		if err != nil {
			return err
		}
		var back map[renamed]bool
		if s := c.Message.Source; s == message.Rollback || s == message.External {
			for _, id := range c.Message.Reverts {
				if seq, ok := seqs[id]; ok {
					back = p.forget(seq)
				}
			}
		}
		if !mine[r.Seq] {
			seqs[r.Commit] = r.Seq
		}
		for i := range c.Message.Entries {
			e := &c.Message.Entries[i]
			if e.Operation != message.Rename || own[rename{r.Seq, e.OldPath}] || back[renamed{trimSlash(e.Path), trimSlash(e.OldPath)}] {
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

// renamed is a file's or a folder's rename.
type renamed struct{ from, to string }

// forget drops what a commit renamed, which was taken back, and gives it.
func (p *plan) forget(seq uint64) map[renamed]bool {
	gone := make(map[renamed]bool)
	p.since = slices.DeleteFunc(p.since, func(m history.Move) bool {
		if m.Seq == seq {
			gone[renamed{m.From, m.To}] = true
		}
		return m.Seq == seq
	})
	p.sinceFolders = slices.DeleteFunc(p.sinceFolders, func(m movedIn) bool {
		if m.seq == seq {
			gone[renamed{m.first, m.last}] = true
		}
		return m.seq == seq
	})
	return gone
}
