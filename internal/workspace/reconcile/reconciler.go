package reconcile

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"umbra/gitstore"
	"umbra/internal/telemetry"
	"umbra/internal/workspace/disk"
	"umbra/internal/workspace/op"
	"umbra/internal/workspace/pathlock"
	"umbra/internal/workspace/record"
	"umbra/internal/wspath"
)

// Reconciler records what people change in the directory of one workspace. Its
// methods may be called from any goroutine.
type Reconciler struct {
	ID     string
	Disk   *disk.Disk
	Rec    *record.Recorder
	Locks  *pathlock.Table
	Limits op.Limits
	Log    *slog.Logger
	Took   *telemetry.Histogram // nanoseconds of looking at a whole directory
	// Inside counts work of the reconciler's own in, as a request; leave must be
	// called if there is no error. Gone is closed when the workspace begins to close.
	Inside func() (leave func(), err error)
	Gone   <-chan struct{}
	// Beneath is what shows through the directory; nil: nothing does. Bring makes a
	// path what history has, where it holds have; Beneath needs it.
	Beneath Beneath
	Bring   func(ctx context.Context, path wspath.Path, want gitstore.Entry, have *disk.Seen) error

	suspect  atomic.Bool // disk and history may differ by our doing: scan
	scanning atomic.Int32
	waits    atomic.Bool  // external changes wait for free space
	syncMu   sync.Mutex   // one scan at a time
	skipped  []op.Skip    // what the last scan left out; syncMu
	found    atomic.Int64 // how many comparisons have recorded something
	lastScan atomic.Int64 // when the last scan began, a reading of clock.Boot
	knownAt  atomic.Int64 // what was on disk then was compared, in nanoseconds since 1970
	scanTook atomic.Int64 // how long the last scan took, in nanoseconds
	scanSize atomic.Int64 // the files and directories that it met
	watch    atomic.Pointer[watch]
}

// Suspect has the next look be one at everything: disk and history may differ by
// our doing.
func (r *Reconciler) Suspect() { r.suspect.Store(true) }

// Suspected reports whether disk and history may differ by our doing.
func (r *Reconciler) Suspected() bool { return r.suspect.Load() }

// Waits reports whether changes on disk wait for free space.
func (r *Reconciler) Waits() bool { return r.waits.Load() }

// Busy reports whether history may lack what is on disk.
func (r *Reconciler) Busy() bool {
	return r.scanning.Load() > 0 || r.suspect.Load() || r.waits.Load()
}

// Compared notes that what was on disk is in history: a reading of clock.Boot and
// the wall time when it began, and how many files and directories there were, 0 if
// that is not known.
func (r *Reconciler) Compared(began time.Duration, started time.Time) {
	r.lastScan.Store(int64(began))
	r.knownAt.Store(started.UnixNano())
}

// Met notes what a walk of the whole directory met and left out.
func (r *Reconciler) Met(size int64, skipped []op.Skip) {
	r.scanSize.Store(size)
	r.skipped = skipped
}

// Watch has a watcher report changes, and returns the function that records them
// until its context ends. reopen has the workspace opened again: its
// directory is back.
func (r *Reconciler) Watch(by Watcher, every time.Duration, reopen func()) (run func(ctx context.Context)) {
	t := newWatch(r, by, every)
	t.reopen = reopen
	r.watch.Store(t)
	return t.run
}
