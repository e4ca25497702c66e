package workspace

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"sync/atomic"
	"time"

	"umbra/gitstore"
	"umbra/gitstore/object"
	"umbra/internal/clones"
	"umbra/internal/errs"
	"umbra/internal/policy"
	"umbra/internal/workspace/browse"
	"umbra/internal/workspace/disk"
	"umbra/internal/workspace/materialize"
	"umbra/internal/workspace/pathlock"
	"umbra/internal/workspace/progress"
	"umbra/internal/workspace/reconcile"
	"umbra/internal/workspace/record"
	"umbra/internal/workspace/retire"
	"umbra/internal/wspath"
)

// Workspace is one workspace that is open: its directory and its repository. All
// exported methods may be called from any goroutine, until Release. What it is made
// of are structs with locks of their own.
type Workspace struct {
	id     string
	gitDir string // host path of the repository
	disk   *disk.Disk
	lifetime
	warningList
	mark io.Closer // of the directory; nil: it has none

	store    *gitstore.Store
	progress *progress.Progress
	locks    *pathlock.Table
	forks    forkLinks
	rec      *record.Recorder
	keeper   *retire.Keeper
	target   *materialize.Target
	limits   Limits
	meter    *Meter
	log      *slog.Logger
	now      func() time.Time

	reader *browse.Reader
	recon  *reconcile.Reconciler
	found  reconcile.SyncResult // by the scan when it was opened
	clones clones.Log

	// unsettled: a panic left a change set half done. The checkpoint of a stop is
	// not clean then, so that the next start settles displaced files.
	unsettled atomic.Bool

	unsynced unsynced
}

// ID is the workspace's id.
func (w *Workspace) ID() string { return w.id }

// Root returns the canonical host path of the directory; empty: the workspace is
// virtual.
func (w *Workspace) Root() string { return w.disk.Dir }

// GitDir returns the host path of the repository.
func (w *Workspace) GitDir() string { return w.gitDir }

// Virtual reports whether the workspace has no directory.
func (w *Workspace) Virtual() bool { return !w.disk.Physical() }

// IsOwn reports whether a path is, or is in, one of the server's own directories.
func (w *Workspace) IsOwn(p wspath.Path) bool { return w.disk.IsOwn(p) }

// ReadOnly reports whether the directory cannot be written, by trying.
func (w *Workspace) ReadOnly() bool { return w.disk.ReadOnly() }

// FolderIsBack reports whether the directory was missing when the workspace was
// opened and exists now: the workspace has to be opened again.
func (w *Workspace) FolderIsBack() bool { return w.disk.Back() }

// IgnoreOptions reads the sources of the rules, for package ignore.
func (w *Workspace) IgnoreOptions() (disk.IgnoreSources, error) { return w.disk.IgnoreOptions() }

// Standing returns what kind of thing is on disk at a path, whether history has it
// or not. A link is KindSymlink; nothing, also where a part of the path is a file
// or a link, is KindNone.
func (w *Workspace) Standing(p wspath.Path) (Kind, error) {
	s, err := w.disk.LstatDirect(p)
	return s.Kind, err
}

// Under returns all that is on disk under a directory, as it is: what is ignored or
// special and git's own directories too. Entries that are removed meanwhile are left out.
func (w *Workspace) Under(ctx context.Context, dir wspath.Path) (folders, others []wspath.Path, err error) {
	return w.disk.Under(ctx, dir)
}

// NoteClone records that a client took history.
func (w *Workspace) NoteClone(who, from, what string) {
	if err := w.clones.Note(w.disk.Files, who, from, what, w.now()); err != nil {
		w.log.Warn("a clone could not be recorded", "error", err)
	}
}

// Clones lists the clients that took history, the latest first.
func (w *Workspace) Clones() ([]clones.Clone, error) { return w.clones.List(w.disk.Files) }

// Store is the workspace's history, for reading.
func (w *Workspace) Store() *gitstore.Store { return w.store }

