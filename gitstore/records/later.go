package records

import (
	"context"
	"slices"
	"time"

	"umbra/gitstore/object"
	"umbra/internal/errs"
)

// newest is the commit that an index is to be filled up to.
type newest struct {
	seq uint64
	id  object.ID
}

// fewMissing is how many records FillLater reads at once.
const fewMissing = 16

// FillLater is like Fill, but where much is missing it leaves that to Filled, which
// every method that reads records calls first.
func (r *Index) FillLater(ctx context.Context, seq uint64, id object.ID) error {
	if r.n >= r.first && seq <= r.n+fewMissing || seq < r.first {
		return r.Fill(ctx, seq, id)
	}
	r.unfilled.Store(&newest{seq, id})
	return nil
}

// Filled ends what FillLater left: one call does, whether its ctx ends or not, and the others
// wait for it as long as theirs last. An error is that of reading history; the next call reads
// it again.
func (r *Index) Filled(ctx context.Context) error {
	return r.filled(ctx, context.Background())
}

// FillRest is Filled for the background: it ends with ctx.
func (r *Index) FillRest(ctx context.Context) error { return r.filled(ctx, ctx) }

func (r *Index) filled(ctx, life context.Context) error {
	if r.unfilled.Load() == nil {
		return nil
	}
	select {
	case r.filling <- struct{}{}:
		defer func() { <-r.filling }()
	case <-ctx.Done():
		return errs.Wrap(ctx.Err(), "")
	}
	to := r.unfilled.Load()
	if to == nil {
		return nil
	}
	if err := r.fill(ctx, life, to.seq, to.id); err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.unfilled.Store(nil)
	r.early = nil
	r.appendLocked(r.later)
	r.later = nil
	return nil
}

// withKeyBefore is WithKey while the index is to be filled up to a commit.
func (r *Index) withKeyBefore(ctx context.Context, to *newest, prefix string, since time.Time) ([]Record, error) {
	select {
	case r.looking <- struct{}{}:
		defer func() { <-r.looking }()
	case <-ctx.Done():
		return nil, errs.Wrap(ctx.Err(), "")
	}
	r.mu.RLock()
	early, of := r.early, r.earlyOf
	r.mu.RUnlock()
	var err error
	if early == nil || since.Unix() < of {
		of = since.Unix() - keySlack
		early, err = r.keysBack(ctx, to, of)
	}
	r.mu.Lock()
	if r.unfilled.Load() == nil { // filled, and maybe dropped from, meanwhile
		r.mu.Unlock()
		return r.WithKey(ctx, prefix, since)
	}
	defer r.mu.Unlock()
	if err != nil {
		return nil, err
	}
	r.early, r.earlyOf = early, of
	out := slices.Clone(early[prefix])
	for _, rec := range r.later {
		if rec.Key == prefix {
			out = append(out, rec)
		}
	}
	return out, nil
}

// keysBack reads the records with keys back to a time (Unix seconds), each key's ascending.
func (r *Index) keysBack(ctx context.Context, to *newest, since int64) (map[string][]Record, error) {
	id, filed := to.id, false // filed: the file has this commit, and so those before it
	list, err := keyedSince(since, r.opt.First, to.seq, func(seq uint64) (rec Record, err error) {
		if err := ctx.Err(); err != nil {
			return rec, errs.Wrap(err, "")
		}
		r.mu.RLock()
		rec, err = r.atLocked(seq)
		r.mu.RUnlock()
		if filed = filed || err == nil && rec.Commit == id; !filed {
			rec, id, err = r.opt.Read(ctx, id)
		}
		return rec, err
	})
	if err != nil {
		return nil, err
	}
	found := map[string][]Record{}
	for _, rec := range list {
		found[rec.Key] = append(found[rec.Key], rec)
	}
	return found, nil
}
