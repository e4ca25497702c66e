// Package filelock has processes take turns by a file. It imports little, since hooks of
// agents use it before the rest of the program initializes.
package filelock

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
)

// Open opens or makes a file, and its directory, and returns once no other process or
// descriptor has its lock. The lock ends when the file is closed, or with the process.
// The file may be removed by who has the lock: then those who waited for it go on with
// one that is new.
func Open(path string) (*os.File, error) {
	for {
		f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
		if errors.Is(err, os.ErrNotExist) {
			if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
				return nil, err
			}
			f, err = os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
		}
		if err != nil {
			return nil, err
		}
		for {
			err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX)
			if !errors.Is(err, syscall.EINTR) {
				break
			}
		}
		if err != nil {
			return nil, errors.Join(err, f.Close())
		}
		// The file may have been removed while this process waited for the lock.
		mine, err1 := f.Stat()
		there, err2 := os.Stat(path)
		if err1 == nil && err2 == nil && os.SameFile(mine, there) {
			return f, nil
		}
		if err := errors.Join(err1, f.Close()); err != nil {
			return nil, err
		}
	}
}
