package layer

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"umbra/internal/mounts"
)

// Mount is an overlay that all processes see, at a directory of its own. It outlives
// this process.
type Mount struct {
	// Name is the source of the mount in the system's table, with the inode number of
	// Upper: by it a mount is known again, and one that another data directory made,
	// from which this one was restored, is not taken for it.
	Name  string
	Point string // canonical path of the directory
	// Over, Upper and Work are as in Command; so is Root, but it may be empty: nothing is
	// below Over then.
	Root, Over, Upper, Work string
}

// ErrOccupied is returned by Mount where the directory is not an empty one, whose
// files a mount would hide.
var ErrOccupied = errors.New("the directory is not empty")

// Mounted reports whether the overlay is what is at its directory.
func (m Mount) Mounted() (bool, error) {
	at, err := m.at()
	return m.is(at), err
}

func (m Mount) is(at mounts.Mount) bool {
	return at.Type == "overlay" && at.Source == m.source()
}

func (m Mount) source() string {
	var st unix.Stat_t
	_ = unix.Lstat(m.Upper, &st) // 0 is no directory's
	return m.Name + "-" + strconv.FormatUint(st.Ino, 10)
}

// at returns the last mount at the directory, which covers the others.
func (m Mount) at() (at mounts.Mount, err error) {
	table, err := mounts.Read()
	for _, x := range table {
		if x.Point == m.Point {
			at = x
		}
	}
	return at, err
}

// Mount mounts the overlay unless it is mounted. A directory that does not exist is made.
// ErrOccupied; ErrUnsupported where this process may not mount.
func (m Mount) Mount() error {
	if err := visible(); err != nil {
		return err
	}
	at, err := m.at()
	if err != nil || m.is(at) {
		return err
	}
	if at.Point != "" {
		return fmt.Errorf("%w: another file system is mounted at it", ErrOccupied)
	}
	if m.Root != "" {
		if err := Covers(m.Root); err != nil {
			return err
		}
	}
	if real, err := filepath.EvalSymlinks(filepath.Dir(m.Point)); err != nil || real != filepath.Dir(m.Point) {
		return errors.Join(fmt.Errorf("%w: the path leads elsewhere now", ErrOccupied), err)
	}
	if err := os.Mkdir(m.Point, 0o755); err != nil && !errors.Is(err, os.ErrExist) {
		return err
	}
	dirs := []string{m.Point, m.Over, m.Upper, m.Work}
	if m.Root != "" {
		dirs = append(dirs, m.Root)
	}
	fds := make([]int, len(dirs))
	for i, dir := range dirs {
		fd, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
		if err != nil {
			return &os.PathError{Op: "open", Path: dir, Err: err}
		}
		defer unix.Close(fd)
		fds[i] = fd
	}
	// What was opened may be another directory than the path's, if one above it is a link
	// by now.
	if real, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", fds[0])); err != nil || real != m.Point {
		return errors.Join(fmt.Errorf("%w: the path leads elsewhere now", ErrOccupied), err)
	}
	if list, err := os.ReadDir(procPath(fds[0], ".")); err != nil || len(list) > 0 {
		return errors.Join(ErrOccupied, err)
	}
	if err := sameSystem(fds[1:]); err != nil {
		return err
	}
	name := func(i int) string { return fmt.Sprintf("/proc/self/fd/%d", fds[i]) }
	lower := name(1)
	if m.Root != "" {
		if err := rightsOf(fds[4], fds[1], fds[2]); err != nil {
			return err
		}
		lower += ":" + name(4)
	}
	options := "lowerdir=" + lower + ",upperdir=" + name(2) + ",workdir=" + name(3) + ",userxattr,index=off,xino=off"
	if err := unix.Mount(m.source(), name(0), "overlay", mountFlags, options); err != nil {
		return fmt.Errorf("%w: mount an overlay: %w", ErrUnsupported, err)
	}
	return nil
}

