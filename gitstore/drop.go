package gitstore

import (
	"context"
	"time"

	"umbra/gitstore/packset"
)

// dropEvery is the shortest time between two removals.
const dropEvery = time.Minute

// dropDoomed removes the packs whose grace is over. mmu is held.
func (s *Store) dropDoomed(ctx context.Context) error {
	due, forced := s.r.packs.Due(s.r.now(), s.r.mergeGrace)
	if len(due) == 0 {
		s.r.upkeep.dropped.Store(false)
		return nil
	}
	if !forced {
		since := s.r.now().Sub(s.r.upkeep.lastDrop)
		if since >= 0 && since < min(dropEvery, s.r.mergeGrace) {
			return nil
		}
		busy, err := s.r.repoInUse(ctx)
		if err != nil || busy {
			return err // the next run looks again
		}
	}
	if err := s.removeDoomed(due); err != nil {
		return err
	}
	return s.r.sweepShallow(ctx)
}

// removeDoomed removes superseded packs. mmu is held.
func (s *Store) removeDoomed(due []*packset.File) error {
	s.r.upkeep.lastDrop = s.r.now()
	s.r.upkeep.dropped.Store(true)
	return s.r.packs.DropSuperseded(due)
}
