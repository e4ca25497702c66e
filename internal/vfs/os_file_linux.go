package vfs

import (
	"io"
	"io/fs"
	"os"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// osFile is an open file. Its calls go straight to the descriptor: an os.File
// would ask the poller about each file opened without blocking.
type osFile struct {
	sharedFD
	name string
	flag int
}

func newOSFile(fd int, name string, flag int) *osFile {
	f := &osFile{name: name, flag: flag}
	f.fd = fd
	return f
}

// One call moves at most 1 GiB, under Linux' own limit of 2 GiB less a page.
const maxIO = 1 << 30

// with runs call with the descriptor, again if a signal interrupted it.
func (f *osFile) with(call func(fd int) error) error {
	fd, err := f.acquire()
	if err != nil {
		return err
	}
	defer f.release()
	return retry(func() error { return call(fd) })
}

// fill repeats a read or write until p is done, it fails, or nothing moves. An
// empty p is one call too, for its error.
func (f *osFile) fill(p []byte, call func(fd int, p []byte, done int) (int, error)) (done int, err error) {
	fd, err := f.acquire()
	if err != nil {
		return 0, err
	}
	defer f.release()
	for {
		n, err := call(fd, p[done:min(len(p), done+maxIO)], done)
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return done, err
		}
		done += max(n, 0)
		if n <= 0 || done == len(p) {
			return done, nil
		}
	}
}

func (f *osFile) Close() error { return pathErr("close", f.name, f.close()) }

func (f *osFile) Read(p []byte) (n int, err error) {
	err = f.with(func(fd int) error {
		n, err = unix.Read(fd, p[:min(len(p), maxIO)])
		return err
	})
	if err != nil {
		return 0, pathErr("read", f.name, err)
	}
	if n == 0 && len(p) > 0 {
		return 0, io.EOF
	}
	return n, nil
}

