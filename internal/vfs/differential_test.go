package vfs

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"pgregory.net/rapid"

	"umbra/internal/need"
)

// pairOf drives a real directory and a Mem with the same calls; every answer has
// to be the same, errno for errno.
type pairOf struct {
	t       *rapid.T
	disk    FS
	mem     FS
	handles []filePair
}

type filePair struct{ disk, mem File }

// errnoOf gives the errno of an error, or its text where there is none.
func errnoOf(err error) string {
	if err == nil {
		return ""
	}
	if errno, ok := errors.AsType[syscall.Errno](err); ok {
		return errno.Error()
	}
	for _, known := range []error{fs.ErrClosed, io.EOF} {
		if errors.Is(err, known) {
			return known.Error()
		}
	}
	return err.Error()
}

func (p *pairOf) same(call string, disk, mem error) bool {
	if d, m := errnoOf(disk), errnoOf(mem); d != m {
		p.t.Fatalf("%s: disk %q, mem %q", call, d, m)
	}
	return disk == nil
}

func (p *pairOf) both(call string, do func(FS) error) {
	p.same(call, do(p.disk), do(p.mem))
}

func sameInfo(t *rapid.T, call string, d, m Info) {
	// Directories' sizes and link counts are the file system's own affair.
	if d.Mode.IsDir() && m.Mode.IsDir() {
		d.Size, m.Size, d.Nlink, m.Nlink = 0, 0, 0, 0
	}
	if d.Mode != m.Mode || d.Size != m.Size || d.Nlink != m.Nlink || d.UID != m.UID || d.GID != m.GID {
		t.Fatalf("%s: disk %+v, mem %+v", call, d, m)
	}
}

func drawName(t *rapid.T, label string) string {
	parts := rapid.SliceOfN(rapid.SampledFrom([]string{"a", "b", "c", "\xff\n"}), 1, 3).Draw(t, label)
	return strings.Join(parts, "/")
}

func (p *pairOf) open(name string, flag int, perm fs.FileMode) {
	call := fmt.Sprintf("open %q %#x", name, flag)
	d, dErr := p.disk.OpenFile(name, flag, perm)
	m, mErr := p.mem.OpenFile(name, flag, perm)
	if p.same(call, dErr, mErr) {
		p.handles = append(p.handles, filePair{d, m})
	}
}

// step is one random call.
func (p *pairOf) step() {
	t := p.t
	a := drawName(t, "a")
	perm := rapid.SampledFrom([]fs.FileMode{0o644, 0o755, 0o700, 0o400}).Draw(t, "perm")
	switch op := rapid.SampledFrom([]string{"open", "open", "tmpfile", "linkfile", "mkdir", "mkdir", "symlink", "link", "rename",
		"rename", "noreplace", "exchange", "remove", "chmod", "syncdir", "stat", "readdir", "sub", "handle", "handle", "close"}).Draw(t, "op"); op {
	case "open":
		flag := rapid.SampledFrom([]int{os.O_RDONLY, os.O_WRONLY, os.O_RDWR}).Draw(t, "mode") |
			rapid.SampledFrom([]int{0, os.O_CREATE, os.O_CREATE | os.O_EXCL, os.O_APPEND, os.O_CREATE | os.O_TRUNC}).Draw(t, "flags")
		p.open(a, flag, perm)
	case "tmpfile":
		d, dErr := p.disk.CreateUnlinked(a, perm)
		m, mErr := p.mem.CreateUnlinked(a, perm)
		if p.same("tmpfile "+a, dErr, mErr) {
			p.handles = append(p.handles, filePair{d, m})
		}
	case "linkfile":
		if h, ok := p.handle(); ok {
			p.same("linkfile "+a, p.disk.LinkFile(h.disk, a), p.mem.LinkFile(h.mem, a))
		}
	case "mkdir":
		p.both("mkdir "+a, func(f FS) error { return f.Mkdir(a, perm) })
	case "symlink":
		target := rapid.SampledFrom([]string{"a", "b", "../a", "a/../b", "../../b", "/a", "a/", ".", "..", "./c", "", "c/b", "b//a"}).Draw(t, "target")
		p.both(fmt.Sprintf("symlink %q %q", target, a), func(f FS) error { return f.Symlink(target, a) })
	case "remove":
		p.both("remove "+a, func(f FS) error { return f.Remove(a) })
	case "chmod":
		p.both("chmod "+a, func(f FS) error { return f.Chmod(a, perm) })
	case "syncdir":
		p.both("syncdir "+a, func(f FS) error { return f.SyncDir(a) })
	case "stat":
		p.stat(a)
	case "readdir":
		p.list(a)
	case "sub":
		p.sub(a)
	case "handle":
		if h, ok := p.handle(); ok {
			p.use(h)
		}
	case "close":
		if h, ok := p.handle(); ok {
			p.same("close", h.disk.Close(), h.mem.Close())
		}
	default:
		b := drawName(t, "b")
		p.both(fmt.Sprintf("%s %q %q", op, a, b), func(f FS) error {
			switch op {
			case "link":
				return f.Link(a, b)
			case "rename":
				return f.Rename(a, b)
			case "noreplace":
				return f.RenameNoReplace(a, b)
			default:
				return f.Exchange(a, b)
			}
		})
	}
}

