// Package forklayer keeps the directory that makes a parent's directory look as a
// fork: it is a lower layer of the overlay in which the fork's commands run, above the
// parent's directory and below what the command writes.
//
// For each recorded path at which the two differ it has the fork's version out of
// history, or a whiteout. So a command finds the files of the fork whatever happened
// to the parent's since, and nothing has to be kept before it changes there. Besides
// it has the fork's own ignored files.
//
// Nothing here may run while a command has the directory mounted: overlayfs calls the
// result undefined.
package forklayer

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"umbra/gitstore"
	"umbra/gitstore/object"
	"umbra/internal/clock"
	"umbra/internal/errs"
	"umbra/internal/layer"
	"umbra/internal/wspath"
)

// Layer is the layer of one fork.
type Layer struct {
	Dir   string // a directory of its own in the data directory
	Lower string // the parent's directory
	// Alone is set where Lower has no recorded files: all of the fork's are placed, and what
	// hides the parent's other files stays.
	Alone bool
	// Tracked reports whether history has a path, or would.
	Tracked func(path string, dir bool) (bool, error)
	// Blob opens a version of a file.
	Blob func(id object.ID) (io.ReadCloser, error)
}

// Files is the directory that is mounted.
func (l *Layer) Files() string { return filepath.Join(l.Dir, "files") }

// placed is what the layer has of recorded paths.
type placed struct {
	Base  string            `json:"base"` // trees that it was made for
	Fork  string            `json:"fork"`
	Boot  string            `json:"boot"`  // of the machine: what was written before another one may be empty
	Paths map[string]string `json:"paths"` // hidden, opaque, or mode and id; written as wspath.Text does
}

const (
	hidden = "hidden" // a whiteout
	opaque = "opaque" // a directory of ignored files that hides the parent's
	stale  = "?"      // not known
)

func (l *Layer) placedFile() string { return filepath.Join(l.Dir, "placed.json") }

// Refresh makes the layer show a fork's tree over the parent's. A run that was cut off
// is repeated.
func (l *Layer) Refresh(ctx context.Context, base, fork gitstore.Snapshot) error {
	if err := os.MkdirAll(l.Files(), 0o700); err != nil {
		return errs.Wrap(err, "")
	}
	if info, err := os.Stat(l.Lower); err == nil { // its bits are what a command sees of the root's
		if err := os.Chmod(l.Files(), info.Mode().Perm()|0o700); err != nil {
			return errs.Wrap(err, "")
		}
	}
	was, err := l.load(ctx, base, fork)
	if err != nil {
		return err
	}
	if was.Base == base.Tree().String() && was.Fork == fork.Tree().String() {
		return nil
	}
	want, err := l.wanted(ctx, base, fork)
	if err != nil {
		return err
	}
	if err := os.Remove(l.placedFile()); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return errs.Wrap(err, "")
	}
	for _, p := range deepestFirst(was.Paths) {
		if was.Paths[p] != want[p] {
			if err := l.clear(p, was.Paths[p]); err != nil {
				return errs.Wrap(err, p)
			}
		}
	}
	for _, p := range sorted(want) {
		if was.Paths[p] == want[p] {
			continue
		}
		if err := l.place(p, want); err != nil {
			return errs.Wrap(err, p)
		}
	}
	raw, err := json.Marshal(placed{base.Tree().String(), fork.Tree().String(), clock.BootID(), named(want, wspath.Text)})
	if err != nil {
		return err
	}
	return errs.Wrap(os.WriteFile(l.placedFile(), raw, 0o600), "")
}

// named returns a map by paths in another form.
func named(paths map[string]string, form func(path string) string) map[string]string {
	if paths == nil {
		return nil
	}
	out := make(map[string]string, len(paths))
	for p, what := range paths {
		out[form(p)] = what
	}
	return out
}

