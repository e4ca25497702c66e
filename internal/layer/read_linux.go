package layer

import (
	"context"
	"errors"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Overlayfs's attributes with the option userxattr.
const (
	attrPrefix   = "user.overlay."
	attrOpaque   = attrPrefix + "opaque"
	attrRedirect = attrPrefix + "redirect"
	attrMetacopy = attrPrefix + "metacopy"
	attrWhiteout = attrPrefix + "whiteout"
)

// Read calls fn with every path of an upper directory, a directory before what is
// in it, names in byte order. The content of a directory for which fn returns
// false is left out. Links are not followed.
//
// The errors are those of the file system, of fn, of the context, and
// *UnsupportedError.
func Read(ctx context.Context, upper string, fn func(e Entry) (enter bool, err error)) error {
	return ReadOpening(ctx, upper, func(string, uint32) error { return nil }, fn)
}

// ReadOpening is like Read. It calls opening before it gives a closed directory its
// owner's rights for the time of the read, with the bits that the directory has.
func ReadOpening(ctx context.Context, upper string, opening func(path string, perm uint32) error, fn func(e Entry) (enter bool, err error)) error {
	fd, err := unix.Open(upper, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return &os.PathError{Op: "open", Path: upper, Err: err}
	}
	r := reader{ctx: ctx, opening: opening, fn: fn}
	return r.dir(fd, "")
}

type reader struct {
	ctx     context.Context
	opening func(path string, perm uint32) error
	fn      func(e Entry) (bool, error)
}

// dir reads an open directory, and closes it.
func (r *reader) dir(fd int, path string) error {
	d := os.NewFile(uintptr(fd), path)
	defer d.Close()
	list, err := d.Readdirnames(-1)
	if err != nil {
		return err
	}
	slices.Sort(list)
	opaque, err := attribute(procPath(fd, "."), attrOpaque)
	if err != nil {
		return err
	}
	for _, name := range list {
		if err := r.ctx.Err(); err != nil {
			return err
		}
		if err := r.entry(fd, join(path, name), name, opaque == "x"); err != nil {
			return err
		}
	}
	return nil
}

func join(dir, name string) string {
	if dir == "" {
		return name
	}
	return dir + "/" + name
}

func procPath(fd int, name string) string { return "/proc/self/fd/" + strconv.Itoa(fd) + "/" + name }

// entry reads one name. whiteouts says that empty files of the directory may be
// whiteouts, which nested overlays make.
func (r *reader) entry(dir int, path, name string, whiteouts bool) error {
	var st unix.Stat_t
	if err := unix.Fstatat(dir, name, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return &os.PathError{Op: "lstat", Path: path, Err: err}
	}
	e := Entry{Path: path, Perm: st.Mode & 0o7777}
	if st.Mode&unix.S_IFMT == unix.S_IFDIR && st.Mode&0o500 != 0o500 && os.Geteuid() == int(st.Uid) {
		// The command took its own rights from the directory.
		if err := r.opening(path, e.Perm); err != nil {
			return err
		}
		if err := unix.Fchmodat(dir, name, st.Mode&0o7777|0o700, 0); err != nil {
			return &os.PathError{Op: "chmod", Path: path, Err: err}
		}
		defer func() { _ = unix.Fchmodat(dir, name, st.Mode&0o7777, 0) }()
	}
	var attrs []string
	// There may be ten thousands of files. One with data of its own is complete, and no
	// whiteout.
	if t := st.Mode & unix.S_IFMT; t == unix.S_IFDIR || t == unix.S_IFREG && st.Blocks == 0 {
		var err error
		if attrs, err = attributes(procPath(dir, name)); err != nil {
			return &os.PathError{Op: "listxattr", Path: path, Err: err}
		}
	}
	if slices.Contains(attrs, attrRedirect) || slices.Contains(attrs, attrMetacopy) {
		return &UnsupportedError{path, "its content is somewhere else (a redirect or a metadata-only copy)"}
	}
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFDIR:
		e.Kind = Dir
		opaque, err := attribute(procPath(dir, name), attrOpaque)
		if err != nil {
			return &os.PathError{Op: "getxattr", Path: path, Err: err}
		}
		e.Opaque = opaque == "y"
	case unix.S_IFREG:
		e.Kind, e.Size = File, st.Size
		if whiteouts && st.Size == 0 && slices.Contains(attrs, attrWhiteout) {
			e.Kind = Whiteout
		}
	case unix.S_IFLNK:
		var err error
		e.Kind = Symlink
		if e.Target, err = readlink(dir, name); err != nil {
			return &os.PathError{Op: "readlink", Path: path, Err: err}
		}
	case unix.S_IFCHR:
		if e.Kind, e.Type = Special, "device"; st.Rdev == 0 {
			e.Kind, e.Type = Whiteout, ""
		}
	case unix.S_IFBLK:
		e.Kind, e.Type = Special, "device"
	case unix.S_IFIFO:
		e.Kind, e.Type = Special, "fifo"
	case unix.S_IFSOCK:
		e.Kind, e.Type = Special, "socket"
	}
	enter, err := r.fn(e)
	if err != nil || !enter || e.Kind != Dir {
		return err
	}
	fd, err := unix.Openat(dir, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return &os.PathError{Op: "open", Path: path, Err: err}
	}
	return r.dir(fd, path)
}

func readlink(dir int, name string) (string, error) {
	buf := make([]byte, unix.PathMax)
	n, err := unix.Readlinkat(dir, name, buf)
	return string(buf[:max(n, 0)]), err
}

