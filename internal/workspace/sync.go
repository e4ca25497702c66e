package workspace

import (
	"context"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"umbra/gitstore"
	"umbra/gitstore/object"
	"umbra/internal/errs"
	"umbra/internal/scan"
	"umbra/internal/wspath"
)

// candidate is a path whose disk may differ from the tip.
type candidate struct {
	path wspath.Path
	seen seen // kind none: gone
	// old says that the file was there before the last scan: it is captured
	// only because a rule changed.
	old bool
}

// Sync looks at the whole folder and records what differs from history as one
// external change; then stock git sees everything. Writers go on beside it:
// only the paths that differ are locked, and looked at again under the lock.
//
// errs.Conflict workspace_missing; errs.Unavailable ref_locked.
func (w *Workspace) Sync(ctx context.Context, o SyncOptions) (SyncResult, error) {
	if o.Adopt && w.adopt != nil && w.checkFolder() != nil {
		return w.adopt(ctx)
	}
	if err := w.enter(); err != nil {
		return SyncResult{}, err
	}
	defer w.leave()
	res, err := w.scan(ctx, o)
	if err != nil {
		return res, err
	}
	return res, w.store.Publish(ctx)
}

// Reconcile is Sync without what stock git sees, for who needs history to hold
// what the disk held at a time: a scan that began since then will do.
func (w *Workspace) Reconcile(ctx context.Context, o SyncOptions, since time.Time) (SyncResult, error) {
	if err := w.enter(); err != nil {
		return SyncResult{}, err
	}
	defer w.leave()
	o.since = since.UnixNano()
	return w.scan(ctx, o)
}

// scan is Sync without what stock git sees.
func (w *Workspace) scan(ctx context.Context, o SyncOptions) (SyncResult, error) {
	w.syncMu.Lock()
	defer w.syncMu.Unlock()
	if last := w.lastScan.Load(); o.since != 0 && last >= o.since {
		return SyncResult{Skipped: w.skipped}, w.checkFolder()
	}
	w.scanning.Add(1)
	defer w.scanning.Add(-1)
	if err := w.checkFolder(); err != nil {
		return SyncResult{}, err
	}
	started := w.now()
	suspect := w.suspect.Swap(false)
	s := &scanner{w: w, tip: w.store.Snapshot()}
	err := s.find(ctx)
	var res SyncResult
	if err == nil {
		res, err = s.record(ctx, o)
	}
	if err != nil {
		if suspect {
			w.suspect.Store(true)
		}
		return res, err
	}
	// A folder that was replaced while it was scanned is not what is recorded.
	if err := w.checkFolder(); err != nil {
		return res, err
	}
	slices.SortFunc(s.skipped.list, func(a, b Skip) int { return strings.Compare(a.Path, b.Path) })
	w.lastScan.Store(started.UnixNano())
	w.skipped, res.Skipped = s.skipped.list, s.skipped.list
	if res.Changed > 0 {
		res.Commit = w.store.Tip().Commit
	}
	return res, nil
}

// Coverage tells what is recorded and what is not, by looking.
func (w *Workspace) Coverage(ctx context.Context) (Coverage, error) {
	if err := w.enter(); err != nil {
		return Coverage{}, err
	}
	defer w.leave()
	if err := w.checkFolder(); err != nil {
		return Coverage{}, err
	}
	s := &scanner{w: w, tip: w.store.Snapshot()}
	if err := s.find(ctx); err != nil {
		return Coverage{}, err
	}
	slices.SortFunc(s.skipped.list, func(a, b Skip) int { return strings.Compare(a.Path, b.Path) })
	return Coverage{Skipped: s.skipped.list, Tracked: s.tracked, Ignored: s.stats.Ignored}, nil
}

// scanner compares the disk with one tree.
type scanner struct {
	w       *Workspace
	tip     gitstore.Snapshot
	stats   scan.Stats
	skipped skips
	tracked int64

	mu    sync.Mutex
	found map[wspath.Path]bool // tracked files that were met
	list  []candidate
}

