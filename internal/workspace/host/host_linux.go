package host

import (
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
