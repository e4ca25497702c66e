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
// The errors are those of Sync; then did not run.
func (r *Reconciler) RecordThen(ctx context.Context, then func()) error {
	if !r.Disk.Physical() {
		then()
		return nil
	}
	o := SyncOptions{Attribute: true, since: clock.Boot()}
	t := r.watch.Load()
	told := t != nil && t.told(ctx)
	r.syncMu.Lock()
	defer r.syncMu.Unlock()
	var err error
	if told {
		_, err = r.lookAtDirtyLocked(ctx, t, o)
	} else {
		_, err = r.scanLocked(ctx, o)
	}
	if err == nil {
		then()
	}
	return err
}
