package refs

import "strings"

// ValidName reports whether a name can be a ref's: HEAD, or under refs/ by the
// rules of git-check-ref-format(1).
func ValidName(name string) bool {
	if name == HEAD {
		return true
	}
	if !strings.HasPrefix(name, "refs/") || strings.HasSuffix(name, ".") ||
		strings.Contains(name, "..") || strings.Contains(name, "@{") {
		return false
	}
	for part := range strings.SplitSeq(name, "/") {
		if part == "" || part[0] == '.' || strings.HasSuffix(part, lockSuffix) {
			return false
		}
	}
	for i := 0; i < len(name); i++ {
		if c := name[i]; c <= ' ' || c == 0x7f || strings.IndexByte(`~^:?*[\`, c) >= 0 {
			return false
		}
	}
	return true
}

// parents yields the names that cannot exist together with name, as each would
// have to be a file and a directory: for refs/a/b/c they are refs/a/b and refs/a.
func parents(name string) []string {
	var out []string
	for {
		i := strings.LastIndexByte(name, '/')
		if i < 0 || name[:i] == "refs" {
			return out
		}
		name = name[:i]
		out = append(out, name)
	}
}
