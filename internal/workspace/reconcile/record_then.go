package reconcile

import (
	"context"

	"umbra/internal/clock"
)

// RecordThen records everything that is on disk, as agents' calls need it
// when they begin and end, and runs then before anything else is looked for. It
// compares what the watcher reported, and everything only where the watcher
// cannot be relied on.
//
// A rename that another process makes during a comparison may be found by half: the
// file is missing at one path, and the other path is not among those that are compared.
// So what finds a change compares again what was reported meanwhile, maxAgain times at
// most.
//
// The errors are those of Sync; then did not run.
func (r *Reconciler) RecordThen(ctx context.Context, then func()) error {
	if !r.Disk.Physical() {
		then()
		return nil
	}
	t, found := r.watch.Load(), r.found.Load()
	caughtUp := t != nil && t.caughtUp(ctx)
	r.syncMu.Lock()
	defer r.syncMu.Unlock()
	if caughtUp && r.found.Load() != found { // one that ran meanwhile may have the half
		caughtUp = t.caughtUp(ctx)
	}
	for again := 0; ; again++ {
		o := SyncOptions{Attribute: true, since: clock.Boot()}
		var res SyncResult
		var err error
		if caughtUp {
			res, err = r.lookAtDirtyLocked(ctx, t, o)
		} else {
			res, err = r.scanLocked(ctx, o)
		}
		if err != nil {
			return err
		}
		if res.Changed == 0 || again == maxAgain {
			break
		}
		if caughtUp {
			caughtUp = t.caughtUp(ctx)
		}
		if !caughtUp && r.scanSize.Load() > cheapScan {
			break
		}
	}
	then()
	return nil
}

// maxAgain bounds how often RecordThen compares again: where another process renames
// files all the time, each comparison finds something.
const maxAgain = 4
