package vfs

import (
	"errors"
	"io"
	"io/fs"
	"os"
)

// Export writes the tree below m's top into dir, a real directory that is there
// already: hard links stay links, modes are kept, times are not. It is for
// checks by real tools, and syncs nothing.
func (m *Mem) Export(dir string) error {
	to, err := OS(dir)
	if err != nil {
		return err
	}
	defer to.Close()
	return copyTree(m, to)
}

// ImportMem returns a Mem with the entries below dir, all durable. Entries that are
// neither file, directory nor symbolic link are left out.
func ImportMem(dir string, opt MemOptions) (*Mem, error) {
	from, err := OS(dir)
	if err != nil {
		return nil, err
	}
	defer from.Close()
	umask := opt.Umask
	opt.Umask = 0
	m := NewMem(opt)
	if err := copyTree(from, m); err != nil {
		return nil, err
	}
	m.s.opt.Umask = umask
	return m.settle(), nil
}

// settle makes everything durable.
func (m *Mem) settle() *Mem {
	m.s.mu.Lock()
	defer m.s.mu.Unlock()
	for _, op := range m.s.ops {
		m.s.commit(op)
	}
	m.s.ops = nil
	seen := map[*node]bool{}
	var visit func(n *node)
	visit = func(n *node) {
		if seen[n] {
			return
		}
		seen[n] = true
		n.data.sync()
		n.diskMode, n.diskMtime = n.mode, n.mtime
		for _, child := range n.entries {
			visit(child)
		}
	}
	visit(m.s.root)
	return m
}

// treeCopy copies one tree into another, empty or not.
type treeCopy struct {
	from, to FS
	links    map[[2]uint64]string // device and inode to the first name copied
}

func copyTree(from, to FS) error {
	c := &treeCopy{from: from, to: to, links: map[[2]uint64]string{}}
	top, err := from.Lstat(".")
	if err != nil {
		return err
	}
	if err := c.dir("."); err != nil {
		return err
	}
	return to.Chmod(".", top.Mode)
}

func (c *treeCopy) dir(name string) error {
	list, err := c.from.ReadDir(name)
	if err != nil {
		return err
	}
	for _, e := range list {
		if err := c.entry(joinName(name, e.Name)); err != nil {
			return err
		}
	}
	return nil
}

func (c *treeCopy) entry(name string) error {
	info, err := c.from.Lstat(name)
	if err != nil {
		return err
	}
	switch {
	case info.IsDir():
		// Written into first, whatever its own bits say.
		if err := c.to.Mkdir(name, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
		if err := c.dir(name); err != nil {
			return err
		}
		return c.to.Chmod(name, info.Mode)
	case !info.IsRegular() && !info.IsSymlink():
		return nil
	}
	id := [2]uint64{info.Dev, info.Ino}
	if first, ok := c.links[id]; ok {
		return c.to.Link(first, name)
	}
	if info.Nlink > 1 {
		c.links[id] = name
	}
	if info.IsSymlink() {
		target, err := c.from.Readlink(name)
		if err != nil {
			return err
		}
		return c.to.Symlink(target, name)
	}
	return c.file(name, info)
}

func (c *treeCopy) file(name string, info Info) error {
	in, err := c.from.Open(name)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := c.to.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Chmod(info.Mode), out.Close())
}
