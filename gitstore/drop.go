package gitstore

import (
	"context"
	"errors"
	"io/fs"
	"time"

	"umbra/gitstore/storedir"
	"umbra/internal/vfs"
)

// A git process lists the packs when it starts and opens each when it comes to
// it. One that is gone by then it finds elsewhere, but git-fsck(1) reports it:
// so superseded packs go while no other process is at work in the repository,
// and seldom, many at once. Where processes are always at work, readers cannot
// be waited for without end: hundreds of packs slow every git command down.
const (
	// manyDoomed is the number of superseded packs above which they need not
	// have their whole grace, but shortGrace; above tooManyDoomed no reader is
	// waited for.
	manyDoomed    = 64
	tooManyDoomed = 512
	shortGrace    = time.Minute
	// longGraces is how many graces a pack waits for others to end their work.
	longGraces = 6
	// dropEvery is the shortest time between two removals.
	dropEvery = time.Minute
)

// dropDoomed removes the packs whose grace is over. mmu is held.
func (s *Store) dropDoomed(ctx context.Context) error {
	due, forced := s.duePacks()
	if len(due) == 0 {
		s.upkeep.dropped.Store(false)
		return nil
	}
	if !forced {
		since := s.opt.Now().Sub(s.upkeep.lastDrop)
		if since >= 0 && since < min(dropEvery, s.opt.MergeGrace) {
			return nil
		}
		busy, err := s.repoInUse(ctx)
		if err != nil || busy {
			return err // the next run looks again
		}
	}
	if err := s.removeDoomed(due); err != nil {
		return err
	}
	return s.sweepShallow(ctx)
}

// removeDoomed removes superseded packs. mmu is held.
func (s *Store) removeDoomed(due []*packFile) error {
	names := make(map[string]bool)
	for _, f := range due {
		names[f.base] = true
	}
	// Another process may have made one during the grace.
	if err := s.dropMultiIndex(func(base string) bool { return names[base] }); err != nil {
		return err
	}
	s.upkeep.lastDrop = s.opt.Now()
	s.upkeep.dropped.Store(true)
	s.packs.forget(names)
	for _, f := range due {
		f.release()
		if err := storedir.Remove(s.fs, storedir.Packs+"/"+f.base+storedir.Idx); err != nil {
			return err
		}
	}
	for _, f := range due {
		if err := s.removePack(f.base); err != nil {
			return err
		}
	}
	return nil
}

// duePacks gives the packs that may go, and whether they must.
func (s *Store) duePacks() (due []*packFile, forced bool) {
	s.packs.mu.RLock()
	defer s.packs.mu.RUnlock()
	now, grace := s.opt.Now(), s.opt.MergeGrace
	doomed := 0
	for _, f := range s.packs.list {
		if !f.doomed.IsZero() {
			doomed++
		}
	}
	forced = doomed > tooManyDoomed
	for _, f := range s.packs.list {
		if f.doomed.IsZero() {
			continue
		}
		age := now.Sub(f.doomed)
		forced = forced || age >= longGraces*grace
		if age >= grace || doomed > manyDoomed && age >= min(shortGrace, grace) {
			due = append(due, f)
		}
	}
	return due, forced
}

// repoInUse reports whether another process is known to be at work in the repository.
func (s *Store) repoInUse(ctx context.Context) (bool, error) {
	var dirs, files []vfs.Info
	for _, name := range []string{storedir.Repo, storedir.Repo + "/objects", storedir.Packs} {
		info, err := s.fs.Lstat(name)
		if err != nil {
			return false, err
		}
		dirs = append(dirs, info)
	}
	names, err := s.fs.ReadDir(storedir.Packs)
	if err != nil {
		return false, err
	}
	for _, e := range names {
		info, err := s.fs.Lstat(storedir.Packs + "/" + e.Name)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return false, err
		}
		files = append(files, info)
	}
	if s.opt.Readers != nil {
		dirs = append(dirs, s.opt.Readers()...)
	}
	return s.opt.InUse(ctx, dirs, files)
}
