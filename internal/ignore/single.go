package ignore

import "strings"

// ParsePattern reads one pattern as a line of a .gitignore file in the root has it.
// It reports false for one that can match nothing.
func ParsePattern(text string) (*Rule, bool) {
	r, ok := parseRule(trimSpaces(text))
	return &r, ok
}

// Covers reports whether a path, or a directory above it, matches. The path is
// relative, with slashes.
func (r *Rule) Covers(path string, isDir bool) bool {
	for at := 0; ; {
		n := strings.IndexByte(path[at:], '/')
		if n < 0 {
			return r.matches(path, path[at:], isDir)
		}
		if r.matches(path[:at+n], path[at:at+n], true) {
			return true
		}
		at += n + 1
	}
}
