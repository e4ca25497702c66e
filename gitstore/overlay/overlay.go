// Package overlay changes a tree by paths, and writes only the trees on changed paths.
package overlay

import (
	"strings"

	"umbra/gitstore/object"
	"umbra/internal/errs"
	"umbra/internal/wspath"
)

// Trees returns trees by id.
type Trees func(id object.ID) (*object.TreeData, error)

// Overlay is a tree being changed: only directories on edited paths are read. After an
// error it is of no use. It is not safe for concurrent use.
type Overlay struct {
	src  Trees
	root *node
}

// node is one opened folder. set and gone are relative to base; an opened
// child folder is in kids and overrides both.
type node struct {
	base *object.TreeData // nil: a new folder
	id   object.ID        // of base, zero if new
	set  map[string]object.Entry
	gone map[string]bool
	kids map[string]*node
}

// New returns an overlay over the tree root, without changes.
func New(src Trees, root object.ID) (*Overlay, error) {
	n, err := openNode(src, root)
	if err != nil {
		return nil, err
	}
	return &Overlay{src: src, root: n}, nil
}

func openNode(src Trees, id object.ID) (*node, error) {
	if id.IsZero() || id == object.EmptyTree {
		return &node{}, nil
	}
	t, err := src(id)
	if err != nil {
		return nil, err
	}
	return &node{base: t, id: id}, nil
}

// lookup gives what is under a name now: an opened folder, or an entry.
func (n *node) lookup(name string) (kid *node, e object.Entry, ok bool) {
	if k := n.kids[name]; k != nil {
		return k, object.Entry{Name: name, Mode: object.Dir}, true
	}
	if e, ok := n.set[name]; ok {
		return nil, e, true
	}
	if n.gone[name] || n.base == nil {
		return nil, object.Entry{}, false
	}
	e, ok = n.base.Find(name)
	return nil, e, ok
}

func (n *node) drop(name string) {
	delete(n.kids, name)
	delete(n.set, name)
	if n.base != nil {
		if n.gone == nil {
			n.gone = make(map[string]bool)
		}
		n.gone[name] = true
	}
}

func (n *node) put(e object.Entry) {
	delete(n.kids, e.Name)
	if n.set == nil {
		n.set = make(map[string]object.Entry)
	}
	n.set[e.Name] = e
}

func (n *node) adopt(name string, k *node) {
	delete(n.set, name)
	if n.kids == nil {
		n.kids = make(map[string]*node)
	}
	n.kids[name] = k
}

// open gives the folder under a name as an opened node.
func (o *Overlay) open(n *node, name string, make bool, full wspath.Path) (*node, error) {
	kid, e, ok := n.lookup(name)
	switch {
	case ok && kid != nil:
		return kid, nil
	case ok && e.Mode == object.Dir:
		k, err := openNode(o.src, e.ID)
		if err != nil {
			return nil, err
		}
		n.adopt(name, k)
		return k, nil
	case ok:
		return nil, &errs.Error{Kind: errs.Conflict, Code: "not_a_directory", Path: string(full),
			Detail: "A part of the path is a file."}
	case make:
		k := &node{}
		n.adopt(name, k)
		return k, nil
	}
	return nil, notInTree(full)
}

func notInTree(p wspath.Path) error {
	return &errs.Error{Kind: errs.NotFound, Code: "file_not_found", Detail: "The file does not exist.", Path: string(p)}
}

// parent opens the folder that holds p.
func (o *Overlay) parent(p wspath.Path, make bool) (*node, string, error) {
	n, rest := o.root, string(p)
	for {
		name, tail, more := strings.Cut(rest, "/")
		if !more {
			return n, name, nil
		}
		k, err := o.open(n, name, make, p)
		if err != nil {
			return nil, "", err
		}
		n, rest = k, tail
	}
}

// Remove removes a file or a whole directory.
func (o *Overlay) Remove(p wspath.Path) error {
	n, name, err := o.parent(p, false)
	if err != nil {
		return err
	}
	if _, _, ok := n.lookup(name); !ok {
		return notInTree(p)
	}
	n.drop(name)
	return nil
}

