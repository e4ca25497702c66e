package workspace

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"time"

	"umbra/gitstore"
	"umbra/internal/clones"
	"umbra/internal/errs"
	"umbra/internal/policy"
	"umbra/internal/workspace/index"
)

// Workspace is one workspace that is open: its directory and its repository. All
// exported methods may be called from any goroutine, until Release. What it is made
// of are structs with locks of their own.
type Workspace struct {
	id string
	directory
	lifetime
	scanState
	lingerState
	warningList

	store    *gitstore.Store
	progress *progress
	locks    *lockTable
	index    *index.Index
	sums     index.Sums
	forks    forkLinks
	owners   ownership
	policy   *policy.Rules
	limits   Limits
	meter    *Meter
	log      *slog.Logger
	now      func() time.Time

	gitKnown gitKnown // rules of the project's own repository, for listings
	kept     keptListings
	decoded  decoded
	clones   clones.Log

	// unsettled: a panic left a change set half done. The checkpoint of a stop is
	// not clean then, so that the next start settles displaced files.
	unsettled atomic.Bool
}

// ID is the workspace's id.
func (w *Workspace) ID() string { return w.id }

// NoteClone records that a client took history.
func (w *Workspace) NoteClone(who, from, what string) {
	if err := w.clones.Note(w.files, who, from, what, w.now()); err != nil {
		w.log.Warn("a clone could not be recorded", "error", err)
	}
}

// Clones lists the clients that took history, the latest first.
func (w *Workspace) Clones() ([]clones.Clone, error) { return w.clones.List(w.files) }

// Store is the workspace's history, for reading.
func (w *Workspace) Store() *gitstore.Store { return w.store }

// State tells how the workspace stands to its folder.
func (w *Workspace) State() State {
	_ = w.checkFolder()
	switch {
	case w.missing.Load():
		return Missing
	case w.scanning.Load() > 0 || w.suspect.Load() || w.waits.Load():
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
	if w.root.NoExchange() {
		out = append(out, "the folder's file system cannot exchange two names: a file saved in the instant in which it is replaced may be lost")
	}
	if !w.canWrite.Load() {
		out = append(out, "the folder cannot be written")
	}
	return out
}

// Settled is the highest sequence number up to which every commit is on disk,
// or taken back. Events are told up to it.
func (w *Workspace) Settled() uint64 {
	seq, _ := w.progress.seq()
	return seq
}

// WaitSettled waits until Settled is above a number. It fails when ctx ends or
// the workspace is forgotten or put away.
func (w *Workspace) WaitSettled(ctx context.Context, after uint64) (uint64, error) {
	for {
		seq, moved := w.progress.seq()
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
			entries, err = w.EntriesOf(ctx, c)
		}
		if err == nil || rewrites == w.store.Rewrites() {
			return c, entries, err
		}
	}
}

// run is the workspace's own work beside requests: checkpoints, and displaced
// files that somebody still writes to.
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
			w.gitKnown.forget(w.now())
			w.kept.forget(w.now())
			q.tick(ctx, w)
		case <-save.C:
			if err := w.saveIndex(); err != nil {
				w.log.Warn("what is known of the files could not be kept; a start reads them anew", "error", err)
			}
		case <-w.lingerWake:
			if linger == nil {
				linger = time.After(lingerEvery)
			}
		case <-linger:
			linger = nil
			if w.settleLingers(ctx, false) > 0 {
				linger = time.After(lingerEvery)
			}
		}
	}
}

// keepPatience is what a stop gives the caches.
const keepPatience = time.Second

// lingerEvery is how often a displaced file that is open for writing is looked
// at again.
const lingerEvery = 250 * time.Millisecond

// Close waits for the requests inside, leaves a clean state, and frees all.
// why, if not nil, is the error that waiters and later callers get.
func (w *Workspace) Close(ctx context.Context, why error) error {
	w.opmu.Lock()
	w.closing, w.goneErr = true, why
	close(w.gone)
	for w.ops > 0 {
		w.idle.Wait()
	}
	w.opmu.Unlock()
	if w.stopBackground != nil {
		w.stopBackground()
	}
	w.background.Wait()
	w.decoded.drop()
	left := w.settleLingers(ctx, true)
	err := w.lastCheckpoint(ctx, left == 0 && !w.suspect.Load() && !w.unsettled.Load())
	if w.keep != nil {
		soon, cancel := context.WithTimeout(ctx, keepPatience)
		w.keep(soon, false)
		cancel()
	}
	// One that is not kept costs the next start time.
	if err := w.saveIndex(); err != nil {
		w.log.Warn("what is known of the files could not be kept; a start reads them anew", "error", err)
	}
	return errors.Join(err, w.store.Close(ctx), w.free())
}

// lastCheckpoint is the checkpoint of a stop. It may take half of the time that
// is left: should that not do, since somebody has just made thousands of files,
// an older checkpoint stands, and the next start looks at more.
func (w *Workspace) lastCheckpoint(ctx context.Context, clean bool) error {
	if until, ok := ctx.Deadline(); ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, time.Until(until)/2)
		defer cancel()
	}
	err := w.checkpoint(ctx, clean)
	if err != nil && ctx.Err() != nil {
		w.log.Warn("not all that was changed could be synced in time; the next start looks at it", "error", err)
		return nil
	}
	if errs.Is(err, errs.NoSpace) {
		w.log.Warn("no space for the last checkpoint; the next start compares what was changed since the one before", "error", err)
		return nil
	}
	return err
}

// free closes what the workspace holds beside the store.
func (w *Workspace) free() error {
	var err error
	if w.aside != nil {
		err = w.aside.Close()
	}
	if w.forks.held != nil { // its store is closed
		w.forks.held()
	}
	return errors.Join(err, w.progress.file.Close(), w.files.Close(), w.fs.Close())
}
