package rootfs

import (
	"errors"
	"fmt"
	"hash/fnv"
	"io/fs"
	"math/rand/v2"
	"syscall"

	"umbra/internal/vfs"
	"umbra/internal/wspath"
)

// The file that an exchange displaces is moved aside: into a folder of the server's
// own, where it waits to be checked and removed. No watch is on that folder, so
// watchers, ours and others', get an event for the target's name alone, and
// several writers in one folder do not wait for each other's temporary names.
//
// A file is there for a moment. If it cannot be removed at once, since it is not
// the expected one or another process still writes to it, it is moved next to its
// target (Home), where all other displaced files are.

// TakesAside reports whether a folder aside would be of use: where content is
// prepared in staging, and can be exchanged from another folder.
func (r *Root) TakesAside() bool {
	_, ok := r.fs.(vfs.Crosser)
	return ok && r.staging != nil
}

// SetAside sets the folder for files that exchanges displace, if TakesAside; without
// it they are next to their targets. It must be called before anything else; Root
// does not close it. The folder must be on the file system of staging.
func (r *Root) SetAside(f vfs.FS) {
	if f == nil {
		r.aside = nil
	} else if info, err := f.Lstat("."); err == nil && info.Dev == r.staging.dev {
		r.aside = f
	}
}

// at gives the tree in which a displaced file has its temporary name.
func (r *Root) at(aside bool) vfs.FS {
	if aside {
		return r.aside
	}
	return r.fs
}

// swapAside is like Swap, but uses the folder aside. If both results are nil nothing
// was done: the caller has to make the exchange next to the target.
func (s *Staged) swapAside(target wspath.Path) (*Displaced, error) {
	r := s.r
	if r.aside == nil || r.noExchange.Load() || r.apart.Load() {
		return nil, nil
	}
	// A rename between two folders holds a lock of the whole file system and that of
	// aside, also while it waits for the disk: exchanges meanwhile go the other
	// way, which holds the target's folder alone.
	if !r.crossing.TryLock() {
		return nil, nil
	}
	defer r.crossing.Unlock()
	switch {
	case s.aside: // placed before, and come out again
	case s.name == "" && s.shared:
		temp := asideName(s.ino, target)
		if r.aside.LinkFile(s.file, temp) != nil {
			return nil, nil
		}
		s.name, s.aside = temp, true
	default:
		return nil, nil
	}
	d, err := r.exchangeAside(s.name, target)
	switch {
	case d != nil:
		s.name, s.aside, s.placed = "", false, true
	case errors.Is(err, errors.ErrUnsupported):
		r.noExchange.Store(true)
		return nil, nil
	case !errors.Is(err, fs.ErrNotExist):
		return nil, nil // next to the target it fails too, with the reason
	}
	return d, err
}

// exchangeAside swaps what is under a name aside with a target.
func (r *Root) exchangeAside(temp string, target wspath.Path) (*Displaced, error) {
	c := r.fs.(vfs.Crosser)
	if err := c.ExchangeWith(string(target), r.aside, temp); err != nil {
		return nil, err
	}
	d := &Displaced{Temp: temp, aside: true}
	return d, r.Look(d)
}

// moveFromAside gives what is aside a name in the workspace, which must be
// free.
func (r *Root) moveFromAside(temp, name string) error {
	return r.fs.(vfs.Crosser).MoveFrom(r.aside, temp, name)
}

// come is link for a file that has its temporary name aside.
func (s *Staged) come(name string) error {
	err := s.letIn(name, s.r.moveFromAside(s.name, name))
	if err == nil {
		s.aside = false
	}
	return err
}

// Home moves a file that is aside into the folder of the path that it came from,
// or the nearest existing one above, under a name from which the next start knows
// its path. An existing file stays.
func (r *Root) Home(d *Displaced, from wspath.Path) error {
	if d == nil || !d.aside {
		return nil
	}
	by, _, _ := parseAside(d.Temp)
	for dir := from.Dir(); ; dir = dir.Dir() {
		err := r.homeIn(d, dir.Join("x"), by, from.Base())
		if err == nil || dir.IsRoot() || !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, syscall.ENOTDIR) {
			return err
		}
	}
}

func (r *Root) homeIn(d *Displaced, in wspath.Path, by uint64, base string) error {
	var err error
	for try := range 1 + 2*takenTries {
		digits := by
		switch {
		case try > takenTries: // many wait that another process writes to: only its bytes show it then
			digits = rand.Uint64() &^ (1 << 32) // never IsMaking
		case try > 0:
			digits = takenDigits(base, try-1)
		}
		temp := tempIn(in, digits)
		if err = r.moveFromAside(d.Temp, temp); err == nil {
			r.forget(d)
			d.Temp, d.aside = temp, false
			return nil
		}
		if !errors.Is(err, fs.ErrExist) {
			return err
		}
	}
	return err
}

// asideName is the temporary name aside of what is exchanged with a target: the
// inode of the prepared file, and a hash of the target's path.
func asideName(ino uint64, target wspath.Path) string {
	return fmt.Sprintf("%016x-%016x", ino, hashPath(target))
}

func parseAside(name string) (ino, path uint64, ok bool) {
	n, err := fmt.Sscanf(name, "%016x-%016x", &ino, &path)
	return ino, path, err == nil && n == 2 && name == fmt.Sprintf("%016x-%016x", ino, path)
}

func hashPath(p wspath.Path) uint64 {
	h := fnv.New64a()
	h.Write([]byte(p))
	return h.Sum64()
}

// Aside is what a stop left aside.
type Aside struct {
	*Displaced
	by, path uint64
}

// Asides gives what a stop left aside.
func (r *Root) Asides() ([]Aside, error) {
	if r.aside == nil {
		return nil, nil
	}
	entries, err := r.aside.ReadDir(".")
	if err != nil {
		return nil, err
	}
	var out []Aside
	for _, e := range entries {
		by, path, ok := parseAside(e.Name)
		if !ok {
			continue
		}
		if _, waits := readNote(r.aside, e.Name+noteSuffix); waits {
			continue
		}
		a := Aside{&Displaced{Temp: e.Name, aside: true}, by, path}
		if err := r.Look(a.Displaced); err != nil {
			return nil, err
		}
		out = append(out, a)
	}
	return out, nil
}

// Prepared reports whether it was never exchanged.
func (a Aside) Prepared() bool { return a.Info.Ino == a.by }

// By reports whether a file of that inode displaced it.
func (a Aside) By(ino uint64) bool { return a.by == ino }

// From reports whether it was displaced at a path.
func (a Aside) From(p wspath.Path) bool { return a.path == hashPath(p) }
