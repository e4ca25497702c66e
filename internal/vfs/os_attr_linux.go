package vfs

import (
	"strings"

	"golang.org/x/sys/unix"
)

// maxXattr bounds what is copied of extended attributes: the kernel's own limit
// for a list and for one value is 64 KiB (xattr(7)).
const maxXattr = 64 << 10

// CopyAttributes gives the file the owner, ACL and extended attributes of
// another, as far as the process may set them; nothing is said of what may not.
// File capabilities are left: the kernel takes them from a file that is written.
func (f *osFile) CopyAttributes(from File) {
	src, ok := from.(*osFile)
	if !ok {
		return
	}
	_ = src.with(func(old int) error {
		return f.with(func(fd int) error {
			copyOwner(fd, old)
			copyXattrs(fd, old)
			return nil
		})
	})
}

// What chattr(1) can set on a folder and files made in it take over: all but
// how the folder itself is kept (ext4's EXTENTS_FL, INDEX_FL, INLINE_DATA_FL and
// TOPDIR_FL, include/uapi/linux/fs.h).
const ownFlags = fsIndex | fsTopdir | fsExtents | fsInlineData

const (
	fsIndex      = 0x00001000
	fsTopdir     = 0x00020000
	fsExtents    = 0x00080000
	fsInlineData = 0x10000000
)

// Plain reports whether a file made in a folder is the same as one made in any
// other of its device: no set-group-ID bit, no ACL, label or attribute that it
// would take over. Links in dir are followed inside the root.
func (o *osFS) Plain(dir string) (dev uint64, plain bool, err error) {
	if err := checkName(dir); err != nil {
		return 0, false, pathErr("stat", dir, err)
	}
	err = o.withTop(func(top int) error {
		fd, err := o.look.openDir(top, dir, unix.O_RDONLY, 0)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		var st unix.Stat_t
		if err := unix.Fstat(fd, &st); err != nil {
			return err
		}
		dev = uint64(st.Dev) //nolint:unconvert // narrower on some platforms
		if st.Mode&unix.S_ISGID != 0 {
			return nil
		}
		if n, err := unix.Flistxattr(fd, nil); n > 0 || err != nil && err != unix.EOPNOTSUPP {
			return nil
		}
		flags, err := unix.IoctlGetUint32(fd, unix.FS_IOC_GETFLAGS)
		plain = err == unix.ENOTTY || err == unix.EOPNOTSUPP || err == nil && flags&^ownFlags == 0
		return nil
	})
	if err != nil {
		return 0, false, pathErr("stat", dir, err)
	}
	return dev, plain, nil
}

// Spread asks the file system to put the folders of a folder far from each
// other, as those of a volume's top are (chattr(1), attribute T).
func (o *osFS) Spread(dir string) error {
	if err := checkName(dir); err != nil {
		return pathErr("spread", dir, err)
	}
	return pathErr("spread", dir, o.withTop(func(top int) error {
		fd, err := o.look.openDir(top, dir, unix.O_RDONLY, 0)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		flags, err := unix.IoctlGetUint32(fd, unix.FS_IOC_GETFLAGS)
		if err != nil || flags&fsTopdir != 0 {
			return err
		}
		return unix.IoctlSetPointerInt(fd, unix.FS_IOC_SETFLAGS, int(flags|fsTopdir))
	}))
}

func copyOwner(fd, old int) {
	var is, was unix.Stat_t
	if unix.Fstat(fd, &is) != nil || unix.Fstat(old, &was) != nil {
		return
	}
	if is.Uid != was.Uid || is.Gid != was.Gid {
		if unix.Fchown(fd, int(was.Uid), int(was.Gid)) != nil {
			_ = unix.Fchown(fd, -1, int(was.Gid)) // a group of the process's own it may set
		}
	}
}

func copyXattrs(fd, old int) {
	n, err := unix.Flistxattr(old, nil)
	if err != nil || n == 0 || n > maxXattr {
		return
	}
	names := make([]byte, n)
	if n, err = unix.Flistxattr(old, names); err != nil {
		return
	}
	var value []byte
	for name := range strings.SplitSeq(strings.TrimRight(string(names[:n]), "\x00"), "\x00") {
		if name == "" || name == "security.capability" {
			continue
		}
		if value == nil {
			value = make([]byte, maxXattr)
		}
		if n, err := unix.Fgetxattr(old, name, value); err == nil {
			_ = unix.Fsetxattr(fd, name, value[:n], 0)
		}
	}
}
