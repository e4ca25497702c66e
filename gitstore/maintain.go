package gitstore

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"umbra/gitstore/object"
	"umbra/gitstore/pack"
	"umbra/gitstore/packset"
	"umbra/gitstore/remote"
	"umbra/gitstore/repo"
	"umbra/gitstore/storedir"
	"umbra/internal/errs"
)

const (
	mergeWidth = packset.MergeWidth
	// quietFor is how long there must be no write before it is narrow again.
	quietFor = time.Second
	// manyLoose is the number of our loose refs above which they are packed.
	manyLoose = 200
)

// maintenanceDue reports how long the background may sleep when nothing is
// written.
func (s *Store) maintenanceDue() time.Duration {
	packs := s.r.Packs.InUse()
	defer packset.ReleaseAll(packs)
	if packset.ToMerge(packs, mergeWidth) != nil {
		return quietFor // put off while there were writers
	}
	if s.r.Packs.AnyDoomed() {
		return max(time.Second, min(s.r.MergeGrace, time.Minute))
	}
	if s.r.InfoLog.Waiting() {
		return time.Minute
	}
	if s.r.Upkeep.Dropped.Load() {
		return time.Minute // a multi-pack-index may appear that names what went
	}
	return time.Hour
}

// maintainer runs Maintain after publications, and while packs wait for the
// end of their grace, until ctx ends.
func (s *Store) maintainer(ctx context.Context) {
	// The first run is for what the last process left undone.
	timer := time.NewTimer(time.Minute)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.wake:
		case <-timer.C:
		}
		width := mergeWidth
		if s.pub.quiet() < quietFor {
			width = packset.BusyWidth
		}
		if err := s.maintainTo(ctx, width); err != nil && ctx.Err() == nil {
			s.r.Log.Warn("maintenance failed; tried again later", "error", err)
		}
		timer.Reset(s.maintenanceDue())
	}
}

func (s *Store) kickMaintainer() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// Maintain keeps the repository compact: packs of about one size are merged,
// superseded ones go when their grace ends, and many loose refs are packed. It
// costs little when there is nothing to do, and never holds up a writer.
func (s *Store) Maintain(ctx context.Context) error { return s.maintainTo(ctx, mergeWidth) }

// maintainTo merges where at least width packs have gathered.
func (s *Store) maintainTo(ctx context.Context, width int) error {
	s.r.Upkeep.Maintaining.Lock()
	defer s.r.Upkeep.Maintaining.Unlock()
	interruptible, interrupt := context.WithCancel(ctx)
	defer interrupt()
	s.interrupt.Store(&interrupt)
	defer s.interrupt.Store(nil)
	if s.ahead.Load() > 0 {
		return nil
	}
	err := s.maintainLocked(interruptible, width)
	if interruptible.Err() != nil && ctx.Err() == nil {
		return nil // the next run does it
	}
	return err
}

func (s *Store) maintainLocked(ctx context.Context, width int) error {
	if err := s.r.WriteInfoLog(ctx); err != nil {
		return err
	}
	if err := s.r.Packs.CheckMultiIndex(); err != nil {
		return err
	}
	if !s.Boundary().Whole() {
		// One that was begun before the boundary was there.
		if err := s.r.DropCommitGraph(); err != nil {
			return err
		}
	}
	if err := s.dropDoomed(ctx); err != nil {
		return err
	}
	for {
		merged, err := s.mergeOnce(ctx, width)
		if err != nil {
			return err
		}
		if !merged {
			break
		}
	}
	if s.pub.loose.Load() <= manyLoose {
		return nil
	}
	s.pub.loose.Store(0)
	n, err := s.r.Refs.CountLoose()
	if err != nil || n <= manyLoose {
		return err
	}
	return s.r.Refs.Pack(ctx)
}

// mergeOnce merges the smallest packs if there are enough of about one size.
func (s *Store) mergeOnce(ctx context.Context, width int) (bool, error) {
	packs := s.r.Packs.Mergeable()
	defer func() { packset.ReleaseAll(packs) }()
	src := packset.ToMerge(packs, width)
	if src == nil {
		return false, nil
	}
	if err := s.merge(ctx, src, func() error { return s.sealBetween(ctx, src) }); err != nil {
		return true, err
	}
	if s.r.Held != nil && src[0].Stored() != "" {
		return true, s.sealLocked(ctx)
	}
	return true, nil
}

