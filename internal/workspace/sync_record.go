package workspace

import (
	"context"
	"maps"
	"slices"

	"umbra/gitstore"
	"umbra/gitstore/message"
	"umbra/gitstore/object"
	"umbra/internal/claims"
	"umbra/internal/errs"
	"umbra/internal/workspace/disk"
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

// record reads the candidates, then looks at them again under their locks and
// commits what still differs: writers of the same paths wait for the looking
// only.
func (s *scanner) record(ctx context.Context, o SyncOptions) (SyncResult, error) {
	var res SyncResult
	s.w.scanning.Add(1)
	defer s.w.scanning.Add(-1)
	if err := s.roomForFound(); err != nil {
		return res, err
	}
	for len(s.list) > 0 {
		n, err := s.capture(ctx)
		if err == nil {
			err = s.commit(ctx, s.list[:n], o, &res)
		}
		for i := range s.list[:n] {
			s.w.store.Discard(s.list[i].blob)
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
// under the lock, which tells why.
func (s *scanner) capture(ctx context.Context) (int, error) {
	n, bytes := 0, int64(0)
	for n < len(s.list) && bytes < maxScanBytes {
		if size := s.list[n].seen.Info.Size; size <= inMemory {
			bytes += size
		}
		n++
	}
	return n, spread(ctx, n, s.workers, func(ctx context.Context, i int) error {
		c := &s.list[i]
		if c.seen.Kind != KindFile && c.seen.Kind != KindSymlink {
			return nil
		}
		if e, ok, err := s.tip.Lookup(c.path); err != nil {
			return err
		} else if ok && c.seen.Known && e.ID == c.seen.ID {
			return nil // its bits alone
		}
		before := c.seen
		blob, err := s.w.disk.Capture(ctx, c.path, &c.seen)
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

// commit looks at candidates under their locks, and records them.
func (s *scanner) commit(ctx context.Context, list []candidate, o SyncOptions, res *SyncResult) error {
	paths := make([]wspath.Path, 0, len(list))
	for _, c := range list {
		paths = append(paths, c.path)
	}
	lock, err := s.w.locks.acquire(ctx, lockedFor(paths))
	if err != nil {
		return errs.Wrap(err, "")
	}
	defer lock.release()
	b := &scanBatch{w: s.w, attribute: o.Attribute, untold: s.untold, known: s.known, skipped: &s.skipped, tip: s.w.store.Snapshot(), real: make(map[wspath.Path]bool)}
	defer b.discard()
	for i := range list {
		if err := b.add(ctx, &list[i]); err != nil {
			return err
		}
	}
	return b.commit(ctx, res)
}

// scanBatch is what goes into one commit, or one of each owner's where there are
// several.
type scanBatch struct {
	w         *Workspace
	tip       gitstore.Snapshot
	attribute bool
	untold    func(wspath.Path) bool
	known     int64
	skipped   *disk.Skips
	real      map[wspath.Path]bool // folders that no link leads to
	groups    ownerGroups
}

// lstat looks at a path; what lies behind a link is not there.
func (b *scanBatch) lstat(p wspath.Path) (disk.Seen, error) {
	dir := p.Dir()
	real, ok := b.real[dir]
	if !ok {
		var err error
		if real, err = b.w.realDir(dir); err != nil {
			return disk.Seen{}, err
		}
		b.real[dir] = real
	}
	if !real {
		return disk.Seen{}, nil
	}
	return b.w.disk.Lstat(p)
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
	x := external{path: c.path, old: tip}
	if now.Kind == KindFile || now.Kind == KindSymlink {
		if !ok && now.Kind == KindFile && now.Info.Size > b.w.limits.CaptureBytes {
			b.skipped.Add(c.path, "too_large")
			return nil
		}
		if done, err := b.file(ctx, c, &now, &x); done || err != nil {
			return err
		}
	} else if tip.Mode == 0 {
		return nil
	}
	o := nobody
	if !b.old(c) {
		o = b.w.judge(&x, b.untold != nil && b.untold(c.path), b.attribute)
	}
	b.groups.add(o, x)
	return nil
}

// old reports whether a file stood there when the folder was last looked at, so
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
		if now, err := b.w.disk.Lstat(dir); err == nil && now.Kind == KindDir && now.Info.CtimeNs >= b.known {
			return false
		}
	}
	return true
}

// file finds what is new of a file or link; done says that it is not to be
// recorded.
func (b *scanBatch) file(ctx context.Context, c *candidate, now *disk.Seen, x *external) (done bool, err error) {
	if c.captured && disk.SameContent(c.seen.Info, now.Info) && c.seen.Info.CtimeNs == now.Info.CtimeNs {
		if c.seen.ID == x.old.ID && now.Mode == x.old.Mode {
			return true, nil // a request has recorded it meanwhile
		}
		x.mode, x.blob, x.hasBlob = now.Mode, c.blob, true
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
	if err := b.w.disk.Identify(ctx, c.path, now); err != nil {
		return skip(err)
	}
	if now.ID == x.old.ID && now.Mode == x.old.Mode {
		return true, nil
	}
	x.mode = now.Mode
	if now.ID == x.old.ID && now.Mode != object.Symlink && x.old.Mode != object.Symlink {
		return false, nil // its bits alone
	}
	x.blob, err = b.w.disk.Capture(ctx, c.path, now)
	if err != nil {
		return skip(err)
	}
	x.mode, x.hasBlob = now.Mode, true
	return false, nil
}

func (b *scanBatch) discard() {
	for _, g := range b.groups {
		for i := range g.list {
			b.w.store.Discard(g.list[i].blob)
		}
	}
	b.groups = nil
}

// commit records what was gathered.
func (b *scanBatch) commit(ctx context.Context, res *SyncResult) error {
	defer b.discard()
	_, err := b.w.commitOwned(ctx, b.groups, func(list []external, o *Owner) (gitstore.Committed, error) {
		n, c, err := b.w.commitFound(ctx, list, o)
		if err == nil && !c.NoChange {
			b.w.progress.settle(c.Seq)
			res.Changed += n
		}
		return c, err
	})
	return err
}

// commitFound makes one commit of what a scan found, exact renames as renames.
func (w *Workspace) commitFound(ctx context.Context, list []external, o *Owner) (int, gitstore.Committed, error) {
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
	w.keepPermissions(entries)
	m := o.Message
	named, err := w.obeys(ctx, m.Source, m.TaskID, entries, true)
	if err != nil {
		return 0, gitstore.Committed{}, err
	}
	m.Extra = slices.Concat(m.Extra, certaintyTrailers(entries), named)
	if m.Entries, err = w.messageEntries(ctx, entries); err != nil {
		return 0, gitstore.Committed{}, err
	}
	before := w.store.Snapshot()
	c, err := w.store.Commit(ctx, gitstore.Draft{Edits: edits, Message: m, Entries: len(entries)})
	if err == nil && !c.NoChange {
		paths := make([]wspath.Path, len(list))
		for i := range list {
			paths[i] = list[i].path
			if list[i].mode == 0 {
				w.disk.Index.DropFile(list[i].path)
			}
		}
		w.progress.dirty(append(paths, foldersThatCame(before, w.store.Snapshot(), paths)...))
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
			e.certainty = claims.Weaker(e.certainty, list[j].certainty)
		}
		out = append(out, e)
	}
	return out
}
