package revert

import (
	"strconv"
	"strings"

	"umbra/internal/history"
)

func itoa(n uint64) string { return strconv.FormatUint(n, 10) }

func trimSlash(p string) string { return strings.TrimSuffix(p, "/") }

// under reports whether p lies in the folder dir.
func under(p, dir string) bool { return strings.HasPrefix(p, dir+"/") }

// meet reports whether one path is the other or lies under it.
func meet(a, b string) bool { return a == b || under(a, b) || under(b, a) }

// deeper orders paths by how deep they lie, the deepest first.
func deeper(a, b string) int { return strings.Count(b, "/") - strings.Count(a, "/") }

// lastName is the path that an entry left.
func lastName(e *history.Entry) string {
	if e.NewPath != "" {
		return e.NewPath
	}
	return e.Path
}

// parents gives the folders above a path, nearest first, without the root.
func parents(p string) []string {
	var out []string
	for i := strings.LastIndexByte(p, '/'); i > 0; i = strings.LastIndexByte(p[:i], '/') {
		out = append(out, p[:i])
	}
	return out
}
