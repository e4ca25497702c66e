package message

import (
	"strings"
	"unicode"
	"unicode/utf8"
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

// ValidSubtaskID is the same rule as ValidTaskID.
func ValidSubtaskID(s string) bool { return ValidTaskID(s) }

// ValidActor reports whether s is 1 to 128 printable characters without "<"
// and ">".
func ValidActor(s string) bool {
	if s == "" || !utf8.ValidString(s) || utf8.RuneCountInString(s) > maxIDLen {
		return false
	}
	for _, r := range s {
		if r == '<' || r == '>' || !unicode.IsPrint(r) {
			return false
		}
	}
	return true
}

// ValidRequestID reports whether s is 1 to 128 printable ASCII characters.
func ValidRequestID(s string) bool {
	if s == "" || len(s) > maxIDLen {
		return false
	}
	for i := 0; i < len(s); i++ {
		if s[i] < ' ' || s[i] > '~' {
			return false
		}
	}
	return true
}

func alnum(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9'
}