// attributes lists the overlay's attributes of a path.
func attributes(path string) ([]string, error) {
	var buf [1024]byte
	n, err := unix.Llistxattr(path, buf[:])
	all := buf[:]
	if errors.Is(err, unix.ERANGE) {
		all = make([]byte, 64<<10) // the kernel's bound, XATTR_LIST_MAX
		n, err = unix.Llistxattr(path, all)
	}
	if err != nil || n == 0 {
		if errors.Is(err, unix.ENOTSUP) {
			err = nil
		}
		return nil, err
	}
	var out []string
	for name := range strings.SplitSeq(string(all[:n]), "\x00") {
		if strings.HasPrefix(name, attrPrefix) {
			out = append(out, name)
		}
	}
	return out, nil
}

// attribute returns a short attribute, "" where there is none.
func attribute(path, name string) (string, error) {
	var buf [256]byte
	n, err := unix.Lgetxattr(path, name, buf[:])
	if errors.Is(err, unix.ENODATA) || errors.Is(err, unix.ENOTSUP) {
		return "", nil
	}
	return string(buf[:max(n, 0)]), err
}

// Strip removes the overlay's attributes from a path and all below it: in a
// lower directory of another overlay they would have a meaning.
func Strip(path string) error {
	var st unix.Stat_t
	if err := unix.Lstat(path, &st); err != nil {
		return &os.PathError{Op: "lstat", Path: path, Err: err}
	}
	if closed := st.Mode&unix.S_IFMT == unix.S_IFDIR && st.Mode&0o700 != 0o700 || st.Mode&unix.S_IFMT == unix.S_IFREG && st.Mode&0o200 == 0; closed && os.Geteuid() == int(st.Uid) {
		if unix.Chmod(path, st.Mode&0o7777|0o700) == nil {
			defer func() { _ = unix.Chmod(path, st.Mode&0o7777) }()
		}
	}
	attrs, err := attributes(path)
	if err != nil {
		return &os.PathError{Op: "listxattr", Path: path, Err: err}
	}
	for _, name := range attrs {
		if err := unix.Lremovexattr(path, name); err != nil && !errors.Is(err, unix.ENODATA) {
			return &os.PathError{Op: "removexattr", Path: path, Err: err}
		}
	}
	if st.Mode&unix.S_IFMT != unix.S_IFDIR {
		return nil
	}
	d, err := os.Open(path)
	if err != nil {
		return err
	}
	defer d.Close()
	for {
		list, err := d.Readdirnames(512)
		for _, name := range list {
			if err := Strip(path + "/" + name); err != nil {
				return err
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// Remove removes a layer's directory. The kernel leaves one in the work directory
// that its owner may not enter.
func Remove(dir string) error {
	if err := os.RemoveAll(dir); err == nil || !errors.Is(err, os.ErrPermission) {
		return err
	}
	Unlock(dir)
	return os.RemoveAll(dir)
}

// Unlock gives the owner all rights of the directories in a tree.
func Unlock(dir string) {
	var st unix.Stat_t
	if unix.Lstat(dir, &st) != nil || st.Mode&unix.S_IFMT != unix.S_IFDIR {
		return
	}
	if st.Mode&0o700 != 0o700 {
		_ = unix.Chmod(dir, 0o700)
	}
	list, err := os.ReadDir(dir)
	if err != nil {
		return
	}
	for _, e := range list {
		if e.IsDir() {
			Unlock(dir + "/" + e.Name())
		}
	}
}

// CopyData copies what a file has between its holes (lseek(2), SEEK_DATA).
func CopyData(dst, src *os.File, size int64) error {
	var st unix.Stat_t
	if err := unix.Fstat(int(src.Fd()), &st); err == nil && st.Blocks*512 >= size { // no hole
		_, err = io.Copy(dst, src)
		return err
	}
	for at := int64(0); at < size; {
		from, err := src.Seek(at, unix.SEEK_DATA)
		if errors.Is(err, unix.ENXIO) {
			break // a hole to the end
		}
		to := size
		if err != nil {
			from = at // the file system does not know of holes
		} else if to, err = src.Seek(from, unix.SEEK_HOLE); err != nil {
			return err
		}
		if _, err := io.Copy(io.NewOffsetWriter(dst, from), io.NewSectionReader(src, from, to-from)); err != nil {
			return err
		}
		at = to
	}
	return dst.Truncate(size)
}

// MakeWhiteout makes a whiteout: the path is then hidden in an overlay of which the
// directory is a layer. Users without rights may since Linux 5.8.
func MakeWhiteout(path string) error {
	if err := unix.Mknod(path, unix.S_IFCHR, 0); err != nil {
		return &os.PathError{Op: "mknod", Path: path, Err: err}
	}
	return nil
}

// SetOpaque makes a directory hide what lower ones have at its path, or no more.
func SetOpaque(dir string, on bool) error {
	err := unix.Lremovexattr(dir, attrOpaque)
	if on {
		err = unix.Lsetxattr(dir, attrOpaque, []byte("y"), 0)
	}
	if err != nil && !errors.Is(err, unix.ENODATA) && !errors.Is(err, unix.ENOENT) {
		return &os.PathError{Op: "setxattr", Path: dir, Err: err}
	}
	return nil
}

// IsOpaque reports whether a directory hides what lower ones have at its path.
func IsOpaque(dir string) (bool, error) {
	v, err := attribute(dir, attrOpaque)
	return v == "y", err
}
