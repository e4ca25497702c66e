package reconcile

import (
	"umbra/internal/errs"
	"umbra/internal/workspace/op"
)

// roomForFound reports whether what a scan has found can be recorded: it waits, all
// of it, while there is no space for what is new. Deleted and renamed files belong
// together.
func (s *scanner) roomForFound() error {
	for i := range s.list {
		if k := s.list[i].seen.Kind; k == op.KindFile || k == op.KindSymlink {
			return s.r.Disk.Store.Room(1)
		}
	}
	return nil
}

// noteRoom keeps whether changes on disk wait for room, after an attempt to
// record them.
func (r *Reconciler) noteRoom(err error) {
	waits := errs.Is(err, errs.NoSpace)
	if r.waits.Swap(waits) != waits && waits {
		r.Log.Warn("changes on disk wait until there is room", "error", err)
	}
}
