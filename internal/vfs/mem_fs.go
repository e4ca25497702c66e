package vfs

import (
	"cmp"
	"io/fs"
	"os"
	"syscall"
)

var _ FS = (*Mem)(nil)

// Close does nothing: see Mem.
func (m *Mem) Close() error { return nil }

// Sub shares the tree below dir.
func (m *Mem) Sub(dir string) (FS, error) {
	m.s.mu.RLock()
	defer m.s.mu.RUnlock()
	err := checkName(dir)
	var n *node
	if err == nil {
		n, err = m.walkDir(dir)
	}
	if err != nil {
		return nil, pathErr("sub", dir, err)
	}
	return &Mem{s: m.s, top: n}, nil
}

func (m *Mem) Open(name string) (File, error) { return m.OpenFile(name, os.O_RDONLY, 0) }

func (m *Mem) OpenFile(name string, flag int, perm fs.FileMode) (File, error) {
	m.s.mu.Lock()
	defer m.s.mu.Unlock()
	f, err := m.openFile(name, flag, perm)
	if err != nil {
		return nil, pathErr("open", name, err)
	}
	return f, nil
}

func (m *Mem) openFile(name string, flag int, perm fs.FileMode) (File, error) {
	at, err := m.slot(name, checkName)
	if err != nil {
		return nil, err
	}
	n, writes := at.node, flag&(os.O_WRONLY|os.O_RDWR) != 0
	switch {
	case name == "." && flag&os.O_CREATE != 0:
		return nil, syscall.EISDIR
	case n == nil && flag&os.O_CREATE == 0, n == nil && at.dir.nlink == 0:
		return nil, syscall.ENOENT
	case n == nil:
		n = m.s.newNode(perm & permBits &^ m.s.opt.Umask)
		m.s.put(entryChange{dir: at.dir, name: at.name, after: n})
	case flag&(os.O_CREATE|os.O_EXCL) == os.O_CREATE|os.O_EXCL:
		return nil, syscall.EEXIST
	case n.isLink():
		return nil, syscall.ELOOP
	case n.mode.IsDir() && (writes || flag&(os.O_CREATE|os.O_TRUNC) != 0):
		return nil, syscall.EISDIR
	case flag&os.O_TRUNC != 0:
		n.data.setSize(0)
		n.mtime = m.s.now()
		n.ctime = n.mtime
	}
	return newMemFile(m.s, n, name, flag), nil
}

// Plain is osFS's: every folder is.
func (m *Mem) Plain(dir string) (dev uint64, plain bool, err error) {
	m.s.mu.RLock()
	defer m.s.mu.RUnlock()
	if err = checkName(dir); err == nil {
		_, err = m.walkDir(dir)
	}
	if err != nil {
		return 0, false, pathErr("stat", dir, err)
	}
	return memDev, true, nil
}

func (m *Mem) CreateUnlinked(dir string, perm fs.FileMode) (File, error) {
	m.s.mu.Lock()
	defer m.s.mu.Unlock()
	err := checkName(dir)
	var d *node
	if err == nil {
		d, err = m.walkDir(dir)
	}
	if err == nil && d.nlink == 0 {
		err = syscall.ENOENT
	}
	if err != nil {
		return nil, pathErr("tmpfile", dir, err)
	}
	n := m.s.newNode(perm & permBits &^ m.s.opt.Umask)
	n.linkable = true
	return newMemFile(m.s, n, dir, os.O_RDWR), nil
}

func (m *Mem) LinkFile(f File, name string) error {
	file, ok := f.(*memFile)
	if !ok {
		return linkErr("linkfile", "", name, syscall.EINVAL)
	}
	m.s.mu.Lock()
	defer m.s.mu.Unlock()
	at, err := m.vacant(name)
	switch {
	case file.closed:
		err = fs.ErrClosed
	case err != nil:
	case file.s != m.s:
		err = syscall.EXDEV
	case file.n.mode.IsDir():
		err = syscall.EPERM
	case file.n.nlink == 0 && !file.n.linkable:
		err = syscall.ENOENT
	default:
		m.s.put(entryChange{dir: at.dir, name: at.name, after: file.n})
	}
	return linkErr("linkfile", file.name, name, err)
}

