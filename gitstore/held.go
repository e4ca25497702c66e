package gitstore

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"umbra/gitstore/packset"
	"umbra/gitstore/remote"
	"umbra/gitstore/sink"
	"umbra/gitstore/storedir"
)

// A store with a sink opens what the sink's log says: its own folder is emptied but
// for packs and the commit index, and filled from the manifest; the tail becomes a
// journal, which replay reads as any other. From then on it works as ever, without
// syncs, and each group is appended to the log before it is accepted.

// Held returns the log of a store with a sink; nil without one.
func (s *Store) Held() *remote.Log { return s.r.Held }

// openHeld reads the sink's log and makes the folder what it says; nil without a
// sink.
func (s *Store) openHeld(ctx context.Context) (*sink.Tail, error) {
	if s.opt.Sink == nil {
		return nil, nil
	}
	log, tail, err := remote.Open(ctx, s.opt.Sink, s.opt.MaxUnsealed)
	if err != nil {
		return nil, err
	}
	s.r.Hold(log)
	return tail, remote.Restore(ctx, log, tail, &remote.Place{FS: s.r.FS, Repo: storedir.Repo, Boot: s.opt.Boot,
		Clear: []string{storedir.Intent, storedir.Dropped, storedir.Moved, storedir.Moved + ".new", storedir.Damaged, storedir.Exclude},
		Keep:  func(through uint64) string { return packset.Keep{Through: through}.String() }})
}

// nameHeld notes which packs the sink's store has, and fails if one is missing.
func (s *Store) nameHeld(tail *sink.Tail) error {
	if tail == nil {
		return nil
	}
	held := remote.PacksOf(tail)
	for _, base := range s.r.Held.Lazy() {
		if err := s.r.Packs.Add(base, packset.Keep{Through: held[base].Through}); err != nil {
			return err
		}
	}
	for _, f := range s.r.Packs.All() {
		name := held[f.Base].Name
		f.SetStored(name)
		delete(held, f.Base)
	}
	for base, p := range held {
		return fmt.Errorf("%s (%s) is not readable", base, p.Name)
	}
	return nil
}

// checkHeld fails if replay did not come to the end of the tail: everything in it
// was acknowledged.
func (s *Store) checkHeld(tail *sink.Tail) error {
	if tail == nil {
		return nil
	}
	s.pub.pos = tail.Next() - 1
	want := max(s.r.Held.Manifest().Seq, s.ForkedAt())
	for i := range tail.Groups {
		want = max(want, tail.Groups[i].Seq)
	}
	if seq := s.Tip().Seq; seq != want || len(s.recovery.Torn) > 0 {
		return fmt.Errorf("the log leads to commit %d, but its groups can be applied up to %d only: it is damaged", want, seq)
	}
	return nil
}

// appendHeld makes a group durable in the sink's log; it does nothing without one.
func (s *Store) appendHeld(g *group) error {
	if s.r.Held == nil {
		return nil
	}
	out := &sink.Group{Seq: g.tip.Seq, Data: g.buf, Records: g.rows}
	if s.opt.TaskRecords != nil {
		for _, t := range g.tasks {
			out.Records = append(out.Records, s.opt.TaskRecords(*t)...)
		}
	}
	for _, b := range g.blobs {
		p := b.large.File().Ref()
		p.Name = b.large.Stored()
		if !slices.ContainsFunc(out.Packs, func(q sink.Pack) bool { return q.Name == p.Name }) && b.large.Unnamed() {
			out.Packs = append(out.Packs, p)
		}
	}
	err := s.r.Held.Append(out)
	if errors.Is(err, sink.ErrStale) {
		if err = s.putAgain(g, out); err == nil {
			err = s.r.Held.Append(out)
		}
	}
	if err != nil {
		s.r.Log.Error("append to the log failed", "position", out.Pos, "error", err)
		return err
	}
	endOf(g.j).pos = out.Pos
	return nil
}
