package workspace

import (
	"context"
	"errors"
	"log/slog"
	"path/filepath"
	"time"

	"umbra/gitstore"
	"umbra/gitstore/message"
	"umbra/gitstore/object"
	"umbra/internal/clock"
	"umbra/internal/errs"
	"umbra/internal/policy"
	"umbra/internal/rootfs"
	"umbra/internal/workspace/baseline"
	"umbra/internal/workspace/browse"
	"umbra/internal/workspace/disk"
	"umbra/internal/workspace/host"
	"umbra/internal/workspace/materialize"
	"umbra/internal/workspace/pathlock"
	"umbra/internal/workspace/progress"
	"umbra/internal/workspace/reconcile"
	"umbra/internal/workspace/record"
	"umbra/internal/workspace/recovery"
	"umbra/internal/workspace/retire"
	"umbra/internal/wspath"
)

// Config is what a workspace is opened with. All fields without a comment that
// says otherwise are required.
type Config struct {
	ID   string
	Root string // canonical host path of the directory; empty: the workspace is virtual
	Dir  string // host path of its part of the data directory
	Host host.Host
	// Dev and Ino are those of the directory that the workspace was bound to.
	Dev, Ino uint64
	// Absent is set where that directory is not at Root. The workspace has an empty
	// one in memory then, which nothing reads: every request checks first.
	Absent bool
	// Back reports whether it is at Root again.
	Back func() bool
	// Own are the server's own directories inside of it.
	Own []wspath.Path
	// Staging is where new content is prepared; nil: in its target's directory.
	Staging *rootfs.Staging

	Store gitstore.Options // its FS is closed also where Open fails
	// Base releases the workspace that this one is a fork of; nil: it is none. It
	// is called when the workspace is closed, not where Open fails.
	Base func()
	// Beneath is what shows through the directory, which is an overlay; nil: nothing
	// does.
	Beneath reconcile.Beneath
	// Unforked fails with has_forks if a fork continues the history.
	Unforked func() error
	// Kept fails with has_forks if a fork that has a history of its own by now has one of
	// these contents.
	Kept func(ctx context.Context, blobs []object.ID, dry bool) error
	// Layer has what the workspace shows of files next to history; nil: there is nothing.
	Layer Layer

	Owners record.Owners
	// OnlyTask returns the only executing task, or "".
	OnlyTask func() string
	Policy   *policy.Rules // may be nil
	Limits   Limits
	Meter    *Meter
	Log      *slog.Logger
	Now      func() time.Time
}

// Open opens the store and the directory of a workspace. Nothing is recovered or
// recorded yet: Resume does that for a physical one that has a baseline, and
// Baseline takes it. The caller calls Close or Abandon.
func Open(ctx context.Context, c Config) (*Workspace, error) {
	d, err := disk.Open(disk.Options{Root: c.Root, Dir: c.Dir, Host: c.Host, Dev: c.Dev, Ino: c.Ino, Absent: c.Absent, Back: c.Back,
		Own: c.Own, Staging: c.Staging, Log: c.Log, Now: c.Now})
	if err != nil {
		return nil, errors.Join(err, c.Store.FS.Close())
	}
	w := &Workspace{id: c.ID, gitDir: filepath.Join(c.Dir, "repo.git"), disk: d, locks: pathlock.New(), limits: c.Limits, meter: c.Meter, log: c.Log, now: c.Now}
	w.begun()
	if w.progress, err = progress.Open(d.Files, d.Epoch); err != nil {
		return nil, errors.Join(err, d.Close(), c.Store.FS.Close())
	}
	if w.store, err = gitstore.Open(ctx, c.Store); err != nil {
		return nil, errors.Join(err, w.free())
	}
	d.Use(w.store)
	w.reader = browse.NewReader(d)
	w.rec = &record.Recorder{Disk: d, Progress: w.progress, Policy: c.Policy, Owners: c.Owners, OnlyTask: c.OnlyTask, Diverged: func() { w.recon.Suspect() }}
	w.recon = &reconcile.Reconciler{ID: c.ID, Disk: d, Rec: w.rec, Locks: w.locks, Limits: c.Limits, Log: c.Log, Took: c.Meter.Scan, Inside: w.inside, Gone: w.gone}
	w.keeper = retire.New(w.rec, w.locks, c.Log, w.warn)
	w.target = materialize.New(w.keeper)
	w.recon.Beneath, w.recon.Bring = c.Beneath, w.target.Bring
	w.forks.held, w.forks.has, w.forks.keep, w.forks.layer = c.Base, c.Unforked, c.Kept, c.Layer
	if !d.Physical() {
		w.progress.Begin(w.store.Tip().Seq)
	} else if marks, ok := c.Host.(host.Marks); ok && d.Check() == nil {
		w.alone(marks)
	}
	return w, nil
}

// alone marks the directory as this server's, and warns where it is another's as well.
func (w *Workspace) alone(marks host.Marks) {
	mark, others, err := marks.Mark(w.Root())
	if err != nil { // a file system without locks
		w.log.Debug("the directory is not marked as open", "error", err)
		return
	}
	w.mark = mark
	if others {
		w.warn("another server has this directory open too: each gives changes that agents of the other make to its own calls; use one server for a directory")
	}
}

