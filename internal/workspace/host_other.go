//go:build !linux

package workspace

import (
	"os"

	"umbra/internal/errs"
	"umbra/internal/vfs"
)

// statHost looks at what stands at a host path.
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

// mountID cannot be told here: every start is taken for one after a power cut.
func mountID(string) (string, error) {
	return "", errs.New(errs.Internal, "", "no unique mount id")
}
