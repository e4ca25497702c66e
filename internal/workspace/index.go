package workspace

import (
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"umbra/gitstore/object"
	"umbra/internal/vfs"
	"umbra/internal/wspath"
)

// index remembers for files on disk which blob they were when they were last
// read or written: a file whose stat data is still the same need not be read
// again. It is a cache: a path that is not in it is read.
//
// A stat that was taken within the racy window of the file's own times proves
// nothing (a write in the same tick of the clock changes neither), so such an
// entry is marked, and the file read again until its times are old
// (Documentation/technical/racy-git.txt).
//
// Memory: one slice and one name a directory, about 80 bytes and the name for each
// file.
type index struct {
	mu   sync.RWMutex
	dirs wspath.Dirs[*indexDir]

	changes, saved atomic.Int64 // how many there were, in all and when it was written
}

type indexDir struct{ files []indexFile } // sorted by name

type indexFile struct {
	name         string
	ino          uint64
	size         int64
	mtime, ctime int64
	id           object.ID
	mode         object.Mode
	racy         bool
}

// The racy window: the coarsest tick of a kernel's clock, or of a file system
// that keeps whole seconds.
const (
	racyWindow       = 20 * time.Millisecond
	racyWindowCoarse = 2 * time.Second
)

func newIndex() *index { return &index{} }

// isRacy reports whether a write right after the stat, taken at a time, could
// have left it the same.
func isRacy(info vfs.Info, at time.Time) bool {
	window := racyWindow
	if info.MtimeNs%int64(time.Second) == 0 {
		window = racyWindowCoarse
	}
	limit := at.Add(-window).UnixNano()
	return info.MtimeNs >= limit || info.CtimeNs >= limit
}

// empty reports whether nothing is known.
func (x *index) empty() bool {
	x.mu.RLock()
	defer x.mu.RUnlock()
	return x.dirs.Len() == 0
}

func find(d *indexDir, name string) (int, bool) {
	return slices.BinarySearchFunc(d.files, name, func(f indexFile, n string) int { return strings.Compare(f.name, n) })
}

// lookup gives what a file with this stat was. known is false if it has to be
// read; mode comes from the stat.
func (x *index) lookup(p wspath.Path, info vfs.Info) (id object.ID, known bool) {
	x.mu.RLock()
	defer x.mu.RUnlock()
	d := x.dirs.Get(p.Dir())
	if d == nil {
		return id, false
	}
	i, ok := find(d, p.Base())
	if !ok {
		return id, false
	}
	f := &d.files[i]
	return f.id, f.holds(info)
}

// holds reports whether a file with this stat is still what it was.
func (f *indexFile) holds(info vfs.Info) bool {
	return !f.racy && f.ino == info.Ino && f.size == info.Size && f.mtime == info.MtimeNs && f.ctime == info.CtimeNs &&
		(f.mode == object.Symlink) == info.IsSymlink()
}

// files gives a copy of what is known of a folder's files, by name.
func (x *index) files(dir wspath.Path) []indexFile {
	x.mu.RLock()
	defer x.mu.RUnlock()
	if d := x.dirs.Get(dir); d != nil {
		return slices.Clone(d.files)
	}
	return nil
}

// put notes what a file was when its stat was taken.
func (x *index) put(p wspath.Path, info vfs.Info, id object.ID, mode object.Mode, at time.Time) {
	f := indexFile{name: p.Base(), ino: info.Ino, size: info.Size, mtime: info.MtimeNs, ctime: info.CtimeNs, id: id, mode: mode, racy: isRacy(info, at)}
	x.changes.Add(1)
	x.mu.Lock()
	defer x.mu.Unlock()
	dir := p.Dir()
	d := x.dirs.Get(dir)
	if d == nil {
		d = &indexDir{}
		x.dirs.Put(wspath.Path(strings.Clone(string(dir))), d)
	}
	i, ok := find(d, f.name)
	if ok {
		f.name = d.files[i].name
		d.files[i] = f
		return
	}
	f.name = strings.Clone(f.name) // not a window into a longer path
	d.files = slices.Insert(d.files, i, f)
}

// dropFile forgets a file.
func (x *index) dropFile(p wspath.Path) {
	x.changes.Add(1)
	x.mu.Lock()
	defer x.mu.Unlock()
	dir := p.Dir()
	d := x.dirs.Get(dir)
	if d == nil {
		return
	}
	if i, ok := find(d, p.Base()); ok {
		d.files = slices.Delete(d.files, i, i+1)
		if len(d.files) == 0 {
			x.dirs.Delete(dir)
		}
	}
}

// dropTree forgets a path and everything under it.
func (x *index) dropTree(p wspath.Path) {
	x.dropFile(p)
	x.changes.Add(1)
	x.mu.Lock()
	defer x.mu.Unlock()
	x.dirs.Cut(p)
}

// moveTree follows a folder's rename, which changes no stat of what is in it.
func (x *index) moveTree(from, to wspath.Path) {
	x.dropTree(to)
	x.changes.Add(1)
	x.mu.Lock()
	defer x.mu.Unlock()
	for dir, d := range x.dirs.Cut(from) {
		rel, _ := dir.Rel(from)
		x.dirs.Put(to.Join(string(rel)), d)
	}
}

// forget takes out the files that are one of the blobs: they are read anew.
func (x *index) forget(blobs map[object.ID]bool) {
	x.changes.Add(1)
	x.mu.Lock()
	defer x.mu.Unlock()
	for dir, d := range x.dirs.All() {
		d.files = slices.DeleteFunc(d.files, func(f indexFile) bool { return blobs[f.id] })
		if len(d.files) == 0 {
			x.dirs.Delete(dir)
		}
	}
}
