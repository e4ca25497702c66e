package disk

import (
	"context"
	"sync"
	"time"

	"umbra/gitstore"
	"umbra/gitstore/object"
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
	// maxTimeWalk bounds how far back the change of a file is looked for without an index;
	// an older one is reported with the time of the last commit read.
	maxTimeWalk = 2000
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

// Stamp sets the time of a file's last change; 0 if the file does not exist or the
// time is unknown. A directory's is that of the newest commit.
func (t *newestTree) Stamp(p wspath.Path, info *vfs.Info) { info.MtimeNs = t.mtime(p, true) }

// StampNear is like Stamp, but 0 where Stamp would wait for a sink's store.
func (t *newestTree) StampNear(p wspath.Path, info *vfs.Info) { info.MtimeNs = t.mtime(p, false) }

func (t *newestTree) mtime(p wspath.Path, wait bool) int64 {
	e, ok, err := t.store.Snapshot().Lookup(p)
	if err != nil || !ok {
		return 0
	}
	if e.Mode == object.Dir {
		return t.whenOf(t.store.Tip().Commit)
	}
	t.mu.Lock()
	c, known := t.times[p]
	t.mu.Unlock()
	if known && c.id == e.ID && c.mode == e.Mode {
		return c.ns
	}
	near := t.store.IsNear()
	if !near && !wait {
		return 0
	}
	if !near {
		return t.walk(e)
	}
	at := t.search(e)
	if at != 0 {
		t.mu.Lock()
		defer t.mu.Unlock()
		t.note(p, changed{e.ID, e.Mode, at})
	}
	return at
}

// whenOf returns the time of a commit, in nanoseconds since 1970; 0: it cannot be read.
func (t *newestTree) whenOf(id object.ID) int64 {
	c, err := t.store.ReadCommit(context.Background(), id)
	if err != nil {
		return 0
	}
	return c.When.UnixNano()
}

// search finds by the index of commits when a file became what it is. Of one that is older
// than the boundary it is the boundary's time.
func (t *newestTree) search(e gitstore.Entry) int64 {
	ctx := context.Background()
	for touches := lineage.NewTouches(t.store, 1, t.store.Tip().Seq); ; {
		rec, ok, err := touches.Before(ctx, string(e.Path))
		if err != nil {
			return 0
		}
		if !ok {
			return t.whenOf(t.store.Boundary().Commit)
		}
		c, err := t.store.ReadCommit(ctx, rec.Commit)
		if err != nil {
			return 0
		}
		if c.Parent.IsZero() || !t.has(c.Parent, e) {
			return c.When.UnixNano()
		}
	}
}

// walk is like search, but reads commits, at most maxTimeWalk.
func (t *newestTree) walk(e gitstore.Entry) (at int64) {
	id := t.store.Tip().Commit
	for n := 0; n < maxTimeWalk && !id.IsZero() && t.has(id, e); n++ {
		c, err := t.store.ReadCommit(context.Background(), id)
		if err != nil {
			break
		}
		at, id = c.When.UnixNano(), c.Parent
	}
	return at
}

// has reports whether a commit has a file just so.
func (t *newestTree) has(commit object.ID, e gitstore.Entry) bool {
	snap, err := t.store.SnapshotOf(context.Background(), commit)
	if err != nil {
		return false
	}
	was, ok, err := snap.Lookup(e.Path)
	return err == nil && ok && was.ID == e.ID && was.Mode == e.Mode
}
