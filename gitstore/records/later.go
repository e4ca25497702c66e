package records

import (
	"context"

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
	if err := r.Fill(ctx, to.seq, to.id); err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.unfilled.Store(nil)
	r.appendLocked(r.later)
	r.later = nil
	return nil
}