// rightsOf gives directories the owner and the bits of another: commands and users see
// those of the overlay's root.
func rightsOf(of int, dirs ...int) error {
	var st unix.Stat_t
	if err := unix.Fstat(of, &st); err != nil {
		return os.NewSyscallError("fstat", err)
	}
	for _, fd := range dirs {
		if err := errors.Join(unix.Fchown(fd, int(st.Uid), int(st.Gid)), unix.Fchmod(fd, st.Mode&0o7777)); err != nil {
			return fmt.Errorf("give the layer the directory's rights: %w", err)
		}
	}
	return nil
}

// Own has the overlay take over all that it shows, durably: it needs no directory below
// its upper one then. It must be mounted. What fails, or is cut off, may be repeated, and
// changes nothing of what is shown. room reports whether so many bytes may be written.
func (m Mount) Own(ctx context.Context, room func(bytes int64) error) error {
	top, err := os.OpenRoot(m.Point)
	if err != nil {
		return err
	}
	defer top.Close()
	err = fs.WalkDir(top.FS(), ".", func(name string, d fs.DirEntry, err error) error {
		if err == nil {
			err = ctx.Err()
		}
		if err == nil && name != "." {
			err = m.own(top, name, room)
		}
		if errors.Is(err, fs.ErrNotExist) { // it was removed meanwhile
			return nil
		}
		return err
	})
	if err != nil {
		return err
	}
	upper, err := os.Open(m.Upper)
	if err != nil {
		return err
	}
	return errors.Join(os.NewSyscallError("syncfs", unix.Syncfs(int(upper.Fd()))), upper.Close())
}

// own has the kernel copy a path up, which it does before it changes one.
func (m Mount) own(top *os.Root, name string, room func(bytes int64) error) error {
	if _, err := os.Lstat(m.Upper + "/" + name); err == nil {
		return nil
	}
	info, err := top.Lstat(name)
	if err != nil {
		return err
	}
	if info.Mode().IsRegular() {
		if room != nil {
			if err := room(info.Size()); err != nil {
				return err
			}
		}
		f, err := top.OpenFile(name, os.O_WRONLY|unix.O_NONBLOCK|unix.O_NOFOLLOW, 0)
		if err == nil {
			return f.Close()
		}
		if errors.Is(err, unix.ETXTBSY) { // a program that runs
			return top.Chmod(name, info.Mode())
		}
		return err
	}
	st := info.Sys().(*syscall.Stat_t)
	return top.Lchown(name, int(st.Uid), int(st.Gid))
}

// SweepProbes removes what a process that was killed in Probe or MayMount left in a
// directory.
func SweepProbes(dir string) error {
	list, err := os.ReadDir(dir)
	for _, e := range list {
		if !strings.HasPrefix(e.Name(), probePrefix) {
			continue
		}
		top := filepath.Join(dir, e.Name())
		_ = unix.Unmount(top+"/point", unix.UMOUNT_NOFOLLOW|unix.MNT_DETACH) // there is one or not
		err = errors.Join(err, Remove(top))
	}
	return err
}

// probePrefix begins the names of directories that are made to find out what the system
// can do.
const probePrefix = "probe-"

// mountFlags keep files of a layer from becoming programs with rights, or devices.
const mountFlags = unix.MS_NOSUID | unix.MS_NODEV

// Refresh has the kernel forget what it knows of names that no process uses: it changes
// none of the mount's options (reconfigure_super in fs/super.c).
func (m Mount) Refresh() error {
	if there, err := m.Mounted(); err != nil || !there {
		return err
	}
	if err := unix.Mount("", m.Point, "", unix.MS_REMOUNT|mountFlags, ""); err != nil {
		return &os.PathError{Op: "remount", Path: m.Point, Err: err}
	}
	return nil
}