// wanted lists what is to be placed. A directory that the fork does not have is hidden
// as a whole, unless the parent's has files that no history has: those are shared, but for
// a directory that a command removed with them.
func (l *Layer) wanted(ctx context.Context, base, fork gitstore.Snapshot) (map[string]string, error) {
	want := map[string]string{}
	shared := map[wspath.Path]bool{} // directories, as far as they were asked for
	err := gitstore.Diff(ctx, base, fork, wspath.Root, func(d gitstore.TreeChange) error {
		if d.New.Mode != 0 {
			want[string(d.Path)] = fmt.Sprintf("%o %s", d.New.Mode, d.New.ID)
			return nil
		}
		hide := d.Path // or the topmost directory that the fork does not have
		for dir := range d.Path.Ancestors() {
			if dir.IsRoot() {
				break
			}
			switch e, ok, err := fork.Lookup(dir); {
			case err != nil:
				return err
			case !ok:
				has, known := shared[dir]
				if !known {
					if has, err = l.shares(base, dir); err != nil {
						return err
					}
					info, err := os.Lstat(filepath.Join(l.Files(), string(dir)))
					has = has && (err != nil || info.Mode()&fs.ModeCharDevice == 0)
					shared[dir] = has
				}
				if !has {
					hide = dir
				}
			case e.Mode != object.Dir:
				return nil // the file there covers it
			}
		}
		if e, ok, err := fork.Lookup(hide); err != nil || ok && e.Mode == object.Dir {
			return err // a directory covers the file
		}
		want[string(hide)] = hidden
		return nil
	})
	return want, err
}

// shares reports whether the parent's directory has anything but recorded files.
func (l *Layer) shares(base gitstore.Snapshot, dir wspath.Path) (bool, error) {
	found := false
	err := filepath.WalkDir(filepath.Join(l.Lower, string(dir)), func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return nil // it went, or cannot be read: it is not shown
		}
		rel, err := filepath.Rel(l.Lower, name)
		if err != nil || d.IsDir() {
			return err
		}
		if _, ok, err := base.Lookup(wspath.Path(filepath.ToSlash(rel))); err != nil || ok {
			return err
		}
		found = true
		return filepath.SkipAll
	})
	return found, errs.Wrap(err, "")
}

// load reads what is placed, or finds it out: a run was cut off, or a command's ignored
// files came since.
func (l *Layer) load(ctx context.Context, trees ...gitstore.Snapshot) (was placed, err error) {
	if was, err = l.read(); err != nil {
		return was, err
	}
	if boot := clock.BootID(); was.Paths != nil && was.Boot != boot {
		was.Base = ""
		for p, what := range was.Paths {
			if what != hidden && what != opaque {
				was.Paths[p] = stale
			}
		}
	}
	if was.Paths != nil {
		if l.Alone {
			maps.DeleteFunc(was.Paths, func(_, what string) bool { return what == hidden || what == opaque })
		}
		return was, nil
	}
	was = placed{Paths: map[string]string{}}
	err = layer.Read(ctx, l.Files(), func(e layer.Entry) (bool, error) {
		tracked := false
		if e.Kind == layer.Whiteout { // rules may depend on what it hides
			for _, t := range trees {
				_, ok, err := t.Lookup(wspath.Path(e.Path))
				if err != nil {
					return false, err
				}
				tracked = tracked || ok
			}
		} else if tracked, err = l.Tracked(e.Path, e.Kind == layer.Dir); err != nil {
			return false, err
		}
		switch {
		case !tracked, l.Alone && e.Kind == layer.Whiteout:
			return false, nil
		case e.Kind != layer.Dir:
			was.Paths[e.Path] = stale
		case e.Opaque && !l.Alone:
			was.Paths[e.Path] = opaque
		}
		return true, nil
	})
	return was, errs.Wrap(err, "")
}

// clear takes away what was placed, and directories that are empty then.
func (l *Layer) clear(p, what string) error {
	name := filepath.Join(l.Files(), p)
	if what == opaque {
		return layer.SetOpaque(name, false)
	}
	if err := os.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) && !notDir(err) {
		return err
	}
	for dir := path.Dir(p); dir != "."; dir = path.Dir(dir) {
		if os.Remove(filepath.Join(l.Files(), dir)) != nil {
			break
		}
	}
	return nil
}

func notDir(err error) bool { return strings.HasSuffix(err.Error(), "not a directory") }

