package wspath_test

import (
	"slices"
	"strings"
	"testing"

	"umbra/internal/errs"
	"umbra/internal/wspath"
)

func TestParse(t *testing.T) {
	long := strings.Repeat("n", 255)
	deep := strings.Repeat("d/", 2047) + "ef" // 4096 bytes
	cases := []struct {
		name, in string
		opts     wspath.Option
		want     wspath.Path // "" means refused
	}{
		{"plain", "a/b.txt", 0, "a/b.txt"},
		{"leading dot", "./a", 0, "a"},
		{"dots inside", "a/./b/.", 0, "a/b"},
		{"doubled slash", "a//b", 0, "a/b"},
		{"parent by words", "a/../b", 0, "b"},
		{"parent of a deep one", "a/b/c/../../d", 0, "a/d"},
		{"escape", "../a", 0, ""},
		{"escape after a detour", "a/../../a", 0, ""},
		{"escape and back", "../workspace/a", 0, ""},
		{"root refused", ".", 0, ""},
		{"empty refused", "", 0, ""},
		{"resolves to root", "a/..", 0, ""},
		{"root allowed", ".", wspath.AllowRoot, wspath.Root},
		{"empty allowed", "", wspath.AllowRoot, wspath.Root},
		{"resolves to root, allowed", "a/..", wspath.AllowRoot, wspath.Root},
		{"trailing slash refused", "a/", 0, ""},
		{"trailing slash allowed", "a/b/", wspath.AllowTrailingSlash, "a/b"},
		{"absolute refused", "/a", 0, ""},
		{"absolute allowed", "/a/b", wspath.AllowLeadingSlash, "a/b"},
		{"several leading slashes", "///a", wspath.AllowLeadingSlash, "a"},
		{"slash alone", "/", wspath.AllowLeadingSlash | wspath.AllowRoot, wspath.Root},
		{"slash alone without root", "/", wspath.AllowLeadingSlash, ""},
		{"absolute escape", "/../a", wspath.AllowLeadingSlash, ""},
		{"NUL", "a\x00b", 0, ""},
		{"control characters", "a\n\t\x7f\x01", 0, "a\n\t\x7f\x01"},
		{"not UTF-8", "a\xff/b\xc3", 0, "a\xff/b\xc3"},
		{"dots are no dots", "..a/...", 0, "..a/..."},
		{"spaces kept", " a / b ", 0, " a / b "},
		{"255 bytes", long, 0, wspath.Path(long)},
		{"256 bytes", long + "n", 0, ""},
		{"4096 bytes", deep, 0, wspath.Path(deep)},
		{"4097 bytes", deep + "g", 0, ""},
		{"git", ".git/config", 0, ""},
		{"git inside", "a/.GIT/config", 0, ""},
		{"git taken back", ".git/../a", 0, ""},
		{"git like", ".gitignore", 0, ".gitignore"},
		{"temporary", "a/.umbra-0123456789abcdef.tmp", 0, ""},
		{"temporary in capitals", ".umbra-0123456789ABCDEF.tmp", 0, ".umbra-0123456789ABCDEF.tmp"},
		{"temporary too short", ".umbra-0123456789abcde.tmp", 0, ".umbra-0123456789abcde.tmp"},
		{"temporary with a tail", ".umbra-0123456789abcdef.tmpx", 0, ".umbra-0123456789abcdef.tmpx"},
		{"backslash is a character", `a\b`, 0, `a\b`},
		{"backslash before git", `a\.git`, 0, ""},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			got, err := wspath.Parse(c.in, c.opts)
			if got != c.want {
				t.Fatalf("Parse(%q) = %q, %v; want %q", c.in, got, err, c.want)
			}
			if c.want != "" {
				if err != nil {
					t.Fatalf("Parse(%q): %v", c.in, err)
				}
				return
			}
			if errs.KindOf(err) != errs.BadPath || errs.CodeOf(err) != "bad_path" {
				t.Fatalf("Parse(%q) = %v; want bad_path", c.in, err)
			}
		})
	}
}

func TestCheckName(t *testing.T) {
	for name, ok := range map[string]bool{
		"a": true, "a b\n": true, "\xff": true, ".gitignore": true, "": false, ".": false, "..": false,
		"a/b": false, "a\x00": false, ".Git": false, wspath.TempName(1): false, strings.Repeat("x", 256): false,
	} {
		if err := wspath.CheckName(name); (err == nil) != ok {
			t.Errorf("CheckName(%q) = %v", name, err)
		}
	}
}

