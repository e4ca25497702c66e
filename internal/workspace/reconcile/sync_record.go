package reconcile

import (
	"context"
	"maps"
	"slices"

	"umbra/gitstore"
	"umbra/gitstore/object"
	"umbra/internal/errs"
	"umbra/internal/scan"
	"umbra/internal/workspace/disk"
	"umbra/internal/workspace/op"
	"umbra/internal/workspace/record"
	"umbra/internal/wspath"
)

// Above so many paths folders are locked instead, or the whole workspace.
const maxScanLocks = 512

// lockedFor gives what to lock for many paths: themselves, or folders that hold
// them, as deep ones as are few enough. Writers elsewhere go on.
func lockedFor(paths []wspath.Path) []wspath.Path {
	if len(paths) <= maxScanLocks {
		return paths
	}
	for depth := maxLockDepth; depth > 0; depth-- {
		set := make(map[wspath.Path]bool)
		for _, p := range paths {
			if set[upTo(p, depth)] = true; len(set) > maxScanLocks {
				break
			}
		}
		if len(set) <= maxScanLocks {
			return slices.Collect(maps.Keys(set))
		}
	}
	return []wspath.Path{wspath.Root}
}

// maxLockDepth is how deep folders are that are locked for what is in them.
const maxLockDepth = 8

// upTo gives the folder of at most depth components that a path is in, or the
// path itself.
func upTo(p wspath.Path, depth int) wspath.Path {
	for i := 0; i < len(p); i++ {
		if p[i] == '/' {
			if depth--; depth == 0 {
				return p[:i]
			}
		}
	}
	return p
}

// A commit of external changes carries at most so many bytes of new content,
// which it holds in memory, compressed.
const maxScanBytes = 64 << 20

// inMemory is the size up to which a captured file is held in memory; a larger
// one is in a pack of its own.
const inMemory = 4 << 20

// record reads the candidates, then compares them again under their locks and
// commits what still differs: writers of the same paths wait for the looking
// only.
func (s *scanner) record(ctx context.Context, o SyncOptions) (SyncResult, error) {
	var res SyncResult
	s.r.scanning.Add(1)
	defer s.r.scanning.Add(-1)
	if err := s.roomForFound(); err != nil {
		return res, err
	}
	for len(s.list) > 0 {
		n, err := s.capture(ctx)
		if err == nil {
			err = s.commit(ctx, s.list[:n], o, &res)
		}
		for i := range s.list[:n] {
			s.r.Disk.Store.Discard(s.list[i].blob)
			s.list[i].blob = gitstore.Blob{}
		}
		if err != nil {
			return res, err
		}
		s.list = s.list[n:]
	}
	return res, nil
}

// capture reads the files of one commit, of several at once, without locks, and
// gives how many candidates that are. One that cannot be read is tried again
// under the lock, which reports why.
func (s *scanner) capture(ctx context.Context) (int, error) {
	n, bytes := 0, int64(0)
	for n < len(s.list) && bytes < maxScanBytes {
		if size := s.list[n].seen.Info.Size; size <= inMemory {
			bytes += size
		}
		n++
	}
	return n, scan.Spread(ctx, n, s.workers, func(ctx context.Context, i int) error {
		c := &s.list[i]
		if c.seen.Kind != op.KindFile && c.seen.Kind != op.KindSymlink {
			return nil
		}
		if e, ok, err := s.tip.Lookup(c.path); err != nil {
			return err
		} else if ok && c.seen.Known && e.ID == c.seen.ID {
			return nil // its bits alone
		}
		before := c.seen
		blob, err := s.r.Disk.Capture(ctx, c.path, &c.seen)
		if err != nil {
			c.seen = before
			_, fatal := disk.SkipReason(err)
			if fatal {
				return err
			}
			return nil
		}
		c.blob, c.captured = blob, true
		return nil
	})
}

// commit compares candidates under their locks, and records what differs.
func (s *scanner) commit(ctx context.Context, list []candidate, o SyncOptions, res *SyncResult) error {
	paths := make([]wspath.Path, 0, len(list))
	for _, c := range list {
		paths = append(paths, c.path)
	}
	lock, err := s.r.Locks.Acquire(ctx, lockedFor(paths))
	if err != nil {
		return errs.Wrap(err, "")
	}
	defer lock.Release()
	b := &scanBatch{r: s.r, attribute: o.Attribute, unreported: s.unreported, known: s.known, skipped: &s.skipped, tip: s.r.Disk.Store.Snapshot(), real: make(map[wspath.Path]bool),
		links: make(map[uint64]*linked)}
	defer b.discard()
	for i := range list {
		if info := &list[i].seen.Info; list[i].seen.Kind == op.KindFile && info.Nlink > 1 {
			if b.links[info.Ino] == nil {
				b.links[info.Ino] = &linked{}
			}
			b.links[info.Ino].names = append(b.links[info.Ino].names, string(list[i].path))
		}
	}
	for i := range list {
		if err := b.add(ctx, &list[i]); err != nil {
			return err
		}
	}
	return b.commit(ctx, res)
}

// linked is a file with several names. A write by one of them changes all, so they are
// judged once.
type linked struct {
	names   []string        // that were found
	owner   *record.Owner   // nil: not judged yet
	judged  record.External // the name that was, without its content
	content object.ID       // that it was judged by; zero if its bits alone changed
}

// scanBatch is what goes into one commit, or one of each owner's where there are
// several.
type scanBatch struct {
	r          *Reconciler
	tip        gitstore.Snapshot
	attribute  bool
	unreported func(wspath.Path) bool
	known      int64
	skipped    *disk.Skips
	real       map[wspath.Path]bool // folders that no link leads to
	links      map[uint64]*linked   // by inode
	groups     record.Groups
	back       []restore // what shows through, and is not recorded
}

