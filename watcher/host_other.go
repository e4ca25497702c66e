//go:build !linux

package watcher

import (
	"errors"
	"os"
	"syscall"
)

// identify makes sure that there is a folder; these systems' numbers for it are
// not asked, so that one put in the place of another is found by its events and
// by scans only.
func identify(abs string) (identity, error) {
	info, err := os.Stat(abs)
	if err == nil && !info.IsDir() {
		err = &os.PathError{Op: "stat", Path: abs, Err: syscall.ENOTDIR}
	}
	return identity{}, err
}

func identifyFile(f *os.File) (identity, error) { return identify(f.Name()) }

func openFolder(abs string) (*os.File, error) { return os.Open(abs) }

// eventsComplete: only Linux's events were examined.
func eventsComplete(*os.File) bool { return false }

func isNotFolder(err error) bool { return errors.Is(err, syscall.ENOTDIR) }
