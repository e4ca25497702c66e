package workspace

import (
	"context"
	"sync"

	"umbra/gitstore/object"
	"umbra/internal/errs"
)

// forkLinks ties a workspace to what it is a fork of, and to its own forks.
type forkLinks struct {
	held func()       // gives the parent back, if not nil
	has  func() error // has_forks, if a fork continues the history
	// keep fails with has_forks if a fork that has a history of its own by now has one of
	// these contents.
	keep  func(ctx context.Context, blobs []object.ID, dry bool) error
	layer Layer // nil: there is none

	// making is held by those who make a fork, and against them at the moment in which
	// commits get other ids or are dropped.
	making sync.RWMutex
}

// Layer is the layer of a fork (package forklayer), in which a purge finds contents: each is
// named with its size, or -1 where that is not known. had reports whether a path had a
// content in history.
type Layer interface {
	// Holding lists the files that no history has and that are not in the workspace's
	// directory.
	Holding(contents map[object.ID]int64, had func(p string, id object.ID) (bool, error)) ([]string, error)
	// Forget removes the contents from files that were made of history; with ignored also
	// from the server's copies of files that Holding lists.
	Forget(contents map[object.ID]int64, ignored bool, had func(p string, id object.ID) (bool, error)) error
}

// ShareHistory keeps history's ids and beginning as they are while a fork is made: until
// done is called.
func (w *Workspace) ShareHistory() (done func()) {
	w.forks.making.RLock()
	return w.forks.making.RUnlock
}

// unshared keeps forks from being made until done is called. It fails with has_forks if
// there is one, or one is being made.
func (w *Workspace) unshared() (done func(), err error) {
	if !w.forks.making.TryLock() {
		return nil, ErrHasForks("A fork of this workspace is being made.", []string{})
	}
	if err := w.wholly(); err != nil {
		w.forks.making.Unlock()
		return nil, err
	}
	return w.forks.making.Unlock, nil
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
