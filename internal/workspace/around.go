package workspace

import (
	"os"
	"path/filepath"
	"slices"
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
		if p, err := wspath.Parse(rel); err == nil && !slices.Contains(out, p) {
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
	clean := filepath.Clean(path)
	for _, abs := range []string{clean, resolved(clean), resolved(path)} { // ".." behind a link is read in both ways
		if abs != w.disk.Dir && host.Within(abs, w.disk.Dir) {
			add(strings.TrimPrefix(strings.TrimPrefix(abs, w.disk.Dir), "/"))
		}
	}
	return out
}

// maxLinks bounds the links of one path, as systems do.
const maxLinks = 40

// resolved follows the links of a host path as the system does, also one whose target
// does not exist yet. A name of nothing stays.
func resolved(path string) string {
	at, rest := "/", path
	for links := 0; rest != ""; {
		var name string
		name, rest, _ = strings.Cut(rest, "/")
		switch name {
		case "", ".":
			continue
		case "..":
			at = filepath.Dir(at)
			continue
		}
		at = filepath.Join(at, name)
		target, err := os.Readlink(at)
		if err != nil {
			continue
		}
		if links++; links > maxLinks {
			return filepath.Clean(path)
		}
		if at = filepath.Dir(at); filepath.IsAbs(target) {
			at = "/"
		}
		rest = target + "/" + rest
	}
	return at
}
