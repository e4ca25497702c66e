package exec

import (
	"errors"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"umbra/gitstore"
	"umbra/internal/errs"
	"umbra/internal/ignore"
	"umbra/internal/layer"
)

// mover does moves. All paths of the workspace are resolved below its root by
// os.Root; those of the layer have no links in them but at their end.
type mover struct {
	step func() error
	// since is when the layer was made; kept are paths that stay as they are.
	since time.Time
	kept  map[string]bool
	root  *os.Root
	upper string
	tip   gitstore.Snapshot
	rules func(dir string) (*ignore.Dir, error)
	left  []Skip
	// away is the layer's directory of files that were displaced. They are removed with
	// the layer, in the background: to free those of a large build takes seconds.
	away  string
	aside *os.File // it, once it is open
	count int      // of what is in it
}

func (m *mover) close() {
	if m.aside != nil {
		m.aside.Close()
	}
}

// displace moves a file or directory away, and returns its name there. dir is an open
// directory, unless name is an absolute path.
func (m *mover) displace(dir int, name string) (string, error) {
	if m.aside == nil {
		if err := os.Mkdir(m.away, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
			return "", err
		}
		f, err := os.Open(m.away)
		if err != nil {
			return "", err
		}
		m.aside = f
		list, err := f.Readdirnames(-1)
		if err != nil {
			return "", err
		}
		m.count = len(list) // an apply was stopped
	}
	for {
		m.count++
		to := strconv.Itoa(m.count)
		if err := unix.Renameat2(dir, name, int(m.aside.Fd()), to, unix.RENAME_NOREPLACE); !errors.Is(err, unix.EEXIST) {
			return to, err
		}
	}
}

// reach reports whether all that is above a path are real directories: one that others
// replaced by a link is not followed. With make, those that are missing are made; else
// the path is not reached. Where something else is in the way, it is noted.
func (m *mover) reach(p string, mk bool) (bool, error) {
	dir := ""
	for name := range strings.SplitSeq(path.Dir(p), "/") {
		if dir = path.Join(dir, name); dir == "." {
			return true, nil
		}
		info, err := m.root.Lstat(dir)
		switch {
		case errors.Is(err, fs.ErrNotExist) && !mk:
			return false, nil
		case errors.Is(err, fs.ErrNotExist):
			if err := m.root.Mkdir(dir, 0o777); err != nil && !errors.Is(err, fs.ErrExist) {
				return false, err
			}
		case err != nil:
			return false, err
		case !info.IsDir():
			m.left = append(m.left, Skip{p, "occupied"})
			return false, nil
		}
	}
	return true, nil
}

// clear removes what no history has at and below a path: what is ignored, and
// directories that are empty then and that the layer does not have.
func (m *mover) clear(p string) error {
	dir, err := m.root.Open(path.Dir(p))
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENOTDIR) {
		return nil
	}
	if err != nil {
		return err
	}
	defer dir.Close()
	return m.clearAt(int(dir.Fd()), p)
}

// clearAt is like clear; dir is the open directory that p is in.
func (m *mover) clearAt(dir int, p string) error {
	name := path.Base(p)
	var st unix.Stat_t
	if err := unix.Fstatat(dir, name, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return gone(err)
	}
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFDIR:
	case unix.S_IFREG, unix.S_IFLNK:
		ours, err := m.ignored(p)
		if err != nil || !ours || m.newer(p, time.Unix(st.Ctim.Unix())) {
			return err
		}
		return m.clearFile(dir, p, &st)
	default:
		m.left = append(m.left, Skip{p, "special"})
		return nil
	}
	if st.Mode&ownerAll != ownerAll && unix.Fchmodat(dir, name, st.Mode&0o7777|ownerAll, 0) == nil {
		defer func() { _ = unix.Fchmodat(dir, name, st.Mode&0o7777, 0) }() // if it is not removed
	}
	fd, err := unix.Openat(dir, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return gone(err)
	}
	d := os.NewFile(uintptr(fd), p)
	defer d.Close()
	names, err := d.Readdirnames(-1)
	if err != nil {
		return err
	}
	for _, name := range names {
		if err := m.clearAt(fd, p+"/"+name); err != nil {
			return err
		}
	}
	if info, err := os.Lstat(filepath.Join(m.upper, p)); err == nil && info.IsDir() {
		return nil
	}
	err = gone(unix.Unlinkat(dir, name, unix.AT_REMOVEDIR))
	if errors.Is(err, unix.ENOTEMPTY) || errors.Is(err, unix.EEXIST) || errors.Is(err, unix.EBUSY) {
		err = nil
	}
	return err
}

