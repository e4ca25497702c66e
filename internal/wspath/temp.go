package wspath

import "strings"

// The form of our temporary files, contracts/README.md "One write, one
// commit": 16 lower-case hex digits, which are the file's inode.
const (
	tempPrefix = ".umbra-"
	tempSuffix = ".tmp"
	tempDigits = 16
)

// IsTemp reports whether a name has exactly the form of our temporary files.
func IsTemp(name string) bool {
	_, ok := ParseTemp(name)
	return ok
}

// TempName gives the temporary name for a file of an inode.
func TempName(ino uint64) string {
	const digits = "0123456789abcdef"
	var b [tempDigits]byte
	for i := len(b) - 1; i >= 0; i-- {
		b[i] = digits[ino&15]
		ino >>= 4
	}
	return tempPrefix + string(b[:]) + tempSuffix
}

// ParseTemp returns the inode in a temporary name, and false for any
// other name.
func ParseTemp(name string) (ino uint64, ok bool) {
	if len(name) != len(tempPrefix)+tempDigits+len(tempSuffix) ||
		!strings.HasPrefix(name, tempPrefix) || !strings.HasSuffix(name, tempSuffix) {
		return 0, false
	}
	for _, c := range []byte(name[len(tempPrefix) : len(tempPrefix)+tempDigits]) {
		switch {
		case c >= '0' && c <= '9':
			ino = ino<<4 | uint64(c-'0')
		case c >= 'a' && c <= 'f':
			ino = ino<<4 | uint64(c-'a'+10)
		default:
			return 0, false
		}
	}
	return ino, true
}
