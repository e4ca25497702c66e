package gitstore

import (
	"context"
	"errors"
	"path"

	"umbra/gitstore/packset"

	"umbra/gitstore/refs"
	"umbra/gitstore/remote"
	"umbra/gitstore/sink"
	"umbra/gitstore/storedir"
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
	if err := s.r.Held.Cause(); err != nil {
		return errs.Wrap(err, "")
	}
	for try := 0; ; try++ {
		err := s.sealOnce(ctx)
		if !errors.Is(err, sink.ErrStale) || try > 0 {
			return errs.Wrap(err, "")
		}
		s.forgetPut()
	}
}

// sealOnce does one seal. mmu is held.
func (s *Store) sealOnce(ctx context.Context) error {
	p := &s.pub
	s.r.Publishing.Lock()
	lctx, cancel := context.WithTimeout(ctx, lockPatience)
	_, err := p.publishLocked(lctx)
	cancel()
	m := &sink.Manifest{Base: p.pos, Seq: p.noted}
	values := s.r.Note.All()
	used := s.r.Packs.InUse()
	s.r.Publishing.Unlock()
	if s.alone && values[refs.ShadowRef].IsZero() { // a fork without commits of its own
		values[refs.ShadowRef], m.Seq = s.opt.Base.At, s.r.Base.Seq
	}
	defer func() { packset.ReleaseAll(used) }()
	if err != nil {
		return err
	}
	var small []*packset.File
	for _, f := range used {
		if f.Stored() == "" && f.Pack.PackBytes() < mergedSeal {
			small = append(small, f)
		}
	}
	if len(small) > 1 || len(small) == 1 && !small[0].Keep.Laid && small[0].Pack.PackBytes() > remote.SmallPack {
		if err := s.merge(ctx, small); err != nil {
			return err
		}
		packset.ReleaseAll(used)
		used = s.r.Packs.InUse()
	}
	return s.swapTo(ctx, m, used, values, "", false)
}

// swapTo puts what the store's packs and files have and the sink's store has not,
// and makes it the manifest. newMap is the temporary name of a purge's map that has
// none yet. mmu is held.
func (s *Store) swapTo(ctx context.Context, m *sink.Manifest, used []*packset.File, values map[string]ID, newMap string, purge bool) error {
	for _, f := range used {
		if err := s.put(ctx, f); err != nil {
			return err
		}
		m.Packs = append(m.Packs, f.Ref())
	}
	for name, id := range values {
		m.Refs = append(m.Refs, sink.Ref{Name: name, ID: id})
	}
	maps, err := s.r.MovedFiles()
	if err != nil {
		return err
	}
	files := map[string]string{storedir.Dropped: storedir.Dropped}
	for _, n := range maps {
		files[storedir.MovedName(n)] = storedir.MovedName(n)
	}
	if newMap != "" {
		files[path.Join(storedir.Moved, path.Base(newMap))] = newMap
	}
	if err := s.r.Held.PutFiles(ctx, s.r.FS, m, []string{storedir.Exclude}, files); err != nil {
		return err
	}
	return s.r.Held.Swap(ctx, m, purge)
}

// put makes a pack an object of the sink's store, if it is none.
func (s *Store) put(ctx context.Context, f *packset.File) error {
	if f.Stored() != "" {
		return nil
	}
	file := path.Join(storedir.Packs, f.Base)
	name, err := s.r.Held.PutPack(ctx, s.r.FS, file+".pack", file+storedir.Idx)
	if err != nil {
		return err
	}
	f.SetStored(name)
	return nil
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
	err := s.put(ctx, f)
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
			err := s.put(ctx, f)
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

// forgetPut makes the next seal put everything again that the manifest does not name.
func (s *Store) forgetPut() {
	known := make(map[string]bool)
	for _, name := range s.r.Held.Manifest().Objects() {
		known[name] = true
	}
	s.r.Packs.ForgetStored(func(name string) bool { return !known[name] && !s.r.Held.Named(name) })
}

// swapHeld is the switch of a purge where a sink holds the history. The committer
// rests, and everything is published. mmu and publishing are held.
func (p *Purge) swapHeld(ctx context.Context, in *purgeIntent) error {
	s := p.s
	if s.r.Held == nil {
		return nil
	}
	m := &sink.Manifest{Base: s.pub.pos, Seq: s.pub.noted}
	values := s.r.Note.All()
	for _, r := range in.Refs {
		if _, now, err := r.ids(); err != nil {
			return err
		} else if values[r.Name] = now; now.IsZero() {
			delete(values, r.Name)
		}
	}
	if _, now, err := in.Boundary.ids(); err != nil {
		return err
	} else if !now.IsZero() {
		values[refs.Boundary] = now
	}
	gone := setOf(in.Drop)
	var used []*packset.File
	for _, f := range s.r.Packs.InUse() {
		defer f.Release()
		if !gone[f.Base] {
			used = append(used, f)
		}
	}
	err := s.swapTo(ctx, m, used, values, purgeTemp(in.Moved), true)
	if err != nil && !errors.Is(err, sink.ErrRefused) {
		s.r.Held.Stop(err) // it may have been done: the next owner sees
	}
	return err
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
	if err := s.Seal(ctx); err != nil {
		s.r.Log.Warn("the log was not sealed; its next owner does it", "error", err)
	}
}
