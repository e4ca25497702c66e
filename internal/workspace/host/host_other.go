//go:build !linux

package host

import (
	"os"

	"umbra/internal/errs"
	"umbra/internal/vfs"
)

// statHost returns what is at a host path.
func statHost(dir string) (vfs.Info, error) {
	f, err := vfs.OS(dir)
	if err == nil {
		defer f.Close()
		return f.Lstat(".")
	}
	if _, serr := os.Stat(dir); serr != nil {
		return vfs.Info{}, serr
	}
	return vfs.Info{}, err
}

// mountID is not supported here: every start counts as one after a power failure.
func mountID(string) (string, error) {
	return "", errs.New(errs.Internal, "", "no unique mount id")
}