func (m *Mem) Lstat(name string) (Info, error) {
	m.s.mu.RLock()
	defer m.s.mu.RUnlock()
	at, err := m.existing(name, checkName)
	if err != nil {
		return Info{}, pathErr("lstat", name, err)
	}
	return at.node.info(), nil
}

func (m *Mem) Stat(name string) (Info, error) {
	m.s.mu.RLock()
	defer m.s.mu.RUnlock()
	err := checkName(name)
	var n *node
	if err == nil {
		n, err = m.walk(name)
	}
	if err != nil {
		return Info{}, pathErr("stat", name, err)
	}
	return n.info(), nil
}

func (m *Mem) Readlink(name string) (string, error) {
	m.s.mu.RLock()
	defer m.s.mu.RUnlock()
	at, err := m.existing(name, checkName)
	if err == nil && !at.node.isLink() {
		err = syscall.EINVAL
	}
	if err != nil {
		return "", pathErr("readlink", name, err)
	}
	return at.node.target, nil
}

func (m *Mem) ReadDir(name string) ([]DirEntry, error) {
	m.s.mu.RLock()
	defer m.s.mu.RUnlock()
	at, err := m.existing(name, checkName)
	if err == nil && !at.node.mode.IsDir() {
		err = syscall.ENOTDIR
	}
	if err != nil {
		return nil, pathErr("readdir", name, err)
	}
	return at.node.list(), nil
}

func (m *Mem) Mkdir(name string, perm fs.FileMode) error {
	if name == "." {
		return pathErr("mkdir", name, syscall.EEXIST)
	}
	m.s.mu.Lock()
	defer m.s.mu.Unlock()
	at, err := m.vacant(name)
	if err == nil {
		n := m.s.newNode(fs.ModeDir | perm&(fs.ModePerm|fs.ModeSticky)&^m.s.opt.Umask)
		m.s.put(entryChange{dir: at.dir, name: at.name, after: n})
	}
	return pathErr("mkdir", name, err)
}

func (m *Mem) Symlink(target, name string) error {
	m.s.mu.Lock()
	defer m.s.mu.Unlock()
	err := checkTarget(target)
	var at slot
	if err == nil {
		at, err = m.vacant(name)
	}
	if err == nil {
		n := m.s.newNode(fs.ModeSymlink | 0o777)
		n.target = target
		m.s.put(entryChange{dir: at.dir, name: at.name, after: n})
	}
	return linkErr("symlink", target, name, err)
}

func (m *Mem) Link(oldname, newname string) error {
	m.s.mu.Lock()
	defer m.s.mu.Unlock()
	return linkErr("link", oldname, newname, m.link(oldname, newname))
}

func (m *Mem) link(oldname, newname string) error {
	if err := cmp.Or(checkEntry(oldname), checkEntry(newname)); err != nil {
		return err
	}
	from, to, err := m.pair(m, oldname, newname)
	switch {
	case err != nil:
		return err
	case from.node == nil:
		return syscall.ENOENT
	case to.node != nil:
		return syscall.EEXIST
	case to.dir.nlink == 0:
		return syscall.ENOENT
	case from.node.mode.IsDir():
		return syscall.EPERM
	}
	m.s.put(entryChange{dir: to.dir, name: to.name, after: from.node})
	return nil
}

// pair finds two entries, the first of another tree of the disk, or m itself;
// neither need be there.
func (m *Mem) pair(other *Mem, a, b string) (from, to slot, err error) {
	if err := cmp.Or(checkEntry(a), checkEntry(b)); err != nil {
		return from, to, err
	}
	if from, err = other.slot(a, checkEntry); err == nil {
		to, err = m.slot(b, checkEntry)
	}
	return from, to, err
}

func (m *Mem) Rename(oldname, newname string) error {
	m.s.mu.Lock()
	defer m.s.mu.Unlock()
	return linkErr("rename", oldname, newname, m.rename(m, oldname, newname, true))
}

func (m *Mem) RenameNoReplace(oldname, newname string) error {
	m.s.mu.Lock()
	defer m.s.mu.Unlock()
	return linkErr("rename-noreplace", oldname, newname, m.rename(m, oldname, newname, false))
}

