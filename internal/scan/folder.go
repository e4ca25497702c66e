package scan

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"slices"
	"strings"
	"syscall"

	"umbra/internal/ignore"
	"umbra/internal/vfs"
	"umbra/internal/wspath"
)

// folder lists one directory, visits its entries, and returns the directories to
// go on with.
func (w *walker) folder(d folder) ([]folder, error) {
	var subdirs []folder
	err := vfs.ListDir(w.fs, string(d.path), func(entries []vfs.DirEntry, lstat func(string) (vfs.Info, error)) error {
		slices.SortFunc(entries, func(a, b vfs.DirEntry) int { return strings.Compare(a.Name, b.Name) })
		rules, err := w.rules(d, entries)
		if err != nil {
			return err
		}
		w.stats.dirs.Add(1)
		visit, done := w.visit, func() error { return nil }
		if w.opts.Folder != nil {
			if visit, done, err = w.opts.Folder(d.path); err != nil {
				return visitError{err}
			}
		}
		for i, e := range entries {
			if i&0xff == 0 {
				if err := context.Cause(w.ctx); err != nil {
					return visitError{err}
				}
				w.reportProgress()
			}
			enter, err := w.entry(visit, d.path, rules, e, lstat)
			if err != nil {
				return visitError{err}
			}
			if enter {
				subdirs = append(subdirs, folder{path: d.path.Join(e.Name), above: rules})
			}
		}
		if err := done(); err != nil {
			return visitError{err}
		}
		return nil
	})
	if v, ok := errors.AsType[visitError](err); ok {
		return nil, v.err
	}
	switch {
	case err == nil:
		return subdirs, nil
	case outOfResources(err):
		return nil, err
	case d.path.IsRoot():
		return nil, err
	case vanished(err):
		return nil, w.replaced(d)
	}
	return nil, w.skip(w.visit, d.path, Unreadable)
}

// replaced visits what exists where a directory was found. If that is a directory
// again, another process is changing it, and the next scan is soon enough.
func (w *walker) replaced(d folder) error {
	info, err := w.fs.Lstat(string(d.path))
	if err != nil || info.IsDir() {
		return nil
	}
	e := vfs.DirEntry{Name: d.path.Base(), Type: info.Mode.Type()}
	_, err = w.entry(w.visit, d.path.Dir(), d.above, e, func(string) (vfs.Info, error) { return info, nil })
	return err
}

// visitError carries what must end the walk through ListDir.
type visitError struct{ err error }

func (e visitError) Error() string { return e.err.Error() }

// rules gives the rules that hold in a folder just listed, nil for none.
func (w *walker) rules(d folder, entries []vfs.DirEntry) (*ignore.Dir, error) {
	if d.rules != nil || d.above == nil {
		return d.rules, nil
	}
	return d.above.ChildHaving(d.path.Base(), func(file string) bool {
		i, found := slices.BinarySearchFunc(entries, file, func(e vfs.DirEntry, name string) int { return strings.Compare(e.Name, name) })
		return found && entries[i].Type.IsRegular()
	})
}

// entry visits one entry, and reports whether it is a directory to enter.
func (w *walker) entry(visit func(Found) error, dir wspath.Path, rules *ignore.Dir, e vfs.DirEntry, lstat func(string) (vfs.Info, error)) (enter bool, err error) {
	// A repository's own folder or file is no part of the tree, nor is what we
	// prepare or displace; neither is worth a word.
	if e.Name == ".git" || wspath.IsTemp(e.Name) {
		return false, nil
	}
	path := dir.Join(e.Name)
	if w.opts.Prune != nil && w.opts.Prune(path) {
		return false, nil
	}
	ignored := false
	if rules != nil {
		v := rules.Match(e.Name, e.Type.IsDir())
		if ignored = v.Ignored(); ignored && !w.kept(path, v, e.Type.IsDir()) {
			w.stats.ignored.Add(1)
			return false, nil
		}
	}
	switch {
	case len(path) > wspath.MaxPath || len(e.Name) > wspath.MaxComponent:
		return false, w.skip(visit, path, PathTooLong)
	case wspath.IsGitName(e.Name), e.Type&fs.ModeSymlink != 0 && wspath.IsModulesName(e.Name):
		return false, w.skip(visit, path, NameRefused)
	case e.Type.IsDir() && !w.opts.Dirs:
		return true, nil
	case !e.Type.IsDir() && !e.Type.IsRegular() && e.Type != fs.ModeSymlink:
		return false, w.skip(visit, path, Special)
	}
	info, err := lstat(e.Name)
	switch {
	case err == nil:
	case errors.Is(err, fs.ErrNotExist):
		return false, nil
	case outOfResources(err):
		return false, err
	default:
		return false, w.skip(visit, path, Unreadable)
	}
	switch {
	case info.IsRegular():
		w.stats.files.Add(1)
	case info.IsSymlink():
		w.stats.links.Add(1)
	case info.IsDir():
		if !w.opts.Dirs {
			return true, nil
		}
	default:
		return false, w.skip(visit, path, Special)
	}
	return info.IsDir(), visit(Found{Path: path, Info: info, Ignored: ignored})
}

// kept reports whether something is not left out although rules say so: it is
// tracked, or a folder with something tracked below.
func (w *walker) kept(path wspath.Path, v ignore.Verdict, isDir bool) bool {
	if isDir {
		if w.opts.TrackedUnder != nil && w.opts.TrackedUnder(path) {
			return true
		}
	} else if w.opts.Tracked != nil && w.opts.Tracked(path) {
		return true
	}
	// The project's index has a say against git's rules only.
	if v.ByUmbra() || v.ByCodey() {
		return false
	}
	if isDir {
		return w.opts.Index.HasUnder(path)
	}
	return w.opts.Index.Has(path)
}

func (w *walker) skip(visit func(Found) error, path wspath.Path, why Reason) error {
	w.stats.skipped.Add(1)
	return visit(Found{Path: path, Skip: why})
}

// outOfResources reports whether an error is about this process and not about the
// file: to go on would report a whole tree as unreadable.
func outOfResources(err error) bool {
	return errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE) || errors.Is(err, syscall.ENOMEM) || errors.Is(err, fs.ErrClosed)
}

func vanished(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) || errors.Is(err, syscall.ELOOP)
}

// RuleReader reads files of rules for ignore.Options.ReadFile from a tree: no
// link is followed, only regular files are read, and no more than
// ignore.MaxFile and a byte.
func RuleReader(f vfs.FS) func(wspath.Path) ([]byte, error) {
	return func(path wspath.Path) ([]byte, error) {
		h, err := f.Open(string(path))
		if err != nil {
			return nil, err
		}
		defer h.Close()
		info, err := h.Stat()
		if err != nil {
			return nil, err
		}
		if !info.IsRegular() {
			return nil, &fs.PathError{Op: "read", Path: string(path), Err: fs.ErrNotExist}
		}
		return io.ReadAll(io.LimitReader(h, ignore.MaxFile+1))
	}
}