// place puts the fork's version of a path into the layer.
func (l *Layer) place(p string, want map[string]string) error {
	if err := l.parents(p); err != nil {
		return err
	}
	name := filepath.Join(l.Files(), p)
	info, err := os.Lstat(name)
	if err == nil && info.IsDir() && want[p] == hidden {
		if os.Remove(name) != nil { // it has ignored files of the fork
			want[p] = opaque
			return layer.SetOpaque(name, true)
		}
	} else if err == nil {
		if err := layer.Remove(name); err != nil {
			return err
		}
	}
	if want[p] == hidden {
		return layer.MakeWhiteout(name)
	}
	var mode object.Mode
	var hex string
	if _, err := fmt.Sscanf(want[p], "%o %s", &mode, &hex); err != nil {
		return err
	}
	id, err := object.ParseID(hex)
	if err != nil {
		return err
	}
	r, err := l.Blob(id)
	if err != nil {
		return err
	}
	defer r.Close()
	if mode == object.Symlink {
		target, err := io.ReadAll(io.LimitReader(r, wspath.MaxTarget))
		if err != nil {
			return err
		}
		return os.Symlink(string(target), name)
	}
	perm := fs.FileMode(0o666)
	if mode == object.Executable {
		perm = 0o777
	}
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, perm)
	if err != nil {
		return err
	}
	_, err = io.Copy(f, r)
	return errors.Join(err, f.Close())
}

// parents makes the directories above a path, with the bits of the parent's.
func (l *Layer) parents(p string) error {
	above := ""
	for part := range strings.SplitSeq(path.Dir(p), "/") {
		if part == "." {
			return nil
		}
		above = path.Join(above, part)
		name := filepath.Join(l.Files(), above)
		info, err := os.Lstat(name)
		if err == nil && info.IsDir() {
			continue
		}
		if err == nil {
			if err := os.Remove(name); err != nil {
				return err
			}
		}
		perm := fs.FileMode(0o777)
		if info, err := os.Lstat(filepath.Join(l.Lower, above)); err == nil && info.IsDir() {
			perm = info.Mode().Perm() | 0o700
		}
		if err := os.Mkdir(name, perm); err != nil {
			return err
		}
	}
	return nil
}

// Absorb takes what a command left at paths that history does not have out of its
// upper directory: hide is what it removed, take what it wrote. It may be repeated.
func (l *Layer) Absorb(upper string, hide, take []string) error {
	if len(hide)+len(take) == 0 {
		return nil
	}
	// What is placed may be under one of them.
	if err := os.Remove(l.placedFile()); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return errs.Wrap(err, "")
	}
	for _, p := range hide {
		if err := l.hide(upper, p); err != nil {
			return errs.Wrap(err, p)
		}
	}
	for _, p := range take {
		if err := l.parents(p); err != nil {
			return errs.Wrap(err, p)
		}
		if err := merge(filepath.Join(upper, p), filepath.Join(l.Files(), p)); err != nil {
			return errs.Wrap(err, p)
		}
	}
	return nil
}

// hide covers a path that a command removed. One that it made again as a directory
// loses its ignored files only.
func (l *Layer) hide(upper, p string) error {
	info, err := os.Lstat(filepath.Join(upper, p))
	if errors.Is(err, fs.ErrNotExist) {
		return nil // it was taken
	}
	if err == nil {
		err = l.parents(p)
	}
	if err != nil {
		return err
	}
	name := filepath.Join(l.Files(), p)
	if err := layer.Remove(name); err != nil || info.IsDir() {
		return err
	}
	return layer.MakeWhiteout(name)
}

// merge moves a path of an upper directory over that of the layer below it.
func merge(from, to string) error {
	up, err := os.Lstat(from)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // done
	}
	if err != nil {
		return err
	}
	here, err := os.Lstat(to)
	if err == nil && up.IsDir() && here.IsDir() {
		covers, err := layer.IsOpaque(from)
		if err != nil {
			return err
		}
		if !covers {
			if err := os.Chmod(to, here.Mode().Perm()|0o700); err != nil { // an earlier command closed it
				return err
			}
			list, err := os.ReadDir(from)
			if err != nil {
				return err
			}
			for _, e := range list {
				if err := merge(filepath.Join(from, e.Name()), filepath.Join(to, e.Name())); err != nil {
					return err
				}
			}
			return os.Chmod(to, up.Mode().Perm())
		}
	}
	if err == nil {
		if err := layer.Remove(to); err != nil {
			return err
		}
		if up.IsDir() && !here.IsDir() { // what it covered is covered by the new one
			if err := layer.SetOpaque(from, true); err != nil {
				return err
			}
		}
	}
	return os.Rename(from, to)
}

func sorted(m map[string]string) []string {
	out := make([]string, 0, len(m))
	for p := range m {
		out = append(out, p)
	}
	slices.Sort(out)
	return out
}

func deepestFirst(m map[string]string) []string {
	out := sorted(m)
	slices.Reverse(out)
	return out
}
