package pattern

import (
	"strings"
	"testing"
)

func TestMatch(t *testing.T) {
	for _, c := range []struct {
		pattern string
		yes, no []string
	}{
		{"*.go", []string{"a.go"}, []string{"a/b.go", "a.gox", ".go", ".a.go"}},
		{".*", []string{".env", ".git2"}, []string{"env"}},
		{".*.go", []string{".a.go"}, []string{"a.go"}},
		{"**/*.go", []string{"a.go", "a/b.go", "a/b/c.go"}, []string{"a.txt", "a.go/b", ".x/a.go", "a/.b.go"}},
		{"**/.*", []string{".env", "a/.env"}, []string{"a", ".x/.env"}},
		{"**/.x/**", []string{".x/a", "a/.x/b/c"}, []string{".x", "a/.x/.b"}},
		{"src/**", []string{"src/a", "src/a/b"}, []string{"src", "srca/b", "src/.a"}},
		{"src/**/test/*.js", []string{"src/test/a.js", "src/a/b/test/a.js"}, []string{"src/a.js", "src/tests/a.js"}},
		{"**", []string{"a", "a/b"}, []string{".a", "a/.b"}},
		{"**/**/a", []string{"a", "x/a", "x/y/a"}, []string{"b"}},
		{"a**b", []string{"ab", "axb"}, []string{"a/b"}},
		{"?.txt", []string{"a.txt", "ü.txt"}, []string{"ab.txt", ".txt"}},
		{"[a-c]x", []string{"ax", "cx"}, []string{"dx", "x"}},
		{"[!a-c]x", []string{"dx"}, []string{"ax", ".x"}},
		{"[]]x", []string{"]x"}, []string{"x"}},
		{"[a\\]]x", []string{"]x", "ax"}, []string{"\\x"}},
		{"*.{ts,tsx}", []string{"a.ts", "a.tsx"}, []string{"a.js", "a.t"}},
		{"{src,lib/**}/a", []string{"src/a", "lib/x/a"}, []string{"a"}},
		{"a{b,{c,d}e}f", []string{"abf", "acef", "adef"}, []string{"abef"}},
		{"{a}", []string{"{a}"}, []string{"a"}},
		{`\*`, []string{"*"}, []string{"a"}},
		{`a\{b,c\}`, []string{"a{b,c}"}, []string{"ab"}},
		{"a.b", []string{"a.b"}, []string{"axb"}},
		{"./a", []string{"a"}, nil},
		{"/a/b", []string{"a/b"}, nil},
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
			for i := range p {
				if p[i] == '/' && !g.Below(p[:i]) {
					t.Errorf("%s matches %s but not below %s", c.pattern, p, p[:i])
				}
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
	for _, p := range []string{"", "/", "[a", "{a,b", "[z-a]", "a\\", "\xff", strings.Repeat("a", 5000), strings.Repeat("{a,b}", 12)} {
		if _, err := Compile(p); err == nil {
			t.Errorf("%.20q compiles", p)
		}
	}
}

func FuzzCompile(f *testing.F) {
	for _, p := range []string{"**/*.go", "[a-", "{a,{b,c}}", "***", "[!]]", "a/**/b/**", `\`, "{,}", "**{**,**}**"} {
		f.Add(p, "a/b/c.go")
	}
	f.Fuzz(func(t *testing.T, text, path string) {
		g, err := Compile(text)
		if err != nil || path == "" {
			return
		}
		if g.Match(path) {
			for i := range len(path) {
				if path[i] == '/' && !g.Below(path[:i]) {
					t.Errorf("%q matches %q but not below %q", text, path, path[:i])
				}
			}
		}
	})
}
