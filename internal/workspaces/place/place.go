// Package place judges which directories may be workspaces: none of the system's, and
// neither the server's data directory nor what is in it, through links and bind mounts too.
package place

import (
	"errors"
	"io/fs"
	"log/slog"
	"path/filepath"
	"syscall"

	"umbra/internal/errs"
	"umbra/internal/vfs"
	"umbra/internal/workspace/host"
)

// Rules say which directories may be workspaces.
type Rules struct {
	Host    host.Host
	DataDir string // host path
	// Roots are the directories below which a workspace may be opened; empty: anywhere.
	Roots []string
	// Own are the server's own directories: one that is inside a workspace is left out
	// of it.
	Own []string
	// Foreign reports whether a directory is another server's data directory; nil: none is.
	Foreign func(dir string) bool
	Log     *slog.Logger
}

// Options are about one directory.
type Options struct {
	// Force accepts the root of the file system and home directories.
	Force bool
	// Own is for one of the server's own directories: it need not be below Rules.Roots.
	Own bool
	// Allow, if set, is asked about the canonical path before anything is made or read;
	// its error is returned as it is.
	Allow func(root string) error
}

// Place is a directory that was checked.
type Place struct {
	Root     string // canonical
	Dev, Ino uint64
	Born     int64 // see Rules.Born
}

// Look finds out what a path leads to. Errors: errs.Invalid
// workspace_not_found, workspace_not_directory, workspace_not_readable,
// workspace_too_wide; errs.Forbidden workspace_not_allowed.
func (r Rules) Look(root string, o Options) (Place, error) {
	on := r.Host
	refuse := func(code, why string) error { return errs.New(errs.Invalid, code, why) }
	canonical, err := on.Canonical(root)
	var info vfs.Info
	if err == nil {
		info, err = on.Stat(canonical)
	}
	switch {
	case err == nil && info.IsDir():
	case err == nil, errors.Is(err, syscall.ENOTDIR):
		return Place{}, refuse("workspace_not_directory", "The workspace is not a directory.")
	case errors.Is(err, fs.ErrPermission):
		return Place{}, refuse("workspace_not_readable", "The workspace cannot be read.")
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ELOOP), errors.Is(err, syscall.ENAMETOOLONG), errors.Is(err, syscall.EINVAL):
		return Place{}, refuse("workspace_not_found", "The workspace does not exist.")
	default:
		return Place{}, errs.Wrap(err, "")
	}
	if o.Allow != nil {
		if err := o.Allow(canonical); err != nil {
			return Place{}, err
		}
	}
	if err := r.guard(canonical, identity{info.Dev, info.Ino}, o); err != nil {
		return Place{}, err
	}
	if len(r.Roots) > 0 && !o.Own && !r.underRoots(canonical) {
		return Place{}, errs.New(errs.Forbidden, "workspace_not_allowed", "The directory is not below one that may be opened.")
	}
	if !o.Force && r.tooWide(canonical) {
		return Place{}, refuse("workspace_too_wide", "The directory is the file system's root or a home directory.")
	}
	return Place{Root: canonical, Dev: info.Dev, Ino: info.Ino, Born: r.Born(canonical)}, nil
}

// Born returns when a directory was made, nanoseconds since 1970; 0: not known.
func (r Rules) Born(dir string) int64 {
	if h, ok := r.Host.(host.Births); ok {
		return h.Born(dir)
	}
	return 0
}

func (r Rules) underRoots(canonical string) bool {
	for _, root := range r.Roots {
		if c, err := r.Host.Canonical(root); err == nil {
			root = c
		}
		if host.Within(canonical, root) {
			return true
		}
	}
	return false
}

func (r Rules) tooWide(canonical string) bool {
	if canonical == "/" || filepath.Dir(canonical) == "/home" || canonical == "/home" {
		return true
	}
	for _, home := range r.Host.Homes() {
		if c, err := r.Host.Canonical(home); err == nil && c == canonical {
			return true
		}
	}
	return false
}

// IsOwn reports whether a canonical path is one of the server's own directories.
func (r Rules) IsOwn(root string) bool {
	for _, dir := range r.Own {
		if c, err := r.Host.Canonical(dir); err == nil && c == root {
			return true
		}
	}
	return false
}

// Canonical gives a host path without links. Of one that is gone, the part that is
// there is without links: an agent may have deleted the directory that it works in.
func (r Rules) Canonical(path string) (at string, gone bool) {
	at, err := r.Host.Canonical(path)
	if dir := filepath.Dir(path); err != nil && dir != path {
		at, _ = r.Canonical(dir)
		return filepath.Join(at, filepath.Base(path)), true
	}
	return at, err != nil
}
