// Package forkstub gives forks that have no repository yet one that stock git can
// read: a few files that all such forks of one commit share, which name the parent's
// objects and that commit. The fork's own name is a symbolic link to them, so it takes
// no block of the disk.
//
// Nothing is synced: the fork's record says that it has no repository, and a start
// makes the stubs again.
package forkstub

import (
	"errors"
	"io/fs"
	"os"
	"path"
	"sync"

	"umbra/internal/vfs"
)

// sharedDir is the directory of a parent that has the stubs of its forks, one by commit.
const sharedDir = "forks"

// mu keeps a stub from being removed while a fork is linked to it.
var mu sync.Mutex

// Fork is a fork that has no repository: its id, its parent's, and the parent's commit
// at which it begins.
type Fork struct{ ID, Parent, At string }

// shared returns the stub's directory. With at most 59 bytes, a link to it takes no
// block on ext4 and xfs; an id has at most 41.
func (f Fork) shared() string { return path.Join(f.Parent, sharedDir, f.At[:min(len(f.At), 10)]) }

// Put gives forks their stubs. dir has a directory for each workspace. A fork whose
// name is taken by a directory has a repository already and is left alone. With renew
// the stubs are written again, for a start after a power failure.
func Put(dir vfs.FS, forks []Fork, renew bool) error {
	mu.Lock()
	defer mu.Unlock()
	done := map[string]bool{}
	for _, f := range forks {
		if at := f.shared(); !done[at] {
			if err := f.write(dir, renew); err != nil {
				return err
			}
			done[at] = true
		}
		if err := dir.Symlink(f.shared(), f.ID); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
	}
	return nil
}

// write makes the files that the forks of one commit share. HEAD is last: a stub that
// has it is complete.
func (f Fork) write(dir vfs.FS, renew bool) error {
	repo := path.Join(f.shared(), "repo.git")
	if _, err := dir.Lstat(repo + "/HEAD"); err == nil && !renew {
		at, err := vfs.ReadFile(dir, repo+"/refs/heads/shadow")
		if err == nil && string(at) != f.At+"\n" {
			err = errors.New("the stub of another commit has the same name")
		}
		return err
	}
	for _, d := range []string{path.Dir(f.shared()), f.shared(), repo, repo + "/objects", repo + "/objects/info", repo + "/refs", repo + "/refs/heads"} {
		if err := dir.Mkdir(d, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
	}
	for _, file := range []struct{ name, text string }{
		{"objects/info/alternates", "../../../../repo.git/objects\n"},
		{"refs/heads/shadow", f.At + "\n"},
		{"config", "[core]\n\trepositoryformatversion = 0\n\tbare = true\n"},
		{"HEAD", "ref: refs/heads/shadow\n"},
	} {
		if err := writeFile(dir, path.Join(repo, file.name), file.text); err != nil {
			return err
		}
	}
	return nil
}

func writeFile(dir vfs.FS, name, text string) error {
	f, err := dir.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write([]byte(text))
	return errors.Join(err, f.Close())
}

// Sweep removes the stubs of forks that are not in the list, and files that none of the
// list shares. It is for a start, before anything else uses dir.
func Sweep(dir vfs.FS, forks []Fork) error {
	exist, shared := map[string]bool{}, map[string]bool{}
	for _, f := range forks {
		exist[f.ID], shared[f.shared()] = true, true
	}
	list, err := dir.ReadDir(".")
	if err != nil {
		return err
	}
	drop := func(f Fork) error { return Drop(dir, f, func() bool { return !shared[f.shared()] }) }
	for _, e := range list {
		switch {
		case e.Type == fs.ModeSymlink && !exist[e.Name]:
			target, err := dir.Readlink(e.Name)
			if err != nil {
				return err
			}
			f := Fork{ID: e.Name, Parent: path.Dir(path.Dir(target)), At: path.Base(target)}
			if f.shared() != target {
				continue // not a stub
			}
			if err := drop(f); err != nil {
				return err
			}
		case e.Type == fs.ModeDir:
			commits, err := dir.ReadDir(path.Join(e.Name, sharedDir))
			if err != nil {
				continue // it has none
			}
			for _, c := range commits {
				if f := (Fork{ID: "", Parent: e.Name, At: c.Name}); !shared[f.shared()] {
					if err := f.unshare(dir); err != nil {
						return err
					}
				}
			}
		}
	}
	return nil
}

// Drop takes a fork's stub away: it gets a repository, or is deleted. last says
// whether no other fork of the same commit uses the shared files, which are removed
// then. A directory is left alone.
func Drop(dir vfs.FS, f Fork, last func() bool) error {
	mu.Lock()
	defer mu.Unlock()
	info, err := dir.Lstat(f.ID)
	if err == nil && info.IsSymlink() {
		err = dir.Remove(f.ID)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if !last() {
		return nil
	}
	return f.unshare(dir)
}

// unshare removes the files that the forks of one commit share.
func (f Fork) unshare(dir vfs.FS) error {
	repo := path.Join(f.shared(), "repo.git")
	for _, name := range []string{"HEAD", "config", "refs/heads/shadow", "objects/info/alternates", "refs/heads", "refs", "objects/info", "objects", ""} {
		if err := dir.Remove(path.Join(repo, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil // something else is in it, such as a lock of git: it stays
		}
	}
	for _, name := range []string{f.shared(), path.Dir(f.shared())} {
		if dir.Remove(name) != nil { // it may have another commit's
			break
		}
	}
	return nil
}
