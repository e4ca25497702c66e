package ignore_test

import (
	"math/rand/v2"
	"strings"
	"testing"

	"umbra/internal/ignore"
	"umbra/internal/need"
	"umbra/internal/wspath"
)

// TestCovers holds single patterns against the same pattern in a root's .gitignore.
func TestCovers(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	pick := func(list ...string) string { return list[r.IntN(len(list))] }
	join := func(n int, parts ...string) string {
		var out []string
		for range 1 + r.IntN(n) {
			out = append(out, pick(parts...))
		}
		return strings.Join(out, "/")
	}
	covered := 0
	for range 4000 {
		text := pick("", "/") + join(4, "a", "b", "**", "*", "a*", "*b", "a**b", "[!a]", "[a-b]", "?", "ab") + pick("", "", "/")
		path := join(5, "a", "b", "ab", "aab", "c", "aXb")
		isDir := r.IntN(3) == 0
		root, err := ignore.NewRoot(ignore.Options{ReadFile: func(p wspath.Path) ([]byte, error) {
			if p == ".gitignore" {
				return []byte(text + "\n"), nil
			}
			return nil, nil
		}})
		need.NoError(t, err)
		v, err := root.Lookup(wspath.Path(path), isDir)
		need.NoError(t, err)
		rule, ok := ignore.ParsePattern(text)
		if got := ok && rule.Covers(path, isDir); got != v.ByGit() {
			t.Fatalf("%q covers %q (%t): %t, git %t", text, path, isDir, got, v.ByGit())
		}
		if v.ByGit() {
			covered++
		}
	}
	if covered < 400 {
		t.Errorf("only %d were covered", covered)
	}
}
