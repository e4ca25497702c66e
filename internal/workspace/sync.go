package workspace

import (
	"context"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"umbra/gitstore"
	"umbra/gitstore/message"
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
	w.skipped, w.ignored, w.tracked = s.skipped.list, s.stats.Ignored, s.tracked
	w.lastScan.Store(started.UnixNano())
	res.Skipped = s.skipped.list
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

// Above so many paths the whole workspace is locked instead.
const maxScanLocks = 512

// A commit of external changes carries at most so many bytes of new content,
// which it holds in memory.
const maxScanBytes = 64 << 20

// record looks at the candidates again, under their locks, and commits what
// still differs.
func (s *scanner) record(ctx context.Context, o SyncOptions) (SyncResult, error) {
	var res SyncResult
	if len(s.list) == 0 {
		return res, nil
	}
	paths := make([]wspath.Path, 0, len(s.list))
	for _, c := range s.list {
		paths = append(paths, c.path)
	}
	if len(paths) > maxScanLocks {
		paths = []wspath.Path{wspath.Root}
	}
	lock, err := s.w.locks.acquire(ctx, paths)
	if err != nil {
		return res, errs.Wrap(err, "")
	}
	defer lock.release()
	task := ""
	if o.Attribute {
		task = s.w.attribute()
	}
	b := &scanBatch{w: s.w, task: task, skipped: &s.skipped, tip: s.w.store.Snapshot()}
	defer b.discard()
	for i := range s.list {
		if err := b.add(ctx, &s.list[i]); err != nil {
			return res, err
		}
		if b.bytes > maxScanBytes {
			if err := b.commit(ctx, &res); err != nil {
				return res, err
			}
		}
	}
	return res, b.commit(ctx, &res)
}

// scanBatch is what goes into one commit (two, where a part is of no task).
type scanBatch struct {
	w       *Workspace
	tip     gitstore.Snapshot
	task    string
	skipped *skips
	mine    []external
	nobodys []external
	bytes   int64
}

// add captures one path as it is now.
func (b *scanBatch) add(ctx context.Context, c *candidate) error {
	tip, ok, err := b.tip.Lookup(c.path)
	if err != nil {
		return err
	}
	if ok && tip.Mode == object.Dir {
		tip = gitstore.Entry{} // the files in it are candidates of their own
	}
	now, err := b.w.lstat(c.path)
	if err != nil {
		return nil
	}
	x := external{path: c.path, old: tip}
	if now.kind == KindFile || now.kind == KindSymlink {
		if !ok && now.kind == KindFile && now.info.Size > b.w.limits.CaptureBytes {
			b.skipped.add(c.path, "too_large")
			return nil
		}
		if done, err := b.file(ctx, c, &now, &x); done || err != nil {
			return err
		}
	} else if tip.Mode == 0 {
		return nil
	}
	if b.task != "" && !c.old {
		b.mine = append(b.mine, x)
	} else {
		b.nobodys = append(b.nobodys, x)
	}
	return nil
}

func (b *scanBatch) file(ctx context.Context, c *candidate, now *seen, x *external) (done bool, err error) {
	skip := func(err error) (bool, error) {
		reason, fatal := skipReason(err)
		if fatal {
			return true, err
		}
		if reason != "" {
			b.skipped.add(c.path, reason)
		}
		return true, nil
	}
	if err := b.w.identify(ctx, c.path, now); err != nil {
		return skip(err)
	}
	if now.id == x.old.ID && now.mode == x.old.Mode {
		return true, nil
	}
	x.mode = now.mode
	if now.id == x.old.ID && now.mode != object.Symlink && x.old.Mode != object.Symlink {
		return false, nil // its bits alone
	}
	x.blob, err = b.w.capture(ctx, c.path, now)
	if err != nil {
		return skip(err)
	}
	x.mode, x.hasBlob = now.mode, true
	b.bytes += x.blob.Size()
	return false, nil
}

func (b *scanBatch) discard() {
	for _, list := range [][]external{b.mine, b.nobodys} {
		for i := range list {
			b.w.store.Discard(list[i].blob)
		}
	}
	b.mine, b.nobodys, b.bytes = nil, nil, 0
}

// commit records what was gathered.
func (b *scanBatch) commit(ctx context.Context, res *SyncResult) error {
	defer b.discard()
	for _, g := range []struct {
		list []external
		task string
	}{{b.mine, b.task}, {b.nobodys, ""}} {
		if len(g.list) == 0 {
			continue
		}
		n, c, err := b.w.commitFound(ctx, g.list, g.task)
		if g.task != "" && err != nil && errs.CodeOf(err) == "task_not_found" {
			n, c, err = b.w.commitFound(ctx, g.list, "")
		}
		if err != nil {
			return err
		}
		if !c.NoChange {
			b.w.progress.settle(c.Seq)
			res.Changed += n
		}
	}
	return nil
}

// commitFound makes one commit of what a scan found, exact renames as renames.
func (w *Workspace) commitFound(ctx context.Context, list []external, task string) (int, gitstore.Committed, error) {
	var edits, puts []gitstore.Edit
	for i := range list {
		if list[i].mode == 0 {
			edits = append(edits, gitstore.Edit{Path: list[i].path})
		} else {
			puts = append(puts, list[i].put())
		}
	}
	edits = append(edits, puts...)
	entries := pairRenames(list)
	m := message.Message{Source: message.External, TaskID: task}
	var err error
	if m.Entries, err = w.messageEntries(ctx, entries); err != nil {
		return 0, gitstore.Committed{}, err
	}
	c, err := w.store.Commit(ctx, gitstore.Draft{Edits: edits, Message: m, Entries: len(entries)})
	if err == nil && !c.NoChange {
		paths := make([]wspath.Path, len(list))
		for i := range list {
			paths[i] = list[i].path
		}
		w.progress.dirty(paths)
	}
	return len(entries), c, err
}

// maxTwins bounds how many files of equal content are looked at for one that
// fits.
const maxTwins = 64

// pairRenames gives the entries, one for a file that went under one name and
// came under another with the same bytes and mode. Of several that fit, the one
// of the same base name is taken; empty files only then.
func pairRenames(list []external) []netEntry {
	type key struct {
		id   object.ID
		mode object.Mode
	}
	gone := make(map[key][]int)
	for i := range list {
		if x := &list[i]; x.mode == 0 {
			k := key{x.old.ID, x.old.Mode}
			gone[k] = append(gone[k], i)
		}
	}
	from := make(map[int]int) // index of the new one -> of the old one
	paired := make(map[int]bool)
	match := func(i int, sameBase bool) {
		x := &list[i]
		if x.mode == 0 || x.old.Mode != 0 || !x.hasBlob {
			return
		}
		if _, ok := from[i]; ok {
			return
		}
		for n, j := range gone[key{x.blob.ID(), x.mode}] {
			if n == maxTwins {
				return
			}
			same := list[j].path.Base() == x.path.Base()
			if paired[j] || (sameBase || x.blob.Size() == 0) && !same {
				continue
			}
			from[i], paired[j] = j, true
			return
		}
	}
	for _, sameBase := range []bool{true, false} {
		for i := range list {
			match(i, sameBase)
		}
	}
	var out []netEntry
	for i := range list {
		if paired[i] {
			continue
		}
		e := list[i].entry()
		if j, ok := from[i]; ok {
			e.Operation, e.OldPath, e.before = message.Rename, string(list[j].path), list[j].old
		}
		out = append(out, e)
	}
	return out
}
