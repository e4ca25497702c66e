package workspaces

import "umbra/internal/workspaces/place"

// Place is what a host path leads to.
type Place struct {
	Root      string // canonical
	Workspace string // its id, if the folder is one; else empty
}

// Look finds out what a path leads to, and makes nothing. allow, if not nil, is
// asked about the canonical path and whether it is a workspace already, before
// anything is read. It fails as Open does for a folder that cannot be one.
func (m *Manager) Look(root string, o OpenOptions, allow func(root string, known bool) error) (Place, error) {
	var found Place
	o.Allow = func(canonical string) error {
		found.Root = canonical
		info, err := m.opt.Host.Stat(canonical)
		if err != nil {
			return nil // gone since; look says so
		}
		rec, known := m.find(place.Place{Root: canonical, Dev: info.Dev, Ino: info.Ino})
		if known {
			found.Workspace = rec.ID
		}
		if allow != nil {
			return allow(canonical, known)
		}
		return nil
	}
	if _, err := m.look(root, o); err != nil {
		return Place{}, err
	}
	return found, nil
}