func (f *osFile) ReadAt(p []byte, off int64) (int, error) {
	n, err := f.fill(p, func(fd int, p []byte, done int) (int, error) {
		return unix.Pread(fd, p, off+int64(done))
	})
	if err != nil {
		return n, pathErr("read", f.name, err)
	}
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

func (f *osFile) Write(p []byte) (int, error) {
	n, err := f.fill(p, func(fd int, p []byte, _ int) (int, error) { return unix.Write(fd, p) })
	return n, f.wrote(n, p, err)
}

func (f *osFile) WriteAt(p []byte, off int64) (int, error) {
	n, err := f.fill(p, func(fd int, p []byte, done int) (int, error) {
		if f.flag&os.O_APPEND != 0 {
			// pwrite would append, whatever the offset: pwrite(2), BUGS.
			return 0, syscall.EINVAL
		}
		return unix.Pwrite(fd, p, off+int64(done))
	})
	return n, f.wrote(n, p, err)
}

func (f *osFile) wrote(n int, p []byte, err error) error {
	if err == nil && n < len(p) {
		err = io.ErrShortWrite
	}
	return pathErr("write", f.name, err)
}

func (f *osFile) Seek(offset int64, whence int) (pos int64, err error) {
	err = f.with(func(fd int) error {
		pos, err = unix.Seek(fd, offset, whence)
		return err
	})
	if err != nil {
		return 0, pathErr("seek", f.name, err)
	}
	return pos, nil
}

func (f *osFile) Stat() (Info, error) {
	var st unix.Stat_t
	if err := f.with(func(fd int) error { return unix.Fstat(fd, &st) }); err != nil {
		return Info{}, pathErr("stat", f.name, err)
	}
	return infoOf(&st), nil
}

func (f *osFile) Truncate(size int64) error {
	return pathErr("truncate", f.name, f.with(func(fd int) error { return unix.Ftruncate(fd, size) }))
}

func (f *osFile) Chmod(perm fs.FileMode) error {
	return pathErr("chmod", f.name, f.with(func(fd int) error { return unix.Fchmod(fd, unixMode(perm)) }))
}

func (f *osFile) SetMtime(ns int64) error {
	return pathErr("setmtime", f.name, f.with(func(fd int) error {
		ts := [2]unix.Timespec{{Nsec: unix.UTIME_OMIT}, unix.NsecToTimespec(ns)}
		// futimens(3), which package unix does not have.
		_, _, errno := unix.Syscall6(unix.SYS_UTIMENSAT, uintptr(fd), 0, uintptr(unsafe.Pointer(&ts)), 0, 0, 0)
		if errno != 0 {
			return errno
		}
		return nil
	}))
}

func (f *osFile) Allocate(size int64) error {
	if size <= 0 {
		return nil // fallocate refuses nothing at all
	}
	return pathErr("allocate", f.name, f.with(func(fd int) error {
		err := unix.Fallocate(fd, 0, 0, size)
		if err != unix.EOPNOTSUPP && err != unix.ENOSYS {
			return err
		}
		var st unix.Stat_t
		if err := unix.Fstat(fd, &st); err != nil || st.Size >= size {
			return err
		}
		return unix.Ftruncate(fd, size)
	}))
}

func (f *osFile) Sync() error {
	return pathErr("fsync", f.name, f.with(unix.Fsync))
}

func (f *osFile) Datasync() error {
	return pathErr("fdatasync", f.name, f.with(unix.Fdatasync))
}

func (f *osFile) StartWriteout() error {
	err := f.with(func(fd int) error {
		return unix.SyncFileRange(fd, 0, 0, unix.SYNC_FILE_RANGE_WRITE) // 0 bytes: to the end
	})
	if err == unix.ENOSYS || err == unix.ESPIPE {
		return nil
	}
	return pathErr("writeout", f.name, err)
}

// Writers takes a read lease and gives it back at once. A process that opens the
// file for writing in between waits for that moment; none is killed by the SIGIO
// of a broken lease, which the Go runtime ignores.
func (f *osFile) Writers() Writers {
	answer := Unknown
	_ = f.with(func(fd int) error {
		if f.flag&(os.O_WRONLY|os.O_RDWR) != 0 {
			answer = Yes // this handle itself
			return nil
		}
		_, err := unix.FcntlInt(uintptr(fd), unix.F_SETLEASE, unix.F_RDLCK)
		switch err {
		case nil:
			answer = No
			_, err = unix.FcntlInt(uintptr(fd), unix.F_SETLEASE, unix.F_UNLCK)
		case unix.EAGAIN:
			answer = Yes
		}
		return err
	})
	return answer
}

func infoOf(st *unix.Stat_t) Info {
	return Info{
		Mode:    fileMode(st.Mode),
		Size:    st.Size,
		Dev:     uint64(st.Dev),   //nolint:unconvert // narrower on some platforms
		Ino:     uint64(st.Ino),   //nolint:unconvert
		Nlink:   uint64(st.Nlink), //nolint:unconvert
		UID:     st.Uid,
		GID:     st.Gid,
		MtimeNs: st.Mtim.Nano(),
		CtimeNs: st.Ctim.Nano(),
	}
}

func infoOfStat(st *syscall.Stat_t) Info {
	return Info{
		Mode:    fileMode(st.Mode),
		Size:    st.Size,
		Dev:     uint64(st.Dev),   //nolint:unconvert
		Ino:     uint64(st.Ino),   //nolint:unconvert
		Nlink:   uint64(st.Nlink), //nolint:unconvert
		UID:     st.Uid,
		GID:     st.Gid,
		MtimeNs: st.Mtim.Nano(),
		CtimeNs: st.Ctim.Nano(),
	}
}

// fileMode translates st_mode, inode(7).
func fileMode(m uint32) fs.FileMode {
	mode := fs.FileMode(m & 0o777)
	switch m & unix.S_IFMT {
	case unix.S_IFDIR:
		mode |= fs.ModeDir
	case unix.S_IFLNK:
		mode |= fs.ModeSymlink
	case unix.S_IFIFO:
		mode |= fs.ModeNamedPipe
	case unix.S_IFSOCK:
		mode |= fs.ModeSocket
	case unix.S_IFBLK:
		mode |= fs.ModeDevice
	case unix.S_IFCHR:
		mode |= fs.ModeDevice | fs.ModeCharDevice
	}
	if m&unix.S_ISUID != 0 {
		mode |= fs.ModeSetuid
	}
	if m&unix.S_ISGID != 0 {
		mode |= fs.ModeSetgid
	}
	if m&unix.S_ISVTX != 0 {
		mode |= fs.ModeSticky
	}
	return mode
}

// unixMode gives the permission bits in the system's form.
func unixMode(m fs.FileMode) uint32 {
	u := uint32(m.Perm())
	if m&fs.ModeSetuid != 0 {
		u |= unix.S_ISUID
	}
	if m&fs.ModeSetgid != 0 {
		u |= unix.S_ISGID
	}
	if m&fs.ModeSticky != 0 {
		u |= unix.S_ISVTX
	}
	return u
}
