package doctor

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// fsKind is what is known of a folder's file system.
type fsKind struct {
	name    string
	network bool   // not all that happens goes by this kernel, or not by this mount
	layered bool   // what happens in a layer below raises no event
	memory  bool   // gone when the machine stops
	unsafe  string // a mount option by which a sync is none
}

// magic names file systems by their number (statfs(2)).
var magic = map[uint32]fsKind{
	unix.EXT4_SUPER_MAGIC: {name: "ext4"}, unix.XFS_SUPER_MAGIC: {name: "xfs"}, unix.BTRFS_SUPER_MAGIC: {name: "btrfs"}, unix.F2FS_SUPER_MAGIC: {name: "f2fs"},
	0x2fc12fc1: {name: "zfs"}, 0xca451a4e: {name: "bcachefs"}, unix.MSDOS_SUPER_MAGIC: {name: "vfat"}, 0x2011bab0: {name: "exfat"},
	unix.TMPFS_MAGIC: {name: "tmpfs", memory: true}, unix.RAMFS_MAGIC: {name: "ramfs", memory: true},
	unix.NFS_SUPER_MAGIC: {name: "nfs", network: true}, unix.SMB_SUPER_MAGIC: {name: "smb", network: true}, unix.CIFS_SUPER_MAGIC: {name: "cifs", network: true},
	unix.SMB2_SUPER_MAGIC: {name: "smb2", network: true}, unix.AFS_SUPER_MAGIC: {name: "afs", network: true}, unix.CEPH_SUPER_MAGIC: {name: "ceph", network: true},
	unix.V9FS_MAGIC: {name: "9p", network: true}, unix.FUSE_SUPER_MAGIC: {name: "fuse", network: true}, unix.OCFS2_SUPER_MAGIC: {name: "ocfs2", network: true},
	0x01161970: {name: "gfs2", network: true}, 0x0bd00bd0: {name: "luster", network: true}, 0x786f4256: {name: "vboxsf", network: true}, 0xbacbacbc: {name: "vmhgfs", network: true},
	unix.OVERLAYFS_SUPER_MAGIC: {name: "overlay", layered: true},
}

// unsafeOptions are mount options by which a sync does not reach the disk.
var unsafeOptions = []string{"nobarrier", "barrier=0", "nobarriers", "data=writeback,nobarrier", "nolog", "volatile"}

func fileSystem(dir string) fsKind {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return fsKind{name: "an unknown file system"}
	}
	k, ok := magic[uint32(st.Type)]
	if !ok {
		k = fsKind{name: fmt.Sprintf("file system %#x", uint32(st.Type))}
	}
	for _, option := range mountOptions(dir) {
		if slices.Contains(unsafeOptions, option) {
			k.unsafe = option
		}
	}
	return k
}

// mountOptions gives those of the mount that a folder lies on (proc_pid_mountinfo(5)).
func mountOptions(dir string) (options []string) {
	var st unix.Statx_t
	if unix.Statx(unix.AT_FDCWD, dir, 0, unix.STATX_MNT_ID, &st) != nil || st.Mask&unix.STATX_MNT_ID == 0 {
		return nil
	}
	f, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return nil
	}
	defer f.Close()
	id := fmt.Sprint(st.Mnt_id)
	for s := bufio.NewScanner(f); s.Scan(); {
		before, after, ok := strings.Cut(s.Text(), " - ")
		fields, more := strings.Fields(before), strings.Fields(after)
		if !ok || len(fields) < 6 || fields[0] != id || len(more) < 3 {
			continue
		}
		return append(strings.Split(fields[5], ","), strings.Split(more[2], ",")...)
	}
	return nil
}

// freeNames gives the share of inodes that is free, in percent, where the file
// system has a fixed number of them.
func freeNames(dir string) (percent int, known bool) {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil || st.Files == 0 {
		return 0, false
	}
	return int(100 * st.Ffree / st.Files), true
}

func ownerOf(st fs.FileInfo) (uid int, ok bool) {
	s, ok := st.Sys().(*syscall.Stat_t)
	if !ok {
		return 0, false
	}
	return int(s.Uid), true
}

func isFull(err error) bool {
	return errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT)
}

func isReadOnly(err error) bool { return errors.Is(err, unix.EROFS) }

// tryInstance reports whether one more watcher can be made.
func tryInstance() error {
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC)
	if err != nil {
		return err
	}
	return unix.Close(fd)
}

// openFiles gives how many descriptors this process may have.
func openFiles() (n uint64, known bool) {
	var l unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_NOFILE, &l) != nil {
		return 0, false
	}
	return l.Cur, true
}
