package vfs

import (
	"cmp"
	"encoding/binary"
	"io/fs"
	"os"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// osFS is a real directory.
//
// A call on "a/b/c" opens "a/b" by one contained lookup and acts on "c" by an
// *at call, which follows no link: three system calls, and one if the name has
// no directory part. What a call opens by itself (Open, CreateUnlinked) is one
// call at any depth.
type osFS struct {
	look *lookup
}

// OS gives the directory dir as an FS. The directory is held open: renaming or
// replacing it later changes nothing for the FS.
func OS(dir string) (FS, error) { return newOS(dir, false) }

// newOS: walk keeps openat2 unused, for tests of the other way.
func newOS(dir string, walk bool) (*osFS, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	look, err := newLookup(root, walk)
	if err != nil {
		root.Close()
		return nil, pathErr("open", dir, err)
	}
	return &osFS{look: look}, nil
}

func (o *osFS) Sub(dir string) (FS, error) {
	if err := checkName(dir); err != nil {
		return nil, pathErr("sub", dir, err)
	}
	// os.Root has no errno for what is no directory.
	err := o.withTop(func(top int) error {
		fd, err := o.look.openDir(top, dir, dirFlags, 0)
		if err == nil {
			unix.Close(fd)
		}
		return err
	})
	if err != nil {
		return nil, pathErr("sub", dir, err)
	}
	root, err := o.look.root.OpenRoot(dir)
	if err != nil {
		return nil, pathErr("sub", dir, rootError(err))
	}
	look, err := newLookup(root, o.look.walk)
	if err != nil {
		root.Close()
		return nil, pathErr("sub", dir, err)
	}
	return &osFS{look: look}, nil
}

func (o *osFS) Close() error { return o.look.close() }

// withTop runs call with the root's descriptor.
func (o *osFS) withTop(call func(top int) error) error {
	top, err := o.look.top.acquire()
	if err != nil {
		return err
	}
	defer o.look.top.release()
	return call(top)
}

// at runs call with name's directory and last component. check is checkName, or
// checkEntry to refuse the root.
func (o *osFS) at(name string, check func(string) error, call func(dir int, base string) error) error {
	if err := check(name); err != nil {
		return err
	}
	return o.withTop(func(top int) error {
		p, err := o.look.parent(top, name)
		if err != nil {
			return err
		}
		defer p.close()
		return retry(func() error { return call(p.fd, p.base) })
	})
}

// at2 is at for calls with two names. Both in one directory is the common case
// and opens it once.
func (o *osFS) at2(oldname, newname string, call func(a, b parentDir) error) error {
	if err := cmp.Or(checkEntry(oldname), checkEntry(newname)); err != nil {
		return err
	}
	return o.withTop(func(top int) error {
		a, err := o.look.parent(top, oldname)
		if err != nil {
			return err
		}
		defer a.close()
		oldDir, _ := splitName(oldname)
		if newDir, base := splitName(newname); newDir == oldDir {
			return retry(func() error { return call(a, parentDir{fd: a.fd, base: base}) })
		}
		b, err := o.look.parent(top, newname)
		if err != nil {
			return err
		}
		defer b.close()
		return retry(func() error { return call(a, b) })
	})
}

func (o *osFS) Open(name string) (File, error) { return o.OpenFile(name, os.O_RDONLY, 0) }

func (o *osFS) OpenFile(name string, flag int, perm fs.FileMode) (File, error) {
	if err := checkName(name); err != nil {
		return nil, pathErr("open", name, err)
	}
	if flag&os.O_CREATE == 0 {
		perm = 0 // openat2 refuses a mode that nothing uses
	}
	var fd int
	err := o.withTop(func(top int) (err error) {
		fd, err = o.look.open(top, name, flag|unix.O_NONBLOCK, unixMode(perm))
		return err
	})
	if err != nil {
		return nil, pathErr("open", name, err)
	}
	return newOSFile(fd, name, flag), nil
}

func (o *osFS) CreateUnlinked(dir string, perm fs.FileMode) (File, error) {
	if err := checkName(dir); err != nil {
		return nil, pathErr("tmpfile", dir, err)
	}
	var fd int
	err := o.withTop(func(top int) (err error) {
		fd, err = o.look.openDir(top, dir, unix.O_TMPFILE|unix.O_RDWR, unixMode(perm))
		return err
	})
	switch err {
	case nil:
		return newOSFile(fd, dir, os.O_RDWR), nil
	case unix.EOPNOTSUPP, unix.EISDIR, unix.EINVAL:
		// EISDIR: a kernel that takes O_TMPFILE for O_DIRECTORY alone.
		err = unix.EOPNOTSUPP
	}
	return nil, pathErr("tmpfile", dir, err)
}

func (o *osFS) LinkFile(f File, name string) error {
	file, ok := f.(*osFile)
	if !ok {
		return linkErr("linkfile", "", name, syscall.EINVAL)
	}
	err := file.with(func(fd int) error {
		return o.at(name, checkEntry, func(dir int, base string) error {
			err := unix.Linkat(unix.AT_FDCWD, procFD(fd), dir, base, unix.AT_SYMLINK_FOLLOW)
			if err == unix.ENOENT && unix.Access("/proc/self/fd", unix.F_OK) != nil {
				// No /proc: the direct way, which needs a right
				// (CAP_DAC_READ_SEARCH) or Linux 6.10.
				err = unix.Linkat(fd, "", dir, base, unix.AT_EMPTY_PATH)
			}
			return err
		})
	})
	return linkErr("linkfile", file.name, name, err)
}

func procFD(fd int) string { return "/proc/self/fd/" + strconv.Itoa(fd) }

func (o *osFS) Lstat(name string) (Info, error) {
	var st unix.Stat_t
	err := o.at(name, checkName, func(dir int, base string) error {
		return unix.Fstatat(dir, base, &st, unix.AT_SYMLINK_NOFOLLOW)
	})
	if err != nil {
		return Info{}, pathErr("lstat", name, err)
	}
	return infoOf(&st), nil
}

// Stat asks without following first: most names are no links.
func (o *osFS) Stat(name string) (Info, error) {
	info, err := o.Lstat(name)
	if err != nil || !info.IsSymlink() {
		return info, err
	}
	var st unix.Stat_t
	err = o.withTop(func(top int) error {
		if o.look.walk {
			fi, err := o.look.root.Stat(name)
			if err != nil {
				return rootError(err)
			}
			info = infoOfStat(fi.Sys().(*syscall.Stat_t))
			return nil
		}
		fd, err := openat2(top, name, unix.O_PATH|unix.O_CLOEXEC, 0)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		if err := unix.Fstat(fd, &st); err != nil {
			return err
		}
		info = infoOf(&st)
		return nil
	})
	if err != nil {
		return Info{}, pathErr("stat", name, err)
	}
	return info, nil
}

func (o *osFS) Readlink(name string) (string, error) {
	var target string
	err := o.at(name, checkName, func(dir int, base string) error {
		for size := 256; ; size *= 4 {
			buf := make([]byte, size)
			n, err := unix.Readlinkat(dir, base, buf)
			if err != nil {
				return err
			}
			if n < size {
				target = string(buf[:n])
				return nil
			}
		}
	})
	return target, pathErr("readlink", name, err)
}

func (o *osFS) ReadDir(name string) ([]DirEntry, error) {
	if err := checkName(name); err != nil {
		return nil, pathErr("readdir", name, err)
	}
	var list []DirEntry
	err := o.withTop(func(top int) error {
		fd, err := o.look.open(top, name, unix.O_RDONLY|unix.O_DIRECTORY, 0)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		list, err = readEntries(fd)
		return err
	})
	if err != nil {
		return nil, pathErr("readdir", name, err)
	}
	return list, nil
}

func readEntries(fd int) ([]DirEntry, error) {
	var list []DirEntry
	buf := make([]byte, 16<<10)
	for {
		n, err := unix.Getdents(fd, buf)
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return nil, err
		}
		if n <= 0 {
			return list, nil
		}
		if list, err = parseEntries(fd, buf[:n], list); err != nil {
			return nil, err
		}
	}
}

