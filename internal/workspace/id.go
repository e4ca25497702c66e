package workspace

import (
	"encoding/hex"
	"path/filepath"
	"strings"
)

// NewID returns an id for a new workspace, which begins with its directory's name and
// ends with digits of random.
func NewID(root string, random func([]byte)) string {
	var b strings.Builder
	for _, c := range strings.ToLower(filepath.Base(root)) {
		switch {
		case c >= 'a' && c <= 'z', c >= '0' && c <= '9':
			b.WriteRune(c)
		case b.Len() > 0 && !strings.HasSuffix(b.String(), "-"):
			b.WriteByte('-')
		}
		if b.Len() == 32 {
			break
		}
	}
	slug := strings.Trim(b.String(), "-")
	if slug == "" {
		slug = "workspace"
	}
	var rnd [4]byte
	random(rnd[:])
	return slug + "-" + hex.EncodeToString(rnd[:])
}
