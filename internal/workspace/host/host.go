// Package host is the machine around the workspaces: what a path leads to, what a
// mount is, and what git's own repository of a project says of its files.
//
// OS is the real machine; tests implement Host with directories in memory. Nothing
// here changes a workspace or runs a program.
package host

import (
	"bytes"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"umbra/internal/errs"
	"umbra/internal/ignore"
	"umbra/internal/mounts"
	"umbra/internal/vfs"
)

// Host opens directories by their host paths and reports what a path and a mount
// are.
type Host interface {
	// Canonical returns the absolute path without links of a directory that exists.
	Canonical(dir string) (string, error)
	// Open returns a directory as a file system.
	Open(dir string) (vfs.FS, error)
	// MkdirAll makes a directory of the data directory, mode 0700, and makes its
	// name durable.
	MkdirAll(dir string) error
	// RemoveAll removes a directory of the data directory.
	RemoveAll(dir string) error
	// Stat returns what is at a path, following links.
	Stat(dir string) (vfs.Info, error)
	// Epoch names the boot and the mounts that directories are on: while it is the
	// same, what was written to them is there, synced or not.
	Epoch(dirs ...string) string
	// Homes returns the home directories, which are too wide for a workspace.
	Homes() []string
	// GitRules returns the exclude file and the index of the project's own
	// repository, if it has one.
	GitRules(dir string) (exclude []byte, index *ignore.Index, err error)
}

// Births is a Host that knows when a directory was made.
type Births interface {
	Born(dir string) int64 // nanoseconds since 1970; 0: not known
}

// Marks is a Host on which servers see what other servers have open.
type Marks interface {
	// Mark marks a directory as open here, until what it returns is closed or the process
	// ends, and reports whether another server has marked it. Nothing is written to it.
	Mark(dir string) (mark io.Closer, others bool, err error)
}

// Mounts is a Host that knows its bind mounts.
type Mounts interface {
	Mounts() (mounts.Table, error)
}

const modeDir = fs.ModeDir

// OSHost is the real machine.
type OS struct{}

// Canonical is Host's.
func (OS) Canonical(dir string) (string, error) {
	abs, err := filepath.Abs(dir)
	if err != nil {
		return "", err
	}
	return filepath.EvalSymlinks(abs)
}

// Open is Host's.
func (OS) Open(dir string) (vfs.FS, error) { return vfs.OS(dir) }

// MkdirAll is Host's.
func (OS) MkdirAll(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	f, err := os.Open(filepath.Dir(dir))
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

// RemoveAll is Host's.
func (OS) RemoveAll(dir string) error { return os.RemoveAll(dir) }

// Stat is Host's.
func (OS) Stat(dir string) (vfs.Info, error) { return statHost(dir) }

// Epoch is Host's. Where the system does not report boot and mounts, no two are
// the same.
func (OS) Epoch(dirs ...string) string {
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return unknownEpoch()
	}
	epoch := string(bytes.TrimSpace(boot))
	for _, dir := range dirs {
		id, err := mountID(dir)
		if err != nil {
			return unknownEpoch()
		}
		epoch += " " + id
	}
	return epoch
}

func unknownEpoch() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails
	return "unknown " + hex.EncodeToString(b[:])
}

// Homes is Host's.
func (OS) Homes() []string {
	var out []string
	if home, err := os.UserHomeDir(); err == nil {
		out = append(out, home)
	}
	return append(out, "/root")
}

// GitRules is Host's.
func (OS) GitRules(dir string) ([]byte, *ignore.Index, error) {
	g, err := ignore.FindGitDir(dir)
	if err != nil {
		return nil, nil, errs.Wrap(err, "")
	}
	exclude, err := g.ReadExclude()
	if err != nil {
		return nil, nil, errs.Wrap(err, "")
	}
	index, err := g.ReadIndex()
	if errors.Is(err, ignore.ErrUnsupported) || errors.Is(err, ignore.ErrCorrupt) {
		return exclude, nil, nil // tracked files are then not known, and may be ignored
	}
	return exclude, index, errs.Wrap(err, "")
}

// Mounts returns the system's mount table.
func (OS) Mounts() (mounts.Table, error) { return mounts.Read() }

// Within reports whether a host path is a directory or is in it. Both are clean.
func Within(p, dir string) bool {
	return p == dir || dir == "/" || strings.HasPrefix(p, strings.TrimSuffix(dir, "/")+"/")
}
