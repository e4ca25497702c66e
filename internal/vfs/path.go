package vfs

import (
	"errors"
	"io/fs"
	"os"
	"strings"
	"syscall"
)

// ErrEscapes says that a name leads out of the tree: through an absolute
// symbolic link, or one with more ".." than there are folders above it.
// errors.Is(err, syscall.EXDEV) holds as well: it is what openat2(2) says.
var ErrEscapes error = escapesError{}

type escapesError struct{}

func (escapesError) Error() string { return "path leads out of the root" }
func (escapesError) Unwrap() error { return syscall.EXDEV }

// Limits of Linux: NAME_MAX, and PATH_MAX with its final NUL.
const (
	maxNameBytes = 255
	maxPathBytes = 4095
)

// checkName refuses what is no relative slash-separated path: empty, absolute,
// with an empty, "." or ".." component, or a NUL. Kernel lookups check the
// directory part again; a last component of ".." only this stops.
func checkName(name string) error {
	if name == "." {
		return nil
	}
	if len(name) > maxPathBytes {
		return syscall.ENAMETOOLONG
	}
	if strings.IndexByte(name, 0) >= 0 {
		return syscall.EINVAL
	}
	for rest, more := name, true; more; {
		var part string
		part, rest, more = strings.Cut(rest, "/")
		switch {
		case part == "" || part == "." || part == "..":
			return syscall.EINVAL
		case len(part) > maxNameBytes:
			return syscall.ENAMETOOLONG
		}
	}
	return nil
}

// checkEntry is checkName for calls that make, move or remove a directory
// entry: the root has none.
func checkEntry(name string) error {
	if name == "." {
		return syscall.EINVAL
	}
	return checkName(name)
}

// checkTarget refuses what no symbolic link can hold.
func checkTarget(target string) error {
	switch {
	case target == "":
		return syscall.ENOENT
	case strings.IndexByte(target, 0) >= 0:
		return syscall.EINVAL
	case len(target) > maxPathBytes:
		return syscall.ENAMETOOLONG
	}
	return nil
}

// splitName gives the directory and the last component of a checked name.
func splitName(name string) (dir, base string) {
	if i := strings.LastIndexByte(name, '/'); i >= 0 {
		return name[:i], name[i+1:]
	}
	return ".", name
}

// joinName is the name of base in dir.
func joinName(dir, base string) string {
	if dir == "." {
		return base
	}
	if base == "." {
		return dir
	}
	return dir + "/" + base
}

// pathErr wraps err unless it is nil or says its path already.
func pathErr(op, name string, err error) error {
	if err == nil {
		return nil
	}
	if _, ok := errors.AsType[*fs.PathError](err); ok {
		return err
	}
	return &fs.PathError{Op: op, Path: name, Err: err}
}

// linkErr is pathErr for calls with two names.
func linkErr(op, oldname, newname string, err error) error {
	if err == nil {
		return nil
	}
	return &os.LinkError{Op: op, Old: oldname, New: newname, Err: err}
}

// permBits are the bits of a mode that chmod sets.
const permBits = fs.ModePerm | fs.ModeSetuid | fs.ModeSetgid | fs.ModeSticky
