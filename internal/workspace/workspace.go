package workspace

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"umbra/gitstore"
	"umbra/internal/clones"
	"umbra/internal/errs"
	"umbra/internal/policy"
	"umbra/internal/rootfs"
	"umbra/internal/vfs"
	"umbra/internal/workspace/host"
	"umbra/internal/wspath"
)

// Workspace is one workspace that is open: its folder and its repository. All
// exported methods may be called from any goroutine, until Release.
type Workspace struct {
	id     string
	dir    string // host path of the folder
	gitDir string // host path of the repository
	fs     vfs.FS // the folder
	root   *rootfs.Root
	files  vfs.FS // the workspace's folder in the data directory
	aside  vfs.FS // its part for what exchanges bring out; nil: there is none
	store  *gitstore.Store
	forks  forkLinks
	policy *policy.Rules
	locks  *lockTable
	index  *index
	sums   sumCache
	limits Limits
	meter  *Meter
	log    *slog.Logger
	now    func() time.Time

	// virtual is set where there is no folder; fs and root then show the newest
	// tree.
	virtual *virtual

	progress *progress
	owners   ownership
	host     host.Host
	dev, ino uint64        // of the directory that was opened
	standIn  bool          // it was missing then, and fs is an empty one in memory
	back     func() bool   // whether it is at its place again, as far as can be known
	own      []wspath.Path // the server's own directories inside of it
	gitKnown gitKnown      // rules of the project's own repository, for listings
	kept     keptListings
	decoded  decoded
	clones   clones.Log

	missing atomic.Bool // the folder is gone, or another stands there
	suspect atomic.Bool // disk and tip may differ by our doing: scan
	// unsettled: a panic left a change set half done. The checkpoint of a stop is
	// not clean then, so that the next start settles displaced files.
	unsettled atomic.Bool
	scanning  atomic.Int32
	waits     atomic.Bool  // external changes wait for room
	skipped   []Skip       // what the last scan left out; syncMu
	syncMu    sync.Mutex   // one scan at a time
	found     SyncResult   // by the scan when it was opened
	lastScan  atomic.Int64 // when the last scan began, a reading of clock.Boot
	knownAt   atomic.Int64 // what was on disk then has been compared, in nanoseconds since 1970
	scanTook  atomic.Int64 // how long the last scan took, in nanoseconds
	scanSize  atomic.Int64 // the files and folders that it met
	watch     atomic.Pointer[watch]
	wmu       sync.Mutex
	warnings  []string
	canWrite  atomic.Bool

	settling   sync.Mutex // who settles lingers, before lmu
	dropMu     sync.Mutex // who removes what waits for it, before lmu
	lmu        sync.Mutex
	lingers    []lingering
	toDrop     []lingering // aside
	dropping   bool        // somebody will look at toDrop again
	lingerWake chan struct{}

	opmu    sync.Mutex
	ops     int // requests inside
	closing bool
	idle    *sync.Cond // ops fell to 0; opmu
	gone    chan struct{}
	goneErr error

	background     sync.WaitGroup
	stopBackground context.CancelFunc
	keep           func(ctx context.Context, quiet bool) // brings caches up to date; nil: nothing does
	release        func()
	adopt          func(ctx context.Context, allow func(root string) error) (SyncResult, error)
}

// ID is the workspace's id.
func (w *Workspace) ID() string { return w.id }

// Root is the canonical host path of the folder.
func (w *Workspace) Root() string { return w.dir }

// GitDir is the host path of the repository.
func (w *Workspace) GitDir() string { return w.gitDir }

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

// Release ends the caller's use of the workspace; it may be put away then.
func (w *Workspace) Release() {
	if w.release != nil {
		w.release()
	}
}

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

// maxWarnings bounds what is remembered.
const maxWarnings = 100

func (w *Workspace) warn(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	w.log.Warn(text)
	w.wmu.Lock()
	defer w.wmu.Unlock()
	if len(w.warnings) < maxWarnings {
		w.warnings = append(w.warnings, text)
	}
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

// enter counts a request in; it fails when the workspace is being put away.
func (w *Workspace) enter() error {
	w.opmu.Lock()
	defer w.opmu.Unlock()
	if w.closing {
		if w.goneErr != nil {
			return w.goneErr
		}
		return errs.New(errs.Unavailable, "stopping", "The workspace is being unloaded.")
	}
	w.ops++
	return nil
}

func (w *Workspace) leave() {
	w.opmu.Lock()
	defer w.opmu.Unlock()
	if w.ops--; w.ops == 0 {
		w.idle.Broadcast()
	}
}

// errMissing is answered while the folder is gone.
func ErrMissing() error {
	return errs.New(errs.Conflict, "workspace_missing", "The workspace's folder is gone, or another stands in its place.")
}

// checkFolder sees to it that the folder that was opened still stands at its
// path.
func (w *Workspace) checkFolder() error {
	if w.virtual != nil {
		return nil
	}
	info, err := w.host.Stat(w.dir)
	if err == nil && info.Dev == w.dev && info.Ino == w.ino && !w.standIn {
		w.missing.Store(false)
		return nil
	}
	if err != nil && !isAbsent(err) && !errors.Is(err, fs.ErrPermission) {
		return errs.Wrap(err, "")
	}
	w.missing.Store(true)
	return ErrMissing()
}

// FolderIsBack reports whether the directory was missing when the workspace was
// opened and exists now: the workspace has to be opened again.
func (w *Workspace) FolderIsBack() bool {
	return w.standIn && w.back()
}

// ReadOnly reports whether the directory cannot be written, by trying.
func (w *Workspace) ReadOnly() bool {
	f, err := w.fs.CreateUnlinked(".", 0o600)
	if err == nil {
		f.Close()
	} else if errors.Is(err, errors.ErrUnsupported) {
		name := wspath.TempName(0xffffffff << 32)
		if f, err = w.fs.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600); err == nil {
			f.Close()
			err = w.fs.Remove(name)
		}
	}
	no := errors.Is(err, fs.ErrPermission) || errors.Is(err, syscall.EROFS)
	w.canWrite.Store(!no)
	return no
}

// IsOwn reports whether a path is, or lies in, a folder of the server's own.
func (w *Workspace) IsOwn(p wspath.Path) bool {
	for _, dir := range w.own {
		if p.Within(dir) {
			return true
		}
	}
	return false
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
