package state

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
)

// step brings a data directory from one format to the next.
type step struct {
	// changes are the files and folders of the data directory that apply changes
	// or removes. They are copied first, to upgrade-<from>/; what is not there is
	// passed over.
	changes []string
	// apply does it. It may be cut off at any place, and is then called again: so
	// it must find what it did already as well done. What it made durable is all
	// that counts.
	apply func(dir string) error
}

// steps lead from the first format to Format, in order: steps[0] is from 1 to 2.
//
// 1 to 2: history may end before its first commit, and be rewritten; access
// state.db may have tokens. A program that knows format 1 alone would take
// the first for damage and let everybody in who needs a token. The files are as
// they were: only the version says so.
//
// 2 to 3: the ref logs of workspaces are of groups (version 2 of others), and the
// tasks' index has buckets that lead to its records. A program that knows format 2
// alone would take the first for damage and leave the second behind. Each is made
// when it is next written or opened.
//
// 3 to 4: workspaces are found by an index. A program that knows
// format 3 alone would leave it behind. It is made in one transaction at the start,
// by the owner of the records, where it does not exist.
//
// 4 to 5: sessions and toolsets are found by indexes. A program that knows format 4
// alone would leave them behind. They are made as the workspaces' is.
func steps() []step {
	return []step{
		{changes: []string{formatFile}, apply: func(string) error { return nil }},
		{changes: []string{formatFile}, apply: func(string) error { return nil }},
		{changes: []string{formatFile}, apply: func(string) error { return nil }},
		{changes: []string{formatFile}, apply: func(string) error { return nil }},
	}
}

// upgrader brings a data directory to the newest format that its steps lead to.
type upgrader struct {
	dir   string
	steps []step
	// at is called before every change on disk, by tests that stop there; nil
	// elsewhere.
	at func(what string) error
}

// run goes step by step. Each begins with a copy of what it changes, and ends
// with the new version in the file format: cut off between the two, it begins
// again, and the first copy is.
func (u *upgrader) run(found int) error {
	for v := found; v <= len(u.steps); v++ {
		s := u.steps[v-1]
		if err := u.keep(v, s.changes); err != nil {
			return fmt.Errorf("upgrade from format %d: copying what it changes: %w", v, err)
		}
		if err := u.about("apply " + strconv.Itoa(v)); err != nil {
			return err
		}
		if err := s.apply(u.dir); err != nil {
			return fmt.Errorf("upgrade from format %d: %w", v, err)
		}
		if err := u.about("format " + strconv.Itoa(v+1)); err != nil {
			return err
		}
		if err := writeDurably(filepath.Join(u.dir, formatFile), strconv.Itoa(v+1)+"\n"); err != nil {
			return err
		}
	}
	return nil
}

func (u *upgrader) about(what string) error {
	if u.at == nil {
		return nil
	}
	return u.at(what)
}

// keep copies what a step changes to upgrade-<from>/. The folder has its name
// only when all of it is durable.
func (u *upgrader) keep(from int, names []string) error {
	final := filepath.Join(u.dir, "upgrade-"+strconv.Itoa(from))
	if _, err := os.Lstat(final); err == nil {
		return nil
	} else if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	temp := final + ".new"
	if err := u.about("clear " + temp); err != nil {
		return err
	}
	if err := os.RemoveAll(temp); err != nil {
		return err
	}
	if err := u.about("mkdir " + temp); err != nil {
		return err
	}
	if err := os.Mkdir(temp, 0o700); err != nil {
		return err
	}
	for _, name := range names {
		if err := u.copy(filepath.Join(u.dir, name), filepath.Join(temp, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	if err := errors.Join(syncDir(temp), u.about("name "+final)); err != nil {
		return err
	}
	if err := os.Rename(temp, final); err != nil {
		return err
	}
	return syncDir(u.dir)
}

// copy copies a file or a folder with all in it, durably.
func (u *upgrader) copy(from, to string) error {
	info, err := os.Lstat(from)
	if err != nil {
		return err
	}
	if err := u.about("copy " + to); err != nil {
		return err
	}
	switch {
	case info.IsDir():
		if err := os.Mkdir(to, 0o700); err != nil {
			return err
		}
		list, err := os.ReadDir(from)
		if err != nil {
			return err
		}
		for _, e := range list {
			if err := u.copy(filepath.Join(from, e.Name()), filepath.Join(to, e.Name())); err != nil {
				return err
			}
		}
		return syncDir(to)
	case info.Mode()&fs.ModeSymlink != 0:
		target, err := os.Readlink(from)
		if err != nil {
			return err
		}
		return os.Symlink(target, to)
	case info.Mode().IsRegular():
		return copyFile(from, to, info.Mode().Perm())
	}
	return nil
}

func copyFile(from, to string, perm fs.FileMode) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, perm)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	if err == nil {
		err = out.Sync()
	}
	return errors.Join(err, out.Close())
}

func syncDir(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}
