//go:build !linux

package fork

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
)

func reflink(_, _ *os.File) error { return errors.ErrUnsupported }

// attributes does nothing here.
func attributes(_, _ *os.File) {}

// synced makes all that was written to a directory durable.
func synced(dir string) error {
	return filepath.WalkDir(dir, func(name string, d fs.DirEntry, err error) error {
		if err != nil || !d.IsDir() && !d.Type().IsRegular() {
			return err
		}
		f, err := os.Open(name)
		if errors.Is(err, fs.ErrPermission) {
			return nil
		}
		if err != nil {
			return err
		}
		return errors.Join(f.Sync(), f.Close())
	})
}
