package gitstore

import (
	"context"
	"time"
)

// dropEvery is the shortest time between two removals.
const dropEvery = time.Minute

// dropDoomed removes the packs whose grace is over. mmu is held.
func (s *Store) dropDoomed(ctx context.Context) error {
	due, forced := s.r.Packs.Due(s.r.Now(), s.r.MergeGrace)
	if len(due) == 0 {
		s.r.Upkeep.Dropped.Store(false)
		return nil
	}
	if !forced {
		since := s.r.Now().Sub(s.r.Upkeep.LastDrop)
		if since >= 0 && since < min(dropEvery, s.r.MergeGrace) {
			return nil
		}
		busy, err := s.r.Busy(ctx)
		if err != nil || busy {
			return err // the next run looks again
		}
	}
	if err := s.r.DropSuperseded(due); err != nil {
		return err
	}
	return s.r.SweepShallow(ctx)
}