// clearFile moves the file p away, unless it was changed since it was judged.
func (m *mover) clearFile(dir int, p string, judged *unix.Stat_t) error {
	name := path.Base(p)
	to, err := m.displace(dir, name)
	if errors.Is(err, unix.EXDEV) {
		err = unix.Unlinkat(dir, name, 0)
		return gone(err)
	}
	if err != nil {
		return gone(err)
	}
	var st unix.Stat_t
	if err := unix.Fstatat(int(m.aside.Fd()), to, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil || same(&st, judged) {
		return err
	}
	m.left = append(m.left, Skip{p, "changed_here"})
	err = unix.Renameat2(int(m.aside.Fd()), to, dir, name, unix.RENAME_NOREPLACE)
	if errors.Is(err, unix.EEXIST) { // it was replaced once more
		err = nil
	}
	return err
}

// same reports whether a file that was displaced is as it was judged. To move it
// changes its ctime.
func same(a, b *unix.Stat_t) bool {
	return a.Ino == b.Ino && a.Mtim == b.Mtim && a.Size == b.Size && a.Mode == b.Mode
}

func gone(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// ignored reports whether a file is not recorded, now and later.
func (m *mover) ignored(p string) (bool, error) {
	if gitPath(p) {
		return true, nil
	}
	if v, err := at(m.tip, p); err != nil || v.Mode != 0 {
		return false, err
	}
	dir := path.Dir(p)
	if dir == "." {
		dir = ""
	}
	d, err := m.rules(dir)
	if err != nil {
		return false, err
	}
	return d.Match(path.Base(p), false).Ignored(), nil
}

// changed reports whether a file that no history has was changed by others since the
// layer was made, and notes it: their content is nowhere else, so it stays.
func (m *mover) changed(p string, info fs.FileInfo) bool { return m.newer(p, ctime(info)) }

// newer is like changed, of a file with a ctime.
func (m *mover) newer(p string, at time.Time) bool {
	if gitPath(p) && !m.kept[p] || !gitPath(p) && !at.After(m.since) {
		return false
	}
	m.left = append(m.left, Skip{p, "changed_here"})
	return true
}

// ctime returns when a file was last changed in any way: with its name, its bits, or
// by a time that was set back.
func ctime(info fs.FileInfo) time.Time {
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return time.Time{}
	}
	return time.Unix(st.Ctim.Unix())
}

// changedAt returns the ctime of a file, zero if it cannot be read.
func changedAt(name string) time.Time {
	info, err := os.Lstat(name)
	if err != nil {
		return time.Time{}
	}
	return ctime(info)
}

// keepGit returns what stays as it is of a repository of the project's own git that
// both the layer and others changed since the layer was made. A ref, its log, HEAD or
// a setting of others stays, and the index with them. If only the index is others',
// it stays unless the layer moved refs: an index of before them would show the
// layer's commits as taken back.
func keepGit(root, upper, dir string, since time.Time) (list []move, err error) {
	moved, lost, index := false, false, false
	err = filepath.WalkDir(filepath.Join(upper, dir), func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(upper, name)
		if err != nil {
			return err
		}
		in := strings.TrimPrefix(rel, dir+"/")
		if d.IsDir() {
			if in == "objects" { // named by their content
				return filepath.SkipDir
			}
			return nil
		}
		ref := in == "HEAD" || in == "packed-refs" || strings.HasPrefix(in, "refs/")
		moved = moved || ref
		info, err := os.Lstat(filepath.Join(root, rel))
		if err != nil || !ctime(info).After(since) {
			return nil
		}
		switch {
		case in == "index":
			index = true
		case in == "COMMIT_EDITMSG", in == "FETCH_HEAD", in == "ORIG_HEAD", in == "gc.log":
		default:
			lost = lost || ref
			list = append(list, move{Op: opKeep, Path: rel})
		}
		return nil
	})
	if index && (lost || !moved) {
		list = append(list, move{Op: opKeep, Path: dir + "/index"})
	}
	return list, err
}