func (p *pairOf) handle() (filePair, bool) {
	if len(p.handles) == 0 {
		return filePair{}, false
	}
	return rapid.SampledFrom(p.handles).Draw(p.t, "handle"), true
}

func (p *pairOf) stat(name string) {
	for _, stat := range []func(FS) (Info, error){
		func(f FS) (Info, error) { return f.Lstat(name) },
		func(f FS) (Info, error) { return f.Stat(name) },
	} {
		d, dErr := stat(p.disk)
		m, mErr := stat(p.mem)
		if p.same("stat "+name, dErr, mErr) {
			sameInfo(p.t, "stat "+name, d, m)
		}
	}
	d, dErr := p.disk.Readlink(name)
	m, mErr := p.mem.Readlink(name)
	if p.same("readlink "+name, dErr, mErr); d != m {
		p.t.Fatalf("readlink %q: disk %q, mem %q", name, d, m)
	}
}

func (p *pairOf) list(name string) []DirEntry {
	d, dErr := p.disk.ReadDir(name)
	m, mErr := p.mem.ReadDir(name)
	if !p.same("readdir "+name, dErr, mErr) {
		return nil
	}
	types := map[string]fs.FileMode{}
	for _, e := range d {
		types[e.Name] = e.Type
	}
	for _, e := range m {
		if kind, ok := types[e.Name]; !ok || kind != e.Type || len(d) != len(m) {
			p.t.Fatalf("readdir %q: disk %v, mem %v", name, d, m)
		}
	}
	return m
}

func (p *pairOf) sub(name string) {
	d, dErr := p.disk.Sub(name)
	m, mErr := p.mem.Sub(name)
	if !p.same("sub "+name, dErr, mErr) {
		return
	}
	in := &pairOf{t: p.t, disk: d, mem: m, handles: p.handles}
	for range rapid.IntRange(1, 4).Draw(p.t, "steps in the sub") {
		in.stat(drawName(p.t, "in"))
		b := drawName(p.t, "b")
		in.both("mkdir in sub "+b, func(f FS) error { return f.Mkdir(b, 0o755) })
		p.across(d, m)
	}
	need.NoError(p.t, d.Close())
}

// across renames between the tree and a sub of it.
func (p *pairOf) across(diskSub, memSub FS) {
	here, there := drawName(p.t, "here"), drawName(p.t, "there")
	do := func(f, sub Crosser) error { return f.ExchangeWith(here, sub.(FS), there) }
	call := "exchange"
	if rapid.Bool().Draw(p.t, "move") {
		do = func(f, sub Crosser) error { return f.MoveFrom(sub.(FS), there, here) }
		call = "move"
	}
	a, b := [2]Crosser{p.disk.(Crosser), p.mem.(Crosser)}, [2]Crosser{diskSub.(Crosser), memSub.(Crosser)}
	if rapid.Bool().Draw(p.t, "from here") {
		a, b = b, a
	}
	p.same(fmt.Sprintf("%s %q with %q of a sub", call, here, there), do(a[0], b[0]), do(a[1], b[1]))
}

