package host

import (
	"errors"
	"io"
	"os"
	"strconv"

	"golang.org/x/sys/unix"

	"umbra/internal/errs"
	"umbra/internal/vfs"
)

// statHost returns what is at a host path.
func statHost(dir string) (vfs.Info, error) {
	var st unix.Stat_t
	for {
		err := unix.Stat(dir, &st)
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return vfs.Info{}, err
		}
		info := vfs.Info{Dev: uint64(st.Dev), Ino: st.Ino, UID: st.Uid, GID: st.Gid} //nolint:unconvert // narrower on some platforms
		if st.Mode&unix.S_IFMT == unix.S_IFDIR {
			info.Mode = modeDir
		}
		return info, nil
	}
}

// Born is Births'.
func (OS) Born(dir string) int64 {
	var st unix.Statx_t
	if err := unix.Statx(unix.AT_FDCWD, dir, 0, unix.STATX_BTIME, &st); err != nil || st.Mask&unix.STATX_BTIME == 0 {
		return 0
	}
	return st.Btime.Sec*1e9 + int64(st.Btime.Nsec)
}

// markAt is the byte of a directory that Mark locks. A directory has no bytes: nothing
// but a server locks this one.
const markAt = 0x756d627261

// Mark is Marks'. The mark is a read lock of an open file description (fcntl(2)): any
// number of servers may have one, and the kernel removes it with the process.
func (OS) Mark(dir string) (io.Closer, bool, error) {
	f, err := os.Open(dir)
	if err != nil {
		return nil, false, err
	}
	lock := unix.Flock_t{Type: unix.F_RDLCK, Whence: io.SeekStart, Start: markAt, Len: 1}
	err = unix.FcntlFlock(f.Fd(), unix.F_OFD_SETLK, &lock)
	if err == nil {
		lock.Type = unix.F_WRLCK // whether this one could be had
		err = unix.FcntlFlock(f.Fd(), unix.F_OFD_GETLK, &lock)
	}
	if err != nil {
		return nil, false, errors.Join(err, f.Close())
	}
	return f, lock.Type != unix.F_UNLCK, nil
}

// mountID returns the number of the mount that a directory is on. Since Linux 6.8
// there is one that is never used again; the older kind may be reused after a
// power failure, so it does not identify a mount.
func mountID(dir string) (string, error) {
	const unique = 0x4000 // STATX_MNT_ID_UNIQUE
	var st unix.Statx_t
	if err := unix.Statx(unix.AT_FDCWD, dir, 0, unique, &st); err != nil {
		return "", err
	}
	if st.Mask&unique == 0 {
		return "", errs.New(errs.Internal, "", "no unique mount id")
	}
	return strconv.FormatUint(st.Mnt_id, 10), nil
}
