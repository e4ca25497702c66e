package disk

import (
	"context"
	"errors"
	"sync"
	"time"

	"umbra/gitstore"
	"umbra/gitstore/object"
	"umbra/gitstore/sink"
	"umbra/internal/errs"
	"umbra/internal/ignore"
	"umbra/internal/lineage"
	"umbra/internal/rootfs"
	"umbra/internal/vfs"
	"umbra/internal/workspace/treefs"
	"umbra/internal/wspath"
)

// newestTree is the medium of a virtual workspace: its newest tree is what a directory
// would hold. A commit is all that is done, and no other process ever changes anything.
// Directories exist as long as they hold a file.
type newestTree struct {
	files *treefs.FS
	store *gitstore.Store

	mu    sync.Mutex
	times map[wspath.Path]changed // of files that were asked for or written lately
}

// changed is when a file became what it is.
type changed struct {
	id   object.ID
	mode object.Mode
	ns   int64
}

const (
	maxTimes = 4096
	// maxWalk is how many commits are read in search of a file's change before the index of
	// commits is waited for, which after an open from a sink is made of the whole history.
	maxWalk = 1000
)

// openTree has the newest tree in place of a directory.
func (d *Disk) openTree() error {
	t := &newestTree{files: &treefs.FS{Scratch: d.Files}, times: make(map[wspath.Path]changed)}
	d.medium, d.FS = t, t.files
	d.Root = rootfs.New(d.FS, rootfs.Umask(), nil)
	t.files.Perm = d.Root.FilePerm
	return sweepScratch(d.Files)
}

// sweepScratch drops new content that a kill left, where it had a name.
func sweepScratch(files vfs.FS) error {
	list, err := files.ReadDir(".")
	if err != nil {
		return err
	}
	for _, e := range list {
		if wspath.IsTemp(e.Name) {
			if err := files.Remove(e.Name); err != nil {
				return err
			}
		}
	}
	return nil
}

func (t *newestTree) Physical() bool { return false }

func (t *newestTree) Check() error { return nil }

func (t *newestTree) Missing() bool { return false }

func (t *newestTree) Back() bool { return false }

func (t *newestTree) header() []byte { return nil }

func (t *newestTree) use(s *gitstore.Store) { t.store, t.files.Store = s, s }

func (t *newestTree) GitRules() ([]byte, *ignore.Index, error) { return nil, nil, nil }

func (t *newestTree) EvictIdle(time.Time) {}

func (t *newestTree) blobOf(p wspath.Path, _ vfs.Info) (object.ID, bool, error) {
	e, ok, err := t.store.Snapshot().Lookup(p)
	return e.ID, ok, err
}

func (t *newestTree) Wrote(e gitstore.Entry, when time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.note(e.Path, changed{e.ID, e.Mode, when.UnixNano()})
}

// note remembers; mu is held.
func (t *newestTree) note(p wspath.Path, c changed) {
	for old := range t.times {
		if len(t.times) < maxTimes {
			break
		}
		delete(t.times, old)
	}
	t.times[p] = c
}

// Stamp sets the time of a file's last change; it leaves 0 where the file does not exist, or
// what is needed of its history is damaged, also by the disk. A directory's is that of the
// newest commit. In a history that is being fetched it waits for what it reads, as long as ctx
// lasts; errs.Unavailable where a sink's store does not have it.
func (t *newestTree) Stamp(ctx context.Context, p wspath.Path, info *vfs.Info) error {
	return t.stamp(ctx, p, info, true)
}

// StampNear is like Stamp, but leaves 0 where Stamp would wait for a sink's store.
func (t *newestTree) StampNear(ctx context.Context, p wspath.Path, info *vfs.Info) error {
	return t.stamp(ctx, p, info, t.store.IsNear())
}

func (t *newestTree) stamp(ctx context.Context, p wspath.Path, info *vfs.Info, search bool) error {
	ns, err := t.mtime(ctx, p, search)
	if errors.Is(err, sink.ErrRefused) || errs.Is(err, errs.Canceled) {
		return err
	}
	info.MtimeNs = ns // 0 after an error
	return nil
}

func (t *newestTree) mtime(ctx context.Context, p wspath.Path, search bool) (int64, error) {
	tip := t.store.Tip()
	e, ok, err := t.at(ctx, tip.Commit, p)
	if err != nil || !ok {
		return 0, err
	}
	if e.Mode == object.Dir {
		c, err := t.store.ReadCommit(ctx, tip.Commit)
		if err != nil {
			return 0, err
		}
		return c.When.UnixNano(), nil
	}
	if ns, ok := t.noted(e); ok || !search {
		return ns, nil
	}
	ns, err := t.search(ctx, tip, e)
	if err != nil {
		return 0, err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if c, ok := t.times[p]; !ok || c.id != e.ID || c.mode != e.Mode { // else it was made again meanwhile
		t.note(p, changed{e.ID, e.Mode, ns})
	}
	return ns, nil
}

// noted returns the time of a file that was asked for or written lately.
func (t *newestTree) noted(e gitstore.Entry) (ns int64, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	c, ok := t.times[e.Path]
	if !ok || c.id != e.ID || c.mode != e.Mode {
		return 0, false
	}
	return c.ns, true
}

// walk finds when a file became what it is in a commit, in nanoseconds since 1970; ok is false
// where that is not one of the maxWalk newest.
func (t *newestTree) walk(ctx context.Context, commit object.ID, e gitstore.Entry) (ns int64, ok bool, err error) {
	for range maxWalk {
		if err := ctx.Err(); err != nil {
			return 0, false, errs.Wrap(err, "")
		}
		c, yes, err := t.became(ctx, commit, e)
		if err != nil {
			return 0, false, err
		}
		if yes {
			return c.When.UnixNano(), true, nil
		}
		commit = c.Parent
	}
	return 0, false, nil
}

// search is like walk, and then without a bound by the index of commits, which it waits for; the
// walk is for where that is not made yet. Of a file that is older than the boundary it is the
// boundary's time.
func (t *newestTree) search(ctx context.Context, tip gitstore.Tip, e gitstore.Entry) (int64, error) {
	if !t.store.IsFilled() {
		if ns, ok, err := t.walk(ctx, tip.Commit, e); ok || err != nil {
			return ns, err
		}
	}
	for touches := lineage.NewTouches(t.store, 1, tip.Seq); ; {
		rec, ok, err := touches.Before(ctx, string(e.Path))
		if err != nil {
			return 0, err
		}
		if !ok {
			rec.Commit = t.store.Boundary().Commit
		}
		c, yes, err := t.became(ctx, rec.Commit, e)
		if err != nil {
			return 0, err
		}
		if yes || !ok {
			return c.When.UnixNano(), nil
		}
	}
}

// became reads a commit that has a file, and reports whether the file became what it is in it.
func (t *newestTree) became(ctx context.Context, commit object.ID, e gitstore.Entry) (c *gitstore.Commit, yes bool, err error) {
	c, err = t.store.ReadCommit(ctx, commit)
	if err != nil || c.Parent.IsZero() {
		return c, true, err
	}
	was, ok, err := t.at(ctx, c.Parent, e.Path)
	return c, !ok || was.ID != e.ID || was.Mode != e.Mode, err
}

func (t *newestTree) at(ctx context.Context, commit object.ID, p wspath.Path) (gitstore.Entry, bool, error) {
	snap, err := t.store.SnapshotOf(ctx, commit)
	if err != nil {
		return gitstore.Entry{}, false, err
	}
	return snap.Lookup(p)
}
