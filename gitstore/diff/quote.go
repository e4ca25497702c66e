package diff

import "strings"

// Quote writes a name as git does where it prints names: as it is, or in double
// quotes with C escapes, other bytes as three octal digits.
func Quote(name string) string {
	if plain(name) {
		return name
	}
	const from, to = "\a\b\t\n\v\f\r\"\\", "abtnvfr\"\\"
	var b strings.Builder
	b.Grow(len(name) + 16)
	b.WriteByte('"')
	for i := 0; i < len(name); i++ {
		c := name[i]
		switch at := strings.IndexByte(from, c); {
		case at >= 0:
			b.WriteByte('\\')
			b.WriteByte(to[at])
		case c < ' ' || c >= 0x7f:
			b.Write([]byte{'\\', '0' + c>>6, '0' + c>>3&7, '0' + c&7})
		default:
			b.WriteByte(c)
		}
	}
	b.WriteByte('"')
	return b.String()
}

// plain reports whether a patch has a name unquoted: no control
// character, quote, backslash or byte beyond ASCII (git-config(1),
// core.quotePath at its default).
func plain(name string) bool {
	for i := 0; i < len(name); i++ {
		if c := name[i]; c < ' ' || c >= 0x7f || c == '"' || c == '\\' {
			return false
		}
	}
	return true
}
