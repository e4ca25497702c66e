package workspace

import (
	"umbra/internal/errs"
)

// roomFor refuses a request that brings new bytes while there is no room for
// them, before anything of it is written. Deletes, moves and what history gives
// back go on: they need little, and free room, or undo. The committer judges once
// more, by what really is new.
func (w *Workspace) roomFor(req *Request) error {
	if req.DryRun {
		return nil
	}
	written, brings := int64(0), false
	for i := range req.Ops {
		switch op := &req.Ops[i]; op.Kind {
		case OpWrite:
			if op.Blob == nil {
				brings = true
				written += int64(len(op.Data)) + max(op.Size, 0)
			}
		case OpEdit, OpCopy, OpSymlink:
			brings = true
		}
	}
	if !brings {
		return nil
	}
	return w.store.RoomToWrite(max(written, 1))
}

// roomForFound tells whether what a scan has found can be recorded: it waits, all
// of it, while there is no room for what is new. What is gone and what was renamed
// belong together.
func (s *scanner) roomForFound() error {
	for i := range s.list {
		if k := s.list[i].seen.Kind; k == KindFile || k == KindSymlink {
			return s.w.store.Room(1)
		}
	}
	return nil
}

// noteRoom keeps whether changes on disk wait for room, after an attempt to
// record them.
func (w *Workspace) noteRoom(err error) {
	waits := errs.Is(err, errs.NoSpace)
	if w.waits.Swap(waits) != waits && waits {
		w.log.Warn("changes on disk wait until there is room", "error", err)
	}
}
