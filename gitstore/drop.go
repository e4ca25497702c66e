package gitstore

import (
	"context"
	"errors"
	"io/fs"
	"time"

	"umbra/gitstore/packset"

	"umbra/gitstore/storedir"
	"umbra/internal/vfs"
)

// dropEvery is the shortest time between two removals.
const dropEvery = time.Minute

// dropDoomed removes the packs whose grace is over. mmu is held.
func (s *Store) dropDoomed(ctx context.Context) error {
	due, forced := s.packs.Due(s.opt.Now(), s.opt.MergeGrace)
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
func (s *Store) removeDoomed(due []*packset.File) error {
	s.upkeep.lastDrop = s.opt.Now()
	s.upkeep.dropped.Store(true)
	return s.packs.DropSuperseded(due)
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
