package peers

import (
	"os"

	"golang.org/x/sys/unix"
)

// dataSync makes a file's bytes durable (fdatasync(2)).
func dataSync(f *os.File) error { return unix.Fdatasync(int(f.Fd())) }

// writeOut starts to write a file's bytes, and does not wait for it.
func writeOut(f *os.File) error {
	return unix.SyncFileRange(int(f.Fd()), 0, 0, unix.SYNC_FILE_RANGE_WRITE)
}

// exchange lets two files change places.
func exchange(a, b string) error {
	return unix.Renameat2(unix.AT_FDCWD, a, unix.AT_FDCWD, b, unix.RENAME_EXCHANGE)
}

// memoryFile makes a file that no disk has work with.
func memoryFile(name string) (*os.File, error) {
	fd, err := unix.MemfdCreate(name, unix.MFD_CLOEXEC)
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), name), nil
}
