package replay

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"umbra/gitstore/object"
)

// state is the files that a replay works on: their paths, the bytes of those that
// are in no history, and, where a command is to be run on them, a checkout on
// disk.
type state struct {
	files map[string]file
	load  func(object.ID) ([]byte, error)
	made  map[object.ID][]byte // merged, or from the state that the replay is put onto
	dirs  map[string]*dirNode
	disk  string // empty: none
	// changed, if not nil, gathers the paths that were put or removed.
	changed map[string]bool
}

// dirNode is one folder of the tree, encoded when its id is asked for.
type dirNode struct {
	tree  *object.TreeData
	dirty map[string]object.Entry // Mode 0: gone
}

func newState(load func(object.ID) ([]byte, error), disk string) *state {
	return &state{files: make(map[string]file), load: load, made: make(map[object.ID][]byte), dirs: make(map[string]*dirNode), disk: disk}
}

func (s *state) bytes(id object.ID) ([]byte, error) {
	if data, ok := s.made[id]; ok {
		return data, nil
	}
	return s.load(id)
}

// put makes a file be there; on disk too.
func (s *state) put(path string, f file) error {
	s.files[path] = f
	s.note(path)
	dir, name := split(path)
	s.node(dir).dirty[name] = object.Entry{Name: name, Mode: f.mode, ID: f.id}
	s.touch(dir)
	if s.disk == "" {
		return nil
	}
	data, err := s.bytes(f.id)
	if err != nil {
		return err
	}
	return s.write(path, f, data)
}

func (s *state) note(path string) {
	if s.changed != nil {
		s.changed[path] = true
	}
}

// remove makes a file not be there.
func (s *state) remove(path string) error {
	if !s.files[path].exists() {
		return nil
	}
	delete(s.files, path)
	s.note(path)
	dir, name := split(path)
	s.node(dir).dirty[name] = object.Entry{Name: name}
	s.touch(dir)
	if s.disk == "" {
		return nil
	}
	full := filepath.Join(s.disk, filepath.FromSlash(path))
	if err := os.Remove(full); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	for d := filepath.Dir(full); d != s.disk; d = filepath.Dir(d) {
		if os.Remove(d) != nil {
			break // it holds something else
		}
	}
	return nil
}

func split(path string) (dir, name string) {
	if i := strings.LastIndexByte(path, '/'); i >= 0 {
		return path[:i], path[i+1:]
	}
	return "", path
}

func (s *state) node(dir string) *dirNode {
	n := s.dirs[dir]
	if n == nil {
		n = &dirNode{dirty: make(map[string]object.Entry)}
		s.dirs[dir] = n
	}
	return n
}

// touch marks the folders above as changed.
func (s *state) touch(dir string) {
	for dir != "" {
		above, name := split(dir)
		n := s.node(above)
		if _, marked := n.dirty[name]; marked {
			return
		}
		n.dirty[name] = object.Entry{Name: name, Mode: object.Dir}
		dir = above
	}
}

// root gives the id of the whole tree. Only folders that changed are encoded.
func (s *state) root() (object.ID, error) {
	id, _, err := s.encode("")
	return id, err
}

func (s *state) encode(dir string) (id object.ID, empty bool, err error) {
	n := s.node(dir)
	if n.tree == nil {
		if n.tree, err = object.NewTree(nil); err != nil {
			return id, false, err
		}
	}
	if len(n.dirty) > 0 {
		var set []object.Entry
		var gone []string
		for name, e := range n.dirty {
			child := name
			if dir != "" {
				child = dir + "/" + name
			}
			if e.Mode != object.Dir && e.Mode != 0 {
				delete(s.dirs, child)
				set = append(set, e)
				continue
			}
			// A directory that changed, or a removed file whose place a directory may take.
			if s.dirs[child] == nil {
				gone = append(gone, name)
				continue
			}
			kid, none, err := s.encode(child)
			if err != nil {
				return id, false, err
			}
			if none {
				delete(s.dirs, child)
				gone = append(gone, name)
			} else {
				set = append(set, object.Entry{Name: name, Mode: object.Dir, ID: kid})
			}
		}
		if n.tree, err = n.tree.With(set, gone); err != nil {
			return id, false, err
		}
		n.dirty = make(map[string]object.Entry)
	}
	return n.tree.ID(), n.tree.Len() == 0, nil
}

// write puts one file into the checkout.
func (s *state) write(path string, f file, data []byte) error {
	full := filepath.Join(s.disk, filepath.FromSlash(path))
	if err := os.MkdirAll(filepath.Dir(full), 0o755); err != nil {
		return err
	}
	if err := os.Remove(full); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	switch f.mode {
	case object.Symlink:
		return os.Symlink(string(data), full)
	case object.Executable:
		return os.WriteFile(full, data, 0o755)
	}
	return os.WriteFile(full, data, 0o644)
}

// fill takes a recorded tree as the starting point.
func (s *state) fill(src *source, root object.ID) error {
	return s.fillDir(src, "", root)
}

func (s *state) fillDir(src *source, prefix string, id object.ID) error {
	t, err := src.tree(id)
	if err != nil {
		return err
	}
	for i := range t.Len() {
		e := t.At(i)
		if e.Mode == object.Dir {
			err = s.fillDir(src, prefix+e.Name+"/", e.ID)
		} else {
			err = s.put(prefix+e.Name, file{e.Mode, e.ID})
		}
		if err != nil {
			return err
		}
	}
	return nil
}
