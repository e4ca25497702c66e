package disk

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// statfsOnly names a file system by its magic number alone.
func statfsOnly(dir string) (mount, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return mount{}, fmt.Errorf("statfs %s: %w", dir, err)
	}
	switch int64(st.Type) {
	case unix.EXT4_SUPER_MAGIC:
		return mount{kind: "ext4"}, nil
	case unix.XFS_SUPER_MAGIC:
		return mount{kind: "xfs"}, nil
	case unix.TMPFS_MAGIC:
		return mount{kind: "tmpfs"}, nil
	case unix.BTRFS_SUPER_MAGIC:
		return mount{kind: "btrfs"}, nil
	case unix.OVERLAYFS_SUPER_MAGIC:
		return mount{kind: "overlay"}, nil
	}
	return mount{kind: fmt.Sprintf("file system %#x", int64(st.Type))}, nil
}
