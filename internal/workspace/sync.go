package workspace

import (
	"context"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"umbra/internal/clock"
	"umbra/internal/errs"
	"umbra/internal/wspath"
)

// scanState is what a workspace knows of its directory by comparing it with
// history.
type scanState struct {
	suspect  atomic.Bool // disk and history may differ by our doing: scan
	scanning atomic.Int32
	waits    atomic.Bool  // external changes wait for free space
	syncMu   sync.Mutex   // one scan at a time
	skipped  []Skip       // what the last scan left out; syncMu
	found    SyncResult   // by the scan when it was opened
	lastScan atomic.Int64 // when the last scan began, a reading of clock.Boot
	knownAt  atomic.Int64 // what was on disk then was compared, in nanoseconds since 1970
	scanTook atomic.Int64 // how long the last scan took, in nanoseconds
	scanSize atomic.Int64 // the files and directories that it met
	watch    atomic.Pointer[watch]
}

// Sync records what differs from history in the folder as one external change;
// then stock git sees everything. It looks at what the watcher told, and at the
// whole folder where that takes moments or nobody tells. Writers go on beside it: only the paths that differ are locked,
// and looked at again under the lock.
//
// errs.Conflict workspace_missing; errs.Unavailable ref_locked.
func (w *Workspace) Sync(ctx context.Context, o SyncOptions) (SyncResult, error) {
	if o.Adopt && w.adopt != nil && w.disk.Check() != nil {
		return w.adopt(ctx, o.Allow)
	}
	if err := w.enter(); err != nil {
		return SyncResult{}, err
	}
	defer w.leave()
	began := clock.Boot()
	res, err := w.look(ctx, o)
	if err == nil && w.scanSize.Load() <= cheapScan {
		o.since = began
		more := res
		if more, err = w.scan(ctx, o); more.Changed == 0 {
			more.Commit = res.Commit
		}
		more.Changed += res.Changed
		res = more
	}
	if err != nil {
		return res, err
	}
	return res, w.store.Publish(ctx)
}

// cheapScan is how many files and folders a workspace may have for Sync to look at
// all of them, although the watcher has told of all that raised an event: a write
// through mmap raises none.
const cheapScan = 10_000

// Reconcile is Sync without what stock git sees, for who needs history to hold
// what the disk held at a time, a reading of clock.Boot: a scan that began since
// then will do. (Wall time may have been set back since the last scan.)
func (w *Workspace) Reconcile(ctx context.Context, o SyncOptions, since time.Duration) (SyncResult, error) {
	if err := w.enter(); err != nil {
		return SyncResult{}, err
	}
	defer w.leave()
	o.since = since
	res, err := w.look(ctx, o)
	if errs.Is(err, errs.NoSpace) && w.waits.Load() {
		return SyncResult{Skipped: res.Skipped}, nil // what people changed waits; the caller goes on
	}
	return res, err
}

// look records what people have changed up to now: what the watcher told, if it
// answers for having told all; else what a scan finds.
func (w *Workspace) look(ctx context.Context, o SyncOptions) (SyncResult, error) {
	if t := w.watch.Load(); t != nil && t.told(ctx) {
		return w.lookAtDirty(ctx, t, o)
	}
	return w.scan(ctx, o)
}

// lookAtDirty looks at the paths that wait to be looked at, or at everything
// where they are not all.
func (w *Workspace) lookAtDirty(ctx context.Context, t *watch, o SyncOptions) (SyncResult, error) {
	w.syncMu.Lock()
	defer w.syncMu.Unlock()
	return w.lookAtDirtyLocked(ctx, t, o)
}

// lookAtDirtyLocked is lookAtDirty for who holds syncMu.
func (w *Workspace) lookAtDirtyLocked(ctx context.Context, t *watch, o SyncOptions) (SyncResult, error) {
	paths, all := t.take()
	if all || w.suspect.Load() {
		res, err := w.scanLocked(ctx, o)
		t.scanned(err)
		return res, err
	}
	if len(paths) == 0 {
		return SyncResult{Skipped: w.skipped}, w.disk.Check()
	}
	res, err := w.lookAt(ctx, paths, o)
	if err != nil {
		t.mark(paths)
	}
	return res, err
}

// lookAt compares a few paths, and all that is under them, with history. syncMu
// is held.
func (w *Workspace) lookAt(ctx context.Context, paths []wspath.Path, o SyncOptions) (SyncResult, error) {
	if !o.gentle {
		w.scanning.Add(1)
		defer w.scanning.Add(-1)
	}
	if err := w.disk.Check(); err != nil {
		return SyncResult{}, err
	}
	started := w.now()
	s := w.newScanner(o.gentle)
	if err := s.findPaths(ctx, paths); err != nil {
		return SyncResult{}, err
	}
	if len(s.list) == 0 && len(s.skipped.List) == 0 && len(w.skipped) == 0 {
		w.noteRoom(nil)
		return SyncResult{}, nil
	}
	res, err := s.record(ctx, o)
	w.noteRoom(err)
	if err != nil {
		return res, err
	}
	if err := w.disk.Check(); err != nil {
		return res, err
	}
	w.skipped = mergeSkips(w.skipped, s.skipped.List, paths)
	// What is told later than this was not there yet.
	w.knownUpTo(started.Add(-toldWithin))
	return w.answer(res), nil
}

