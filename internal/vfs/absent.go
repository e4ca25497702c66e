package vfs

import (
	"errors"
	"io/fs"
	"syscall"
)

// IsAbsent reports whether an error means that nothing exists at a path, also
// where one of its directories is a file.
func IsAbsent(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR)
}
