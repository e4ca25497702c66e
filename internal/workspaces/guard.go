package workspaces

import (
	"path/filepath"
	"strings"

	"umbra/internal/errs"
	"umbra/internal/mounts"
	"umbra/internal/workspace/host"
	"umbra/internal/wspath"
)

// systemDirs are never workspaces: what is in them is no one's files.
var systemDirs = []string{"/proc", "/sys", "/dev"}

func (m *Manager) mountTable() mounts.Table {
	h, ok := m.opt.Host.(host.Mounts)
	if !ok {
		return nil
	}
	t, err := h.Mounts()
	if err != nil {
		m.opt.Log.Warn("the table of mounts cannot be read; bind mounts of the data directory are not known", "error", err)
		return nil
	}
	return t
}

// guard refuses what may be a workspace for no one, whatever is asked: the
// system's own directories, and the data directory with all that is in it,
// through bind mounts too. One of our own directories may lie in it.
func (m *Manager) guard(canonical string, info identity, o OpenOptions) error {
	refused := errs.New(errs.Forbidden, "workspace_not_allowed", "The directory is the system's or the server's own and cannot be a workspace.")
	for _, dir := range systemDirs {
		if host.Within(canonical, dir) {
			return refused
		}
	}
	if m.opt.DataDir == "" || o.Own && m.ownFolder(canonical) {
		return nil
	}
	data, err := m.opt.Host.Canonical(m.opt.DataDir)
	if err != nil {
		data = filepath.Clean(m.opt.DataDir)
	}
	if host.Within(canonical, data) {
		return refused
	}
	if m.opt.Foreign != nil {
		for at := canonical; ; at = filepath.Dir(at) {
			if m.opt.Foreign(at) {
				return refused
			}
			if at == filepath.Dir(at) {
				break
			}
		}
	}
	// By identity, for mounts that are not in the table.
	if st, err := m.opt.Host.Stat(data); err == nil {
		own := identity{st.Dev, st.Ino}
		for at := canonical; ; at = filepath.Dir(at) {
			if info == own {
				return refused
			}
			if at == filepath.Dir(at) {
				break
			}
			up, err := m.opt.Host.Stat(filepath.Dir(at))
			if err != nil {
				break
			}
			info = identity{up.Dev, up.Ino}
		}
	}
	table := m.mountTable()
	place, ok := table.Locate(canonical)
	if own, known := table.Locate(data); ok && known && place.In(own) {
		return refused
	}
	return nil
}

// identity is a directory, whatever path leads to it.
type identity struct{ dev, ino uint64 }

// ownIn gives our own folders that lie inside a workspace, relative to it,
// through bind mounts too.
func (m *Manager) ownIn(root string) []wspath.Path {
	var out []wspath.Path
	add := func(dir string) {
		if dir != root && host.Within(dir, root) {
			out = append(out, wspath.Path(strings.TrimPrefix(strings.TrimPrefix(dir, root), "/")))
		}
	}
	table := m.mountTable()
	for _, dir := range append([]string{m.opt.DataDir}, m.opt.OwnFolders...) {
		if dir == "" {
			continue
		}
		if c, err := m.opt.Host.Canonical(dir); err == nil {
			dir = c
		}
		add(dir)
		if place, ok := table.Locate(dir); ok {
			for _, shown := range table.Below(root, place) {
				if shown != dir {
					add(shown)
				}
			}
		}
	}
	return out
}