// mergeSkips replaces what is known of the paths that were looked at.
func mergeSkips(old, found []Skip, looked []wspath.Path) []Skip {
	at := make(map[wspath.Path]bool, len(looked))
	for _, p := range looked {
		at[p] = true
	}
	out := make([]Skip, 0, len(old)+len(found))
next:
	for _, k := range old {
		if p := wspath.Path(k.Path); len(at) > 0 {
			if at[p] || at[wspath.Root] {
				continue
			}
			for dir := range p.Ancestors() {
				if at[dir] {
					continue next
				}
			}
		}
		out = append(out, k)
	}
	return sortedSkips(append(out, found...))
}

func sortedSkips(list []Skip) []Skip {
	slices.SortFunc(list, func(a, b Skip) int { return strings.Compare(a.Path, b.Path) })
	return slices.Compact(list)
}

// answer fills in what a result tells beside what was found. syncMu is held.
func (w *Workspace) answer(res SyncResult) SyncResult {
	res.Skipped = w.skipped
	if res.Changed > 0 {
		res.Commit = w.store.Tip().Commit
	}
	return res
}

// scan is Sync without what stock git sees.
func (w *Workspace) scan(ctx context.Context, o SyncOptions) (SyncResult, error) {
	if !w.disk.Physical() {
		return SyncResult{}, nil // nobody else changes anything there
	}
	w.syncMu.Lock()
	defer w.syncMu.Unlock()
	return w.scanLocked(ctx, o)
}

// scanLocked is scan for who holds syncMu.
func (w *Workspace) scanLocked(ctx context.Context, o SyncOptions) (SyncResult, error) {
	if last := w.scannedAt(); o.since != 0 && last >= o.since {
		return SyncResult{Skipped: w.skipped}, w.disk.Check()
	}
	if !o.gentle {
		w.scanning.Add(1)
		defer w.scanning.Add(-1)
	}
	if err := w.disk.Check(); err != nil {
		return SyncResult{}, err
	}
	// A file that is written while this scan runs must not look older than it.
	started, began := w.now().Add(-clock.FileLag()), clock.Boot()
	suspect, mark := w.suspect.Swap(false), w.rec.Owners.Scanning()
	s := w.newScanner(o.gentle)
	err := s.find(ctx)
	if o.periodic != nil {
		s.untold = o.periodic.untold(ctx)
	}
	var res SyncResult
	if err == nil {
		res, err = s.record(ctx, o)
	}
	w.noteRoom(err)
	if err != nil {
		if suspect || w.waits.Load() {
			w.suspect.Store(true)
		}
		return res, err
	}
	// A folder that was replaced while it was scanned is not what is recorded.
	if err := w.disk.Check(); err != nil {
		return res, err
	}
	w.rec.Owners.Scanned(mark)
	w.lastScan.Store(int64(began))
	w.knownAt.Store(started.UnixNano())
	w.scanTook.Store(int64(clock.Boot() - began))
	w.scanSize.Store(s.stats.Files + s.stats.Links + s.stats.Dirs)
	w.meter.Scan.Observe(w.scanTook.Load())
	w.skipped = sortedSkips(s.skipped.List)
	return w.answer(res), nil
}

// scannedAt is when the last scan began, as a reading of clock.Boot; 0: there was
// none.
func (w *Workspace) scannedAt() time.Duration { return time.Duration(w.lastScan.Load()) }

// knownUpTo notes that what was on disk at a wall time has been compared. The
// time is compared with ctimes; it goes back only where the clock was set back.
func (w *Workspace) knownUpTo(at time.Time) {
	if known := w.knownAt.Load(); known < at.UnixNano() || known > w.now().UnixNano() {
		w.knownAt.Store(at.UnixNano())
	}
}

// Coverage tells what is recorded and what is not, by looking.
func (w *Workspace) Coverage(ctx context.Context) (Coverage, error) {
	if err := w.enter(); err != nil {
		return Coverage{}, err
	}
	defer w.leave()
	if err := w.disk.Check(); err != nil {
		return Coverage{}, err
	}
	s := w.newScanner(false)
	s.readNew = true
	if err := s.find(ctx); err != nil {
		return Coverage{}, err
	}
	return Coverage{Skipped: sortedSkips(s.skipped.List), Tracked: s.tracked.Load(), Ignored: s.stats.Ignored}, nil
}
