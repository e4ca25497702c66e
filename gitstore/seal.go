package gitstore

import (
	"context"
	"errors"
	"slices"

	"umbra/gitstore/packset"
	"umbra/gitstore/refs"
	"umbra/gitstore/remote"
	"umbra/gitstore/repo"
	"umbra/gitstore/sink"
	"umbra/internal/errs"
)

// What a store with a sink does locally (publish, merge, collect, purge) it does as
// ever; the manifest follows: it names the packs that are in use, and a swap makes it
// so. A pack is put before it is named, and none is ever removed from the sink's
// store but by the sink's sweeper. So a swap that fails costs nothing but a retry.

// mergedSeal bounds the packs that are merged before they are put, in bytes.
const mergedSeal = 64 << 20

// Seal puts everything that is published into the sink's store, and trims its log.
// Writers go on meanwhile. It does nothing without a sink.
func (s *Store) Seal(ctx context.Context) error {
	if s.r.Held == nil {
		return nil
	}
	s.r.Upkeep.Maintaining.Lock()
	defer s.r.Upkeep.Maintaining.Unlock()
	return s.sealLocked(ctx)
}

// sealedAhead is from how many bytes of log on SealAhead seals: a seal of less takes as
// long as one of what is written meanwhile, which a close needs anyway.
const sealedAhead = 128 << 10

// SealAhead is like Seal before the store is closed, so that the close has less to seal
// while requests wait. It does nothing where the close would take no less for it.
func (s *Store) SealAhead(ctx context.Context) error {
	if s.r.Held == nil {
		return nil
	}
	if bytes, _ := s.r.Held.Unsealed(); bytes < sealedAhead {
		return nil
	}
	s.ahead.Add(1) // packs can be merged at any time
	defer s.ahead.Add(-1)
	if interrupt := s.interrupt.Load(); interrupt != nil {
		(*interrupt)()
	}
	return s.Seal(ctx)
}

// CopyTo puts the history of a Foreground store without a sink into an empty log.
func (s *Store) CopyTo(ctx context.Context, to sink.Sink) error {
	log, tail, err := remote.Open(ctx, to, s.opt.MaxUnsealed)
	if err != nil {
		return err
	}
	s.r.Hold(log) // nothing else may use the store meanwhile
	s.pub.pos = tail.Next() - 1
	defer func() { s.r.Hold(nil); log.Close() }()
	if err = s.Seal(ctx); err == nil && s.r.Large.Waits() {
		err = errors.New("a large file is not in its pack")
	}
	return err
}

// sealLocked is like Seal; the caller holds mmu.
func (s *Store) sealLocked(ctx context.Context) error {
	_, err := s.sealInto(ctx, s.r.Held)
	return err
}

// sealInto seals a log: the one that holds the history, or that of a copy. through is
// the last group that the manifest includes. mmu is held.
func (s *Store) sealInto(ctx context.Context, log *remote.Log) (through uint64, err error) {
	if err := log.Cause(); err != nil {
		return 0, errs.Wrap(err, "")
	}
	for try := 0; ; try++ {
		through, err := s.sealOnce(ctx, log, nil)
		if !errors.Is(err, sink.ErrStale) || try > 0 {
			return through, errs.Wrap(err, "")
		}
		s.r.ForgetPut(log)
	}
}

// sealBetween seals while packs are merged, which may take longer than the log has room for
// what is written meanwhile. The packs stay what the manifest names, and the merged one
// takes their place in the next. mmu is held.
func (s *Store) sealBetween(ctx context.Context, merged []*packset.File) error {
	if s.r.Held == nil {
		return nil
	}
	if bytes, _ := s.r.Held.Unsealed(); bytes < s.opt.MaxUnsealed/4 {
		return nil
	}
	if _, err := s.sealOnce(ctx, s.r.Held, merged); err != nil && ctx.Err() == nil {
		s.r.Log.Warn("the log was not sealed while packs are merged; it is retried", "error", err)
	}
	return ctx.Err()
}

