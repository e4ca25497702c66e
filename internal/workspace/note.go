package workspace

import (
	"context"

	"umbra/gitstore"
	"umbra/gitstore/message"
	"umbra/gitstore/object"
	"umbra/internal/claims"
	"umbra/internal/witness"
	"umbra/internal/workspace/record"
)

// Note records what a message says by a commit that changes no file. check, if not
// nil, is asked by the committer just before; its error fails it. errs.Forbidden
// "policy_refused" for a message that the policy forbids.
func (w *Workspace) Note(ctx context.Context, m message.Message, check func() error) (object.ID, error) {
	if err := w.enter(); err != nil {
		return object.Zero, err
	}
	defer w.leave()
	if _, err := w.rec.Obeys(ctx, &m, nil, nil, false); err != nil {
		return object.Zero, err
	}
	d := gitstore.Draft{Message: m, AllowEmpty: true}
	if check != nil {
		d.Check = func(gitstore.Snapshot) error { return check() }
	}
	c, err := w.store.Commit(ctx, d)
	if err != nil {
		return object.Zero, err
	}
	witness.Committed(ctx, w.store, c.Seq)
	w.progress.Settle(c.Seq)
	return c.Commit, nil
}

// Claim records that entries of a shared commit are one call's: by an empty
// commit of its owner that names the commit. It changes no file.
func (w *Workspace) Claim(ctx context.Context, shared *gitstore.Commit, entries []ChangeEntry, o *record.Owner) error {
	if err := w.enter(); err != nil {
		return err
	}
	defer w.leave()
	m := o.Message
	m.Extra = append(m.Extra[:len(m.Extra):len(m.Extra)],
		message.Trailer{Key: message.KeyCertainty, Value: string(claims.Declared)}, message.Trailer{Key: message.KeyClaims, Value: shared.ID.String()})
	for i := range entries {
		e := message.Entry{Operation: entries[i].Operation, Path: entries[i].Path, AfterHash: entries[i].AfterHash}
		if entries[i].NewPath != "" {
			e.Path, e.OldPath = entries[i].NewPath, entries[i].Path
		}
		m.Entries = append(m.Entries, e)
	}
	c, err := w.store.Commit(ctx, gitstore.Draft{Message: m, Entries: len(entries), AllowEmpty: true})
	if err != nil {
		return err
	}
	witness.Committed(ctx, w.store, c.Seq)
	w.progress.Settle(c.Seq)
	if o.Recorded != nil {
		o.Recorded(c.Seq)
	}
	return nil
}
