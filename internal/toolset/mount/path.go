package mount

import (
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// maxPath bounds a path, in bytes, as it is sent.
const maxPath = 8192

// Clean gives the logical path that a model's path represents: absolute, ".."
// resolved by the words. One without a leading slash is taken from the root.
// Errors are Messages.
func Clean(p string) (string, error) {
	if strings.IndexByte(p, 0) >= 0 {
		return "", Message("Path must not contain null bytes")
	}
	if why := foreign(p); why != "" {
		return "", refused(p, why)
	}
	if !strings.HasPrefix(p, "/") {
		p = "/" + p
	}
	if isClean(p) {
		return p, nil
	}
	out := make([]byte, 0, len(p))
	for name := range strings.SplitSeq(p, "/") {
		switch name {
		case "", ".":
		case "..":
			if len(out) == 0 {
				return "", Message("Path escapes the workspace: " + Show(p))
			}
			out = out[:strings.LastIndexByte(string(out), '/')]
		default:
			out = append(append(out, '/'), name...)
		}
	}
	if len(out) == 0 {
		return "/", nil
	}
	return string(out), nil
}

// foreign says what of a path belongs to no POSIX path that a model means.
func foreign(p string) string {
	switch {
	case len(p) > maxPath:
		return "it is longer than " + strconv.Itoa(maxPath) + " bytes"
	case !utf8.ValidString(p):
		return "it is not UTF-8"
	case strings.IndexByte(p, '\\') >= 0:
		return "use / between directories, not a backslash"
	case hasDrive(p), strings.HasPrefix(p, "/") && hasDrive(p[1:]) && (len(p) == 3 || p[3] == '/'):
		return "there are no drives; paths begin with /"
	}
	return ""
}

func hasDrive(p string) bool {
	return len(p) >= 2 && p[1] == ':' && (p[0] >= 'a' && p[0] <= 'z' || p[0] >= 'A' && p[0] <= 'Z')
}

// isClean spares the common case a copy.
func isClean(p string) bool {
	if p == "/" {
		return true
	}
	if strings.HasSuffix(p, "/") {
		return false
	}
	start := 1
	for i := 1; i <= len(p); i++ {
		if i < len(p) && p[i] != '/' {
			continue
		}
		switch p[start:i] {
		case "", ".", "..":
			return false
		}
		start = i + 1
	}
	return true
}

func refused(p, why string) error {
	return Message("Path is not allowed: " + Show(p) + " (" + why + ")")
}

// Refused is the message for a path that is refused for a reason of the store's.
func Refused(p, why string) error { return refused(p, why) }

// maxShown bounds how much of a path a message repeats.
const maxShown = 512

// Show gives a path or name as a line of text: what would end the line, or is no
// text, is quoted.
func Show(p string) string {
	if len(p) > maxShown {
		p = strings.ToValidUTF8(p[:maxShown], "") + "…"
	}
	if utf8.ValidString(p) && !strings.ContainsFunc(p, unicode.IsControl) && !strings.ContainsFunc(p, isSeparator) {
		return p
	}
	return strconv.Quote(p)
}

// isSeparator reports whether r is Unicode's line or paragraph separator.
func isSeparator(r rune) bool { return r == '\u2028' || r == '\u2029' }

// Join gives the logical path of something below a prefix.
func Join(prefix, rel string) string {
	switch {
	case rel == "" || rel == ".":
		return prefix
	case prefix == "/":
		return "/" + rel
	}
	return prefix + "/" + rel
}

// Within reports whether a clean path is a folder or below it.
func Within(p, dir string) bool {
	return dir == "/" || strings.HasPrefix(p, dir) && (len(p) == len(dir) || p[len(dir)] == '/')
}