// Resume settles what a stop left and records what changed in the directory while
// the workspace was closed, of no task. Between the two it calls readable: from
// then on the history can be read. Changes that there is no room for wait.
//
// It does nothing to a virtual workspace, and to one whose directory is missing
// no more than let its history be read.
func (w *Workspace) Resume(ctx context.Context, readable func()) error {
	if !w.disk.Physical() {
		return nil
	}
	if w.disk.Check() != nil {
		w.progress.Begin(w.store.Tip().Seq)
		return nil
	}
	if err := w.disk.LoadIndex(); err != nil {
		w.log.Warn("what was known of the files is not read; they are read again", "error", err)
	}
	err := recovery.Run(ctx, w.target)
	if err == nil {
		// One that there is no space for is made later: until then a start does the
		// same again.
		if err = w.checkpoint(ctx, false); errs.Is(err, errs.NoSpace) {
			w.log.Warn("no checkpoint", "error", err)
			err = nil
		}
	}
	if err == nil {
		readable()
		if w.found, err = w.recon.Scan(ctx, reconcile.SyncOptions{}); w.recon.Waits() {
			err = nil // user edits are recorded when there is room
		}
	}
	if errs.CodeOf(err) == "workspace_missing" {
		return nil
	}
	return err
}

// Found returns what Resume recorded.
func (w *Workspace) Found() reconcile.SyncResult { return w.found }

// Quiet makes a workspace that nothing is done to but read: nothing is recovered
// or recorded.
func (w *Workspace) Quiet() {
	if w.disk.Physical() {
		w.progress.Begin(w.store.Tip().Seq)
		w.recon.Suspect()
	}
}

// Baseline records the whole directory as the first commit and makes a checkpoint.
// progress, if not nil, is called with the number of files so far. One that was
// interrupted continues.
//
// errs.Invalid workspace_not_readable.
func (w *Workspace) Baseline(ctx context.Context, progress func(files int64)) error {
	if !w.disk.Physical() {
		c, err := w.store.Baseline(ctx, message.Message{Source: message.Baseline}, func(gitstore.AddFile) error { return nil })
		if err == nil {
			w.progress.Begin(c.Seq)
		}
		return err
	}
	if err := w.disk.Readable(); err != nil {
		return err
	}
	started, began := w.now().Add(-clock.FileLag()), clock.Boot()
	if tip := w.store.Tip(); tip.Seq > 0 {
		// Taken whole, but the record was not written any more.
		w.progress.Begin(tip.Seq)
		w.recon.Suspect()
	} else {
		taken, err := baseline.Run(ctx, w.disk, w.limits, w.log, progress)
		if err != nil {
			return err
		}
		w.recon.Met(taken.Size, taken.Skipped)
		if taken.Changed {
			w.recon.Suspect()
		}
		if n := len(taken.Skipped); n > 0 {
			w.warn("%d paths are not recorded (the first: %q, %s); the workspace's coverage lists them", n, taken.Skipped[0].Path, taken.Skipped[0].Reason)
		}
		w.progress.Begin(taken.Seq)
	}
	w.recon.Compared(began, started)
	// What changed while it was read, and large files that did.
	if w.recon.Suspected() {
		if _, err := w.recon.Scan(ctx, reconcile.SyncOptions{}); err != nil {
			return err
		}
	}
	return w.checkpoint(ctx, false)
}

// Background is a workspace's own work next to requests.
type Background struct {
	// CheckpointEvery is how often what was materialized is synced.
	CheckpointEvery time.Duration
	// Keep brings caches up to date; nil: there are none.
	Keep func(ctx context.Context, quiet bool)

	// Extra, if set, runs until its context ends.
	Extra func(ctx context.Context)

	Watcher   reconcile.Watcher // nil: changes on disk are found by scans only
	ScanEvery time.Duration     // the shortest period of scans
	// Reopen is called when the directory, which was missing at Open, is back.
	Reopen func()
	// Watched is called once when watching begins.
	Watched func()
}

// Start starts the workspace's own work; Close ends it.
func (w *Workspace) Start(b Background) {
	bg, cancel := context.WithCancel(context.Background())
	w.stopBackground, w.keep = cancel, b.Keep
	w.keeper.Go = w.background.Go
	w.background.Go(func() { w.run(bg, b.CheckpointEvery) })
	if b.Extra != nil {
		w.background.Go(func() { b.Extra(bg) })
	}
	if b.Watcher == nil || !w.disk.Physical() {
		return
	}
	run := w.recon.Watch(b.Watcher, b.ScanEvery, b.Reopen)
	w.background.Go(func() {
		b.Watched()
		run(bg)
	})
}

// Abandon closes a workspace that nothing was done to.
func (w *Workspace) Abandon(ctx context.Context) error {
	return errors.Join(w.store.Close(ctx), w.free())
}
