package repo

import (
	"umbra/gitstore/object"
	"umbra/internal/wspath"
)

// Folder gives the tree at a path as it is encoded, for who compares a whole
// folder: an empty one if there is no folder.
func (n Snapshot) Folder(p wspath.Path) (*object.TreeData, error) {
	e, ok, err := n.Lookup(p)
	if err != nil {
		return nil, err
	}
	if !ok || e.Mode != object.Dir {
		return object.NewTree(nil)
	}
	return n.node(e.ID)
}
