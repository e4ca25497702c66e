package vfs

import (
	"io/fs"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Mem is a file system in memory with the semantics, and the errnos, of Linux:
// inodes, hard and symbolic links, files without a name, exchange. It knows
// besides what a real disk would hold: see CrashClone.
//
// Permission bits are kept, not enforced, as for root. Close changes nothing: a
// test closes what runs on a Mem and opens it again.
type Mem struct {
	s   *memState
	top *node
}

// MemOptions are the ways in which a Mem can differ. The zero value is good.
type MemOptions struct {
	// Now is the clock of mtime and ctime; nil is time.Now.
	Now func() time.Time
	// Umask is taken from the bits of what is made.
	Umask fs.FileMode
}

// memState is what a Mem shares with its Subs.
type memState struct {
	mu   sync.RWMutex
	opt  MemOptions
	root *node
	next uint64   // the lowest inode number never used
	free []uint64 // numbers of removed files, sorted: used again first, as ext4 does
	entryLog
}

// memDev is the device number of every Mem.
const memDev = 0x6d656d

const firstIno = 2

// node is an inode.
type node struct {
	ino          uint64
	mode         fs.FileMode
	diskMode     fs.FileMode // after a power cut, like fileData.disk
	nlink        uint64      // a directory's own two, and one for each in it
	uid, gid     uint32
	mtime, ctime int64
	diskMtime    int64 // like diskMode; a change of an entry that names it is later

	opens, writers int  // handles
	logged         int  // changes in the entryLog that name it
	linkable       bool // made without a name, and never had one
	freed          bool

	target string   // a symbolic link's
	data   fileData // a regular file's

	entries map[string]*node // a directory's
	parent  *node
	dirLog
}

// NewMem makes an empty tree. All of it, the root alone, is durable.
func NewMem(opt MemOptions) *Mem {
	if opt.Now == nil {
		opt.Now = time.Now
	}
	s := &memState{opt: opt, next: firstIno}
	s.root = s.newNode(fs.ModeDir | 0o755)
	s.root.nlink = 2
	s.root.diskMode = s.root.mode
	return &Mem{s: s, top: s.root}
}

func (s *memState) now() int64 { return s.opt.Now().UnixNano() }

func (s *memState) newNode(mode fs.FileMode) *node {
	var ino uint64
	if len(s.free) > 0 {
		ino = s.free[0]
		s.free = slices.Delete(s.free, 0, 1)
	} else {
		ino = s.next
		s.next++
	}
	now := s.now()
	n := &node{ino: ino, mode: mode, diskMode: mode, mtime: now, ctime: now,
		uid: uint32(os.Getuid()), gid: uint32(os.Getgid())}
	if mode.IsDir() {
		n.entries = map[string]*node{}
		n.disk = map[string]*node{}
		n.last = map[string]*entryOp{}
	}
	return n
}

// reclaim frees n's number once nothing, not even a crash, can bring n back.
func (s *memState) reclaim(n *node) {
	if n.nlink > 0 || n.opens > 0 || n.logged > 0 || n.freed {
		return
	}
	n.freed = true
	i, _ := slices.BinarySearch(s.free, n.ino)
	s.free = slices.Insert(s.free, i, n.ino)
}

func (n *node) info() Info {
	size := int64(len(n.data.cur))
	if n.target != "" {
		size = int64(len(n.target))
	}
	return Info{Mode: n.mode, Size: size, Dev: memDev, Ino: n.ino, Nlink: n.nlink,
		UID: n.uid, GID: n.gid, MtimeNs: n.mtime, CtimeNs: n.ctime}
}

func (n *node) isLink() bool { return n.mode&fs.ModeSymlink != 0 }

// isAbove reports whether n is d or a directory above it.
func (n *node) isAbove(d *node) bool {
	for ; d != nil; d = d.parent {
		if d == n {
			return true
		}
	}
	return false
}

// maxLinks is Linux' MAXSYMLINKS.
const maxLinks = 40

// walk follows name, links in every component included, from the top.
func (m *Mem) walk(name string) (*node, error) {
	path := []*node{m.top}
	parts := strings.Split(name, "/")
	links := 0
	for len(parts) > 0 {
		part := parts[0]
		parts = parts[1:]
		cur := path[len(path)-1]
		if !cur.mode.IsDir() {
			return nil, syscall.ENOTDIR
		}
		switch {
		case part == "" || part == ".":
			continue
		case part == "..":
			if len(path) == 1 {
				return nil, ErrEscapes
			}
			path = path[:len(path)-1]
			continue
		case len(part) > maxNameBytes:
			return nil, syscall.ENAMETOOLONG
		}
		next := cur.entries[part]
		switch {
		case next == nil:
			return nil, syscall.ENOENT
		case !next.isLink():
			path = append(path, next)
			continue
		}
		if links++; links > maxLinks {
			return nil, syscall.ELOOP
		}
		if strings.HasPrefix(next.target, "/") {
			return nil, ErrEscapes
		}
		parts = append(strings.Split(next.target, "/"), parts...)
	}
	return path[len(path)-1], nil
}

// walkDir is walk for a directory.
func (m *Mem) walkDir(name string) (*node, error) {
	n, err := m.walk(name)
	if err == nil && !n.mode.IsDir() {
		return nil, syscall.ENOTDIR
	}
	return n, err
}

// slot is a place in a directory, and its entry, if there is one.
type slot struct {
	dir  *node
	name string
	node *node
}

// slot finds an entry without following it. check is checkName or checkEntry.
func (m *Mem) slot(name string, check func(string) error) (slot, error) {
	if err := check(name); err != nil {
		return slot{}, err
	}
	if name == "." {
		return slot{dir: m.top, name: ".", node: m.top}, nil
	}
	dir, base := splitName(name)
	d, err := m.walkDir(dir)
	if err != nil {
		return slot{}, err
	}
	return slot{dir: d, name: base, node: d.entries[base]}, nil
}

// existing is slot for what must be there.
func (m *Mem) existing(name string, check func(string) error) (slot, error) {
	at, err := m.slot(name, check)
	if err == nil && at.node == nil {
		err = syscall.ENOENT
	}
	return at, err
}

// vacant is slot for what must not be there yet.
func (m *Mem) vacant(name string) (slot, error) {
	at, err := m.slot(name, checkEntry)
	switch {
	case err != nil:
	case at.node != nil:
		err = syscall.EEXIST
	case at.dir.nlink == 0:
		err = syscall.ENOENT // the directory itself is removed
	}
	return at, err
}

// put changes entries, all at once, and logs that as one operation.
func (s *memState) put(changes ...entryChange) {
	now := s.now()
	for _, c := range changes {
		if c.before != nil {
			c.before.detach()
			c.before.ctime = now
		}
	}
	for _, c := range changes {
		if c.after == nil {
			delete(c.dir.entries, c.name)
		} else {
			c.dir.entries[c.name] = c.after
			c.after.attach(c.dir)
			c.after.ctime = now
			c.after.diskMtime = c.after.mtime
		}
		c.dir.mtime, c.dir.ctime = now, now
	}
	s.record(changes)
	for _, c := range changes {
		if c.before != nil {
			s.reclaim(c.before)
		}
	}
}

func (n *node) detach() {
	if !n.mode.IsDir() {
		n.nlink--
		return
	}
	n.nlink -= 2
	n.parent.nlink--
	n.parent = nil
}

func (n *node) attach(dir *node) {
	n.linkable = false
	if !n.mode.IsDir() {
		n.nlink++
		return
	}
	n.nlink += 2
	n.parent = dir
	dir.nlink++
}

// list gives a directory's entries in the order of their names.
func (n *node) list() []DirEntry {
	list := make([]DirEntry, 0, len(n.entries))
	for _, name := range sortedKeys(n.entries) {
		list = append(list, DirEntry{Name: name, Type: n.entries[name].mode.Type()})
	}
	return list
}

func sortedKeys(entries map[string]*node) []string { return slices.Sorted(maps.Keys(entries)) }