// merge makes one pack of several. between is called meanwhile (pack.MergeOptions); nil:
// nothing is.
func (s *Store) merge(ctx context.Context, src []*packset.File, between func() error) error {
	name := packset.NewName()
	defer s.r.Packs.RemovePrepared(name)
	// Oldest first, so that a newer version of a file can be a delta of the one
	// before it.
	src = slices.Clone(src)
	slices.SortStableFunc(src, func(a, b *packset.File) int { return cmp.Compare(a.Keep.Through, b.Keep.Through) })
	list := make([]*pack.Pack, len(src))
	for i, f := range src {
		list[i] = f.Pack
	}
	var versions map[ID]ID
	if s.r.Held == nil || !s.r.Held.Hurried() { // requests wait: a later merge makes the deltas
		var err error
		if versions, err = s.versions(ctx, src); err != nil {
			return err
		}
	}
	var last []ID
	size := int64(0)
	for _, p := range list {
		size += p.PackBytes()
	}
	if s.shares() && size > remote.SmallPack { // it is not fetched whole at once
		last = s.newest()
	}
	_, sum, err := s.r.Packs.Write(name, func(w *pack.Writer) (ID, error) {
		_, err := pack.Merge(ctx, w, list, pack.MergeOptions{MetaFirst: s.shares(), Last: last, LastMax: remote.LastBytes, Between: between, Delta: func(id ID) (ID, bool) {
			old, ok := versions[id]
			return old, ok
		}})
		return ID{}, err
	})
	if err != nil {
		return fmt.Errorf("merging %d packs: %w", len(src), err)
	}
	s.r.Packs.Leave(src, true)
	defer s.r.Packs.Leave(src, false)
	base, err := s.r.Packs.Link(name+storedir.Prepared, name+storedir.Idx, sum, packset.Keep{Through: src[len(src)-1].Keep.Through, Laid: true})
	if err != nil {
		return err
	}
	return s.r.Packs.Doom(src, base, s.r.Now())
}

// maxNewest bounds the objects that newest finds.
const maxNewest = 8192

// newest returns what an open and a first read need: the commits and tags of refs, and
// the newest commit's directories and files, those nearer to the root first. It ends
// where a directory cannot be read.
func (s *Store) newest() []ID {
	tip := s.Tip()
	list, dirs, files := []ID{tip.Commit, s.Boundary().Commit}, []ID{tip.Tree}, []ID(nil)
	for _, t := range s.Tasks() {
		list = append(list, t.InfoTag, t.Head, t.Base)
	}
	for i := 0; i < len(dirs) && len(dirs)+len(files) < maxNewest; i++ {
		t, err := s.r.Tree(dirs[i])
		if err != nil {
			break
		}
		for n := range t.Len() {
			if e := t.At(n); e.Mode == object.Dir {
				dirs = append(dirs, e.ID)
			} else {
				files = append(files, e.ID)
			}
		}
	}
	return slices.Concat(list, dirs, files)
}

// largestVersioned is the number of files above which a commit's versions are
// not checked: a checkout of everything gives no good deltas for the work.
const largestVersioned = 200

// versions returns, for the newest consecutive commits that the packs hold,
// which blob each changed file had before, and which tree each folder: a
// journal has the first version of a folder whole. It reads trees on changed
// paths only.
func (s *Store) versions(ctx context.Context, src []*packset.File) (map[ID]ID, error) {
	through := uint64(0)
	for _, f := range src {
		through = max(through, f.Keep.Through)
	}
	before := make(map[ID]ID)
	var newer *Commit
	for seq := min(through, s.Tip().Seq); seq > 0; seq-- {
		rec, err := s.r.Index.At(seq)
		if errs.Is(err, errs.Gone) {
			break
		}
		if err != nil {
			return nil, err
		}
		here, err := anyHas(src, rec.Commit)
		if err != nil {
			return nil, err
		}
		if !here && newer == nil {
			break
		}
		c, err := s.ReadCommit(ctx, rec.Commit)
		if errs.Is(err, errs.Gone) {
			break // dropped meanwhile
		}
		if err != nil {
			return nil, err
		}
		if newer != nil && newer.Message.EntryCount() <= largestVersioned {
			if err := s.versionsOf(ctx, c, newer, before); err != nil {
				return nil, err
			}
		}
		if newer = c; !here {
			break
		}
	}
	return before, nil
}

// versionsOf adds what one commit changed.
func (s *Store) versionsOf(ctx context.Context, old, now *Commit, before map[ID]ID) error {
	file := func(t TreeChange) error {
		if t.Old.Mode != 0 && t.New.Mode != 0 && t.Old.ID != t.New.ID {
			before[t.New.ID] = t.Old.ID
		}
		return nil
	}
	tree := func(old, now ID) { before[now] = old }
	return repo.DiffBoth(ctx, repo.SnapshotOf(s.r, old.Tree), repo.SnapshotOf(s.r, now.Tree), file, tree)
}

func anyHas(packs []*packset.File, id ID) (bool, error) {
	for _, f := range packs {
		if ok, err := f.Pack.Has(id); ok || err != nil {
			return ok, err
		}
	}
	return false, nil
}
