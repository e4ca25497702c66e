package record

import (
	"context"

	"umbra/gitstore"
	"umbra/gitstore/message"
	"umbra/gitstore/object"
	"umbra/internal/errs"
	"umbra/internal/wspath"
)

// Beside records bytes as an older version of a path, or with mode 0 that it
// was missing: one external commit, and one that takes it back.
func (r *Recorder) Beside(ctx context.Context, p wspath.Path, mode object.Mode, b gitstore.Blob, reason string) (seqs []uint64, err error) {
	tip, inTip, err := r.Disk.Store.Snapshot().Lookup(p)
	if err != nil {
		return nil, err
	}
	if inTip && tip.Mode == object.Dir {
		return nil, &errs.Error{Kind: errs.Conflict, Code: "is_a_directory", Detail: "The path is a directory.", Path: string(p)}
	}
	x := External{Path: p, Old: tip, Mode: mode, Blob: b, HasBlob: mode != 0}
	c, err := r.commitExternals(ctx, []External{x}, message.Message{Reason: reason}, true)
	if err != nil || c.NoChange {
		return nil, err
	}
	seqs = append(seqs, c.Seq)
	e := inverse(x.entry())
	e.Reverts = refs("", c, 1)
	edit := gitstore.Edit{Path: p}
	if inTip {
		edit.Mode, edit.Blob = tip.Mode, gitstore.KnownBlob(tip.ID)
	}
	m := message.Message{Source: message.Rollback, Reverts: []object.ID{c.Commit}, Reason: reason}
	if m.Entries, err = r.MessageEntries(ctx, []Entry{e}); err != nil {
		return seqs, err
	}
	back, err := r.Disk.Store.Commit(ctx, gitstore.Draft{Edits: []gitstore.Edit{edit}, Message: m, Entries: 1, AllowEmpty: true, Must: true})
	if err != nil {
		r.Diverged()
		return seqs, err
	}
	return append(seqs, back.Seq), nil
}
