package vfs

import (
	"strings"

	"golang.org/x/sys/unix"
)

func (o *osFS) listDir(name string, fn func(entries []DirEntry, lstat func(base string) (Info, error)) error) error {
	if err := checkName(name); err != nil {
		return pathErr("readdir", name, err)
	}
	fd := -1
	err := o.withTop(func(top int) (err error) {
		fd, err = o.look.open(top, name, unix.O_RDONLY|unix.O_DIRECTORY, 0)
		return err
	})
	if err != nil {
		return pathErr("readdir", name, err)
	}
	defer unix.Close(fd)
	entries, err := readEntries(fd)
	if err != nil {
		return pathErr("readdir", name, err)
	}
	return fn(entries, func(base string) (Info, error) {
		if checkEntry(base) != nil || strings.IndexByte(base, '/') >= 0 {
			return Info{}, pathErr("lstat", base, unix.EINVAL)
		}
		var st unix.Stat_t
		if err := retry(func() error { return unix.Fstatat(fd, base, &st, unix.AT_SYMLINK_NOFOLLOW) }); err != nil {
			return Info{}, pathErr("lstat", joinName(name, base), err)
		}
		return infoOf(&st), nil
	})
}
