package workspace

import (
	"context"
	"sync"
	"time"

	"umbra/gitstore/object"
	"umbra/internal/errs"
	"umbra/internal/vfs"
	"umbra/internal/workspace/treefs"
	"umbra/internal/wspath"
)

// virtual is what a workspace without a folder has beside its repository. Its
// newest tree is what a folder would hold; a request's commit is all that is
// done, and nobody else ever changes anything. Folders exist as long as they
// hold a file.
type virtual struct {
	tree *treefs.FS

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
	// maxTimeWalk bounds how far back the change of a file is looked for; one
	// that is older is told as old as that.
	maxTimeWalk = 2000
)

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

// forgetFolders takes out of a plan what only a disk could hold: folders
// without a file.
func (p *plan) forgetFolders() {
	p.net.dirs, p.bare = nil, false
	for i := range p.ops {
		if p.req.Ops[i].Kind == OpMkdir {
			p.ops[i].Operation, p.ops[i].Created = "", false
		}
	}
}

// written notes when files became what a commit made them.
func (v *virtual) written(entries []netEntry, when time.Time) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for i := range entries {
		if e := &entries[i].after; e.Mode != 0 {
			v.note(e.Path, changed{e.ID, e.Mode, when.UnixNano()})
		}
	}
}

// note remembers; mu is held.
func (v *virtual) note(p wspath.Path, c changed) {
	for old := range v.times {
		if len(v.times) < maxTimes {
			break
		}
		delete(v.times, old)
	}
	v.times[p] = c
}

// mtime gives when a file became what it is, in nanoseconds since 1970; 0 where
// it is not there or cannot be told. A folder's is the newest commit's.
func (w *Workspace) treeTime(p wspath.Path) int64 {
	v, ctx := w.virtual, context.Background()
	e, ok, err := w.store.Snapshot().Lookup(p)
	if err != nil || !ok {
		return 0
	}
	tip := w.store.Tip()
	if e.Mode != object.Dir {
		v.mu.Lock()
		c, known := v.times[p]
		v.mu.Unlock()
		if known && c.id == e.ID && c.mode == e.Mode {
			return c.ns
		}
	}
	var at int64
	for id, n := tip.Commit, 0; n < maxTimeWalk && !id.IsZero(); n++ {
		c, err := w.store.ReadCommit(ctx, id)
		if err != nil {
			break
		}
		snap, err := w.store.SnapshotOf(ctx, id)
		if err != nil {
			break
		}
		if was, ok, err := snap.Lookup(p); err != nil || !ok || was.ID != e.ID || was.Mode != e.Mode {
			break
		}
		at, id = c.When.UnixNano(), c.Parent
		if e.Mode == object.Dir {
			return at
		}
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	v.note(p, changed{e.ID, e.Mode, at})
	return at
}

// errVirtual is answered for what only a folder can be asked.
func ErrVirtual() error {
	return errs.New(errs.Conflict, "workspace_virtual", "The workspace is virtual: it has no folder.")
}