// parseEntries reads struct linux_dirent64, getdents64(2): ino u64, off i64,
// reclen u16, type u8, name up to a NUL.
func parseEntries(fd int, buf []byte, list []DirEntry) ([]DirEntry, error) {
	const head = 19
	for len(buf) >= head {
		size := int(binary.NativeEndian.Uint16(buf[16:]))
		if size < head || size > len(buf) {
			return nil, syscall.EIO
		}
		name, kind := unix.ByteSliceToString(buf[head:size]), buf[18]
		buf = buf[size:]
		if name == "." || name == ".." {
			continue
		}
		t, known := direntType(kind)
		if !known {
			var st unix.Stat_t
			switch err := unix.Fstatat(fd, name, &st, unix.AT_SYMLINK_NOFOLLOW); err {
			case nil:
				t = fileMode(st.Mode).Type()
			case unix.ENOENT:
				continue // removed since it was listed
			default:
				return nil, err
			}
		}
		list = append(list, DirEntry{Name: name, Type: t})
	}
	return list, nil
}

func direntType(kind byte) (t fs.FileMode, known bool) {
	if kind == unix.DT_UNKNOWN {
		return 0, false
	}
	// DT_* are the S_IF* bits shifted.
	return fileMode(uint32(kind) << 12).Type(), true
}