// MoveFrom is Crosser's.
func (m *Mem) MoveFrom(other FS, otherName, name string) error {
	m.s.mu.Lock()
	defer m.s.mu.Unlock()
	x, err := m.kin(other)
	if err == nil {
		err = m.rename(x, otherName, name, false)
	}
	return linkErr("rename-noreplace", otherName, name, err)
}

// kin gives another tree of the same disk.
func (m *Mem) kin(other FS) (*Mem, error) {
	x, ok := other.(*Mem)
	if !ok || x.s != m.s {
		return nil, syscall.EXDEV
	}
	return x, nil
}

// rename takes oldname from another tree of the disk, or m itself. It checks in
// the kernel's order.
func (m *Mem) rename(other *Mem, oldname, newname string, replace bool) error {
	from, to, err := m.pair(other, oldname, newname)
	switch {
	case err != nil:
		return err
	case from.node == nil:
		return syscall.ENOENT
	case to.node != nil && !replace:
		return syscall.EEXIST
	case from.node.isAbove(to.dir):
		return syscall.EINVAL
	case to.node == nil && to.dir.nlink == 0:
		return syscall.ENOENT
	case to.node == nil:
	case to.node.isAbove(from.dir):
		return syscall.ENOTEMPTY
	case to.node == from.node:
		return nil
	case from.node.mode.IsDir() && !to.node.mode.IsDir():
		return syscall.ENOTDIR
	case !from.node.mode.IsDir() && to.node.mode.IsDir():
		return syscall.EISDIR
	case len(to.node.entries) > 0:
		return syscall.ENOTEMPTY
	}
	m.s.put(
		entryChange{dir: from.dir, name: from.name, before: from.node},
		entryChange{dir: to.dir, name: to.name, before: to.node, after: from.node})
	return nil
}

func (m *Mem) Exchange(a, b string) error {
	m.s.mu.Lock()
	defer m.s.mu.Unlock()
	return linkErr("exchange", a, b, m.exchange(m, a, b))
}

// ExchangeWith is Crosser's.
func (m *Mem) ExchangeWith(name string, other FS, otherName string) error {
	m.s.mu.Lock()
	defer m.s.mu.Unlock()
	x, err := m.kin(other)
	if err == nil {
		err = m.exchange(x, otherName, name)
	}
	return linkErr("exchange", otherName, name, err)
}

func (m *Mem) exchange(other *Mem, a, b string) error {
	x, y, err := m.pair(other, a, b)
	switch {
	case err != nil:
		return err
	case x.node == nil || y.node == nil:
		return syscall.ENOENT
	case x.node.isAbove(y.dir), y.node.isAbove(x.dir):
		return syscall.EINVAL
	case x.node == y.node:
		return nil
	}
	m.s.put(
		entryChange{dir: x.dir, name: x.name, before: x.node, after: y.node},
		entryChange{dir: y.dir, name: y.name, before: y.node, after: x.node})
	return nil
}

func (m *Mem) Remove(name string) error {
	m.s.mu.Lock()
	defer m.s.mu.Unlock()
	at, err := m.existing(name, checkEntry)
	if err == nil && len(at.node.entries) > 0 {
		err = syscall.ENOTEMPTY
	}
	if err == nil {
		m.s.put(entryChange{dir: at.dir, name: at.name, before: at.node})
	}
	return pathErr("remove", name, err)
}

func (m *Mem) Chmod(name string, perm fs.FileMode) error {
	m.s.mu.Lock()
	defer m.s.mu.Unlock()
	at, err := m.existing(name, checkName)
	if err == nil && at.node.isLink() {
		err = syscall.EOPNOTSUPP
	}
	if err == nil {
		m.s.chmod(at.node, perm)
	}
	return pathErr("chmod", name, err)
}

func (s *memState) chmod(n *node, perm fs.FileMode) {
	n.mode = n.mode&^permBits | perm&permBits
	n.ctime = s.now()
}

func (m *Mem) SyncDir(name string) error {
	m.s.mu.Lock()
	defer m.s.mu.Unlock()
	err := checkName(name)
	var d *node
	if err == nil {
		d, err = m.walkDir(name)
	}
	if err == nil {
		m.s.syncDir(d)
	}
	return pathErr("syncdir", name, err)
}
