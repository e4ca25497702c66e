package task

import (
	"crypto/rand"
	"encoding/hex"
	"strings"

	"umbra/internal/errs"
)

// maxID is the longest id of a task or subtask, in bytes (contracts/README.md,
// Tagging).
const maxID = 128

// ValidID reports whether s can be a task's or subtask's id: it begins with a
// letter or digit, goes on with those and "._-", and is a name that git takes
// as a component of a ref (git-check-ref-format(1)).
func ValidID(s string) bool {
	if s == "" || len(s) > maxID || strings.Contains(s, "..") || strings.HasSuffix(s, ".lock") {
		return false
	}
	for i := range len(s) {
		c := s[i]
		switch {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9':
		case i > 0 && (c == '.' || c == '_' || c == '-'):
		default:
			return false
		}
	}
	return true
}

// newID makes an id of eight hex digits. The caller looks whether it is taken:
// 32 bits are few, and short is what people type.
func newID() string {
	var b [4]byte
	// rand.Read never fails (crypto/rand).
	_, _ = rand.Read(b[:])
	return hex.EncodeToString(b[:])
}

func badID(field, what string) error {
	return errs.New(errs.Invalid, "invalid_"+field,
		"The %s must be 1 to 128 letters, digits, dots, underscores or hyphens, beginning with a letter or digit, without \"..\" and not ending in \".lock\".", what)
}
