package ignore_test

import (
	"strings"
	"testing"
	"time"

	"umbra/internal/ignore"
	"umbra/internal/need"
	"umbra/internal/wspath"
)

// Any rules over any path end soon, with an answer that names a rule of the
// file, and "everything below an ignored folder is ignored" holds.
func FuzzMatch(f *testing.F) {
	for _, s := range []string{"foo\n!bar/\n", "**/a*/[!x-z]\\", "[[:alpha:]]\r\n", "*a*a*a*b", "a/**/b/**/c\n/d/\n", "\xef\xbb\xbf#\n!", "**\\/x", "a\\ \n"} {
		f.Add(s, "a/b/c", true)
		f.Add(s, strings.Repeat("a", 60), false)
	}
	f.Fuzz(func(t *testing.T, rules, path string, isDir bool) {
		p, err := wspath.Parse(path)
		if err != nil || len(rules) > 1<<14 {
			return
		}
		d, err := ignore.NewRoot(ignore.Options{InfoExclude: []byte(rules), ReadFile: files{}.ReadFile})
		need.NoError(t, err)
		start := time.Now()
		v, err := d.Lookup(p, isDir)
		need.NoError(t, err)
		if took := time.Since(start); took > time.Minute {
			t.Fatalf("%q over %q took %v", rules, path, took)
		}
		if r := v.Git; r != nil && (r.Line < 1 || r.Line > 1+strings.Count(rules, "\n") || r.Negated != strings.HasPrefix(r.Pattern, "!")) {
			t.Fatalf("%q over %q: %+v", rules, path, r)
		}
		for up := range p.Ancestors() {
			above, err := d.Lookup(up, true)
			need.NoError(t, err)
			if above.ByGit() && (!v.ByGit() || v.Git.Line != above.Git.Line && !up.IsRoot() && shadowed(d, up)) {
				t.Fatalf("%q: %q is ignored and %q is not", rules, up, p)
			}
		}
	})
}

// shadowed reports whether no folder above is ignored itself, so that the
// folder's own rule is the one that decides below it.
func shadowed(d *ignore.Dir, p wspath.Path) bool {
	for up := range p.Ancestors() {
		if v, err := d.Lookup(up, true); err != nil || v.ByGit() {
			return false
		}
	}
	return true
}
