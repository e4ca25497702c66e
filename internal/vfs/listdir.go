package vfs

import (
	"io/fs"
	"strings"
)

// dirLister is an FS that can look at a directory through one handle.
type dirLister interface {
	listDir(name string, fn func(entries []DirEntry, lstat func(base string) (Info, error)) error) error
	lookIn(name string, fn func(lstat func(base string) (Info, error)) error) error
}

// ListDir lists a directory and lets fn look at its entries while it is held
// open: lstat takes a name of the listing and costs one system call, whatever
// the depth, and its result is of this directory even if another takes its name
// meanwhile. The last component of name is not followed. fn's error is
// returned as it is; entries and lstat are fn's only while it runs.
func ListDir(f FS, name string, fn func(entries []DirEntry, lstat func(base string) (Info, error)) error) error {
	if l, ok := f.(dirLister); ok {
		return l.listDir(name, fn)
	}
	entries, err := f.ReadDir(name)
	if err != nil {
		return err
	}
	return fn(entries, eachByName(f, name))
}

// LookIn is ListDir for a caller that knows the names: the directory is only opened.
func LookIn(f FS, name string, fn func(lstat func(base string) (Info, error)) error) error {
	if l, ok := f.(dirLister); ok {
		return l.lookIn(name, fn)
	}
	return fn(eachByName(f, name))
}

// eachByName stats a directory's entries by their whole names.
func eachByName(f FS, dir string) func(base string) (Info, error) {
	return func(base string) (Info, error) {
		if checkEntry(base) != nil || strings.IndexByte(base, '/') >= 0 {
			return Info{}, &fs.PathError{Op: "lstat", Path: base, Err: fs.ErrInvalid}
		}
		return f.Lstat(joinName(dir, base))
	}
}
