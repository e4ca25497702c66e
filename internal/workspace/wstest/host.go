package wstest

import (
	"errors"
	"io/fs"
	"path"
	"strings"

	"umbra/internal/ignore"
	"umbra/internal/vfs"
	"umbra/internal/workspace/host"
)

// MemHost is a machine whose disk is a file system in memory: the host path
// "/ws" is the name "ws" in it.
type MemHost struct {
	Top vfs.FS
	// Boot is what Epoch answers: another one is another boot, after which
	// nothing unsynced can be relied on.
	Boot string
}

var _ host.Host = (*MemHost)(nil)

func (h *MemHost) name(dir string) string {
	if dir = strings.Trim(path.Clean("/"+dir), "/"); dir == "" {
		return "."
	}
	return dir
}

// Canonical is host.Host's.
func (h *MemHost) Canonical(dir string) (string, error) {
	if _, err := h.Top.Lstat(h.name(dir)); err != nil {
		return "", err
	}
	return path.Clean("/" + dir), nil
}

// Open is host.Host's.
func (h *MemHost) Open(dir string) (vfs.FS, error) { return h.Top.Sub(h.name(dir)) }

// MkdirAll is host.Host's.
func (h *MemHost) MkdirAll(dir string) error {
	at := "."
	for name := range strings.SplitSeq(h.name(dir), "/") {
		above := at
		at = path.Join(at, name)
		if err := h.Top.Mkdir(at, 0o700); errors.Is(err, fs.ErrExist) {
			continue
		} else if err != nil {
			return err
		}
		if err := h.Top.SyncDir(above); err != nil {
			return err
		}
	}
	return nil
}

// RemoveAll is host.Host's.
func (h *MemHost) RemoveAll(dir string) error { return vfs.RemoveAll(h.Top, h.name(dir)) }

// Stat is host.Host's.
func (h *MemHost) Stat(dir string) (vfs.Info, error) { return h.Top.Stat(h.name(dir)) }

// Epoch is host.Host's.
func (h *MemHost) Epoch(...string) string { return h.Boot }

// Homes is host.Host's.
func (h *MemHost) Homes() []string { return []string{"/home/me"} }

// GitRules is host.Host's.
func (h *MemHost) GitRules(string) ([]byte, *ignore.Index, error) { return nil, nil, nil }

// MkdirAll makes a folder and those above it.
func MkdirAll(f vfs.FS, dir string) error {
	if dir == "." {
		return nil
	}
	if err := MkdirAll(f, path.Dir(dir)); err != nil {
		return err
	}
	if err := f.Mkdir(dir, 0o755); err != nil {
		if info, lerr := f.Lstat(dir); lerr == nil && info.IsDir() {
			return nil
		}
		return err
	}
	return f.SyncDir(path.Dir(dir))
}
