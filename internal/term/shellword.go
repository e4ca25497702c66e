package term

import (
	"strings"
)

// ShellWord quotes a text for a POSIX shell, where it needs that.
func ShellWord(s string) string {
	plain := func(r rune) bool {
		return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("/._-:,@%+=[]", r)
	}
	if s != "" && strings.IndexFunc(s, func(r rune) bool { return !plain(r) || r == '[' || r == ']' }) < 0 {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}
