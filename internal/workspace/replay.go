package workspace

import (
	"context"
	"strings"

	"umbra/gitstore/message"
	"umbra/internal/errs"
	"umbra/internal/idem"
	"umbra/internal/witness"
	"umbra/internal/wspath"
)

// replay finds the commit that a request with the same idempotency key made,
// and rebuilds its answer. nil: there is none, or it was taken back.
func (w *Workspace) replay(ctx context.Context, req *Request) (*Result, error) {
	if req.By.IdempotencyKey == "" || req.DryRun {
		return nil, nil
	}
	rec, ok, err := w.store.FindKey(ctx, req.By.IdempotencyKey, idem.Since(w.now()))
	if err != nil || !ok {
		return nil, err
	}
	// What takes a commit back carries the same key, and is found first.
	if rec.Source == message.Rollback || rec.Source == message.External {
		return nil, nil
	}
	c, err := w.store.ReadCommit(ctx, rec.Commit)
	if errs.Is(err, errs.NotFound) || errs.Is(err, errs.Gone) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	witness.Committed(ctx, w.store, c.Seq)
	res := &Result{Commit: c.ID, Seq: c.Seq, When: c.When, Replayed: true, Ops: make([]OpResult, len(req.Ops))}
	if res.Entries, err = w.rec.EntriesOf(ctx, c); err != nil {
		return nil, err
	}
	for i := range req.Ops {
		if res.Ops[i], err = w.replayOp(ctx, &req.Ops[i], res.Entries); err != nil {
			return nil, err
		}
	}
	return res, nil
}

// replayOp rebuilds one operation's result from the entries of its commit.
func (w *Workspace) replayOp(ctx context.Context, op *Op, entries []ChangeEntry) (OpResult, error) {
	r := OpResult{Path: op.Path, To: op.To}
	e := entryOf(op, entries)
	if e == nil {
		return r, nil
	}
	r.Operation, r.Blob, r.Mode = e.Operation, e.After, e.Mode
	r.Created = e.Before.IsZero() && (e.Operation == message.Create || e.Operation == message.Symlink || e.Operation == message.Mkdir)
	r.Existed = op.Kind == OpDelete
	if op.Kind != OpRename && op.Kind != OpCopy {
		r.Path = wspath.Path(strings.TrimSuffix(e.Path, "/"))
	}
	if e.After.IsZero() {
		return r, nil
	}
	size, err := w.store.BlobSize(ctx, e.After)
	r.Size = size
	return r, err
}

// entryOf finds the entry of an operation: the one of its path, or
// the only one (a link led elsewhere), or the first (of a folder).
func entryOf(op *Op, entries []ChangeEntry) *ChangeEntry {
	for i := range entries {
		e := &entries[i]
		at := wspath.Path(strings.TrimSuffix(e.Path, "/"))
		if e.NewPath != "" && (op.Kind == OpWrite || op.Kind == OpEdit || op.Kind == OpChmod || op.Kind == OpCopy) {
			at = wspath.Path(strings.TrimSuffix(e.NewPath, "/"))
		}
		want := op.Path
		if op.Kind == OpCopy {
			want = op.To
		}
		if at == want {
			return e
		}
	}
	for i := range entries {
		if (op.Kind == OpDelete || op.Kind == OpRename) && wspath.Path(strings.TrimSuffix(entries[i].Path, "/")).IsUnder(op.Path) {
			return &entries[i]
		}
	}
	if len(entries) == 1 {
		return &entries[0]
	}
	return nil
}
