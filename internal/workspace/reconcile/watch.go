package reconcile

import (
	"context"
	"maps"
	"sync"
	"time"

	"umbra/internal/clock"
	"umbra/internal/ignore"
	"umbra/internal/workspace/record"
	"umbra/internal/wspath"
)

// Watcher reports paths that may have changed on disk. Package watcher is one;
// cmd puts it in place, since this package may not know of fsnotify. What it
// reports decides nothing: everything is compared with history.
type Watcher interface {
	// Add begins to watch a folder. It returns when all that changes from then
	// on is reported. Adding again restarts it.
	Add(ctx context.Context, id, root string, to WatchSpace) error
	// Remove ends it; none of the functions is called afterwards.
	Remove(id string)
	// Sync waits until all that changed before was reported. An error means that
	// only a scan finds it.
	Sync(ctx context.Context, id string) error
	// State reports whether changes are reported, and whether that can be relied on.
	State(id string) (watching, trusted bool)
	// Cover has a path's folder watched which rules ignore: it is tracked now.
	Cover(id string, path wspath.Path)
}

// WatchSpace is what a watcher asks a workspace, and reports to it. A report is
// handed over at once.
type WatchSpace struct {
	Rules        func() (*ignore.Dir, *ignore.Index, error)
	TrackedUnder func(dir wspath.Path) bool
	Prune        func(path wspath.Path) bool

	Dirty        func(paths []wspath.Path) // each with all that is under it
	RulesChanged func()
	Lost         func() // changes may have been missed
	Gone         func() // nothing more is reported until Add
}

// Times of the reconciler.
const (
	scanEvery      = 60 * time.Second // the shortest period of scans
	scanShare      = 200              // a scan takes at most this part of the time
	goneEvery      = time.Second      // how often a folder that is gone is looked for
	maxPause       = time.Second      // between two looks, while much changes
	reportedWithin = 2 * time.Second  // what changed before was reported and compared
	maxDirty       = 1 << 16          // paths; beyond, a scan is as good
	pauseFactor    = 3                // a look takes at most a quarter of the time
)

// watch is the reconciler of one workspace: it gathers what the watcher reports
// and records it, with pauses, so that a storm of changes costs requests
// little.
type watch struct {
	r     *Reconciler
	by    Watcher
	every time.Duration // the shortest period of scans
	// reopen has the workspace opened again: its folder is back.
	reopen func()

	mu    sync.Mutex
	dirty map[wspath.Path]struct{}
	all   bool // only a scan will do
	lost  bool // and not only because rules changed
	gone  bool
	due   bool // a periodic scan is

	wake chan struct{}
}

func newWatch(r *Reconciler, by Watcher, every time.Duration) *watch {
	if every <= 0 {
		every = scanEvery
	}
	return &watch{r: r, by: by, every: every, dirty: make(map[wspath.Path]struct{}), all: true, lost: true, wake: make(chan struct{}, 1)}
}

// update changes the set of waiting paths, and wakes the reconciler.
func (t *watch) update(change func()) {
	t.mu.Lock()
	change()
	t.mu.Unlock()
	select {
	case t.wake <- struct{}{}:
	default:
	}
}

func (t *watch) mark(paths []wspath.Path) {
	t.update(func() {
		if t.all {
			return
		}
		for _, p := range paths {
			t.dirty[p] = struct{}{}
		}
		if len(t.dirty) > maxDirty {
			t.everything(false)
		}
	})
}

// everything asks for a scan. mu is held.
func (t *watch) everything(lost bool) {
	clear(t.dirty)
	t.all, t.lost = true, t.lost || lost
}

// take gives what waits, and leaves nothing.
func (t *watch) take() (paths []wspath.Path, all bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for p := range t.dirty {
		paths = append(paths, p)
	}
	all = t.all
	if all && !t.lost {
		// Whatever was there a moment ago was reported when it came: what a scan
		// finds besides is there by a rule.
		t.r.knownUpTo(t.r.Disk.Now().Add(-reportedWithin))
	}
	clear(t.dirty)
	t.all, t.lost = false, false
	return paths, all
}

// scanned notes how a scan ended that take asked for.
func (t *watch) scanned(err error) {
	if err != nil {
		t.update(func() { t.everything(true) })
	}
}

// waits reports what there is to do.
func (t *watch) waits() (work, gone bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.all || t.due || len(t.dirty) > 0, t.gone
}

// caughtUp ensures that everything that changed before the call waits to be compared;
// false where only a scan finds it.
func (t *watch) caughtUp(ctx context.Context) bool {
	if _, trusted := t.by.State(t.r.ID); !trusted {
		return false
	}
	return t.by.Sync(ctx, t.r.ID) == nil
}

// add begins to watch; a scan is due then.
func (t *watch) add(ctx context.Context) error {
	r := t.r
	err := t.by.Add(ctx, r.ID, r.Disk.Dir, WatchSpace{
		Rules: r.Disk.Rules,
		TrackedUnder: func(dir wspath.Path) bool {
			tree, err := r.Disk.Store.Snapshot().Folder(dir)
			return err != nil || tree.Len() > 0
		},
		Prune:        r.Disk.IsOwn,
		Dirty:        t.mark,
		RulesChanged: func() { t.update(func() { t.everything(false) }) },
		Lost:         func() { t.update(func() { t.everything(true) }) },
		Gone:         func() { t.update(func() { t.gone = true }) },
	})
	t.update(func() {
		t.gone = false
		t.everything(true)
	})
	return err
}