func (o *osFS) Mkdir(name string, perm fs.FileMode) error {
	if name == "." {
		return pathErr("mkdir", name, syscall.EEXIST)
	}
	return pathErr("mkdir", name, o.at(name, checkEntry, func(dir int, base string) error {
		return unix.Mkdirat(dir, base, unixMode(perm))
	}))
}

func (o *osFS) Symlink(target, name string) error {
	if err := checkTarget(target); err != nil {
		return linkErr("symlink", target, name, err)
	}
	return linkErr("symlink", target, name, o.at(name, checkEntry, func(dir int, base string) error {
		return unix.Symlinkat(target, dir, base)
	}))
}

func (o *osFS) Link(oldname, newname string) error {
	return linkErr("link", oldname, newname, o.at2(oldname, newname, func(a, b parentDir) error {
		return unix.Linkat(a.fd, a.base, b.fd, b.base, 0)
	}))
}

func (o *osFS) Rename(oldname, newname string) error {
	return linkErr("rename", oldname, newname, o.at2(oldname, newname, func(a, b parentDir) error {
		return unix.Renameat(a.fd, a.base, b.fd, b.base)
	}))
}

func (o *osFS) RenameNoReplace(oldname, newname string) error {
	return linkErr("rename-noreplace", oldname, newname, o.at2(oldname, newname, func(a, b parentDir) error {
		return renameFlag(a, b, unix.RENAME_NOREPLACE)
	}))
}

func (o *osFS) Exchange(x, y string) error {
	return linkErr("exchange", x, y, o.at2(x, y, func(a, b parentDir) error {
		return renameFlag(a, b, unix.RENAME_EXCHANGE)
	}))
}

// ExchangeWith is Crosser's.
func (o *osFS) ExchangeWith(name string, other FS, otherName string) error {
	return linkErr("exchange", otherName, name, o.between(name, other, otherName, func(here, there parentDir) error {
		return renameFlag(there, here, unix.RENAME_EXCHANGE)
	}))
}

// MoveFrom is Crosser's.
func (o *osFS) MoveFrom(other FS, otherName, name string) error {
	return linkErr("rename-noreplace", otherName, name, o.between(name, other, otherName, func(here, there parentDir) error {
		return renameFlag(there, here, unix.RENAME_NOREPLACE)
	}))
}

