package workspace

import (
	"path/filepath"
	"strings"

	"umbra/internal/workspace/host"
	"umbra/internal/wspath"
)

// Within gives the paths in the workspace that a host path, or one relative to
// the root, means: as it is spelled, and where its links lead. None where it
// lies outside.
func (w *Workspace) Within(path string) []wspath.Path {
	var out []wspath.Path
	add := func(rel string) {
		if p, err := wspath.Parse(rel); err == nil && (len(out) == 0 || out[0] != p) {
			out = append(out, p)
		}
	}
	if w.disk.Dir == "" {
		add(strings.TrimPrefix(path, "/"))
		return out
	}
	if !filepath.IsAbs(path) {
		path = w.disk.Dir + "/" + path
	}
	for _, abs := range []string{filepath.Clean(path), resolved(filepath.Clean(path))} {
		if abs != w.disk.Dir && host.Within(abs, w.disk.Dir) {
			add(strings.TrimPrefix(strings.TrimPrefix(abs, w.disk.Dir), "/"))
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