// Cover has the watcher watch what came into history through us.
func (r *Reconciler) Cover(entries []record.Entry) {
	t := r.watch.Load()
	if t == nil {
		return
	}
	covered := make(map[wspath.Path]bool)
	for i := range entries {
		e := &entries[i]
		dir := e.After.Path.Dir()
		if e.After.Mode == 0 || e.Before.Mode != 0 && e.Before.Path == e.After.Path || covered[dir] {
			continue
		}
		covered[dir] = true
		t.by.Cover(r.ID, e.After.Path)
	}
}

// run is the reconciler. It ends with ctx, or when the workspace begins to
// close.
func (t *watch) run(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	// A long scan does not hold a stop up.
	stopped := make(chan struct{})
	defer func() { cancel(); <-stopped }()
	go func() {
		defer close(stopped)
		select {
		case <-t.r.Gone:
			cancel()
		case <-ctx.Done():
		}
	}()
	defer t.by.Remove(t.r.ID)
	t.again(ctx)
	next := time.NewTimer(0)
	defer next.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.wake:
		case <-next.C:
		}
		wait := t.step(ctx)
		next.Reset(wait)
		if ctx.Err() != nil {
			return
		}
	}
}

// again adds the folder, and says so where it cannot be watched.
func (t *watch) again(ctx context.Context) {
	if t.r.Disk.Check() != nil {
		t.update(func() { t.gone = true })
		return
	}
	if err := t.add(ctx); err != nil && ctx.Err() == nil {
		t.r.Log.Warn("the workspace is not watched; it is scanned every minute", "error", err)
	}
}

// step does what there is to do, and gives when to look again if nothing is
// reported before.
func (t *watch) step(ctx context.Context) time.Duration {
	work, gone := t.waits()
	if gone || t.r.Disk.Missing() {
		if t.r.Disk.Back() {
			t.reopen() // and ends this
			return goneEvery
		}
		if t.r.Disk.Check() != nil {
			return goneEvery
		}
		t.again(ctx)
		work = true
	}
	watching, trusted := t.by.State(t.r.ID)
	if since := t.sinceScan(); !work && since >= t.period(trusted) {
		if !watching {
			t.again(ctx)
		}
		t.update(func() { t.due = true })
		work = true
	}
	if !work {
		return max(t.period(trusted)-t.sinceScan(), time.Millisecond)
	}
	began := time.Now()
	err := t.reconcile(ctx)
	if err != nil && ctx.Err() == nil && !t.r.Disk.Missing() && !t.r.waits.Load() {
		t.r.Log.Warn("changes on disk are not recorded yet; tried again", "error", err)
	}
	t.pause(ctx, min(pauseFactor*time.Since(began), maxPause), err != nil)
	if work, _ := t.waits(); work {
		return time.Millisecond
	}
	return max(t.period(trusted)-t.sinceScan(), time.Millisecond)
}

// pause leaves the machine to others for a while.
func (t *watch) pause(ctx context.Context, d time.Duration, failed bool) {
	if failed {
		d = maxPause
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}

func (t *watch) sinceScan() time.Duration {
	return clock.Boot() - t.r.ScannedAt()
}

// period is how long after a scan the next one is due.
func (t *watch) period(trusted bool) time.Duration {
	if !trusted {
		return t.every
	}
	return max(t.every, scanShare*time.Duration(t.r.scanTook.Load()))
}

// reconcile records what waits, as one external change.
func (t *watch) reconcile(ctx context.Context) error {
	leave, err := t.r.Inside()
	if err != nil {
		return err
	}
	defer leave()
	if t.r.waits.Load() {
		if err := t.r.Disk.Store.Room(1); err != nil {
			return err // nothing is read again until there is room
		}
	}
	o, before := SyncOptions{Attribute: true, gentle: true}, t.r.ScannedAt()
	if _, err := t.r.lookAtDirty(ctx, t, o); err != nil {
		return err
	}
	t.mu.Lock()
	due := t.due
	t.due = false
	t.mu.Unlock()
	if !due {
		return nil
	}
	o.unreported, o.since = t, before+1
	_, err = t.r.Scan(ctx, o)
	if err != nil {
		t.update(func() { t.due = true })
	}
	return err
}

// unreported returns a function that reports whether no event named a path.
func (t *watch) unreported(ctx context.Context) func(wspath.Path) bool {
	if !t.caughtUp(ctx) {
		return func(wspath.Path) bool { return true }
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	reported := maps.Clone(t.dirty)
	all := t.all
	return func(p wspath.Path) bool {
		if all {
			return false
		}
		if _, ok := reported[p]; ok {
			return false
		}
		for dir := range p.Ancestors() {
			if _, ok := reported[dir]; ok {
				return false
			}
		}
		return true
	}
}
