package fork

import (
	"errors"
	"os"

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