// find walks the folder, without locks, and gathers what may differ.
func (s *scanner) find(ctx context.Context) error {
	rules, index, err := s.w.rules()
	if err != nil {
		return err
	}
	var failed error
	var once sync.Once
	kind := func(p wspath.Path) object.Mode {
		e, _, err := s.tip.Lookup(p)
		if err != nil {
			once.Do(func() { failed = err })
		}
		return e.Mode
	}
	s.found = make(map[wspath.Path]bool)
	s.stats, err = scan.Walk(ctx, s.w.fs, scan.Options{Rules: rules, Index: index, Prune: s.w.isOwn,
		Tracked:      func(p wspath.Path) bool { m := kind(p); return m != 0 && m != object.Dir },
		TrackedUnder: func(p wspath.Path) bool { return kind(p) == object.Dir },
	}, s.visit)
	if err == nil {
		err = failed
	}
	if err != nil {
		return errs.Wrap(err, "")
	}
	if err := s.missing(ctx); err != nil {
		return err
	}
	return s.identify(ctx)
}

// visit looks at one file that the walk met.
func (s *scanner) visit(f scan.Found) error {
	if f.Skip != "" {
		s.skipped.add(f.Path, string(f.Skip))
		return nil
	}
	e, tracked, err := s.tip.Lookup(f.Path)
	if err != nil {
		return err
	}
	tracked = tracked && e.Mode != object.Dir
	c := candidate{path: f.Path, seen: seen{kind: kindOf(f.Info.Mode), info: f.Info, mode: gitMode(f.Info)}}
	same := false
	if tracked && c.seen.kind == KindFile && e.Mode == c.seen.mode {
		id, known := s.w.index.lookup(f.Path, f.Info)
		same = known && id == e.ID
	}
	switch {
	case !tracked && c.seen.kind == KindFile && f.Info.Size > s.w.limits.CaptureBytes:
		s.skipped.add(f.Path, "too_large")
		return nil
	case !tracked:
		last := s.w.lastScan.Load()
		c.old = last != 0 && f.Info.CtimeNs < last
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if tracked {
		s.found[f.Path] = true
		s.tracked++
	}
	if !same {
		s.list = append(s.list, c)
	}
	return nil
}

// missing finds tracked files that the walk did not meet and that are gone.
func (s *scanner) missing(ctx context.Context) error {
	return s.tip.Walk(wspath.Root, func(e gitstore.Entry) error {
		if s.found[e.Path] {
			return nil
		}
		if err := ctx.Err(); err != nil {
			return errs.Wrap(err, "")
		}
		if s.w.isOwn(e.Path) {
			return nil
		}
		now, err := s.w.lstat(e.Path)
		switch {
		case err != nil:
			return nil // not readable: nothing is known of it
		case now.kind == KindFile || now.kind == KindSymlink:
			s.tracked++
			s.list = append(s.list, candidate{path: e.Path, seen: now})
		default:
			s.list = append(s.list, candidate{path: e.Path})
		}
		return nil
	})
}

// identify reads what the stat data do not tell, several files at once, and
// keeps only what differs.
func (s *scanner) identify(ctx context.Context) error {
	list := s.list
	keep := make([]bool, len(list))
	next := make(chan int)
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var wg sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		wg.Go(func() {
			for i := range next {
				ok, err := s.differs(ctx, &list[i])
				if err != nil {
					cancel(err)
				}
				keep[i] = ok
			}
		})
	}
feed:
	for i := range list {
		select {
		case next <- i:
		case <-ctx.Done():
			break feed
		}
	}
	close(next)
	wg.Wait()
	if err := context.Cause(ctx); err != nil {
		return errs.Wrap(err, "")
	}
	s.list = s.list[:0]
	for i, c := range list {
		if keep[i] {
			s.list = append(s.list, c)
		}
	}
	slices.SortFunc(s.list, func(a, b candidate) int { return strings.Compare(string(a.path), string(b.path)) })
	return nil
}

func (s *scanner) differs(ctx context.Context, c *candidate) (bool, error) {
	if c.seen.kind == KindNone {
		return true, nil
	}
	if err := s.w.identify(ctx, c.path, &c.seen); err != nil {
		reason, fatal := skipReason(err)
		if fatal {
			return false, err
		}
		if reason == "" {
			return true, nil // gone meanwhile: looked at again under the lock
		}
		s.skipped.add(c.path, reason)
		return false, nil
	}
	e, ok, err := s.tip.Lookup(c.path)
	if err != nil {
		return false, err
	}
	return !ok || e.ID != c.seen.id || e.Mode != c.seen.mode, nil
}
