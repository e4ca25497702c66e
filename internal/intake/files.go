package intake

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// copyTree copies the directories and files below a directory; what else is there is no
// part of a store.
func copyTree(from, to string) error {
	return filepath.WalkDir(from, func(name string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(from, name)
		if err != nil {
			return err
		}
		switch at := filepath.Join(to, rel); {
		case e.IsDir():
			return os.MkdirAll(at, 0o700)
		case e.Type().IsRegular():
			return copyFile(name, at)
		}
		return nil
	})
}

// copyFile copies a file's content; where the file system can, its blocks are shared.
func copyFile(from, to string) error {
	src, err := os.Open(from)
	if err != nil {
		return err
	}
	defer src.Close()
	dst, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(dst, src)
	return errors.Join(err, dst.Close())
}
