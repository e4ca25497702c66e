package workspace

import (
	"bytes"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"umbra/internal/errs"
	"umbra/internal/ignore"
	"umbra/internal/vfs"
)

// Host is the machine around the workspaces: it opens folders by their host
// paths and knows what a path and a mount are. Tests put one in its place whose
// folders are in memory.
type Host interface {
	// Canonical gives the absolute path without links of a folder that exists.
	Canonical(dir string) (string, error)
	// Open gives a folder as a file system.
	Open(dir string) (vfs.FS, error)
	// MkdirAll makes a folder of the data directory, mode 0700, and makes its
	// name durable.
	MkdirAll(dir string) error
	// RemoveAll removes a folder of the data directory.
	RemoveAll(dir string) error
	// Stat looks at what stands at a path, following links.
	Stat(dir string) (vfs.Info, error)
	// Epoch names the boot and the mounts that folders are on: while it is the
	// same, what was written to them is there, synced or not.
	Epoch(dirs ...string) string
	// Homes gives the home directories that are too wide for a workspace.
	Homes() []string
	// GitRules gives the exclude file and the index of the project's own
	// repository, if it has one.
	GitRules(dir string) (exclude []byte, index *ignore.Index, err error)
}

const modeDir = fs.ModeDir

// OSHost is the real machine.
type OSHost struct{}

// Canonical is Host's.
func (OSHost) Canonical(dir string) (string, error) {
	abs, err := filepath.Abs(dir)
	if err != nil {
		return "", err
	}
	return filepath.EvalSymlinks(abs)
}

// Open is Host's.
func (OSHost) Open(dir string) (vfs.FS, error) { return vfs.OS(dir) }

// MkdirAll is Host's.
func (OSHost) MkdirAll(dir string) error {
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
func (OSHost) RemoveAll(dir string) error { return os.RemoveAll(dir) }

// Stat is Host's.
func (OSHost) Stat(dir string) (vfs.Info, error) { return statHost(dir) }

// Epoch is Host's. Where the system does not tell, no two are the same.
func (OSHost) Epoch(dirs ...string) string {
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
func (OSHost) Homes() []string {
	var out []string
	if home, err := os.UserHomeDir(); err == nil {
		out = append(out, home)
	}
	return append(out, "/root")
}

// GitRules is Host's.
func (OSHost) GitRules(dir string) ([]byte, *ignore.Index, error) {
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
		return exclude, nil, nil // what it tracks is then not known, and may be ignored
	}
	return exclude, index, errs.Wrap(err, "")
}
