package workspace

import "umbra/internal/errs"

// forkLinks ties a workspace to what it is a fork of, and to its own forks.
type forkLinks struct {
	held func()       // gives the parent back, if not nil
	has  func() error // has_forks, if a fork continues the history
}

// wholly fails where the history is shared with a fork, and so keeps its ids.
func (w *Workspace) wholly() error {
	if w.forks.has == nil {
		return nil
	}
	if w.store.ForkedAt() > 0 {
		return ErrHasForks("The workspace is a fork and shares its history with its parent.", []string{w.id})
	}
	return w.forks.has()
}

// ErrHasForks is returned for what would change or drop a history that forks
// continue, or a fork's own that continues another's.
func ErrHasForks(detail string, ids []string) error {
	return errs.New(errs.Conflict, "has_forks", "%s", detail).With("forks", ids)
}
