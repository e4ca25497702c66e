package message

import (
	"strings"
)

const maxIDLen = 128

// ValidTaskID reports whether s can name a task: it matches
// ^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$, has no ".." and does not end in
// ".lock", so that it is a component of a ref name (git-check-ref-format(1)).
func ValidTaskID(s string) bool {
	if s == "" || len(s) > maxIDLen || !alnum(s[0]) {
		return false
	}
	for i := 1; i < len(s); i++ {
		if c := s[i]; !alnum(c) && c != '.' && c != '_' && c != '-' {
			return false
		}
	}
	return !strings.Contains(s, "..") && !strings.HasSuffix(s, ".lock")
}

func alnum(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9'
}
