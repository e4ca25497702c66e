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
