package forklayer

import (
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"umbra/gitstore/object"
	"umbra/internal/errs"
	"umbra/internal/layer"
	"umbra/internal/wspath"
)

// Contents are what is to leave a layer, each with its size, or -1 where that is not known.
type Contents = map[object.ID]int64

// Had reports whether a path had a content in the fork's history. It is called where what is
// placed is not known.
type Had = func(p string, id object.ID) (bool, error)

// held is a file that has one of the contents of a purge.
type held struct {
	path string // in the workspace
	id   object.ID
}

// find lists the files and links of a directory that have one of the contents. As in a
// workspace's directory, repositories are left out.
func find(dir string, c Contents) (list []held, err error) {
	sizes := map[int64]bool{}
	for _, n := range c {
		sizes[n] = true
	}
	err = filepath.WalkDir(dir, func(name string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		if d.IsDir() && strings.EqualFold(d.Name(), ".git") {
			return filepath.SkipDir
		}
		if !d.Type().IsRegular() && d.Type() != fs.ModeSymlink {
			return nil
		}
		info, err := d.Info()
		if err != nil || !sizes[info.Size()] && !sizes[-1] {
			return err
		}
		id, err := contentOf(name, d)
		if _, is := c[id]; err != nil || !is {
			return err
		}
		rel, err := filepath.Rel(dir, name)
		list = append(list, held{filepath.ToSlash(rel), id})
		return err
	})
	return list, errs.Wrap(err, "")
}

// Holding lists the ignored files that have one of the contents and that only the layer
// has: the fork's own, and those that it shows in place of a deleted directory's, also where
// the fork removed them. Those of a layer at a path are in its directory, but for the latter.
func (m Mounted) Holding(c Contents, had Had) ([]string, error) {
	var names []string
	if m.Point == "" {
		_, own, err := m.found(c, had)
		if err != nil {
			return nil, err
		}
		for _, x := range own {
			names = append(names, x.path)
		}
	}
	if m.Below == "" {
		return names, nil
	}
	list, err := find(m.Below, c)
	for _, x := range list {
		names = append(names, x.path)
	}
	return names, err
}

// found finds the files of the layer's directory that have one of the contents: those that
// are placed, and the fork's own.
func (m Mounted) found(c Contents, had Had) (placed, own []held, err error) {
	l := &Layer{Dir: m.Dir}
	known, err := l.read()
	if err != nil {
		return nil, nil, err
	}
	list, err := find(l.Files(), c)
	if err != nil {
		return nil, nil, err
	}
	for _, x := range list {
		is := known.Paths[x.path] != ""
		if known.Paths == nil {
			if is, err = had(x.path, x.id); err != nil {
				return nil, nil, err
			}
		}
		if is {
			placed = append(placed, x)
		} else {
			own = append(own, x)
		}
	}
	return placed, own, nil
}

// Forget removes contents that are purged: from the layer's directory what is placed in it,
// which is out of history, and from that of a layer at a path what the fork replaced or
// removed. With ignored the files of Below go too: the server's copies of files that no
// history has, of all forks that show them. A fork's own ignored files stay.
func (m Mounted) Forget(c Contents, ignored bool, had Had) error {
	l := &Layer{Dir: m.Dir}
	list, own, err := m.found(c, had)
	if err != nil {
		return err
	}
	if m.Point != "" {
		var hidden []held
		for _, x := range append(list, own...) {
			hides, err := layer.Decides(m.Overlay().Upper, x.path)
			if err != nil {
				return errs.Wrap(err, "")
			}
			if hides {
				hidden = append(hidden, x)
			}
		}
		list = hidden
	}
	names := make([]string, 0, len(list))
	for _, x := range list {
		names = append(names, filepath.Join(l.Files(), x.path))
	}
	if ignored && m.Below != "" {
		below, err := find(m.Below, c)
		if err != nil {
			return err
		}
		for _, x := range below {
			names = append(names, filepath.Join(m.Below, x.path))
		}
	}
	if len(names) == 0 {
		return nil
	}
	if m.Point == "" { // the next command places them again, or what took their place
		if err := os.Remove(l.placedFile()); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return errs.Wrap(err, "")
		}
	}
	for _, name := range names {
		if err := os.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return errs.Wrap(err, "")
		}
	}
	return errs.Wrap(layer.RefreshAll("umbra-"), "")
}

// read returns what is placed. Its Paths are nil where that is not known.
func (l *Layer) read() (was placed, err error) {
	raw, err := os.ReadFile(l.placedFile())
	if err == nil && json.Unmarshal(raw, &was) != nil {
		was = placed{}
	}
	was.Paths = named(was.Paths, wspath.OfText)
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	return was, errs.Wrap(err, "")
}

// contentOf returns the id that a file or link has in history.
func contentOf(name string, d fs.DirEntry) (id object.ID, err error) {
	if d.Type() == fs.ModeSymlink {
		target, err := os.Readlink(name)
		return object.Hash(object.Blob, []byte(target)), err
	}
	f, err := os.Open(name)
	if err != nil {
		return id, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return id, err
	}
	h := object.NewHash(object.Blob, info.Size())
	_, err = io.Copy(h, f)
	return object.ID(h.Sum(nil)), err
}
