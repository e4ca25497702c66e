package rootfs

import (
	"errors"
	"io/fs"
	"math/rand/v2"
	"syscall"

	"umbra/internal/vfs"
	"umbra/internal/wspath"
)

// Displaced is what was at a path and now is under a temporary name.
type Displaced struct {
	Temp string   // where it is now
	Info vfs.Info // as it came out; its ctime is that of the exchange

	aside bool // Temp is a name in the folder aside
	noted bool // it waits, and a note names its path
}

// IsAside reports whether it is in the directory aside, where it is not visible.
func (d *Displaced) IsAside() bool { return d.aside }

// Follow notes that a folder was renamed: what was displaced in it is elsewhere
// now.
func (d *Displaced) Follow(from, to wspath.Path) {
	if d.aside {
		return
	}
	if rel, ok := wspath.Path(d.Temp).Rel(from); ok {
		d.Temp = string(to.Join(string(rel)))
	}
}

// exchange swaps the file under a temporary name with a target, and returns the
// displaced file, also with an error: then it could not be checked.
func (r *Root) exchange(temp string, target wspath.Path) (*Displaced, error) {
	if !r.noExchange.Load() {
		err := r.fs.Exchange(temp, string(target))
		if err == nil {
			return r.lookAt(temp)
		}
		if !errors.Is(err, errors.ErrUnsupported) {
			return nil, err
		}
		r.noExchange.Store(true)
	}
	// Hard-link what is there aside, then rename over it. The name that
	// records the displacement is the one that holds the prepared file now.
	making := tempIn(target, makingDigits())
	if err := r.fs.RenameNoReplace(temp, making); err != nil {
		return nil, err
	}
	err := r.fs.Link(string(target), temp)
	if err == nil {
		if err = r.fs.Rename(making, string(target)); err == nil {
			return r.lookAt(temp)
		}
		_ = r.fs.Remove(temp)
	}
	return nil, errors.Join(err, r.fs.RenameNoReplace(making, temp))
}

func (r *Root) lookAt(temp string) (*Displaced, error) {
	d := &Displaced{Temp: temp}
	return d, r.Look(d)
}

// Look reads what was displaced's stat data again.
func (r *Root) Look(d *Displaced) error {
	info, err := r.at(d.aside).Lstat(d.Temp)
	if err == nil {
		d.Info = info
	}
	return err
}

// Open opens what was displaced for reading, as FS.Open does.
func (r *Root) Open(d *Displaced) (vfs.File, error) { return r.at(d.aside).Open(d.Temp) }

// SwapLink puts a symbolic link in place of what is at the target.
func (r *Root) SwapLink(target wspath.Path, to string) (*Displaced, error) {
	making := tempIn(target, makingDigits())
	if err := r.fs.Symlink(to, making); err != nil {
		return nil, err
	}
	info, err := r.fs.Lstat(making)
	if err == nil {
		temp := tempIn(target, info.Ino)
		if err = r.fs.RenameNoReplace(making, temp); err == nil {
			d, err := r.exchange(temp, target)
			if d == nil {
				_ = r.fs.Remove(temp)
			}
			return d, err
		}
	}
	_ = r.fs.Remove(making)
	return nil, err
}

// Take renames what is at a path (a file, link or whole folder) away. As
// with an exchange, the displaced file is returned also with an error.
func (r *Root) Take(target wspath.Path) (*Displaced, error) {
	for try := range takenTries {
		temp := tempIn(target, takenDigits(target.Base(), try))
		err := r.fs.RenameNoReplace(string(target), temp)
		if err == nil {
			return r.lookAt(temp)
		}
		if !errors.Is(err, fs.ErrExist) {
			return nil, err
		}
	}
	return nil, &fs.PathError{Op: "take", Path: string(target), Err: syscall.EBUSY}
}

// Exchange swaps two names of files or directories that are both wanted.
func (r *Root) Exchange(a, b wspath.Path) error {
	err := r.fs.Exchange(string(a), string(b))
	if errors.Is(err, errors.ErrUnsupported) {
		r.noExchange.Store(true)
	}
	return err
}

// TempIn returns a temporary name in a directory that is not in use.
func (r *Root) TempIn(dir wspath.Path) wspath.Path {
	return wspath.Path(tempIn(dir.Join("x"), rand.Uint64()&^(1<<32))) // never IsMaking
}

// MoveUp moves what was displaced into the folder above the one that it is in,
// so that this one can go.
func (r *Root) MoveUp(d *Displaced) error {
	if d.aside {
		return nil
	}
	dir := wspath.Path(d.Temp).Dir()
	for try := range takenTries {
		temp := tempIn(dir, takenDigits(string(dir)+"/"+wspath.Path(d.Temp).Base(), try))
		err := r.fs.RenameNoReplace(d.Temp, temp)
		if err == nil {
			d.Temp = temp
			return nil
		}
		if !errors.Is(err, fs.ErrExist) {
			return err
		}
	}
	return &fs.PathError{Op: "rename", Path: d.Temp, Err: syscall.EBUSY}
}

// PutBack gives what was taken its name again; fs.ErrExist if something else
// is there by now.
func (r *Root) PutBack(d *Displaced, target wspath.Path) error {
	was := *d
	var err error
	if d.aside {
		err = r.moveFromAside(d.Temp, string(target))
	} else {
		err = r.fs.RenameNoReplace(d.Temp, string(target))
	}
	if err == nil {
		r.forget(&was)
		d.noted = false
	}
	return err
}

// SwapBack exchanges what was displaced with what is at the target now, and
// gives that.
func (r *Root) SwapBack(d *Displaced, target wspath.Path) (*Displaced, error) {
	was := *d
	var out *Displaced
	var err error
	if d.aside {
		out, err = r.exchangeAside(d.Temp, target)
	} else {
		out, err = r.exchange(d.Temp, target)
	}
	if out != nil { // the name is now that of another file, which does not wait
		if d.noted {
			_ = r.at(was.aside).Remove(was.noteName())
		}
		d.noted = false
	}
	return out, err
}

// Drop removes what was displaced: a file, a link, or a folder with all in it.
func (r *Root) Drop(d *Displaced) error {
	err := removeAll(r.at(d.aside), d.Temp, d.Info.IsDir())
	if err == nil {
		r.forget(d)
	}
	return err
}

func removeAll(f vfs.FS, name string, dir bool) error {
	if dir {
		entries, err := f.ReadDir(name)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			// A folder without the right to list may still be empty.
			if f.Chmod(name, 0o700) == nil {
				entries, err = f.ReadDir(name)
			}
			if err != nil {
				return err
			}
		}
		var first error
		for _, e := range entries {
			if err := removeAll(f, name+"/"+e.Name, e.Type.IsDir()); err != nil && first == nil {
				first = err
			}
		}
		if first != nil {
			return first
		}
	}
	err := f.Remove(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}