// put moves a path of the layer to its place. An existing file that is not
// recorded is replaced; directories are merged. It may be done again.
func (m *mover) put(p string) error {
	from := filepath.Join(m.upper, p)
	info, err := os.Lstat(from)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // done
	}
	if err != nil {
		return err
	}
	if info.IsDir() {
		return m.putDir(p, from, info)
	}
	kind, whiteout := info.Mode().Type(), false
	if kind&fs.ModeCharDevice != 0 {
		var st unix.Stat_t
		if err := unix.Lstat(from, &st); err != nil {
			return err
		}
		whiteout = st.Rdev == 0
	}
	switch {
	case whiteout:
		if err := m.clear(p); err != nil {
			return err
		}
		return gone(os.Remove(from))
	case kind != 0 && kind != fs.ModeSymlink:
		return nil // reported with the plan
	}
	if here, err := m.root.Lstat(p); err == nil && here.IsDir() {
		if err := m.clear(p); err != nil {
			return err
		}
	}
	dir, err := m.root.Open(path.Dir(p))
	if err != nil {
		return err
	}
	defer dir.Close()
	src, err := os.Open(filepath.Dir(from))
	if err != nil {
		return err
	}
	defer src.Close()
	if done, err := m.putFile(src, dir, p, from); err != nil {
		return err
	} else if done {
		return m.discard(from)
	}
	return m.rename(from, p, 0)
}

// discard moves what is left at a path of the layer away, so that an apply that is
// finished later does not put it again.
func (m *mover) discard(from string) error {
	_, err := m.displace(unix.AT_FDCWD, from)
	return gone(err)
}

// putDir moves a directory as a whole where nothing is in its place and nothing in
// it needs a look; else what is in it, one by one.
func (m *mover) putDir(p, from string, info fs.FileInfo) error {
	here, err := m.root.Lstat(p)
	if err == nil && !here.IsDir() {
		ours, err := m.ignored(p)
		if err != nil {
			return err
		}
		if !ours {
			m.left = append(m.left, Skip{p, "occupied"})
			return nil
		}
		if m.changed(p, here) {
			return nil
		}
		if err := gone(m.root.Remove(p)); err != nil {
			return err
		}
	}
	if (err != nil || !here.IsDir()) && plain(from) {
		if err := layer.Strip(from); err != nil {
			return err
		}
		switch err := m.rename(from, p, unix.RENAME_NOREPLACE); {
		case err == nil:
			return nil
		case !errors.Is(err, fs.ErrExist) && !errors.Is(err, unix.EXDEV):
			return err
		}
	}
	if err := m.root.MkdirAll(p, 0o777); err != nil {
		return err
	}
	list, err := os.ReadDir(from)
	if err != nil {
		return err
	}
	dir, err := m.root.Open(p)
	if err != nil {
		return err
	}
	defer dir.Close()
	src, err := os.Open(from)
	if err != nil {
		return err
	}
	defer src.Close()
	for _, e := range list {
		done := false
		if e.Type() == 0 || e.Type() == fs.ModeSymlink {
			if done, err = m.putFile(src, dir, p+"/"+e.Name(), from+"/"+e.Name()); err != nil {
				return err
			}
		}
		if done {
			continue
		}
		if err := m.put(p + "/" + e.Name()); err != nil {
			return err
		}
	}
	if err := m.root.Chmod(p, info.Mode().Perm()); err != nil {
		return err
	}
	if os.Remove(from) == nil {
		return nil
	}
	return m.discard(from)
}

// putFile moves a file or link of the layer, from, to its place p; src and dir are the
// open directories of both. There may be ten thousands of them, so it resolves few
// paths. The file that p had is then at from. It reports false if it did nothing: put has to.
func (m *mover) putFile(src, dir *os.File, p, from string) (done bool, err error) {
	var st unix.Stat_t
	name, in, out := path.Base(p), int(dir.Fd()), int(src.Fd())
	err = unix.Fstatat(in, name, &st, unix.AT_SYMLINK_NOFOLLOW)
	switch {
	case err == nil && st.Mode&unix.S_IFMT == unix.S_IFDIR:
		return false, nil
	case err == nil && m.newer(p, time.Unix(st.Ctim.Unix())):
		return true, nil
	case err != nil && !errors.Is(err, unix.ENOENT):
		return false, nil
	}
	if err := layer.Strip(from); err != nil {
		return false, err
	}
	if err != nil {
		return unix.Renameat2(out, name, in, name, 0) == nil, nil
	}
	if unix.Renameat2(out, name, in, name, unix.RENAME_EXCHANGE) != nil {
		return unix.Renameat2(out, name, in, name, 0) == nil, nil
	}
	var old unix.Stat_t
	if err := unix.Fstatat(out, name, &old, unix.AT_SYMLINK_NOFOLLOW); err != nil || same(&old, &st) {
		return true, err
	}
	m.left = append(m.left, Skip{p, "changed_here"}) // since it was judged
	return true, unix.Renameat2(out, name, in, name, unix.RENAME_EXCHANGE)
}

