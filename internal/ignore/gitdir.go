package ignore

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// GitDir is where a working tree's own repository keeps its files, found
// without git and only to be read. The zero value is of a folder without a
// repository.
type GitDir struct {
	Dir    string // the working tree's own: HEAD, index
	Common string // shared by linked worktrees: info, objects; else the same
	// Linked says that a ".git" file or link named the place, which may then
	// lie anywhere: what is read there need not be the folder's owner's.
	Linked bool
}

// FindGitDir looks for ".git" in a directory of the host: a directory, a link to
// one, or a file with "gitdir:" (gitrepository-layout(5)), as linked worktrees and
// submodules have. Directories above are not searched. If there is no repository,
// or one that cannot be read, it returns the zero value.
func FindGitDir(root string) (GitDir, error) {
	dot := filepath.Join(root, ".git")
	info, err := os.Lstat(dot)
	if err != nil {
		return GitDir{}, orNothing(err)
	}
	g := GitDir{Dir: dot}
	switch {
	case info.IsDir():
	case info.Mode()&fs.ModeSymlink != 0:
		g.Linked = true
	case info.Mode().IsRegular():
		text, _, err := readHostFile(dot, 1<<16)
		if err != nil {
			return GitDir{}, orNothing(err)
		}
		dir, ok := strings.CutPrefix(string(text), "gitdir: ")
		if dir = strings.TrimRight(dir, "\r\n"); !ok || dir == "" {
			return GitDir{}, nil
		}
		g.Dir, g.Linked = beside(root, dir), true
	default:
		return GitDir{}, nil
	}
	if info, err = os.Stat(g.Dir); err != nil || !info.IsDir() {
		return GitDir{}, orNothing(err)
	}
	g.Common = g.Dir
	text, _, err := readHostFile(filepath.Join(g.Dir, "commondir"), 1<<16)
	if err != nil {
		return g, orNothing(err)
	}
	if dir := strings.TrimRight(string(text), "\r\n"); dir != "" {
		g.Common = beside(g.Dir, dir)
	}
	return g, nil
}

func beside(dir, path string) string {
	if filepath.IsAbs(path) {
		return filepath.Clean(path)
	}
	return filepath.Join(dir, path)
}

// ReadIndex reads the index: nil where there is none. It fails with
// ErrUnsupported and ErrCorrupt, and where reading fails for no reason of
// rights or form.
func (g GitDir) ReadIndex() (*Index, error) {
	if g.Dir == "" {
		return nil, nil
	}
	data, info, err := readHostFile(filepath.Join(g.Dir, "index"), MaxIndex)
	if err != nil {
		return nil, orNothing(err)
	}
	if info == nil {
		return nil, ErrUnsupported
	}
	ix, err := ParseIndex(data)
	if err != nil {
		return nil, err
	}
	t := info.ModTime()
	ix.Mtime = Timestamp{uint32(t.Unix()), uint32(t.Nanosecond())}
	return ix, nil
}

// ReadExclude reads info/exclude for Options.InfoExclude; nothing where there
// is none.
func (g GitDir) ReadExclude() ([]byte, error) {
	if g.Common == "" {
		return nil, nil
	}
	data, _, err := readHostFile(filepath.Join(g.Common, "info", "exclude"), MaxFile)
	return data, orNothing(err)
}

// orNothing drops the errors that mean that there is nothing for us to read.
func orNothing(err error) error {
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) || errors.Is(err, syscall.ENOTDIR) ||
		errors.Is(err, syscall.ELOOP) || errors.Is(err, syscall.ENXIO) {
		return nil
	}
	return err
}

// readHostFile reads a regular file of at most limit bytes, without blocking
// on a FIFO. No file, or no such file, is fs.ErrNotExist; a larger one is read
// as empty, with a nil Info.
func readHostFile(path string, limit int64) ([]byte, fs.FileInfo, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, nil, fs.ErrNotExist
	}
	var b bytes.Buffer
	b.Grow(int(min(info.Size(), limit)) + bytes.MinRead)
	if _, err := b.ReadFrom(io.LimitReader(f, limit+1)); err != nil {
		return nil, nil, err
	}
	if int64(b.Len()) > limit {
		return nil, nil, nil
	}
	return b.Bytes(), info, nil
}
