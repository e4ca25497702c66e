package watcher

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// mountID is what statx is asked for: the number that is never used again, since
// Linux 6.8; an older kernel leaves the field 0, and then a remount is found
// when its inode differs.
const mountID = unix.STATX_MNT_ID_UNIQUE

// identify returns the identity of the directory at an absolute path; it follows
// a link in the last component, as a watch does.
func identify(abs string) (identity, error) {
	return statx(unix.AT_FDCWD, abs, 0)
}

func identifyFile(f *os.File) (identity, error) {
	return statx(int(f.Fd()), "", unix.AT_EMPTY_PATH)
}

func statx(fd int, name string, flags int) (identity, error) {
	var st unix.Statx_t
	for {
		err := unix.Statx(fd, name, flags, unix.STATX_TYPE|unix.STATX_INO|mountID, &st)
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return identity{}, &os.PathError{Op: "statx", Path: name, Err: err}
		}
		break
	}
	if st.Mode&unix.S_IFMT != unix.S_IFDIR {
		return identity{}, &os.PathError{Op: "statx", Path: name, Err: unix.ENOTDIR}
	}
	id := identity{inode: inode{dev: unix.Mkdev(st.Dev_major, st.Dev_minor), ino: st.Ino}}
	if st.Mask&mountID != 0 {
		id.mount = st.Mnt_id
	}
	return id, nil
}

// openFolder opens a folder for listing, not through a link.
func openFolder(abs string) (*os.File, error) {
	return os.OpenFile(abs, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
}

// eventsComplete reports whether everything that changes a file on this file
// system goes by this kernel and this mount's view of it: else some of it raises
// no event. Magic numbers: statfs(2).
func eventsComplete(f *os.File) bool {
	var st unix.Statfs_t
	if err := unix.Fstatfs(int(f.Fd()), &st); err != nil {
		return false
	}
	switch uint32(st.Type) {
	case unix.NFS_SUPER_MAGIC, unix.SMB_SUPER_MAGIC, unix.CIFS_SUPER_MAGIC, unix.SMB2_SUPER_MAGIC, unix.NCP_SUPER_MAGIC,
		unix.AFS_SUPER_MAGIC, unix.AFS_FS_MAGIC, unix.CODA_SUPER_MAGIC, unix.CEPH_SUPER_MAGIC, unix.V9FS_MAGIC,
		unix.OCFS2_SUPER_MAGIC, gfs2Magic, lustreMagic, gpfsMagic, panfsMagic, vboxMagic, hgfsMagic,
		unix.FUSE_SUPER_MAGIC, unix.OVERLAYFS_SUPER_MAGIC, unix.ECRYPTFS_SUPER_MAGIC:
		return false
	}
	return true
}

// Magic numbers that x/sys does not name.
const (
	gfs2Magic   = 0x01161970
	lustreMagic = 0x0bd00bd0
	gpfsMagic   = 0x47504653
	panfsMagic  = 0xaad7aaea
	vboxMagic   = 0x786f4256
	hgfsMagic   = 0xbacbacbc
)

// isNotFolder reports whether a name is no longer a directory, or is now a link.
func isNotFolder(err error) bool {
	return errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.ELOOP)
}
