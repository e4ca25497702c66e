package task

import "context"

// rejoin brings the index up to the histories of workspaces that were restored
// from a backup: the records in it are a moment older than the histories. A
// workspace that cannot be opened is logged and left out.
func (s *Service) rejoin(ctx context.Context) {
	for _, rec := range s.o.Workspaces.Restored() {
		if err := s.rejoinOne(ctx, rec.ID); err != nil {
			s.o.Log.Warn("the tasks of a restored workspace could not be read", "workspace", rec.ID, "error", err)
		}
	}
}

func (s *Service) rejoinOne(ctx context.Context, workspaceID string) error {
	w, err := s.o.Workspaces.Inspect(ctx, workspaceID)
	if err != nil {
		return err
	}
	defer w.Release()
	for _, t := range w.Store().Tasks() {
		now := RecordOf(t, workspaceID)
		known, ok, err := s.index.get(t.ID)
		switch {
		case err != nil:
			return err
		case !ok:
			known = now
		case known.Deleted || known.Status == now.Status:
			continue
		default:
			known.Status = now.Status
		}
		if err := s.index.put(known); err != nil {
			return err
		}
	}
	return nil
}