// RefreshAll is Refresh of all overlays whose source begins with a text: a file was removed
// below some of them.
func RefreshAll(source string) error {
	table, err := mounts.Read()
	if err != nil {
		return err
	}
	for i := range table {
		if at := &table[i]; at.Type == "overlay" && strings.HasPrefix(at.Source, source) {
			_ = unix.Mount("", at.Point, "", unix.MS_REMOUNT|mountFlags, "") // those that this process may
		}
	}
	return nil
}

// sameSystem fails where directories are on several file systems: inode numbers of an
// overlay are then not those of its files, and change.
func sameSystem(fds []int) error {
	var first unix.Stat_t
	for i, fd := range fds {
		var st unix.Stat_t
		if err := unix.Fstat(fd, &st); err != nil {
			return err
		}
		if i == 0 {
			first = st
		}
		if st.Dev != first.Dev {
			return fmt.Errorf("%w: the data directory is on another file system than the workspace's", ErrUnsupported)
		}
	}
	return nil
}

// Unmount ends the mount, if it is there; the directory stays. An error that is
// unix.EBUSY: a process uses it. With force such a process keeps what it has open, and
// nothing else of it is seen.
func (m Mount) Unmount(force bool) error {
	there, err := m.Mounted()
	if err != nil || !there {
		return err
	}
	flags := unix.UMOUNT_NOFOLLOW
	if err = unix.Unmount(m.Point, flags); errors.Is(err, unix.EBUSY) && force {
		err = unix.Unmount(m.Point, flags|unix.MNT_DETACH)
	}
	if err != nil {
		return &os.PathError{Op: "unmount", Path: m.Point, Err: err}
	}
	return nil
}

// MayMount returns ErrUnsupported where this process cannot mount an overlay that other
// processes see, whose layers are on the file system of a directory. It tries it.
func MayMount(dir string) error {
	if err := errors.Join(Supported(), visible()); err != nil {
		return err
	}
	top, err := os.MkdirTemp(dir, probePrefix)
	if err != nil {
		return err
	}
	defer func() { _ = Remove(top) }()
	if top, err = filepath.EvalSymlinks(top); err != nil {
		return err
	}
	m := Mount{Name: "umbra-" + filepath.Base(top), Point: top + "/point", Root: top + "/root", Over: top + "/over", Upper: top + "/upper", Work: top + "/work"}
	for _, d := range []string{m.Root, m.Over, m.Upper, m.Work} {
		if err := os.Mkdir(d, 0o700); err != nil {
			return err
		}
	}
	if err := m.Mount(); err != nil {
		return err
	}
	return m.Unmount(true)
}

// visible fails where a mount of this process would be seen by it alone: as an ordinary
// user, or in a mount namespace of its own (mount_namespaces(7)).
func visible() error {
	if os.Geteuid() != 0 {
		return fmt.Errorf("%w: only root may mount", ErrUnsupported)
	}
	own, err := os.Readlink("/proc/self/ns/mnt")
	first, ferr := os.Readlink("/proc/1/ns/mnt")
	if err == nil && ferr == nil && first != own { // who may not read it is in a container, mostly
		return fmt.Errorf("%w: the server has a mount namespace of its own", ErrUnsupported)
	}
	return nil
}

// Decides reports whether an upper directory, and not what is below it, decides what an
// overlay has at a path.
func Decides(upper, path string) (bool, error) {
	at := upper
	for {
		name, rest, more := strings.Cut(path, "/")
		at += "/" + name
		var st unix.Stat_t
		err := unix.Lstat(at, &st)
		if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR) {
			return false, nil
		}
		if err != nil {
			return false, &os.PathError{Op: "lstat", Path: at, Err: err}
		}
		if st.Mode&unix.S_IFMT != unix.S_IFDIR {
			return true, nil
		}
		if hides, err := IsOpaque(at); err != nil || hides {
			return hides, err
		}
		if !more {
			return false, nil // a directory: of both
		}
		path = rest
	}
}
