package task

import (
	"context"
	"sync"

	"umbra/internal/errs"
)

// unread has the workspaces whose repositories may have tasks that the index does
// not know, and which could not be opened at the start.
type unread struct {
	mu   sync.Mutex
	list map[string]struct{}
}

func (u *unread) add(workspace string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.list == nil {
		u.list = make(map[string]struct{})
	}
	u.list[workspace] = struct{}{}
}

// known returns the record of a task. One that the index does not have may be in a
// workspace that could not be read at the start: those are tried again, and while
// one cannot be, an unknown task is its error, and not a task that does not exist.
func (s *Service) known(ctx context.Context, id string) (Record, bool, error) {
	rec, ok, err := s.index.get(id)
	if ok || err != nil {
		return rec, ok, err
	}
	left := s.readUnread(ctx)
	if rec, ok, err = s.index.get(id); ok || err != nil || left == nil {
		return rec, ok, err
	}
	return rec, false, left
}

// readUnread tries the workspaces that could not be read, and returns the error of
// one of those that still cannot be.
func (s *Service) readUnread(ctx context.Context) (left error) {
	s.unread.mu.Lock()
	defer s.unread.mu.Unlock()
	for workspace := range s.unread.list {
		err := s.catchUpOne(ctx, workspace)
		if err == nil {
			delete(s.unread.list, workspace)
			continue
		}
		left = errs.Wrap(err, "")
	}
	return left
}
