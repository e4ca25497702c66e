package workspace

import (
	"context"

	"umbra/gitstore"
	"umbra/gitstore/message"
	"umbra/gitstore/object"
	"umbra/internal/errs"
	"umbra/internal/wspath"
)

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
