package task

import (
	"context"
	"slices"

	"umbra/internal/errs"
	"umbra/internal/workspace"
)

// Entered takes over the tasks of a workspace that this server owns from now on, and
// that no request uses yet. Where the owner before it did not leave it, they are
// compared with the repository first. It does nothing where the records are this
// server's alone.
func (s *Service) Entered(_ context.Context, w *workspace.Workspace) error {
	return s.enterWith(w.ID(), func() (*workspace.Workspace, func(), error) { return w, func() {}, nil })
}

// enterOwn enters the workspaces that no other server can own, so that what is found in
// their directories belongs to their tasks. One that cannot be read is logged, and
// entered with its first change.
func (s *Service) enterOwn(ctx context.Context) {
	for _, r := range s.o.Workspaces.Physical() {
		err := s.enterWith(r.ID, func() (*workspace.Workspace, func(), error) {
			w, err := s.o.Workspaces.Inspect(ctx, r.ID)
			if err != nil {
				return nil, nil, err
			}
			return w, w.Release, nil
		})
		if err != nil {
			s.o.Log.Warn("the tasks of a workspace could not be read", "workspace", r.ID, "error", err)
		}
	}
}

// enterWith takes over the tasks of a workspace. open is called where its repository
// has to be asked.
func (s *Service) enterWith(id string, open func() (w *workspace.Workspace, release func(), err error)) error {
	if !s.index.shared {
		return nil
	}
	epoch := s.o.Epoch(id)
	if epoch == 0 {
		return errMoving()
	}
	live, mark, err := s.index.liveOf(id)
	if err != nil {
		return errs.Wrap(err, "")
	}
	pending := slices.ContainsFunc(live, func(r Record) bool { return r.Pending })
	if mark == 0 && pending {
		if err := s.index.putMark(id, epoch); err != nil {
			return errs.Wrap(err, "")
		}
		mark = epoch
	}
	if mark != 0 {
		w, release, err := open()
		if err != nil {
			return errs.Wrap(err, "")
		}
		news, gone, err := s.compared(w, live)
		release()
		if err != nil {
			return errs.Wrap(err, "")
		}
		if err := s.index.takeOver(id, mark, news, gone); err != nil {
			return errs.Wrap(err, "")
		}
		if live, _, err = s.index.liveOf(id); err != nil {
			return errs.Wrap(err, "")
		}
	}
	s.index.enter(id, epoch, live)
	return nil
}

// begin is index.begin. A workspace that no other server can own enters with its first
// change, if it is new.
func (s *Service) begin(ctx context.Context, w *workspace.Workspace) (end func(), epoch int64, err error) {
	if s.index.shared && s.index.epoch(w.ID()) == 0 {
		if err := s.Entered(ctx, w); err != nil {
			return nil, 0, err
		}
	}
	epoch = s.index.epoch(w.ID())
	end, err = s.index.begin(w.ID())
	return end, epoch, err
}

// compared returns the records of which the repository says something else, and the
// ids that were reserved for tasks which were never made.
func (s *Service) compared(w *workspace.Workspace, live []Record) (news []Record, gone []string, err error) {
	all := w.Store().Tasks()
	ids := make([]string, len(all))
	for i, t := range all {
		ids[i] = t.ID
	}
	known, err := s.index.some(ids)
	if err != nil {
		return nil, nil, err
	}
	for _, t := range all {
		now, was := RecordOf(t, w.ID()), known[t.ID]
		now.isDropped = was.isDropped // while the repository has the task it means nothing
		if !was.same(now) {
			news = append(news, now)
		}
	}
	for _, r := range live {
		if r.Pending && !slices.Contains(ids, r.ID) {
			gone = append(gone, r.ID)
		}
	}
	return news, gone, nil
}

// Leaving writes what the records do not have yet of a workspace that this server
// gives up, and forgets its tasks. Streams of it end.
func (s *Service) Leaving(_ context.Context, workspaceID string) { s.left(workspaceID, true) }

// Lost is Leaving for a workspace that may have another owner already: nothing is
// written.
func (s *Service) Lost(workspaceID string) { s.left(workspaceID, false) }

func (s *Service) left(workspaceID string, flush bool) {
	if !s.index.shared {
		return
	}
	s.hub.end(workspaceID)
	if s.shared != nil {
		s.shared.Forget(workspaceID)
	}
	if err := s.index.leave(workspaceID, flush); err != nil {
		s.o.Log.Warn("the records of a workspace's tasks could not be written; its next owner reads them", "workspace", workspaceID, "error", err)
	}
}
