package wspath

import (
	"strings"
	"unicode/utf8"
)

// IsGitName reports whether git takes a component for ".git" on any system
// that it protects: by case, by the code points that HFS+ ignores, by the 8.3
// name "git~1", by what NTFS drops from a name's end (dots, spaces, streams),
// and behind a backslash, which is a separator there. It answers as `git fsck`
// does for hasDotgit.
func IsGitName(name string) bool {
	if isHFS(name, ".git") {
		return true
	}
	// fsck looks behind every backslash, but there for NTFS's spellings only.
	for {
		if isNTFSGit(name) {
			return true
		}
		i := strings.IndexByte(name, '\\')
		if i < 0 {
			return false
		}
		name = name[i+1:]
	}
}

// IsModulesName reports whether git takes a component for ".gitmodules" on any
// system that it protects. A symbolic link of such a name is an error to
// `git fsck` (gitmodulesSymlink); a file is not.
func IsModulesName(name string) bool {
	if isHFS(name, ".gitmodules") {
		return true
	}
	for {
		if isNTFSModules(name) {
			return true
		}
		i := strings.IndexByte(name, '\\')
		if i < 0 {
			return false
		}
		name = name[i+1:]
	}
}

// hfsIgnored reports whether HFS+ drops a code point when it compares names.
func hfsIgnored(r rune) bool {
	switch {
	case r >= 0x200c && r <= 0x200f, // joiners and direction marks
		r >= 0x202a && r <= 0x202e, // embeddings and overrides
		r >= 0x206a && r <= 0x206f, // deprecated format characters
		r == 0xfeff:
		return true
	}
	return false
}

// isHFS compares a name with a lower-case ASCII one as HFS+ would. A malformed
// sequence right after the whole of it ends the comparison with a match, as it
// does in git: erring on this side refuses a name, the other side would let
// one through that turns fsck red.
func isHFS(name, want string) bool {
	n := 0
	for len(name) > 0 {
		r, size := utf8.DecodeRuneInString(name)
		if r == utf8.RuneError && size == 1 || r == 0xfffe || r == 0xffff {
			break
		}
		name = name[size:]
		if hfsIgnored(r) {
			continue
		}
		if n == len(want) || r > 0x7f || lower(byte(r)) != want[n] {
			return false
		}
		n++
	}
	return n == len(want)
}

// isNTFSGit looks for ".git" or "git~1" with only dots and spaces up to the
// name's end, a stream or a backslash.
func isNTFSGit(name string) bool {
	var rest string
	switch {
	case hasPrefixFold(name, ".git"):
		rest = name[len(".git"):]
	case hasPrefixFold(name, "git~1"):
		rest = name[len("git~1"):]
	default:
		return false
	}
	rest = strings.TrimLeft(rest, ". ")
	return rest == "" || rest[0] == '\\' || rest[0] == ':'
}

// isNTFSModules looks for ".gitmodules", its 8.3 names "gitmod~1" to "~4", and
// the fall-back names that begin with the hash "gi7eba".
func isNTFSModules(name string) bool {
	const long, hash = ".gitmodules", "gi7eba"
	switch {
	case hasPrefixFold(name, long):
		return onlyDotsAndSpaces(name[len(long):])
	case hasPrefixFold(name, "gitmod~") && len(name) >= 8 && name[7] >= '1' && name[7] <= '4':
		return onlyDotsAndSpaces(name[8:])
	case len(name) < 8:
		return false
	}
	tilde := strings.IndexByte(name[:8], '~')
	if tilde < 0 || tilde > len(hash) || !strings.EqualFold(name[:tilde], hash[:tilde]) {
		return false
	}
	for i := tilde + 1; i < 8; i++ {
		if name[i] < '0' || name[i] > '9' || i == tilde+1 && name[i] == '0' {
			return false
		}
	}
	return onlyDotsAndSpaces(name[8:])
}

func onlyDotsAndSpaces(rest string) bool {
	rest = strings.TrimLeft(rest, ". ")
	return rest == "" || rest[0] == ':'
}

// hasPrefixFold compares ASCII without case.
func hasPrefixFold(s, prefix string) bool {
	if len(s) < len(prefix) {
		return false
	}
	for i := range len(prefix) {
		if lower(s[i]) != prefix[i] {
			return false
		}
	}
	return true
}

func lower(c byte) byte {
	if c >= 'A' && c <= 'Z' {
		return c + 'a' - 'A'
	}
	return c
}
