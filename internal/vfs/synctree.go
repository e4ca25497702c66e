package vfs

import (
	"errors"
	"path"
)

// SyncTree makes a directory's files, and all names below it, durable.
func SyncTree(f FS, dir string) error {
	list, err := f.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range list {
		name := path.Join(dir, e.Name)
		if e.Type.IsDir() {
			err = SyncTree(f, name)
		} else if e.Type.IsRegular() {
			err = syncFile(f, name)
		}
		if err != nil {
			return err
		}
	}
	return f.SyncDir(dir)
}

func syncFile(f FS, name string) error {
	h, err := f.Open(name)
	if err != nil {
		return err
	}
	return errors.Join(h.Sync(), h.Close())
}