// Put puts a file, in place of another one or of an empty directory.
func (o *Overlay) Put(p wspath.Path, mode object.Mode, id object.ID) error {
	n, name, err := o.parent(p, true)
	if err != nil {
		return err
	}
	if err := object.ValidName(name); err != nil {
		return &errs.Error{Kind: errs.BadPath, Code: "bad_path", Detail: "Git refuses that name.", Path: string(p), Err: err}
	}
	if kid, old, ok := n.lookup(name); ok {
		empty := false
		if kid != nil {
			empty = kid.isEmpty()
		}
		if (kid != nil || old.Mode == object.Dir) && !empty {
			return &errs.Error{Kind: errs.Conflict, Code: "is_a_directory", Detail: "The path is a directory.", Path: string(p)}
		}
	}
	n.put(object.Entry{Name: name, Mode: mode, ID: id})
	return nil
}

// Move moves a file or a whole directory, in place of what is there.
func (o *Overlay) Move(from, to wspath.Path) error {
	if to == from || strings.HasPrefix(string(to), string(from)+"/") {
		return &errs.Error{Kind: errs.Invalid, Code: "move_into_itself", Detail: "A directory cannot be moved into itself.", Path: string(from)}
	}
	src, name, err := o.parent(from, false)
	if err != nil {
		return err
	}
	kid, e, ok := src.lookup(name)
	if !ok {
		return notInTree(from)
	}
	src.drop(name)
	dst, newName, err := o.parent(to, true)
	if err != nil {
		return err
	}
	if err := object.ValidName(newName); err != nil {
		return &errs.Error{Kind: errs.BadPath, Code: "bad_path", Detail: "Git refuses that name.", Path: string(to), Err: err}
	}
	dst.drop(newName)
	if kid != nil {
		dst.adopt(newName, kid)
	} else {
		dst.put(object.Entry{Name: newName, Mode: e.Mode, ID: e.ID})
	}
	return nil
}

// isEmpty reports whether nothing would be written for the folder.
func (n *node) isEmpty() bool {
	for _, k := range n.kids {
		if !k.isEmpty() {
			return false
		}
	}
	if len(n.set) > 0 {
		return false
	}
	if n.base == nil {
		return true
	}
	for i := range n.base.Len() {
		name := n.base.At(i).Name
		if !n.gone[name] && n.kids[name] == nil {
			return false
		}
	}
	return true
}

// Write makes the changed trees, deepest first, and returns the id of the
// root; emit is called once for each new tree, with the one it came from.
func (o *Overlay) Write(emit func(t, base *object.TreeData, baseID object.ID) (object.ID, error)) (object.ID, error) {
	id, empty, err := o.root.write(emit)
	if err != nil || !empty {
		return id, err
	}
	t, err := object.NewTree(nil)
	if err != nil {
		return id, err
	}
	return emit(t, nil, object.Zero)
}

func (n *node) write(emit func(t, base *object.TreeData, baseID object.ID) (object.ID, error)) (id object.ID, empty bool, err error) {
	if len(n.kids) == 0 && len(n.set) == 0 && len(n.gone) == 0 {
		return n.id, n.base == nil, nil
	}
	set := make([]object.Entry, 0, len(n.set)+len(n.kids))
	var remove []string
	for _, e := range n.set {
		set = append(set, e)
	}
	for name := range n.gone {
		if _, again := n.set[name]; !again && n.kids[name] == nil {
			remove = append(remove, name)
		}
	}
	for name, k := range n.kids {
		kid, none, err := k.write(emit)
		if err != nil {
			return id, false, err
		}
		if none {
			remove = append(remove, name)
		} else {
			set = append(set, object.Entry{Name: name, Mode: object.Dir, ID: kid})
		}
	}
	base := n.base
	if base == nil {
		if base, err = object.NewTree(nil); err != nil {
			return id, false, err
		}
	}
	t, err := base.With(set, remove)
	if err != nil {
		return id, false, err
	}
	if t.Len() == 0 {
		return object.EmptyTree, true, nil
	}
	if t.ID() == n.id {
		return n.id, false, nil
	}
	id, err = emit(t, n.base, n.id)
	return id, false, err
}
