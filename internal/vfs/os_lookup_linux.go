package vfs

import (
	"errors"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// lookup opens things below one root. The containment is the kernel's in both
// of its ways: openat2 with RESOLVE_BENEATH, one call whatever the depth, or,
// where a sandbox or an old kernel has none, os.Root, one call a component.
type lookup struct {
	top  sharedFD // the root directory, O_RDONLY
	root *os.Root
	// walk says that openat2 is not there.
	walk bool
}

const (
	beneath  = unix.RESOLVE_BENEATH | unix.RESOLVE_NO_MAGICLINKS
	dirFlags = unix.O_PATH | unix.O_DIRECTORY | unix.O_CLOEXEC
	// A lookup through ".." fails with EAGAIN when something was renamed
	// meanwhile; after so many times the component-wise walk decides.
	maxAgain = 32
	maxOut   = 8 // of them, that the name leads out
)

func newLookup(root *os.Root, walk bool) (*lookup, error) {
	fd, err := openByRoot(root, ".", unix.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		return nil, err
	}
	l := &lookup{root: root, walk: walk}
	l.top.fd = fd
	if walk {
		return l, nil
	}
	probe, err := openat2(fd, ".", dirFlags, 0)
	if err == nil {
		unix.Close(probe)
	}
	// EPERM is what seccomp filters of container runtimes answer.
	l.walk = err != nil
	return l, nil
}

func (l *lookup) close() error {
	err := l.root.Close()
	return errors.Join(l.top.close(), err)
}

// open opens name without following a link in its last component.
func (l *lookup) open(top int, name string, flags int, mode uint32) (int, error) {
	flags |= unix.O_NOFOLLOW | unix.O_CLOEXEC
	if !l.walk {
		fd, err := openat2(top, name, flags, mode)
		if err != unix.EAGAIN {
			return fd, err
		}
	}
	p, err := l.parent(top, name)
	if err != nil {
		return -1, err
	}
	defer p.close()
	return openat(p.fd, p.base, flags, mode)
}

// openDir opens a directory, following links inside the root. flags may have
// O_TMPFILE: then it is a new file in that directory.
func (l *lookup) openDir(top int, name string, flags int, mode uint32) (int, error) {
	flags |= unix.O_DIRECTORY | unix.O_CLOEXEC
	if !l.walk {
		fd, err := openat2(top, name, flags, mode)
		if err != unix.EAGAIN {
			return fd, err
		}
	}
	return l.walkDir(top, name, flags, mode)
}

func (l *lookup) walkDir(top int, name string, flags int, mode uint32) (int, error) {
	if name == "." {
		return openat(top, ".", flags, mode)
	}
	dir, err := openByRoot(l.root, name, dirFlags, 0)
	if err != nil {
		return -1, err
	}
	defer unix.Close(dir)
	return openat(dir, ".", flags, mode)
}

// parentDir is an open directory and the name of an entry in it.
type parentDir struct {
	fd   int
	base string
	own  bool
}

func (p parentDir) close() {
	if p.own {
		unix.Close(p.fd)
	}
}

// parent opens the directory that name is an entry of. In the root itself that
// is the handle at hand: no call at all.
func (l *lookup) parent(top int, name string) (parentDir, error) {
	dir, base := splitName(name)
	if dir == "." {
		return parentDir{fd: top, base: base}, nil
	}
	fd, err := l.openDir(top, dir, dirFlags, 0)
	return parentDir{fd: fd, base: base, own: true}, err
}

func openat2(dir int, name string, flags int, mode uint32) (fd int, err error) {
	how := unix.OpenHow{Flags: uint64(flags | unix.O_LARGEFILE), Mode: uint64(mode), Resolve: beneath}
	if flags&unix.O_PATH != 0 {
		how.Flags &^= unix.O_LARGEFILE // refused with O_PATH
	}
	out := 0
	for range maxAgain {
		fd, err = unix.Openat2(dir, name, &how)
		switch err {
		case nil:
			return fd, nil
		case unix.EXDEV:
			// Also where a file was renamed out of the tree in the midst of its lookup,
			// as what an exchange brings out is (complete_walk in fs/namei.c). A link that
			// leads out does so each time.
			if out++; out == maxOut {
				return -1, ErrEscapes
			}
			err = ErrEscapes
		case unix.EINTR, unix.EAGAIN:
		default:
			return -1, err
		}
	}
	return -1, err
}

func openat(dir int, name string, flags int, mode uint32) (fd int, err error) {
	err = retry(func() error {
		fd, err = unix.Openat(dir, name, flags|unix.O_LARGEFILE, mode)
		return err
	})
	if err != nil {
		return -1, err
	}
	return fd, nil
}

// openByRoot opens through os.Root and gives a descriptor of our own: the
// os.File's would be closed with it.
func openByRoot(root *os.Root, name string, flags int, mode os.FileMode) (int, error) {
	f, err := root.OpenFile(name, flags, mode)
	if err != nil {
		return -1, rootError(err)
	}
	defer f.Close()
	raw, err := f.SyscallConn()
	if err != nil {
		return -1, err
	}
	fd := -1
	ctlErr := raw.Control(func(p uintptr) {
		fd, err = unix.FcntlInt(p, unix.F_DUPFD_CLOEXEC, 0)
	})
	if err = errors.Join(ctlErr, err); err != nil {
		return -1, err
	}
	return fd, nil
}

// rootError gives the errno of an error of os.Root. Its one error without an
// errno is the escape.
func rootError(err error) error {
	if errno, ok := errors.AsType[syscall.Errno](err); ok {
		return errno
	}
	if errors.Is(err, os.ErrClosed) {
		return os.ErrClosed
	}
	return ErrEscapes
}
