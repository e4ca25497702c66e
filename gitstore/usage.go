package gitstore

import (
	"context"

	"umbra/gitstore/packset"
	"umbra/gitstore/reach"
	"umbra/internal/errs"
)

// Usage calls fn for every commit, oldest first, with the bytes that the objects
// take in our packs that it brought into the history: those that no older commit
// that is left reaches. The sum is what the history takes without what merging or
// Collect would free.
func (s *Store) Usage(ctx context.Context, fn func(rec Record, bytes int64)) error {
	if err := s.Publish(ctx); err != nil {
		return err // what is in a journal has no size of its own yet
	}
	tip := s.Tip()
	used := s.r.Packs.InUse()
	defer func() { packset.ReleaseAll(used) }()
	table, err := reach.NewTable(ctx, used, nil, nil)
	if err != nil {
		return errs.Wrap(err, "")
	}
	theirs, err := reach.OpenTheirs(s.r)
	if err != nil {
		return errs.Wrap(err, "")
	}
	defer theirs.Close()
	m, err := reach.NewMarker(ctx, s.r, table, theirs, nil)
	if err != nil {
		return errs.Wrap(err, "")
	}
	var near ID
	for seq := s.r.Index.Begin(); seq <= tip.Seq; seq++ {
		before := m.Bytes
		rec, err := s.r.Index.At(seq)
		if err != nil {
			return errs.Wrap(err, "")
		}
		if near, err = m.Commit(seq, near); err != nil {
			return errs.Wrap(err, "")
		}
		fn(rec, m.Bytes-before)
	}
	return nil
}