// sealOnce does one seal, and merges no pack of apart. mmu is held.
func (s *Store) sealOnce(ctx context.Context, log *remote.Log, apart []*packset.File) (through uint64, err error) {
	p := &s.pub
	s.r.Publishing.Lock()
	lctx, cancel := context.WithTimeout(ctx, repo.LockPatience)
	_, err = p.publishLocked(lctx)
	cancel()
	m := &sink.Manifest{Base: p.pos, Seq: p.noted}
	if through = p.pos; s.r.Held == nil {
		m.Base = log.Next() - 1 // the log is behind
	}
	values := s.r.Note.All()
	used := s.r.Packs.InUse()
	s.r.Publishing.Unlock()
	if s.alone && values[refs.ShadowRef].IsZero() { // a fork without commits of its own
		values[refs.ShadowRef], m.Seq = s.opt.Base.At, s.r.Base.Seq
	}
	defer func() { packset.ReleaseAll(used) }()
	if err != nil {
		return 0, err
	}
	var small []*packset.File
	for _, f := range used {
		if f.Stored() == "" && f.Pack.PackBytes() < mergedSeal && !slices.Contains(apart, f) {
			small = append(small, f)
		}
	}
	if len(small) > 1 || len(small) == 1 && !small[0].Keep.Laid && small[0].Pack.PackBytes() > remote.SmallPack {
		if err := s.merge(ctx, small, nil); err != nil {
			return 0, err
		}
		packset.ReleaseAll(used)
		used = s.r.Packs.InUse()
	}
	return through, s.r.SwapTo(ctx, log, m, used, values, "", false)
}

// sealCopy makes the log of a copy what the folder has.
func (s *Store) sealCopy(ctx context.Context, log *remote.Log) (through uint64, err error) {
	s.r.Upkeep.Maintaining.Lock()
	defer s.r.Upkeep.Maintaining.Unlock()
	return s.sealInto(ctx, log)
}

// CopyWhole waits until the log of a copy has no other history than the store: a purge
// rewrites the store's first. It returns at once without a copy.
func (s *Store) CopyWhole(ctx context.Context) error { return s.copy.Whole(ctx) }

// copyGroup gives a group that was accepted to the copy; committing is held.
func (s *Store) copyGroup(g *group) {
	if s.copy == nil {
		return
	}
	whole := len(g.blobs) == 0
	for _, p := range g.members {
		whole = whole && (p.draft == nil || p.draft.Root.IsZero())
	}
	endOf(g.j).pos = s.copy.Add(g.tip.Seq, g.buf, whole)
}

// putBaseline puts a pack of a baseline; the next group names it.
func (s *Store) putBaseline(ctx context.Context, base string) error {
	if s.r.Held == nil {
		return nil
	}
	f := s.r.Packs.Named(base)
	if f == nil {
		return nil // superseded already
	}
	defer f.Release()
	err := s.r.Put(ctx, s.r.Held, f)
	if err == nil {
		s.r.Held.Use(f.Ref())
	}
	return err
}

// putAgain puts the packs again that a group names, and that are too old to be named
// for the first time.
func (s *Store) putAgain(g *group, out *sink.Group) error {
	ctx := context.Background()
	for i := range out.Packs {
		p := &out.Packs[i]
		s.r.Held.Unuse(p.Name)
		if f := s.r.Packs.Named(remote.Base(p)); f != nil {
			f.SetStored("")
			err := s.r.Put(ctx, s.r.Held, f)
			p.Name = f.Stored()
			f.Release()
			if err != nil {
				return err
			}
			continue
		}
		for _, b := range g.blobs {
			if b.large.Stored() == p.Name {
				name, err := b.large.PutAgain(ctx)
				if err != nil {
					return err
				}
				p.Name = name
			}
		}
	}
	return nil
}

// sealLast seals what is left when the store is closed. Where that is not possible
// the log has it.
func (s *Store) sealLast(ctx context.Context) {
	if s.r.Held == nil || s.r.Held.Cause() != nil || s.r.Held.KeepsTail() {
		return
	}
	if bytes, _ := s.r.Held.Unsealed(); bytes == 0 {
		return
	}
	s.r.Held.BeginLast()
	if err := s.Seal(ctx); err != nil {
		s.r.Log.Warn("the log was not sealed; its next owner does it", "error", err)
	}
}
