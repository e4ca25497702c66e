package reconcile

import (
	"context"
	"slices"
	"strings"
	"time"

	"umbra/internal/clock"
	"umbra/internal/errs"
	"umbra/internal/workspace/op"
	"umbra/internal/wspath"
)

// Sync records what differs from history in the folder as one external change;
// then stock git sees everything. It compares what the watcher reported, and the whole
// directory where that takes moments or there is no watcher. Writers go on next to it: only the paths that differ are locked,
// and compared again under the lock.
//
// errs.Conflict workspace_missing; errs.Unavailable ref_locked.
func (r *Reconciler) Sync(ctx context.Context, o SyncOptions) (SyncResult, error) {
	began := clock.Boot()
	res, err := r.look(ctx, o)
	if err == nil && r.scanSize.Load() <= cheapScan {
		o.since, o.unreported = began, r.watch.Load()
		more := res
		if more, err = r.Scan(ctx, o); more.Changed == 0 {
			more.Commit = res.Commit
		}
		more.Changed += res.Changed
		res = more
	}
	if err != nil {
		return res, err
	}
	return res, r.Disk.Store.Publish(ctx)
}

// cheapScan is how many files and folders a workspace may have for Sync to look at
// all of them, although the watcher has reported all that raised an event: a write
// through mmap raises none.
const cheapScan = 10_000

// Reconcile is Sync without what stock git sees, for who needs history to hold
// what the disk held at a time, a reading of clock.Boot: a scan that began since
// then will do. (Wall time may have been set back since the last scan.)
func (r *Reconciler) Reconcile(ctx context.Context, o SyncOptions, since time.Duration) (SyncResult, error) {
	o.since = since
	res, err := r.look(ctx, o)
	if errs.Is(err, errs.NoSpace) && r.waits.Load() {
		return SyncResult{Skipped: res.Skipped}, nil // what people changed waits; the caller goes on
	}
	return res, err
}

// look records what people have changed up to now: what the watcher reported, if it
// answers for having reported all; else what a scan finds.
func (r *Reconciler) look(ctx context.Context, o SyncOptions) (SyncResult, error) {
	if t := r.watch.Load(); t != nil && t.caughtUp(ctx) {
		return r.lookAtDirty(ctx, t, o)
	}
	return r.Scan(ctx, o)
}

// lookAtDirty compares the paths that wait to be compared, or everything
// where they are not all.
func (r *Reconciler) lookAtDirty(ctx context.Context, t *watch, o SyncOptions) (SyncResult, error) {
	r.syncMu.Lock()
	defer r.syncMu.Unlock()
	return r.lookAtDirtyLocked(ctx, t, o)
}

// lookAtDirtyLocked is lookAtDirty for the holder of syncMu.
func (r *Reconciler) lookAtDirtyLocked(ctx context.Context, t *watch, o SyncOptions) (SyncResult, error) {
	paths, all := t.take()
	if all || r.suspect.Load() {
		res, err := r.scanLocked(ctx, o)
		t.scanned(err)
		return res, err
	}
	if len(paths) == 0 {
		return SyncResult{Skipped: r.skipped}, r.Disk.Check()
	}
	res, err := r.lookAt(ctx, paths, o)
	if err != nil {
		t.mark(paths)
	}
	return res, err
}

// LookAt compares a few paths, and all that is under them, with history.
func (r *Reconciler) LookAt(ctx context.Context, paths []wspath.Path, o SyncOptions) (SyncResult, error) {
	r.syncMu.Lock()
	defer r.syncMu.Unlock()
	return r.lookAt(ctx, paths, o)
}

// lookAt compares a few paths, and all that is under them, with history. syncMu
// is held.
func (r *Reconciler) lookAt(ctx context.Context, paths []wspath.Path, o SyncOptions) (SyncResult, error) {
	if !o.gentle {
		r.scanning.Add(1)
		defer r.scanning.Add(-1)
	}
	if err := r.Disk.Check(); err != nil {
		return SyncResult{}, err
	}
	started := r.Disk.Now()
	s := r.newScanner(o.gentle)
	if err := s.findPaths(ctx, paths); err != nil {
		return SyncResult{}, err
	}
	if len(s.list) == 0 && len(s.skipped.List) == 0 && len(r.skipped) == 0 {
		r.noteRoom(nil)
		return SyncResult{}, nil
	}
	res, err := s.record(ctx, o)
	r.noteRoom(err)
	if err != nil {
		return res, err
	}
	if err := r.Disk.Check(); err != nil {
		return res, err
	}
	r.skipped = mergeSkips(r.skipped, s.skipped.List, paths)
	// What is reported later than this was not there yet.
	r.knownUpTo(started.Add(-reportedWithin))
	return r.answer(res), nil
}

