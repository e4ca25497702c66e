package workspace

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