// State returns the state of the workspace's directory.
func (w *Workspace) State() State {
	_ = w.disk.Check()
	switch {
	case w.disk.Missing():
		return Missing
	case w.recon.Busy():
		return Reconciling
	}
	return Clean
}

// Warnings lists what the owner should know.
func (w *Workspace) Warnings() []string {
	w.wmu.Lock()
	out := append([]string(nil), w.warnings...)
	w.wmu.Unlock()
	out = append(out, w.store.Warnings()...)
	if w.disk.Root.NoExchange() {
		out = append(out, "the directory's file system cannot exchange two names: a file saved in the instant in which it is replaced may be lost")
	}
	if !w.disk.CanWrite() {
		out = append(out, "the directory cannot be written")
	}
	return out
}

// Settled is the highest sequence number up to which every commit is on disk,
// or taken back. Events are sent up to it.
func (w *Workspace) Settled() uint64 {
	seq, _ := w.progress.Seq()
	return seq
}

// WaitSettled waits until Settled is above a number. It fails when ctx ends or
// the workspace is forgotten or unloaded.
func (w *Workspace) WaitSettled(ctx context.Context, after uint64) (uint64, error) {
	for {
		seq, moved := w.progress.Seq()
		if seq > after {
			return seq, nil
		}
		select {
		case <-moved:
		case <-w.gone:
			w.opmu.Lock()
			defer w.opmu.Unlock()
			if w.goneErr != nil {
				return 0, w.goneErr
			}
			return 0, errs.New(errs.Unavailable, "stopping", "The workspace is being unloaded.")
		case <-ctx.Done():
			return 0, errs.Wrap(context.Cause(ctx), "")
		}
	}
}

// Event is one settled commit.
type Event struct {
	Commit  *gitstore.Commit
	Entries []ChangeEntry
}

// Events calls fn for each settled commit after a sequence number, in order,
// without a gap and without a repeat, and waits for more until ctx ends, fn
// fails, or the workspace is gone.
func (w *Workspace) Events(ctx context.Context, after uint64, fn func(Event) error) error {
	for {
		upTo, err := w.WaitSettled(ctx, after)
		if err != nil {
			return err
		}
		for seq := after + 1; seq <= upTo; seq++ {
			c, entries, err := w.settledAt(ctx, seq)
			if err != nil {
				return err
			}
			if err := fn(Event{Commit: c, Entries: entries}); err != nil {
				return err
			}
			after = seq
		}
	}
}

// settledAt reads a commit by its number. One that a purge gives another id
// meanwhile is read again.
func (w *Workspace) settledAt(ctx context.Context, seq uint64) (c *gitstore.Commit, entries []ChangeEntry, err error) {
	for {
		rewrites := w.store.Rewrites()
		var id gitstore.ID
		if id, err = w.store.CommitAt(ctx, seq); err == nil {
			c, err = w.store.ReadCommit(ctx, id)
		}
		if err == nil {
			entries, err = w.rec.EntriesOf(ctx, c)
		}
		if err == nil || rewrites == w.store.Rewrites() {
			return c, entries, err
		}
	}
}

// run is the workspace's background work: checkpoints, and displaced
// files that another process still writes to.
func (w *Workspace) run(ctx context.Context, every time.Duration) {
	tick := time.NewTicker(every)
	defer tick.Stop()
	save := time.NewTicker(statEvery)
	defer save.Stop()
	var linger <-chan time.Time
	var q quiet
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			if err := w.checkpoint(ctx, false); err != nil && ctx.Err() == nil {
				w.log.Warn("checkpoint failed; tried again", "error", err)
			}
			w.disk.EvictIdle(w.now())
			w.reader.EvictIdle(w.now())
			q.tick(ctx, w)
		case <-save.C:
			if err := w.disk.SaveIndex(); err != nil {
				w.log.Warn("the index of files could not be saved; the next start reads them again", "error", err)
			}
		case <-w.keeper.Waits():
			if linger == nil {
				linger = time.After(lingerEvery)
			}
		case <-linger:
			linger = nil
			if w.keeper.Settle(ctx, false) > 0 {
				linger = time.After(lingerEvery)
			}
		}
	}
}