func TestParts(t *testing.T) {
	p := wspath.Path("a/b/c.txt")
	if p.Base() != "c.txt" || p.Dir() != "a/b" || wspath.Path("a").Dir() != wspath.Root || wspath.Root.Dir() != wspath.Root {
		t.Error("Base or Dir")
	}
	if got := slices.Collect(p.Ancestors()); !slices.Equal(got, []wspath.Path{"a/b", "a", wspath.Root}) {
		t.Errorf("Ancestors = %q", got)
	}
	if got := slices.Collect(wspath.Root.Ancestors()); got != nil {
		t.Errorf("the root's Ancestors = %q", got)
	}
	if got := p.Components(); !slices.Equal(got, []string{"a", "b", "c.txt"}) || wspath.Root.Components() != nil {
		t.Errorf("Components = %q", got)
	}
	if wspath.Root.Join("x") != "x" || p.Dir().Join("x") != "a/b/x" || p.Join(".") != p || wspath.Root.Join(".") != wspath.Root {
		t.Error("Join")
	}
	if wspath.Root.Base() != "." || wspath.Path("").Dir() != wspath.Root {
		t.Error("root")
	}
}

func TestContainment(t *testing.T) {
	cases := []struct {
		p, dir        wspath.Path
		under, within bool
		rel           wspath.Path
	}{
		{"a/b", "a", true, true, "b"},
		{"a", "a", false, true, wspath.Root},
		{"ab", "a", false, false, ""},
		{"a", "a/b", false, false, ""},
		{"a", wspath.Root, true, true, "a"},
		{"a", "", true, true, "a"},
		{wspath.Root, wspath.Root, false, true, wspath.Root},
		{wspath.Root, "", false, true, wspath.Root},
		{wspath.Root, "a", false, false, ""},
	}
	for _, c := range cases {
		if got := c.p.IsUnder(c.dir); got != c.under {
			t.Errorf("%q.IsUnder(%q) = %v", c.p, c.dir, got)
		}
		if got := c.p.Within(c.dir); got != c.within {
			t.Errorf("%q.Within(%q) = %v", c.p, c.dir, got)
		}
		if got, ok := c.p.Rel(c.dir); got != c.rel || ok != c.within {
			t.Errorf("%q.Rel(%q) = %q, %v", c.p, c.dir, got, ok)
		}
	}
}

func TestTemp(t *testing.T) {
	for _, ino := range []uint64{0, 1, 0xdeadbeef, 1<<64 - 1} {
		name := wspath.TempName(ino)
		got, ok := wspath.ParseTemp(name)
		if !ok || got != ino || len(name) != len(".umbra-0123456789abcdef.tmp") {
			t.Errorf("%d is %q, which is %d, %v", ino, name, got, ok)
		}
	}
	if wspath.TempName(0xabc) != ".umbra-0000000000000abc.tmp" {
		t.Error(wspath.TempName(0xabc))
	}
}

func TestCompletesRepo(t *testing.T) {
	cases := []struct {
		have, adding string
		want         bool
	}{
		{"HEAD config objects", "refs", true},
		{"config objects refs", "HEAD", true},
		{"HEAD objects refs", "config", true},
		{"HEAD config refs", "objects", true},
		{"HEAD config", "refs", false},
		{"HEAD config objects", "ref", false},
		{"HEAD config objects refs", "config", false},
		{"config objects refs", "head", true},
		{"", "HEAD", false},
	}
	for _, c := range cases {
		have := strings.Fields(c.have)
		if got := wspath.CompletesRepo(func(n string) bool { return slices.Contains(have, n) }, c.adding); got != c.want {
			t.Errorf("%q + %q = %v", c.have, c.adding, got)
		}
	}
}

func TestCheckTarget(t *testing.T) {
	cases := []struct {
		link   wspath.Path
		target string
		ok     bool
	}{
		{"l", "a", true},
		{"l", "../../a", true}, // for os.Root to judge
		{"l", "/etc/passwd", true},
		{"l", "a\xff", true},
		{"l", "", false},
		{"l", "a\x00", false},
		{"l", ".git", false},
		{"l", "a/.git/config", false},
		{"l", "../.GIT", false},
		{"l", "git~1/hooks", false},
		{"l", ".g\u200cit/", false},
		{"l", strings.Repeat("a", 4096), false},
		{"a/.gitmodules", "b", false},
		{"a/.gitignore", "b", true},
	}
	for _, c := range cases {
		err := wspath.CheckTarget(c.link, c.target)
		if (err == nil) != c.ok || err != nil && errs.CodeOf(err) != "bad_path" {
			t.Errorf("CheckTarget(%q, %q) = %v", c.link, c.target, err)
		}
	}
}
