package workspace

import (
	"context"

	"umbra/internal/clock"
)

// RecordThen records everything that stands on disk, as agents' calls need it
// when they begin and end, and runs then before anything else is looked for. It
// looks at what the watcher told of, and at everything only where the watcher
// cannot be relied on.
//
// The errors are those of Sync; then did not run.
func (w *Workspace) RecordThen(ctx context.Context, then func()) error {
	if err := w.enter(); err != nil {
		return err
	}
	defer w.leave()
	if !w.disk.Physical() {
		then()
		return nil
	}
	o := SyncOptions{Attribute: true, since: clock.Boot()}
	t := w.watch.Load()
	told := t != nil && t.told(ctx)
	w.syncMu.Lock()
	defer w.syncMu.Unlock()
	var err error
	if told {
		_, err = w.lookAtDirtyLocked(ctx, t, o)
	} else {
		_, err = w.scanLocked(ctx, o)
	}
	if err == nil {
		then()
	}
	return err
}