// use makes a random call on an open file.
func (p *pairOf) use(h filePair) {
	t := p.t
	size := rapid.IntRange(0, 2000).Draw(t, "size")
	off := int64(rapid.IntRange(-1, 3000).Draw(t, "off"))
	data := []byte(strings.Repeat(rapid.SampledFrom([]string{"x", "yz", "\x00"}).Draw(t, "data"), size))
	buf := func() []byte { return make([]byte, size) }
	moved := func(call string, do func(File, []byte) (int, error)) {
		d, m := append(buf(), data...), append(buf(), data...)
		dn, dErr := do(h.disk, d)
		mn, mErr := do(h.mem, m)
		if p.same(call, dErr, mErr); dn != mn || string(d) != string(m) {
			t.Fatalf("%s: disk %d, mem %d bytes", call, dn, mn)
		}
	}
	switch op := rapid.SampledFrom([]string{"write", "writeat", "read", "readat", "seek", "truncate", "allocate", "sync", "stat", "chmod", "lease"}).Draw(t, "file op"); op {
	case "write":
		moved(op, func(f File, b []byte) (int, error) { return f.Write(b) })
	case "writeat":
		moved(op, func(f File, b []byte) (int, error) { return f.WriteAt(b, off) })
	case "read":
		moved(op, func(f File, b []byte) (int, error) { return f.Read(b) })
	case "readat":
		moved(op, func(f File, b []byte) (int, error) { return f.ReadAt(b, off) })
	case "seek":
		info, err := h.mem.Stat()
		if err == nil && info.IsDir() {
			return // a position in a directory is a cookie
		}
		whence := rapid.IntRange(0, 2).Draw(t, "whence")
		d, dErr := h.disk.Seek(off, whence)
		m, mErr := h.mem.Seek(off, whence)
		if p.same(op, dErr, mErr); d != m {
			t.Fatalf("seek: disk %d, mem %d", d, m)
		}
	case "truncate":
		p.same(op, h.disk.Truncate(off), h.mem.Truncate(off))
	case "allocate":
		p.same(op, h.disk.Allocate(off), h.mem.Allocate(off))
	case "sync":
		p.same(op, errors.Join(h.disk.Datasync(), h.disk.Sync()), errors.Join(h.mem.Datasync(), h.mem.Sync()))
	case "stat":
		d, dErr := h.disk.Stat()
		m, mErr := h.mem.Stat()
		if p.same(op, dErr, mErr) {
			sameInfo(t, op, d, m)
		}
	case "chmod":
		p.same(op, h.disk.Chmod(0o640), h.mem.Chmod(0o640))
	case "lease":
		if d, m := h.disk.Writers(), h.mem.Writers(); d != m {
			t.Fatalf("open for writing: disk %v, mem %v", d, m)
		}
	}
}

// trees compares everything below a directory, with which names are one inode.
func (p *pairOf) trees(dir string, inodes map[uint64]uint64) {
	for _, e := range p.list(dir) {
		name := joinName(dir, e.Name)
		p.stat(name)
		d, err := p.disk.Lstat(name)
		need.NoError(p.t, err)
		m, err := p.mem.Lstat(name)
		need.NoError(p.t, err)
		if ino, ok := inodes[d.Ino]; ok && ino != m.Ino {
			p.t.Fatalf("%q is another inode", name)
		}
		inodes[d.Ino] = m.Ino
		switch {
		case d.IsDir():
			p.trees(name, inodes)
		case d.IsRegular():
			db, dErr := ReadFile(p.disk, name)
			mb, mErr := ReadFile(p.mem, name)
			if p.same("read "+name, dErr, mErr); string(db) != string(mb) {
				p.t.Fatalf("%q differs", name)
			}
		}
	}
}

func TestMemIsAsTheDisk(t *testing.T) {
	for name, open := range osImplementations() {
		t.Run(name, func(t *testing.T) {
			base := t.TempDir()
			rapid.Check(t, func(t *rapid.T) {
				dir, err := os.MkdirTemp(base, "")
				need.NoError(t, err)
				defer os.RemoveAll(dir)
				need.NoError(t, os.Chmod(dir, 0o755))
				disk, err := open(dir)
				need.NoError(t, err)
				defer disk.Close()
				now := time.Unix(1000, 0)
				mem := NewMem(MemOptions{Umask: 0o022, Now: func() time.Time { now = now.Add(time.Millisecond); return now }})
				p := &pairOf{t: t, disk: disk, mem: mem}
				defer func() {
					for _, h := range p.handles {
						_ = h.disk.Close() // some are closed already
					}
				}()
				for range rapid.IntRange(1, 60).Draw(t, "steps") {
					p.step()
				}
				p.trees(".", map[uint64]uint64{})
			})
		})
	}
}
