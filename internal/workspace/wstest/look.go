package wstest

import (
	"context"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"slices"
	"strings"

	"umbra/gitstore"
	"umbra/gitstore/object"
	"umbra/internal/vfs"
	"umbra/internal/wspath"
)

// Thing is what is at a path.
type Thing struct {
	Mode object.Mode // object.Dir: an empty folder
	Data string      // content, or a link's target
	// Info is what the disk says, of the disk's side alone.
	Info vfs.Info
}

// Same compares kind, git's mode and content.
func (a Thing) Same(b Thing) bool { return a.Mode == b.Mode && a.Data == b.Data }

// Folder is a folder's content by path. Folders with something in them are not
// listed.
type Folder map[string]Thing

// Disk reads a folder of a file system.
func Disk(f vfs.FS, dir string) (Folder, error) {
	out := make(Folder)
	return out, read(f, dir, "", out)
}

func read(f vfs.FS, at, name string, out Folder) error {
	list, err := f.ReadDir(at)
	if err != nil {
		return err
	}
	if len(list) == 0 && name != "" {
		info, err := f.Lstat(at)
		out[name] = Thing{Mode: object.Dir, Info: info}
		return err
	}
	for _, e := range list {
		full, p := at+"/"+e.Name, path.Join(name, e.Name)
		if e.Type.IsDir() {
			if err := read(f, full, p, out); err != nil {
				return err
			}
			continue
		}
		info, err := f.Lstat(full)
		if err != nil {
			return err
		}
		t := Thing{Mode: object.Regular, Info: info}
		switch {
		case info.IsSymlink():
			t.Mode = object.Symlink
			t.Data, err = f.Readlink(full)
		case info.IsRegular():
			if info.Mode&0o100 != 0 {
				t.Mode = object.Executable
			}
			var data []byte
			data, err = vfs.ReadFile(f, full)
			t.Data = string(data)
		default:
			err = fmt.Errorf("%s: a special file", p)
		}
		if err != nil {
			return err
		}
		out[p] = t
	}
	return nil
}

// Tree reads a snapshot.
func Tree(ctx context.Context, st *gitstore.Store, snap gitstore.Snapshot) (Folder, error) {
	out := make(Folder)
	err := snap.Walk(wspath.Root, func(e gitstore.Entry) error {
		data, err := st.ReadBlob(ctx, e.ID, 1<<30)
		out[string(e.Path)] = Thing{Mode: e.Mode, Data: string(data)}
		return err
	})
	return out, err
}

// Write puts a thing on the disk as a person does: in place.
func Write(f vfs.FS, name string, t Thing) error {
	if t.Mode == object.Dir {
		return MkdirAll(f, name)
	}
	if err := MkdirAll(f, path.Dir(name)); err != nil {
		return err
	}
	if t.Mode == object.Symlink {
		if err := f.Symlink(t.Data, name); err != nil {
			return err
		}
		return f.SyncDir(path.Dir(name))
	}
	perm := fs.FileMode(0o644)
	if t.Mode == object.Executable {
		perm = 0o755
	}
	h, err := f.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_TRUNC, perm)
	if err != nil {
		return err
	}
	_, err = h.Write([]byte(t.Data))
	if err == nil {
		err = h.Sync()
	}
	if cerr := h.Close(); err == nil {
		err = cerr
	}
	if err == nil {
		err = f.SyncDir(path.Dir(name))
	}
	return err
}

// Files leaves the empty folders out.
func (f Folder) Files() Folder {
	out := maps.Clone(f)
	maps.DeleteFunc(out, func(_ string, t Thing) bool { return t.Mode == object.Dir })
	return out
}

// Differ reports how two folders differ, a line a path; empty: not at all.
func Differ(nameA string, a Folder, nameB string, b Folder) string {
	var s strings.Builder
	all := maps.Clone(a)
	maps.Copy(all, b)
	for _, p := range slices.Sorted(maps.Keys(all)) {
		x, inA := a[p]
		y, inB := b[p]
		switch {
		case !inB:
			fmt.Fprintf(&s, "%q (%v %.60q): %s only\n", p, x.Mode, x.Data, nameA)
		case !inA:
			fmt.Fprintf(&s, "%q (%v %.60q): %s only\n", p, y.Mode, y.Data, nameB)
		case !x.Same(y):
			fmt.Fprintf(&s, "%q: %s %v %.60q, %s %v %.60q\n", p, nameA, x.Mode, x.Data, nameB, y.Mode, y.Data)
		}
	}
	return s.String()
}
