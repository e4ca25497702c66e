package wspath

import (
	"strconv"
	"strings"
	"unicode/utf8"
)

// Text writes a path as the server's own JSON files have it, which hold UTF-8 alone. A path
// that is not UTF-8 is quoted after a NUL, which no path has.
func Text(p string) string {
	if utf8.ValidString(p) {
		return p
	}
	return "\x00" + strconv.QuoteToASCII(p)
}

// OfText reads what Text wrote.
func OfText(text string) string {
	if quoted, ok := strings.CutPrefix(text, "\x00"); ok {
		if p, err := strconv.Unquote(quoted); err == nil {
			return p
		}
	}
	return text
}
