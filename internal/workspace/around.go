package workspace

import (
	"path/filepath"
	"strings"

	"umbra/internal/wspath"
)

// Around finds the deepest workspace that a host path lies in, of those that the
// caller sees. Where there is none, top is what to open for it: the top of the
// git work tree around the path, else the path itself.
func (m *Manager) Around(path string, sees func(root string) bool) (rec Record, top string, ok bool) {
	host := m.opt.Host
	at, err := host.Canonical(path)
	if err != nil {
		return Record{}, path, false
	}
	for _, r := range m.List() {
		if r.Root != "" && within(at, r.Root) && len(r.Root) > len(rec.Root) && (sees == nil || sees(r.Root)) {
			rec, ok = r, true
		}
	}
	if ok {
		return rec, rec.Root, true
	}
	for dir := at; ; dir = filepath.Dir(dir) {
		if _, err := host.Stat(filepath.Join(dir, ".git")); err == nil {
			return Record{}, dir, false
		}
		if dir == filepath.Dir(dir) {
			return Record{}, at, false
		}
	}
}

// Within gives the paths in the workspace that a host path, or one relative to
// the root, stands for: as it is spelled, and where its links lead. None where it
// lies outside.
func (w *Workspace) Within(path string) []wspath.Path {
	var out []wspath.Path
	add := func(rel string) {
		if p, err := wspath.Parse(rel); err == nil && (len(out) == 0 || out[0] != p) {
			out = append(out, p)
		}
	}
	if w.dir == "" {
		add(strings.TrimPrefix(path, "/"))
		return out
	}
	if !filepath.IsAbs(path) {
		path = w.dir + "/" + path
	}
	for _, abs := range []string{filepath.Clean(path), resolved(filepath.Clean(path))} {
		if abs != w.dir && within(abs, w.dir) {
			add(strings.TrimPrefix(strings.TrimPrefix(abs, w.dir), "/"))
		}
	}
	return out
}

// resolved follows the links of a host path, as far as there is something.
func resolved(path string) string {
	if real, err := filepath.EvalSymlinks(path); err == nil {
		return real
	}
	if dir := filepath.Dir(path); dir != path {
		return filepath.Join(resolved(dir), filepath.Base(path))
	}
	return path
}
