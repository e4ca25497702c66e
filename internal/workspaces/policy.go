package workspaces

import (
	"os"
	"path/filepath"
	"strings"
	"unicode"

	"umbra/internal/policy"
)

// rules are those of a workspace, and of what it is a fork of.
func (m *Manager) rules(r Record) *policy.Rules {
	dirs, ids := []string{r.Place()}, []string{r.ID}
	for f := r.Fork; f != nil; {
		of, _ := m.Record(f.Of)
		dirs, ids, f = append(dirs, of.Place()), append(ids, f.Of), of.Fork
	}
	rules := m.opt.Policy.Of(dirs, ids)
	if rules != nil && r.Place() != "" && foldsCase(r.Place()) {
		rules = rules.Folding()
	}
	return rules
}

// foldsCase reports whether a directory's file system takes names that differ in case
// alone for one, by the names that are there. Without such a name the answer is no.
func foldsCase(dir string) bool {
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