// plain reports whether a tree has files, links and directories alone.
func plain(dir string) bool {
	list, err := os.ReadDir(dir)
	if err != nil {
		return false
	}
	for _, e := range list {
		switch {
		case e.IsDir():
			if !plain(filepath.Join(dir, e.Name())) {
				return false
			}
		case e.Type() != 0 && e.Type() != fs.ModeSymlink:
			return false
		}
	}
	return true
}

// rename moves a path of the layer into the workspace; on another file system it
// is copied next to its place first.
func (m *mover) rename(from, p string, flags uint) error {
	parent, err := m.root.Open(path.Dir(p))
	if err != nil {
		return err
	}
	defer parent.Close()
	err = unix.Renameat2(unix.AT_FDCWD, from, int(parent.Fd()), path.Base(p), flags)
	if errors.Is(err, unix.EISDIR) || errors.Is(err, unix.ENOTEMPTY) {
		m.left = append(m.left, Skip{p, "occupied"})
		return nil
	}
	if !errors.Is(err, unix.EXDEV) {
		return err
	}
	info, failed := os.Lstat(from)
	if failed != nil || info.IsDir() {
		return err
	}
	name := tempName(p)
	if info.Mode()&fs.ModeSymlink != 0 {
		target, err := os.Readlink(from)
		if err != nil {
			return err
		}
		if err := m.root.Symlink(target, name); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
	} else if err := m.copy(from, name, info); err != nil {
		return errors.Join(err, gone(m.root.Remove(name)))
	}
	if err := m.root.Rename(name, p); err != nil {
		return errors.Join(err, gone(m.root.Remove(name)))
	}
	return os.Remove(from)
}

func (m *mover) copy(from, to string, info fs.FileInfo) error {
	src, err := openOwn(from)
	if err != nil {
		return err
	}
	defer src.Close()
	_ = m.root.Remove(to)
	dst, err := m.root.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	err = layer.CopyData(dst, src, info.Size())
	return errors.Join(err, dst.Chmod(info.Mode().Perm()), dst.Close(), m.root.Chtimes(to, info.ModTime(), info.ModTime()))
}

// chmod sets the bits of a file or directory of the workspace.
func (m *mover) chmod(p string, perm uint32) error {
	info, err := m.root.Lstat(p)
	if err != nil || info.Mode()&fs.ModeSymlink != 0 || !info.IsDir() && !info.Mode().IsRegular() || info.Mode().Perm() == fs.FileMode(perm).Perm() {
		return gone(err)
	}
	err = m.root.Chmod(p, fs.FileMode(perm).Perm())
	if errors.Is(err, fs.ErrPermission) {
		m.left = append(m.left, Skip{p, "permission_denied"})
		return nil
	}
	return gone(err)
}

// move does the moves of one kind.
func (m *mover) move(list []move, op string) error {
	for _, x := range list {
		if x.Op != op {
			continue
		}
		err := m.step()
		if err != nil {
			return err
		}
		reached, err := m.reach(x.Path, op == opPut)
		if err != nil {
			return errs.Wrap(err, x.Path)
		}
		if !reached {
			continue
		}
		switch op {
		case opClear:
			err = m.clear(x.Path)
		case opPut:
			err = m.put(x.Path)
		case opChmod:
			err = m.chmod(x.Path, x.Perm)
		}
		if err != nil {
			return errs.Wrap(err, x.Path)
		}
	}
	return nil
}

// syncFiles writes out the file system that a directory is on (syncfs(2)).
func syncFiles(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(unix.Syncfs(int(d.Fd())), d.Close())
}

// locked reports whether another open file holds a lock (flock(2)).
func locked(name string) bool {
	f, err := os.Open(name)
	if err != nil {
		return false
	}
	defer f.Close()
	return unix.Flock(int(f.Fd()), unix.LOCK_SH|unix.LOCK_NB) != nil // shared: others may look at the same time
}

// Hold locks a layer for the client that runs a command in it, until it ends or
// release is called.
func Hold(dir string) (release func(), err error) {
	f, err := HoldFile(dir)
	if err != nil {
		return nil, err
	}
	return func() { f.Close() }, nil
}

// HoldFile is like Hold. The lock is held until the file is closed in every process
// that inherited it.
func HoldFile(dir string) (*os.File, error) {
	f, err := os.Open(filepath.Join(dir, lockFile))
	if err != nil {
		return nil, err
	}
	// The server has the lock for a moment when it checks it.
	for end := time.Now().Add(time.Second); ; <-time.After(5 * time.Millisecond) {
		if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err == nil {
			return f, nil
		} else if time.Now().After(end) {
			f.Close()
			return nil, err
		}
	}
}
