package vfs

import (
	"strings"

	"golang.org/x/sys/unix"
)

func (o *osFS) listDir(name string, fn func(entries []DirEntry, lstat func(base string) (Info, error)) error) error {
	return o.inDir("readdir", name, unix.O_RDONLY|unix.O_DIRECTORY, func(fd int) error {
		entries, err := readEntries(fd)
		if err != nil {
			return pathErr("readdir", name, err)
		}
		return fn(entries, lstatIn(fd, name))
	})
}

func (o *osFS) lookIn(name string, fn func(lstat func(base string) (Info, error)) error) error {
	return o.inDir("lookin", name, unix.O_PATH|unix.O_DIRECTORY, func(fd int) error { return fn(lstatIn(fd, name)) })
}

// inDir runs fn with a directory's descriptor; fn's error is returned as it is.
func (o *osFS) inDir(op, name string, flags int, fn func(fd int) error) error {
	if err := checkName(name); err != nil {
		return pathErr(op, name, err)
	}
	fd := -1
	err := o.withTop(func(top int) (err error) {
		fd, err = o.look.open(top, name, flags, 0)
		return err
	})
	if err != nil {
		return pathErr(op, name, err)
	}
	defer unix.Close(fd)
	return fn(fd)
}

// lstatIn stats entries of an open directory, one at a time.
func lstatIn(fd int, dir string) func(base string) (Info, error) {
	var st unix.Stat_t
	return func(base string) (Info, error) {
		if checkEntry(base) != nil || strings.IndexByte(base, '/') >= 0 {
			return Info{}, pathErr("lstat", base, unix.EINVAL)
		}
		for {
			switch err := unix.Fstatat(fd, base, &st, unix.AT_SYMLINK_NOFOLLOW); err {
			case nil:
				return infoOf(&st), nil
			case unix.EINTR:
			default:
				return Info{}, pathErr("lstat", joinName(dir, base), err)
			}
		}
	}
}
