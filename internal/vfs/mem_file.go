package vfs

import (
	"io"
	"io/fs"
	"os"
	"syscall"
)

// memFile is an open file or directory of a Mem.
type memFile struct {
	s      *memState
	n      *node
	name   string
	flag   int
	pos    int64
	closed bool
}

// memMaxFile is the size above which a write answers EFBIG.
const memMaxFile = 1 << 32

func newMemFile(s *memState, n *node, name string, flag int) *memFile {
	f := &memFile{s: s, n: n, name: name, flag: flag}
	n.opens++
	if f.writes() {
		n.writers++
	}
	return f
}

func (f *memFile) writes() bool { return f.flag&(os.O_WRONLY|os.O_RDWR) != 0 }

// update runs call alone, read concurrently with other reads; both refuse a closed
// file.
func (f *memFile) update(op string, call func() error) error {
	f.s.mu.Lock()
	defer f.s.mu.Unlock()
	return f.run(op, call)
}

func (f *memFile) read(op string, call func() error) error {
	f.s.mu.RLock()
	defer f.s.mu.RUnlock()
	return f.run(op, call)
}

func (f *memFile) run(op string, call func() error) error {
	if f.closed {
		return pathErr(op, f.name, fs.ErrClosed)
	}
	return pathErr(op, f.name, call())
}

func (f *memFile) Close() error {
	return f.update("close", func() error {
		f.closed = true
		f.n.opens--
		if f.writes() {
			f.n.writers--
		}
		f.s.reclaim(f.n)
		return nil
	})
}

// copyAt is the reading half of Read and ReadAt.
func (f *memFile) copyAt(p []byte, off int64) (int, error) {
	switch {
	case off < 0:
		return 0, syscall.EINVAL
	case f.flag&os.O_WRONLY != 0:
		return 0, syscall.EBADF
	case f.n.mode.IsDir():
		return 0, syscall.EISDIR
	case off >= int64(len(f.n.data.cur)):
		return 0, nil
	}
	return copy(p, f.n.data.cur[off:]), nil
}

func (f *memFile) Read(p []byte) (n int, err error) {
	err = f.update("read", func() error {
		n, err = f.copyAt(p, f.pos)
		f.pos += int64(n)
		return err
	})
	if err == nil && n == 0 && len(p) > 0 {
		return 0, io.EOF
	}
	return n, err
}

func (f *memFile) ReadAt(p []byte, off int64) (n int, err error) {
	err = f.read("read", func() error {
		n, err = f.copyAt(p, off)
		return err
	})
	if err == nil && n < len(p) {
		return n, io.EOF
	}
	return n, err
}

// put is the writing half of Write and WriteAt.
func (f *memFile) put(p []byte, off int64) error {
	switch {
	case off < 0:
		return syscall.EINVAL
	case !f.writes():
		return syscall.EBADF
	case off > memMaxFile-int64(len(p)):
		return syscall.EFBIG
	case len(p) == 0:
		return nil
	}
	f.n.data.write(p, int(off))
	f.touch()
	return nil
}

func (f *memFile) touch() {
	f.n.mtime = f.s.now()
	f.n.ctime = f.n.mtime
}

func (f *memFile) Write(p []byte) (int, error) {
	err := f.update("write", func() error {
		pos := f.pos
		if f.flag&os.O_APPEND != 0 {
			pos = int64(len(f.n.data.cur))
		}
		if err := f.put(p, pos); err != nil {
			return err
		}
		f.pos = pos + int64(len(p))
		return nil
	})
	if err != nil {
		return 0, err
	}
	return len(p), nil
}

func (f *memFile) WriteAt(p []byte, off int64) (int, error) {
	err := f.update("write", func() error {
		if f.flag&os.O_APPEND != 0 {
			return syscall.EINVAL
		}
		return f.put(p, off)
	})
	if err != nil {
		return 0, err
	}
	return len(p), nil
}

func (f *memFile) Seek(offset int64, whence int) (pos int64, err error) {
	err = f.update("seek", func() error {
		switch whence {
		case io.SeekStart:
		case io.SeekCurrent:
			offset += f.pos
		case io.SeekEnd:
			offset += int64(len(f.n.data.cur))
		default:
			return syscall.EINVAL
		}
		if offset < 0 {
			return syscall.EINVAL
		}
		f.pos, pos = offset, offset
		return nil
	})
	return pos, err
}

func (f *memFile) Stat() (info Info, err error) {
	err = f.read("stat", func() error {
		info = f.n.info()
		return nil
	})
	return info, err
}

func (f *memFile) Truncate(size int64) error {
	return f.update("truncate", func() error {
		switch {
		case size < 0 || !f.writes():
			return syscall.EINVAL
		case size > memMaxFile:
			return syscall.EFBIG
		}
		f.n.data.setSize(int(size))
		f.touch()
		return nil
	})
}

func (f *memFile) Chmod(perm fs.FileMode) error {
	return f.update("chmod", func() error {
		f.s.chmod(f.n, perm)
		return nil
	})
}

func (f *memFile) SetMtime(ns int64) error {
	return f.update("setmtime", func() error {
		f.n.mtime, f.n.ctime = ns, f.s.now()
		return nil
	})
}

func (f *memFile) Allocate(size int64) error {
	if size <= 0 {
		return nil
	}
	return f.update("allocate", func() error {
		switch {
		case !f.writes():
			return syscall.EBADF
		case size > memMaxFile:
			return syscall.EFBIG
		case size > int64(len(f.n.data.cur)):
			f.n.data.setSize(int(size))
			f.touch()
		}
		return nil
	})
}

func (f *memFile) Sync() error {
	return f.update("fsync", func() error {
		if f.n.mode.IsDir() {
			f.s.syncDir(f.n)
			return nil
		}
		f.n.data.sync()
		f.n.diskMode, f.n.diskMtime = f.n.mode, f.n.mtime
		return nil
	})
}

func (f *memFile) Datasync() error {
	return f.update("fdatasync", func() error {
		if f.n.mode.IsDir() {
			f.s.syncDir(f.n)
			return nil
		}
		f.n.data.sync()
		return nil
	})
}

// syncFailed is what a Sync or Datasync that failed leaves: for Inject.
func (f *memFile) syncFailed() {
	f.s.mu.Lock()
	defer f.s.mu.Unlock()
	f.n.data.clean()
}

// StartWriteout promises nothing, so a crash here keeps nothing for it.
func (f *memFile) StartWriteout() error {
	return f.read("writeout", func() error { return nil })
}

func (f *memFile) Writers() Writers {
	f.s.mu.RLock()
	defer f.s.mu.RUnlock()
	switch {
	case f.closed || !f.n.mode.IsRegular():
		return Unknown
	case f.n.writers > 0:
		return Yes
	}
	return No
}
