// Package index remembers which blob each file on disk was when it was last read or
// written, so that a scan need not read it again, and the SHA-256 of blobs.
//
// Invariants: it is a cache, and a file that is not in it is read; an entry holds
// only for the same inode, size and times; a stat that another write in the same
// tick of the clock would not change proves nothing (racy); what is written to disk
// is dropped as a whole if a byte of it differs or it is another directory's.
package index

import (
	"io/fs"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"umbra/gitstore/object"
	"umbra/internal/vfs"
	"umbra/internal/wspath"
)

// Index remembers for files on disk which blob they were when they were last
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
type Index struct {
	mu   sync.RWMutex
	dirs wspath.Dirs[*listing]

	changes, saved atomic.Int64 // how many there were, in all and when it was written
}

type listing struct{ files []File } // sorted by name

// File is what is known of a file.
type File struct {
	Name         string
	ino          uint64
	size         int64
	mtime, ctime int64
	ID           object.ID
	mode         object.Mode
	racy         bool
	perm, was    uint16 // permission bits, and those of the blob that was here before, with wasKnown; 0: there was none
}

// wasKnown distinguishes a file without any permission from none.
const wasKnown = 1 << 15

// The racy window: the coarsest tick of a kernel's clock, or of a file system
// that keeps whole seconds.
const (
	racyWindow       = 20 * time.Millisecond
	RacyWindowCoarse = 2 * time.Second
)

// New returns an empty index.
func New() *Index { return &Index{} }

// IsRacy reports whether a write right after the stat, taken at a time, could
// have left it the same.
func IsRacy(info vfs.Info, at time.Time) bool {
	window := racyWindow
	if info.MtimeNs%int64(time.Second) == 0 {
		window = RacyWindowCoarse
	}
	limit := at.Add(-window).UnixNano()
	return info.MtimeNs >= limit || info.CtimeNs >= limit
}

// Len returns the number of files.
func (x *Index) Len() int {
	x.mu.RLock()
	defer x.mu.RUnlock()
	n := 0
	for _, d := range x.dirs.All() {
		n += len(d.files)
	}
	return n
}

// Empty reports whether nothing is known.
func (x *Index) Empty() bool {
	x.mu.RLock()
	defer x.mu.RUnlock()
	return x.dirs.Len() == 0
}

func find(d *listing, name string) (int, bool) {
	return slices.BinarySearchFunc(d.files, name, func(f File, n string) int { return strings.Compare(f.Name, n) })
}

// Lookup returns what a file with this stat was. known is false if it has to be
// read; mode comes from the stat.
func (x *Index) Lookup(p wspath.Path, info vfs.Info) (id object.ID, known bool) {
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
	return f.ID, f.Holds(info)
}

// IsAnother reports whether the file with an inode number is not the one that was last
// seen at a path. Where none was, nothing is known.
func (x *Index) IsAnother(p wspath.Path, ino uint64) bool {
	x.mu.RLock()
	defer x.mu.RUnlock()
	if d := x.dirs.Get(p.Dir()); d != nil {
		if i, ok := find(d, p.Base()); ok {
			return d.files[i].ino != ino
		}
	}
	return false
}

// Perm returns the permission bits that a file had when it was a blob: the one that
// it is, or the one before.
func (x *Index) Perm(p wspath.Path, id object.ID) (perm fs.FileMode, known bool) {
	x.mu.RLock()
	defer x.mu.RUnlock()
	if d := x.dirs.Get(p.Dir()); d != nil {
		if i, ok := find(d, p.Base()); ok && d.files[i].ID == id {
			return fs.FileMode(d.files[i].perm), true
		} else if ok && d.files[i].was != 0 {
			return fs.FileMode(d.files[i].was).Perm(), true
		}
	}
	return 0, false
}

// Holds reports whether a file with this stat is still what it was.
func (f *File) Holds(info vfs.Info) bool {
	return !f.racy && f.ino == info.Ino && f.size == info.Size && f.mtime == info.MtimeNs && f.ctime == info.CtimeNs &&
		(f.mode == object.Symlink) == info.IsSymlink()
}

// Files returns a copy of what is known of a directory's files, by name.
func (x *Index) Files(dir wspath.Path) []File {
	x.mu.RLock()
	defer x.mu.RUnlock()
	if d := x.dirs.Get(dir); d != nil {
		return slices.Clone(d.files)
	}
	return nil
}

// Names returns the paths at which files with some inodes were last seen.
func (x *Index) Names(inodes map[uint64]bool) (out []wspath.Path) {
	x.mu.RLock()
	defer x.mu.RUnlock()
	for dir, d := range x.dirs.All() {
		for i := range d.files {
			if inodes[d.files[i].ino] {
				out = append(out, dir.Join(d.files[i].Name))
			}
		}
	}
	return out
}

// Put records what a file was when its stat was taken.
func (x *Index) Put(p wspath.Path, info vfs.Info, id object.ID, mode object.Mode, at time.Time) {
	f := File{Name: p.Base(), ino: info.Ino, size: info.Size, mtime: info.MtimeNs, ctime: info.CtimeNs, ID: id, mode: mode, racy: IsRacy(info, at),
		perm: uint16(info.Mode.Perm())}
	x.changes.Add(1)
	x.mu.Lock()
	defer x.mu.Unlock()
	dir := p.Dir()
	d := x.dirs.Get(dir)
	if d == nil {
		d = &listing{}
		x.dirs.Put(wspath.Path(strings.Clone(string(dir))), d)
	}
	i, ok := find(d, f.Name)
	if ok {
		was := &d.files[i]
		if f.Name, f.was = was.Name, was.was; was.ID != id {
			f.was = was.perm | wasKnown
		}
		*was = f
		return
	}
	f.Name = strings.Clone(f.Name) // not a window into a longer path
	d.files = slices.Insert(d.files, i, f)
}

// DropFile forgets a file.
func (x *Index) DropFile(p wspath.Path) {
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

// DropTree forgets a path and everything under it.
func (x *Index) DropTree(p wspath.Path) {
	x.DropFile(p)
	x.changes.Add(1)
	x.mu.Lock()
	defer x.mu.Unlock()
	x.dirs.Cut(p)
}

// MoveTree follows a folder's rename, which changes no stat of what is in it.
func (x *Index) MoveTree(from, to wspath.Path) {
	x.DropTree(to)
	x.changes.Add(1)
	x.mu.Lock()
	defer x.mu.Unlock()
	for dir, d := range x.dirs.Cut(from) {
		rel, _ := dir.Rel(from)
		x.dirs.Put(to.Join(string(rel)), d)
	}
}

// Forget drops the files that are one of the blobs: they are read again.
func (x *Index) Forget(blobs map[object.ID]bool) {
	x.changes.Add(1)
	x.mu.Lock()
	defer x.mu.Unlock()
	for dir, d := range x.dirs.All() {
		d.files = slices.DeleteFunc(d.files, func(f File) bool { return blobs[f.ID] })
		if len(d.files) == 0 {
			x.dirs.Delete(dir)
		}
	}
}

// Take takes over what another index knows of files that it does not know.
func (x *Index) Take(from *Index) {
	from.mu.RLock()
	defer from.mu.RUnlock()
	x.changes.Add(1)
	x.mu.Lock()
	defer x.mu.Unlock()
	for dir, d := range from.dirs.All() {
		if x.dirs.Get(dir) == nil {
			x.dirs.Put(dir, &listing{slices.Clone(d.files)})
		}
	}
}
