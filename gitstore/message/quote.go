package message

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// QuotePath gives a path as git prints it with core.quotePath=false
// (git-config(1)): in double quotes with C escapes if it holds a control
// character, a double quote, a backslash or bytes that are not UTF-8. Beyond
// git, a path that begins or ends with white space is quoted too, or a reader
// of trailers would trim it, and so is one with a character that breaks or
// reorders a line on a terminal.
func QuotePath(p string) string { return string(appendPath(nil, p)) }

func appendPath(dst []byte, p string) []byte {
	if needsQuotes(p, true) {
		return appendQuoted(dst, p)
	}
	return append(dst, p...)
}

// appendValue writes a trailer's value: as it is where it reads back as
// itself, else quoted as a path is.
func appendValue(dst []byte, v string) []byte {
	if needsQuotes(v, false) {
		return appendQuoted(dst, v)
	}
	return append(dst, v...)
}

// needsQuotes reports whether s must be quoted. In a path every quote and
// backslash counts, as for git; in another value only what would be mistaken
// for a quoted one.
func needsQuotes(s string, path bool) bool {
	if s == "" {
		return true
	}
	if s[0] == '"' {
		return true
	}
	for i := 0; i < len(s); {
		c := s[i]
		if c < utf8.RuneSelf {
			if c < ' ' || c == 0x7f || path && (c == '"' || c == '\\') {
				return true
			}
			i++
			continue
		}
		r, n := utf8.DecodeRuneInString(s[i:])
		if r == utf8.RuneError && n == 1 || treacherous(r) {
			return true
		}
		i += n
	}
	first, _ := utf8.DecodeRuneInString(s)
	last, _ := utf8.DecodeLastRuneInString(s)
	return unicode.IsSpace(first) || unicode.IsSpace(last)
}

// treacherous is true of characters outside ASCII that some reader takes for
// the end of a line, and of those that reorder what is shown (UAX #9).
func treacherous(r rune) bool {
	switch {
	case r < 0xa0: // C1, with U+0085 NEL
		return r >= 0x80
	case r == 0x2028, r == 0x2029:
		return true
	case r >= 0x202a && r <= 0x202e, r >= 0x2066 && r <= 0x2069:
		return true
	}
	return false
}

// appendQuoted writes s in double quotes with the escapes of git's
// quote_c_style: \a \b \t \n \v \f \r \" \\ and three octal digits a byte.
func appendQuoted(dst []byte, s string) []byte {
	const letters = "abtnvfr" // of the bytes 7 to 13
	octal := func(c byte) {
		dst = append(dst, '\\', '0'+c>>6, '0'+c>>3&7, '0'+c&7)
	}
	dst = append(dst, '"')
	for i := 0; i < len(s); {
		c := s[i]
		switch {
		case c >= utf8.RuneSelf:
			r, n := utf8.DecodeRuneInString(s[i:])
			if r == utf8.RuneError && n == 1 || treacherous(r) {
				for _, b := range []byte(s[i : i+n]) {
					octal(b)
				}
			} else {
				dst = append(dst, s[i:i+n]...)
			}
			i += n
			continue
		case c == '"' || c == '\\':
			dst = append(dst, '\\', c)
		case c >= 7 && c <= 13:
			dst = append(dst, '\\', letters[c-7])
		case c < ' ' || c == 0x7f:
			octal(c)
		default:
			dst = append(dst, c)
		}
		i++
	}
	return append(dst, '"')
}

// Unquote reads what QuotePath wrote, and what git quotes with any value of
// core.quotePath. Text that is not in quotes is itself; ok is false for text
// that begins a quoted form and does not end as one.
func Unquote(s string) (_ string, ok bool) {
	if s == "" || s[0] != '"' {
		return s, true
	}
	if len(s) < 2 || s[len(s)-1] != '"' {
		return "", false
	}
	in := s[1 : len(s)-1]
	if !strings.ContainsAny(in, `\"`) {
		return in, true
	}
	out := make([]byte, 0, len(in))
	for i := 0; i < len(in); i++ {
		c := in[i]
		if c == '"' {
			return "", false
		}
		if c != '\\' {
			out = append(out, c)
			continue
		}
		i++
		if i == len(in) {
			return "", false
		}
		switch c = in[i]; c {
		case '"', '\\':
			out = append(out, c)
		case 'a', 'b', 't', 'n', 'v', 'f', 'r':
			out = append(out, 7+byte(strings.IndexByte("abtnvfr", c)))
		case '0', '1', '2', '3':
			if i+2 >= len(in) || !octalDigit(in[i+1]) || !octalDigit(in[i+2]) {
				return "", false
			}
			out = append(out, (c-'0')<<6|(in[i+1]-'0')<<3|(in[i+2]-'0'))
			i += 2
		default:
			return "", false
		}
	}
	return string(out), true
}

func octalDigit(c byte) bool { return c >= '0' && c <= '7' }