// mergeSkips replaces what is known of the paths that were compared.
func mergeSkips(old, found []op.Skip, looked []wspath.Path) []op.Skip {
	at := make(map[wspath.Path]bool, len(looked))
	for _, p := range looked {
		at[p] = true
	}
	out := make([]op.Skip, 0, len(old)+len(found))
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

func sortedSkips(list []op.Skip) []op.Skip {
	slices.SortFunc(list, func(a, b op.Skip) int { return strings.Compare(a.Path, b.Path) })
	return slices.Compact(list)
}

// answer completes a result with what is left out and the tip. syncMu is held.
func (r *Reconciler) answer(res SyncResult) SyncResult {
	res.Skipped = r.skipped
	if res.Changed > 0 {
		r.found.Add(1)
		res.Commit = r.Disk.Store.Tip().Commit
	}
	return res
}

// Scan is Sync without what stock git sees.
func (r *Reconciler) Scan(ctx context.Context, o SyncOptions) (SyncResult, error) {
	if !r.Disk.Physical() {
		return SyncResult{}, nil // no one else changes anything there
	}
	r.syncMu.Lock()
	defer r.syncMu.Unlock()
	return r.scanLocked(ctx, o)
}

// scanLocked is scan for the holder of syncMu.
func (r *Reconciler) scanLocked(ctx context.Context, o SyncOptions) (SyncResult, error) {
	if last := r.ScannedAt(); o.since != 0 && last >= o.since {
		return SyncResult{Skipped: r.skipped}, r.Disk.Check()
	}
	if !o.gentle {
		r.scanning.Add(1)
		defer r.scanning.Add(-1)
	}
	if err := r.Disk.Check(); err != nil {
		return SyncResult{}, err
	}
	// A file that is written while this scan runs must not look older than it.
	started, began := r.Disk.Now().Add(-clock.FileLag()), clock.Boot()
	suspect, mark := r.suspect.Swap(false), r.Rec.Owners.Scanning()
	s := r.newScanner(o.gentle)
	err := s.find(ctx)
	if o.unreported != nil {
		s.unreported = o.unreported.unreported(ctx)
	}
	var res SyncResult
	if err == nil {
		res, err = s.record(ctx, o)
	}
	r.noteRoom(err)
	if err != nil {
		if suspect || r.waits.Load() {
			r.suspect.Store(true)
		}
		return res, err
	}
	// A folder that was replaced while it was scanned is not what is recorded.
	if err := r.Disk.Check(); err != nil {
		return res, err
	}
	r.Rec.Owners.Scanned(mark)
	r.lastScan.Store(int64(began))
	r.knownAt.Store(started.UnixNano())
	r.scanTook.Store(int64(clock.Boot() - began))
	r.scanSize.Store(s.stats.Files + s.stats.Links + s.stats.Dirs)
	r.Took.Observe(r.scanTook.Load())
	r.skipped = sortedSkips(s.skipped.List)
	return r.answer(res), nil
}

// ScannedAt is when the last scan began, as a reading of clock.Boot; 0: there was
// none.
func (r *Reconciler) ScannedAt() time.Duration { return time.Duration(r.lastScan.Load()) }

// knownUpTo notes that what was on disk at a wall time has been compared. The
// time is compared with ctimes; it goes back only where the clock was set back.
func (r *Reconciler) knownUpTo(at time.Time) {
	if known := r.knownAt.Load(); known < at.UnixNano() || known > r.Disk.Now().UnixNano() {
		r.knownAt.Store(at.UnixNano())
	}
}

// Coverage reports what is recorded and what is not, by looking.
func (r *Reconciler) Coverage(ctx context.Context) (Coverage, error) {
	if err := r.Disk.Check(); err != nil {
		return Coverage{}, err
	}
	s := r.newScanner(false)
	s.readNew = true
	if err := s.find(ctx); err != nil {
		return Coverage{}, err
	}
	return Coverage{Skipped: sortedSkips(s.skipped.List), Tracked: s.tracked.Load(), Ignored: s.stats.Ignored}, nil
}