// lstat returns what is at a path; what is behind a link is not there.
func (b *scanBatch) lstat(p wspath.Path) (disk.Seen, error) {
	dir := p.Dir()
	real, ok := b.real[dir]
	if !ok {
		var err error
		if real, err = b.r.realDir(dir); err != nil {
			return disk.Seen{}, err
		}
		b.real[dir] = real
	}
	if !real {
		return disk.Seen{}, nil
	}
	return b.r.Disk.Lstat(p)
}

// add takes one path as it is now.
func (b *scanBatch) add(ctx context.Context, c *candidate) error {
	tip, ok, err := b.tip.Lookup(c.path)
	if err != nil {
		return err
	}
	if ok && tip.Mode == object.Dir {
		tip = gitstore.Entry{} // the files in it are candidates of their own
		c.old = false          // it goes into one commit with them
	}
	now, err := b.lstat(c.path)
	if err != nil {
		return nil
	}
	x := record.External{Path: c.path, Old: tip}
	if now.Kind == op.KindFile || now.Kind == op.KindSymlink {
		if !ok && now.Kind == op.KindFile && now.Info.Size > b.r.Limits.CaptureBytes {
			b.skipped.Add(c.path, "too_large")
			return nil
		}
		if done, err := b.file(ctx, c, &now, &x); done || err != nil {
			return err
		}
	} else if tip.Mode == 0 {
		return nil
	}
	if through, err := b.through(ctx, c.path, tip, now); through || err != nil {
		b.r.Disk.Store.Discard(x.Blob)
		return err
	}
	o := record.Nobody
	if !b.old(c) {
		o = b.judge(&x, b.links[now.Info.Ino])
	}
	b.groups.Add(o, x)
	return nil
}

// judge decides whose a change is. l is nil for a file with one name.
func (b *scanBatch) judge(x *record.External, l *linked) *record.Owner {
	unreported := b.unreported != nil && b.unreported(x.Path)
	if l == nil {
		return b.r.Rec.Judge(x, nil, unreported, b.attribute)
	}
	var content object.ID
	if x.HasBlob {
		content = x.Blob.ID()
	}
	if l.owner == nil || l.content != content {
		reported := func(p string) bool { return !b.unreported(wspath.Path(p)) }
		l.owner = b.r.Rec.Judge(x, l.names, unreported && !slices.ContainsFunc(l.names, reported), b.attribute)
		l.judged, l.content = *x, content
		l.judged.Blob = gitstore.Blob{}
		return l.owner
	}
	x.KnownAs(&l.judged)
	return l.owner
}

// old reports whether a file was there when the folder was last compared, so
// that it is new only by a rule that changed: not if it came with a folder that
// was moved in, which leaves the file's own times as they were.
func (b *scanBatch) old(c *candidate) bool {
	if !c.old {
		return false
	}
	for dir := range c.path.Ancestors() {
		if dir.IsRoot() {
			break
		}
		if e, ok, err := b.tip.Lookup(dir); err != nil || ok && e.Mode == object.Dir {
			break
		}
		if now, err := b.r.Disk.Lstat(dir); err == nil && now.Kind == op.KindDir && now.Info.CtimeNs >= b.known {
			return false
		}
	}
	return true
}

// file finds what is new of a file or link; done says that it is not to be
// recorded.
func (b *scanBatch) file(ctx context.Context, c *candidate, now *disk.Seen, x *record.External) (done bool, err error) {
	if c.captured && disk.SameContent(c.seen.Info, now.Info) && c.seen.Info.CtimeNs == now.Info.CtimeNs {
		if c.seen.ID == x.Old.ID && now.Mode == x.Old.Mode {
			return true, nil // a request has recorded it meanwhile
		}
		x.Mode, x.Blob, x.HasBlob = now.Mode, c.blob, true
		c.blob = gitstore.Blob{}
		return false, nil
	}
	skip := func(err error) (bool, error) {
		reason, fatal := disk.SkipReason(err)
		if fatal {
			return true, err
		}
		if reason != "" {
			b.skipped.Add(c.path, reason)
		}
		return true, nil
	}
	if err := b.r.Disk.Identify(ctx, c.path, now); err != nil {
		return skip(err)
	}
	if now.ID == x.Old.ID && now.Mode == x.Old.Mode {
		return true, nil
	}
	x.Mode = now.Mode
	if now.ID == x.Old.ID && now.Mode != object.Symlink && x.Old.Mode != object.Symlink {
		return false, nil // its bits alone
	}
	x.Blob, err = b.r.Disk.Capture(ctx, c.path, now)
	if err != nil {
		return skip(err)
	}
	x.Mode, x.HasBlob = now.Mode, true
	return false, nil
}

func (b *scanBatch) discard() {
	for _, g := range b.groups {
		for i := range g.List {
			b.r.Disk.Store.Discard(g.List[i].Blob)
		}
	}
	b.groups = nil
}

// commit records what was gathered.
func (b *scanBatch) commit(ctx context.Context, res *SyncResult) error {
	defer b.discard()
	if err := b.putBack(ctx); err != nil {
		return err
	}
	_, err := b.r.Rec.CommitOwned(ctx, b.groups, func(list []record.External, o *record.Owner) (gitstore.Committed, error) {
		n, c, err := b.r.Rec.CommitFound(ctx, list, o)
		if err == nil && !c.NoChange {
			b.r.Rec.Progress.Settle(c.Seq)
			res.Changed += n
		}
		return c, err
	})
	return err
}