// statEvery is how often the index is written.
const statEvery = 5 * time.Minute

// keepPatience is what a stop gives the caches.
const keepPatience = time.Second

// lingerEvery is how often a displaced file that is open for writing is looked
// at again.
const lingerEvery = 250 * time.Millisecond

// Close waits for the requests inside, leaves a clean state, and frees all.
// why, if not nil, is the error that waiters and later callers get.
func (w *Workspace) Close(ctx context.Context, why error) error {
	w.opmu.Lock()
	w.closing = true
	w.endLocked(why)
	for w.ops > 0 {
		w.idle.Wait()
	}
	w.opmu.Unlock()
	if w.stopBackground != nil {
		w.stopBackground()
	}
	w.background.Wait()
	w.rec.Close()
	left := w.keeper.Settle(ctx, true)
	err := w.lastCheckpoint(ctx, left == 0 && !w.recon.Suspected() && !w.unsettled.Load())
	if log := w.store.Held(); w.keep != nil && (log == nil || !log.Hurried()) {
		soon, cancel := context.WithTimeout(ctx, keepPatience)
		w.keep(soon, false)
		cancel()
	}
	// One that is not kept costs the next start time.
	if err := w.disk.SaveIndex(); err != nil {
		w.log.Warn("the index of files could not be saved; the next start reads them again", "error", err)
	}
	return errors.Join(err, w.store.Close(ctx), w.free())
}

// lastCheckpoint is the checkpoint of a stop. It may take half of the time that
// is left: should that not do, since another process has just made thousands of files,
// an older checkpoint is, and the next start checks more.
func (w *Workspace) lastCheckpoint(ctx context.Context, clean bool) error {
	if until, ok := ctx.Deadline(); ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, time.Until(until)/2)
		defer cancel()
	}
	err := w.checkpoint(ctx, clean)
	if err != nil && ctx.Err() != nil {
		w.log.Warn("not all changes could be synced in time; the next start checks them", "error", err)
		return nil
	}
	if errs.Is(err, errs.NoSpace) {
		w.log.Warn("no space for the last checkpoint; the next start compares what was changed since the one before", "error", err)
		return nil
	}
	return err
}

// free closes what the workspace holds besides the store.
func (w *Workspace) free() error {
	if w.forks.held != nil { // its store is closed
		w.forks.held()
	}
	var err error
	if w.mark != nil {
		err = w.mark.Close()
	}
	return errors.Join(err, w.progress.Close(), w.disk.Close())
}

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
	return w.locks.Hold(ctx, paths)
}

// Policy returns the owner's rules for the workspace; nil for none.
func (w *Workspace) Policy() *policy.Rules { return w.rec.Policy }

// Judged reports whether the policy may refuse a change of a task, "" for none.
func (w *Workspace) Judged(task string) bool {
	var own policy.Task
	if t, known := w.store.Task(task); known {
		own = policy.TaskOf(t.Info.Extra)
	}
	return !w.rec.Policy.None(own)
}

// EntriesOf returns the changelog entries of a commit: from its trailers, and where
// those are condensed from the trees. The baseline has none.
func (w *Workspace) EntriesOf(ctx context.Context, c *gitstore.Commit) ([]ChangeEntry, error) {
	return w.rec.EntriesOf(ctx, c)
}

// EntriesAt returns the changelog entries of a commit by its ID. The list is
// shared: it must not be changed.
func (w *Workspace) EntriesAt(ctx context.Context, commit object.ID) ([]ChangeEntry, error) {
	return w.rec.EntriesAt(ctx, commit)
}
