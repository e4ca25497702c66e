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
