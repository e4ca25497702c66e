package glob

import (
	"strings"
	"testing"
)

func TestMatch(t *testing.T) {
	for _, c := range []struct {
		pattern string
		yes, no []string
	}{
		{"*.go", []string{"a.go", ".go"}, []string{"a/b.go", "a.gox", "a.go/"}},
		{"**/*.go", []string{"a.go", "a/b.go", "a/b/c.go"}, []string{"a.txt", "a.go/b"}},
		{"src/**", []string{"src/a", "src/a/b"}, []string{"src", "srca/b"}},
		{"src/**/test/*.js", []string{"src/test/a.js", "src/a/b/test/a.js"}, []string{"src/a.js", "src/tests/a.js"}},
		{"**", []string{"a", "a/b"}, nil},
		{"a**b", []string{"ab", "axb"}, []string{"a/b"}},
		{"?.txt", []string{"a.txt", "ü.txt"}, []string{"ab.txt", "/.txt", ".txt"}},
		{"[a-c]x", []string{"ax", "cx"}, []string{"dx", "x"}},
		{"[!a-c]x", []string{"dx"}, []string{"ax", "/x"}},
		{"a[+-9]b", []string{"a.b", "a0b", "a+b"}, []string{"a/b"}},
		{"[]]x", []string{"]x"}, []string{"x"}},
		{"*.{ts,tsx}", []string{"a.ts", "a.tsx"}, []string{"a.js", "a.t"}},
		{"{src,lib/**}/a", []string{"src/a", "lib/x/a"}, []string{"a"}},
		{"/project/**/*.md", []string{"/project/a.md", "/project/x/a.md"}, []string{"project/a.md"}},
		{"a.b", []string{"a.b"}, []string{"axb"}},
		{"a+(b)|c$", []string{"a+(b)|c$"}, []string{"aab"}},
		{"line\nbreak*", []string{"line\nbreak\nx"}, []string{"line"}},
		{"a,b}", []string{"a,b}"}, nil},
	} {
		g, err := Compile(c.pattern)
		if err != nil {
			t.Errorf("%s: %v", c.pattern, err)
			continue
		}
		for _, p := range c.yes {
			if !g.Match(p) {
				t.Errorf("%s does not match %s", c.pattern, p)
			}
		}
		for _, p := range c.no {
			if g.Match(p) {
				t.Errorf("%s matches %s", c.pattern, p)
			}
		}
	}
}

func TestCompileRefuses(t *testing.T) {
	for _, p := range []string{"", "[a", "{a,b", "[z-a]", "[/]", "\xff", strings.Repeat("a", 2000), strings.Repeat("{", 1000) + strings.Repeat("}", 24)} {
		if _, err := Compile(p); err == nil && p != "" && len(p) < 1000 {
			t.Errorf("%q compiles", p)
		}
	}
}

func FuzzCompile(f *testing.F) {
	for _, p := range []string{"**/*.go", "[a-", "{a,{b,c}}", "***", "[!]]", "a/**/b/**", "[\x00-\xff]", "**{**,**}**"} {
		f.Add(p, "a/b/c.go")
	}
	f.Fuzz(func(t *testing.T, pattern, path string) {
		g, err := Compile(pattern)
		if err != nil {
			return
		}
		matched := g.Match(path)
		// Without wildcards a pattern is the path itself.
		if !strings.ContainsAny(pattern, "*?[{") && matched != (pattern == path) {
			t.Errorf("%q on %q: %v", pattern, path, matched)
		}
		// Without "**" and braces, folders are as many as the pattern says.
		if matched && !strings.Contains(pattern, "**") && !strings.Contains(pattern, "{") && strings.Count(pattern, "/") != strings.Count(path, "/") {
			t.Errorf("%q matches %q", pattern, path)
		}
	})
}
