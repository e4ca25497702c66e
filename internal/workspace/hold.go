package workspace

import (
	"context"

	"umbra/internal/errs"
	"umbra/internal/wspath"
)

// NotHeld reports paths that a call under a hold needs and that the hold does
// not cover. The caller must release it, and hold these too.
type NotHeld struct{ Paths []wspath.Path }

func (e *NotHeld) Error() string { return "workspace: paths outside of the hold" }

type heldKey struct{}

// Hold locks paths, each with everything under it, until release is called: all
// other writers of these paths wait. It is for a request that reads, decides and
// then writes, and lost to faster writers: a hold queues like any request, so it
// is granted. release may be called more than once.
//
// Calls on the workspace with the context that it returns work under the hold,
// and return *NotHeld, possibly wrapped, for paths outside of it: with a second
// lock they could wait for a request that waits for the first. They must not scan
// the workspace (Sync, Reconcile), since a scan in progress may wait for the hold.
func (w *Workspace) Hold(ctx context.Context, paths []wspath.Path) (held context.Context, release func(), err error) {
	lock, err := w.locks.acquire(ctx, paths)
	if err != nil {
		return nil, nil, errs.Wrap(err, "")
	}
	once := false
	return context.WithValue(ctx, heldKey{}, lock), func() {
		if !once {
			once = true
			lock.release()
		}
	}, nil
}

// within returns a lock on paths under the hold that a context carries, nil if
// it carries none of this table's. Releasing it does nothing.
func (t *lockTable) within(ctx context.Context, paths []wspath.Path) (*pathLock, error) {
	h, _ := ctx.Value(heldKey{}).(*pathLock)
	if h == nil || h.table != t {
		return nil, nil
	}
	var missing []wspath.Path
	for _, p := range paths {
		if !h.covers(p) {
			missing = append(missing, p)
		}
	}
	if len(missing) > 0 {
		return nil, &NotHeld{Paths: missing}
	}
	return &pathLock{table: t, paths: h.paths, lent: true}, nil
}
