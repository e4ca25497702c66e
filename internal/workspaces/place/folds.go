package place

import (
	"os"
	"path/filepath"
	"strings"
	"unicode"
)

// FoldsCase reports whether a directory's file system takes names that differ in case
// alone for one, by the names that are there. Without such a name the answer is no.
func FoldsCase(dir string) bool {
	names := []string{dir}
	if f, err := os.Open(dir); err == nil {
		list, _ := f.Readdirnames(64)
		f.Close()
		for _, name := range list {
			names = append(names, filepath.Join(dir, name))
		}
	}
	for _, name := range names {
		base := filepath.Base(name)
		other := strings.Map(func(r rune) rune {
			if unicode.IsUpper(r) {
				return unicode.ToLower(r)
			}
			return unicode.ToUpper(r)
		}, base)
		if other == base {
			continue
		}
		a, err := os.Lstat(name)
		if err != nil {
			continue
		}
		b, err := os.Lstat(filepath.Join(filepath.Dir(name), other))
		if err == nil && os.SameFile(a, b) {
			return true
		}
	}
	return false
}
