package rootfs

import (
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"math/rand/v2"
	"os"
	"strings"

	"umbra/internal/vfs"
	"umbra/internal/wspath"
)

// A displaced file that another process may still write to waits out of reach of
// what happens to its directory: in the folder aside, or, where that is on
// another file system, in a directory with a temporary name at the top of the
// workspace. A note next to it says at which path it was displaced, so that a
// start can go on waiting.

// keptDigits are those of the directory at the top of the workspace.
const keptDigits = 0x6b657074_6b657074

// KeptDir is the name of the directory at the top of the workspace for files that
// cannot wait aside.
var KeptDir = wspath.TempName(keptDigits)

// noteSuffix ends the name of a note.
const noteSuffix = ".path"

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Away moves a displaced file to where it waits, and notes the path that it was
// displaced at; durable has the note synced. After an error it is where it was.
func (r *Root) Away(d *Displaced, from wspath.Path, durable bool) error {
	if d.noted {
		return nil
	}
	err := errors.ErrUnsupported
	if r.aside != nil {
		err = r.awayTo(d, r.aside, "", from, durable)
	}
	if err == nil || d.aside {
		return err
	}
	if err := r.fs.Mkdir(KeptDir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	if err = r.awayTo(d, r.fs, KeptDir+"/", from, durable); err != nil {
		_ = r.fs.Remove(KeptDir) // stays while another file waits there
	}
	return err
}

func (r *Root) awayTo(d *Displaced, in vfs.FS, dir string, from wspath.Path, durable bool) error {
	name := d.Temp
	if !d.aside {
		name = dir + asideName(rand.Uint64()&^(1<<32), from) // never the inode of a prepared file
	}
	if err := writeNote(in, name+noteSuffix, from, durable); err != nil {
		_ = in.Remove(name + noteSuffix)
		return err
	}
	var err error
	switch {
	case d.aside:
	case dir == "":
		err = r.aside.(vfs.Crosser).MoveFrom(r.fs, d.Temp, name)
	default:
		err = r.fs.RenameNoReplace(d.Temp, name)
	}
	if err != nil {
		_ = in.Remove(name + noteSuffix)
		return err
	}
	d.Temp, d.aside, d.noted = name, d.aside || dir == "", true
	return nil
}

func writeNote(in vfs.FS, name string, from wspath.Path, durable bool) error {
	f, err := in.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(fmt.Appendf(nil, "%08x %s", crc32.Checksum([]byte(from), castagnoli), from))
	if err == nil && durable {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil || !durable {
		return err
	}
	return in.SyncDir(string(wspath.Path(name).Dir()))
}

// readNote gives the path of a note; ok is false if it is torn or not there.
func readNote(in vfs.FS, name string) (from wspath.Path, ok bool) {
	data, err := vfs.ReadFile(in, name)
	if err != nil {
		return "", false
	}
	sum, path, ok := strings.Cut(string(data), " ")
	if !ok || path == "" || sum != fmt.Sprintf("%08x", crc32.Checksum([]byte(path), castagnoli)) {
		return "", false
	}
	return wspath.Path(path), true
}

// forget removes the note of a file that waits no more.
func (r *Root) forget(d *Displaced) {
	if !d.noted {
		return
	}
	d.noted = false
	_ = r.at(d.aside).Remove(d.noteName())
	if !d.aside {
		_ = r.fs.Remove(KeptDir) // stays while another file waits there
	}
}

func (d *Displaced) noteName() string { return d.Temp + noteSuffix }

// Kept is a file that waits since before the start.
type Kept struct {
	*Displaced
	From wspath.Path // where it was displaced; empty: the note is torn
}

// Kept gives the files that a stop left waiting. Files aside whose note is torn
// are among Asides instead.
func (r *Root) Kept() ([]Kept, error) {
	var out []Kept
	if r.aside != nil {
		if err := r.keptIn(r.aside, ".", true, &out); err != nil {
			return nil, err
		}
	}
	err := r.keptIn(r.fs, KeptDir, false, &out)
	return out, err
}

func (r *Root) keptIn(in vfs.FS, dir string, aside bool, out *[]Kept) error {
	entries, err := in.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	here := make(map[string]bool, len(entries))
	for _, e := range entries {
		here[e.Name] = true
	}
	at := func(name string) string {
		if dir == "." {
			return name
		}
		return dir + "/" + name
	}
	for _, e := range entries {
		if name, isNote := strings.CutSuffix(e.Name, noteSuffix); isNote {
			if !here[name] { // its file was removed, or never came
				_ = in.Remove(at(e.Name))
			}
			continue
		}
		from, ok := readNote(in, at(e.Name+noteSuffix))
		if !ok && aside {
			_ = in.Remove(at(e.Name + noteSuffix))
			continue
		}
		d := &Displaced{Temp: at(e.Name), aside: aside, noted: true}
		if err := r.Look(d); err != nil {
			return err
		}
		*out = append(*out, Kept{d, from})
	}
	return nil
}