// between is at2 for a name here and one of another tree.
func (o *osFS) between(name string, other FS, otherName string, call func(here, there parentDir) error) error {
	x, ok := other.(*osFS)
	if !ok {
		return syscall.EXDEV
	}
	if err := cmp.Or(checkEntry(otherName), checkEntry(name)); err != nil {
		return err
	}
	return x.at(otherName, checkEntry, func(otherDir int, otherBase string) error {
		return o.at(name, checkEntry, func(dir int, base string) error {
			return call(parentDir{fd: dir, base: base}, parentDir{fd: otherDir, base: otherBase})
		})
	})
}

// renameFlag is renameat2. A file system that lacks the flag answers EINVAL, as
// does a rename of a directory into itself, which is distinguished.
func renameFlag(a, b parentDir, flag uint) error {
	err := unix.Renameat2(a.fd, a.base, b.fd, b.base, flag)
	switch err {
	case unix.EINVAL:
		if isAbove(a, b.fd) || flag == unix.RENAME_EXCHANGE && isAbove(b, a.fd) {
			return err
		}
		return unix.EOPNOTSUPP
	case unix.ENOSYS:
		return unix.EOPNOTSUPP
	}
	return err
}

// isAbove reports whether the entry is the directory dir or above it. It goes
// up from dir to the top of the file system, and only looks.
func isAbove(entry parentDir, dir int) bool {
	var want, st unix.Stat_t
	if unix.Fstatat(entry.fd, entry.base, &want, unix.AT_SYMLINK_NOFOLLOW) != nil || want.Mode&unix.S_IFMT != unix.S_IFDIR {
		return false
	}
	fd, err := openat(dir, ".", dirFlags, 0)
	for err == nil {
		last := st
		if err = unix.Fstat(fd, &st); err == nil && st.Ino == want.Ino && st.Dev == want.Dev {
			unix.Close(fd)
			return true
		}
		up := -1
		if err == nil && (st.Ino != last.Ino || st.Dev != last.Dev) {
			up, err = openat(fd, "..", dirFlags, 0)
		} else {
			err = syscall.ENOENT // the top is its own parent
		}
		unix.Close(fd)
		fd = up
	}
	return false
}

func (o *osFS) Remove(name string) error {
	return pathErr("remove", name, o.at(name, checkEntry, func(dir int, base string) error {
		err := unix.Unlinkat(dir, base, 0)
		if err == unix.EISDIR {
			err = unix.Unlinkat(dir, base, unix.AT_REMOVEDIR)
		}
		return err
	}))
}

func (o *osFS) Chmod(name string, perm fs.FileMode) error {
	return pathErr("chmod", name, o.at(name, checkName, func(dir int, base string) error {
		err := unix.Fchmodat(dir, base, unixMode(perm), unix.AT_SYMLINK_NOFOLLOW)
		if err == unix.EOPNOTSUPP {
			return chmodByProc(dir, base, perm)
		}
		return err
	}))
}

// chmodByProc is for kernels before fchmodat2 (6.6). A link stays refused.
func chmodByProc(dir int, base string, perm fs.FileMode) error {
	fd, err := openat(dir, base, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return err
	}
	if st.Mode&unix.S_IFMT == unix.S_IFLNK {
		return unix.EOPNOTSUPP
	}
	return unix.Chmod(procFD(fd), unixMode(perm))
}

func (o *osFS) SyncDir(name string) error {
	if err := checkName(name); err != nil {
		return pathErr("syncdir", name, err)
	}
	return pathErr("syncdir", name, o.withTop(func(top int) error {
		if name == "." {
			return retry(func() error { return unix.Fsync(top) })
		}
		fd, err := o.look.openDir(top, name, unix.O_RDONLY, 0)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		return retry(func() error { return unix.Fsync(fd) })
	}))
}
