package fork

import (
	"errors"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// reflink makes a file share all blocks of another (ioctl_ficlone(2)).
func reflink(to, from *os.File) error {
	return unix.IoctlFileClone(int(to.Fd()), int(from.Fd()))
}

// synced makes all that was written to a directory's file system durable. One call for
// all files: each by itself would wait for the disk as often.
func synced(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(unix.Syncfs(int(f.Fd())), f.Close())
}

// attributes copies the users' extended attributes of a file, but those of an overlay; what
// the file system does not have is left out.
func attributes(to, from *os.File) {
	size, err := unix.Flistxattr(int(from.Fd()), nil)
	if err != nil || size == 0 {
		return
	}
	list := make([]byte, size)
	if size, err = unix.Flistxattr(int(from.Fd()), list); err != nil {
		return
	}
	for name := range strings.SplitSeq(string(list[:size]), "\x00") {
		if !strings.HasPrefix(name, "user.") || strings.HasPrefix(name, "user.overlay.") {
			continue
		}
		value := make([]byte, 1<<16) // the most that Linux has (XATTR_SIZE_MAX)
		if n, err := unix.Fgetxattr(int(from.Fd()), name, value); err == nil {
			_ = unix.Fsetxattr(int(to.Fd()), name, value[:n], 0)
		}
	}
}
