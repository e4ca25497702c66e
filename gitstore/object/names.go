package object

import (
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"
)

// ErrBadName is returned for a name that git refuses in a tree.
var ErrBadName = errors.New("object: git refuses this name")

// maxName is the longest name that fsck takes (fsck.largePathname), in bytes.
const maxName = 4096

// ValidName applies what `git fsck --strict` demands of one name in a tree: not
// empty, no NUL or slash, not "." or "..", and no spelling of ".git" that some
// file system would take for it: other case, HFS+ with its ignored code points,
// NTFS with its short name, trailing dots, blanks and streams, also behind a
// backslash.
func ValidName(name string) error {
	switch {
	case name == "", name == ".", name == "..", len(name) > maxName,
		strings.IndexByte(name, 0) >= 0, strings.IndexByte(name, '/') >= 0,
		hfsSpells(name, "git"):
		return fmt.Errorf("%w: %.64q", ErrBadName, name)
	}
	for part := range strings.SplitSeq(name, `\`) {
		if ntfsDotGit(part) {
			return fmt.Errorf("%w: %.64q", ErrBadName, name)
		}
	}
	return nil
}

// ProtectedSymlinkName reports whether a symbolic link may not have this name:
// ".gitmodules" in any spelling, since git would read through the link.
func ProtectedSymlinkName(name string) bool {
	if hfsSpells(name, "gitmodules") {
		return true
	}
	for {
		if ntfsDotGitmodules(name) {
			return true
		}
		var more bool
		if _, name, more = strings.Cut(name, `\`); !more {
			return false
		}
	}
}

// hfsSpells reports whether HFS+ takes name for "."+word (word in lower case):
// it ignores case and some invisible code points. Git sees the end of the name
// at the first byte that is not UTF-8 and at the non-characters U+FFFE and
// U+FFFF, and so does this.
func hfsSpells(name, word string) bool {
	i := -1 // -1: the dot is still to come
	for len(name) > 0 {
		r, n := utf8.DecodeRuneInString(name)
		if r == utf8.RuneError && n == 1 || r == 0xfffe || r == 0xffff {
			break
		}
		name = name[n:]
		switch {
		case hfsIgnores(r):
			continue
		case i == len(word):
			return false
		case i < 0 && r != '.':
			return false
		case i >= 0 && (r > 127 || lower(byte(r)) != word[i]):
			return false
		}
		i++
	}
	return i == len(word)
}

// hfsIgnores lists the code points that HFS+ leaves out of a comparison.
func hfsIgnores(r rune) bool {
	return r >= 0x200c && r <= 0x200f || r >= 0x202a && r <= 0x202e || r >= 0x206a && r <= 0x206f || r == 0xfeff
}

func lower(c byte) byte {
	if 'A' <= c && c <= 'Z' {
		return c + 'a' - 'A'
	}
	return c
}

// foldPrefix cuts an ASCII word off the front, whatever its case.
func foldPrefix(name, word string) (rest string, ok bool) {
	if len(name) < len(word) {
		return name, false
	}
	for i := range len(word) {
		if lower(name[i]) != word[i] {
			return name, false
		}
	}
	return name[len(word):], true
}

// ntfsTail reports whether NTFS drops this end of a name: dots and blanks, then
// nothing or a stream's name.
func ntfsTail(rest string) bool {
	rest = strings.TrimLeft(rest, ". ")
	return rest == "" || rest[0] == ':'
}

// ntfsDotGit knows ".git" and its short name "git~1".
func ntfsDotGit(name string) bool {
	for _, word := range [...]string{".git", "git~1"} {
		if rest, ok := foldPrefix(name, word); ok && ntfsTail(rest) {
			return true
		}
	}
	return false
}

// ntfsDotGitmodules knows ".gitmodules" and its short names: "GITMOD~1" to
// "GITMOD~4", then a hash, "GI7EBA~1" and on, where a longer number takes the
// place of the hash's last characters.
func ntfsDotGitmodules(name string) bool {
	if rest, ok := foldPrefix(name, ".gitmodules"); ok && ntfsTail(rest) {
		return true
	}
	if rest, ok := foldPrefix(name, "gitmod~"); ok && rest != "" && rest[0] >= '1' && rest[0] <= '4' && ntfsTail(rest[1:]) {
		return true
	}
	if len(name) < 8 {
		return false
	}
	stem, number, ok := strings.Cut(name[:8], "~")
	if !ok || number == "" || number[0] == '0' || strings.Trim(number, "0123456789") != "" {
		return false
	}
	const hashed = "gi7eba"
	if _, ok := foldPrefix(stem, hashed[:min(len(stem), len(hashed))]); !ok || len(stem) > len(hashed) {
		return false
	}
	return ntfsTail(name[8:])
}
