package place

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

func (r Rules) mountTable() mounts.Table {
	h, ok := r.Host.(host.Mounts)
	if !ok {
		return nil
	}
	t, err := h.Mounts()
	if err != nil {
		r.Log.Warn("the table of mounts cannot be read; bind mounts of the data directory are not known", "error", err)
		return nil
	}
	return t
}

// guard refuses what may be a workspace for no one, whatever is asked: the
// system's own directories, and the data directory with all that is in it,
// through bind mounts too. One of our own directories may lie in it.
func (r Rules) guard(canonical string, info identity, o Options) error {
	refused := errs.New(errs.Forbidden, "workspace_not_allowed", "The directory is the system's or the server's own and cannot be a workspace.")
	for _, dir := range systemDirs {
		if host.Within(canonical, dir) {
			return refused
		}
	}
	if r.DataDir == "" || o.Own && r.IsOwn(canonical) {
		return nil
	}
	data, err := r.Host.Canonical(r.DataDir)
	if err != nil {
		data = filepath.Clean(r.DataDir)
	}
	if host.Within(canonical, data) {
		return refused
	}
	if r.Foreign != nil {
		for at := canonical; ; at = filepath.Dir(at) {
			if r.Foreign(at) {
				return refused
			}
			if at == filepath.Dir(at) {
				break
			}
		}
	}
	// By identity, for mounts that are not in the table.
	if st, err := r.Host.Stat(data); err == nil {
		own := identity{st.Dev, st.Ino}
		for at := canonical; ; at = filepath.Dir(at) {
			if info == own {
				return refused
			}
			if at == filepath.Dir(at) {
				break
			}
			up, err := r.Host.Stat(filepath.Dir(at))
			if err != nil {
				break
			}
			info = identity{up.Dev, up.Ino}
		}
	}
	table := r.mountTable()
	place, ok := table.Locate(canonical)
	if own, known := table.Locate(data); ok && known && place.In(own) {
		return refused
	}
	return nil
}

// identity is a directory, whatever path leads to it.
type identity struct{ dev, ino uint64 }

// OwnIn returns the server's own directories that lie inside a workspace, relative to it,
// through bind mounts too.
func (r Rules) OwnIn(root string) []wspath.Path {
	var out []wspath.Path
	add := func(dir string) {
		if dir != root && host.Within(dir, root) {
			out = append(out, wspath.Path(strings.TrimPrefix(strings.TrimPrefix(dir, root), "/")))
		}
	}
	table := r.mountTable()
	for _, dir := range append([]string{r.DataDir}, r.Own...) {
		if dir == "" {
			continue
		}
		if c, err := r.Host.Canonical(dir); err == nil {
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
