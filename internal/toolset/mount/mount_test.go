package mount

import (
	"fmt"
	"path"
	"slices"
	"strings"
	"testing"

	"umbra/internal/need"
)

func table(t testing.TB, specs ...string) *Table {
	t.Helper()
	var mounts []Mount
	for _, s := range specs {
		prefix, scope, _ := strings.Cut(s, " ")
		p, err := ParsePrefix(prefix)
		need.NoError(t, err)
		sc, ok := ParseScope(scope)
		if !ok {
			t.Fatalf("scope %q", scope)
		}
		mounts = append(mounts, Mount{Prefix: p, Scope: sc, Kind: Physical})
	}
	tab, dup := NewTable(mounts)
	if dup >= 0 {
		t.Fatalf("%s occurs twice", specs[dup])
	}
	return tab
}

func TestClean(t *testing.T) {
	for in, want := range map[string]string{
		"":                 "/",
		"/":                "/",
		"/a/b":             "/a/b",
		"a":                "/a",
		"//a///b/":         "/a/b",
		"/a/./b/../c":      "/a/c",
		"/a/..":            "/",
		"./a":              "/a",
		"/a/…/b":           "/a/…/b",
		"/a:b":             "/a:b",
		"/x/C:/y":          "/x/C:/y",
		"/%2e%2e/x":        "/%2e%2e/x",
		"/a/\u2024\u2024/": "/a/\u2024\u2024",
		"/tab\there":       "/tab\there",
	} {
		if got, err := Clean(in); err != nil || got != want {
			t.Errorf("Clean(%q) = %q, %v; want %q", in, got, err, want)
		}
	}
	for in, want := range map[string]string{
		"/..":                     "Path escapes the workspace: /..",
		"/a/../../b":              "Path escapes the workspace: /a/../../b",
		"../x":                    "Path escapes the workspace: /../x",
		"/a\x00b":                 "Path must not contain null bytes",
		`/a\b`:                    `Path is not allowed: /a\b (use / between directories, not a backslash)`,
		`C:\x`:                    `Path is not allowed: C:\x (use / between directories, not a backslash)`,
		"C:/x":                    "Path is not allowed: C:/x (there are no drives; paths begin with /)",
		"/c:":                     "Path is not allowed: /c: (there are no drives; paths begin with /)",
		"/C:/x":                   "Path is not allowed: /C:/x (there are no drives; paths begin with /)",
		"/\xff":                   `Path is not allowed: "/\xff" (it is not UTF-8)`,
		strings.Repeat("a", 9000): "Path is not allowed: " + strings.Repeat("a", 512) + "… (it is longer than 8192 bytes)",
	} {
		if got, err := Clean(in); err == nil || err.Error() != want {
			t.Errorf("Clean(%.40q) = %q, %v; want %.80q", in, got, err, want)
		}
	}
}

func TestParsePrefix(t *testing.T) {
	for in, want := range map[string]string{"/": "/", "/a//b/": "/a/b", "/a/./b": "/a/b", "//": "/"} {
		if got, err := ParsePrefix(in); err != nil || got != want {
			t.Errorf("%q: %q, %v", in, got, err)
		}
	}
	for _, in := range []string{"", "a", "./a", "/a/../b", "/..", `/a\b`, "C:/a", "/a\x00", "/a\nb", "/a\u2028b", "/\xff"} {
		if got, err := ParsePrefix(in); err == nil {
			t.Errorf("%q is taken as %q", in, got)
		}
	}
}

func TestLookup(t *testing.T) {
	tab := table(t, "/project READ_WRITE", "/project/vendor READ_ONLY", "/notes WRITE_ONLY")
	for p, want := range map[string]string{
		"/project":            "0:",
		"/project/a/b":        "0:a/b",
		"/project/vendor":     "1:",
		"/project/vendor/x":   "1:x",
		"/project/vendored/x": "0:vendored/x",
		"/project2":           "-",
		"/":                   "-",
		"/notes2/x":           "-",
		"/Project":            "-",
	} {
		got := "-"
		if i, rel, ok := tab.Lookup(p); ok {
			got = fmt.Sprintf("%d:%s", i, rel)
		}
		if got != want {
			t.Errorf("%s leads to %s, want %s", p, got, want)
		}
	}
	root := table(t, "/ READ_ONLY", "/a READ_WRITE")
	if i, rel, ok := root.Lookup("/b/c"); !ok || i != 0 || rel != "b/c" {
		t.Errorf("/b/c: %d %q %v", i, rel, ok)
	}
	if i, _, _ := root.Lookup("/a"); i != 1 {
		t.Error("/a leads to the root")
	}
}

func TestBelow(t *testing.T) {
	tab := table(t, "/a/c READ_ONLY", "/a-b READ_ONLY", "/a READ_ONLY", "/a/c/d READ_ONLY", "/x/y/z READ_ONLY")
	for dir, want := range map[string][]string{"/": {"a", "a-b", "x"}, "/a": {"c"}, "/x": {"y"}, "/x/y/z": nil, "/a-b": nil} {
		if got := tab.Below(dir); !slices.Equal(got, want) {
			t.Errorf("below %s: %v, want %v", dir, got, want)
		}
	}
	if tab.HasBelow("/a-b") || !tab.HasBelow("/x") || !tab.IsMount("/a/c") || tab.IsMount("/x") {
		t.Error("HasBelow or IsMount is wrong")
	}
}

func TestResolve(t *testing.T) {
	tab := table(t, "/ro READ_ONLY", "/rw READ_WRITE", "/wo WRITE_ONLY")
	allowed := map[Scope][]Op{ReadOnly: {Read, List, Stat, Search}, ReadWrite: {Read, List, Stat, Search, Write, Edit, Move, Delete}, WriteOnly: {Write, Edit, Delete}}
	for prefix, scope := range map[string]Scope{"/ro": ReadOnly, "/rw": ReadWrite, "/wo": WriteOnly} {
		for _, op := range []Op{Read, List, Stat, Search, Write, Edit, Move, Delete} {
			_, err := tab.Resolve(prefix+"/./f", op)
			switch want := fmt.Sprintf("Operation '%s' is not permitted: %s/f is %s", op, prefix, scope); {
			case slices.Contains(allowed[scope], op) && err != nil:
				t.Errorf("%s under %s: %v", op, scope, err)
			case !slices.Contains(allowed[scope], op) && (err == nil || err.Error() != want):
				t.Errorf("%s under %s: %v, want %s", op, scope, err, want)
			}
		}
	}
	if _, err := tab.Resolve("/rw2/x", Read); err == nil || err.Error() != "No workspace is mounted at /rw2/x. Mounted: /ro, /rw, /wo" {
		t.Error(err)
	}
	if _, err := new(Table).Resolve("/x", Read); err == nil || err.Error() != "No workspace is mounted at /x. Mounted: (none)" {
		t.Error(err)
	}
}

func TestMap(t *testing.T) {
	tab, _ := NewTable([]Mount{{"/project", ReadWrite, Physical}, {"/notes", ReadOnly, Virtual}, {"/Z", ReadOnly, Physical}})
	want := "Filesystem Map:\n- /Z [READ_ONLY] physical\n- /notes [READ_ONLY] virtual\n- /project [READ_WRITE] physical\n" +
		"READ_ONLY: " + ReadOnly.Words() + "\nREAD_WRITE: " + ReadWrite.Words() + "\n"
	if got := tab.Map(); got != want {
		t.Errorf("got\n%s", got)
	}
	if got := (&Table{}).Map(); got != "Filesystem Map:\n- (no mounted workspaces)\n- All filesystem operations are denied by default.\n" {
		t.Errorf("got\n%s", got)
	}
}

// Whatever a path looks like, it leads to the mount of its longest prefix by
// whole segments, or nowhere; and never above the root.
func FuzzResolve(f *testing.F) {
	for _, p := range []string{"/a/b", "a/../b", "/project/../../x", "/project2", `/a\..\b`, "/a/./vendor//x/", "C:/x", "/a\x00", "/..", "", "/a/b/c/../../../.."} {
		f.Add(p)
	}
	prefixes := []string{"/project", "/project/vendor", "/a", "/a/b/c", "/a/vendor"}
	var mounts []Mount
	for _, p := range prefixes {
		mounts = append(mounts, Mount{p, ReadWrite, Physical})
	}
	tab, _ := NewTable(mounts)
	f.Fuzz(func(t *testing.T, p string) {
		clean, err := Clean(p)
		if err != nil {
			if strings.ContainsAny(err.Error(), "\x00\n\r") {
				t.Errorf("the message of %q breaks the line: %q", p, err)
			}
			return
		}
		if clean != path.Clean("/"+p) {
			t.Errorf("Clean(%q) = %q, path.Clean says %q", p, clean, path.Clean("/"+p))
		}
		if again, err := Clean(clean); err != nil || again != clean {
			t.Errorf("%q is not clean: %q, %v", clean, again, err)
		}
		best := ""
		for _, prefix := range prefixes {
			if (clean == prefix || strings.HasPrefix(clean, prefix+"/")) && len(prefix) > len(best) {
				best = prefix
			}
		}
		to, err := tab.Resolve(p, Read)
		switch {
		case best == "" && err == nil:
			t.Errorf("%q leads to %s", p, prefixes[to.Mount])
		case best != "" && (err != nil || prefixes[to.Mount] != best || Join(best, to.Rel) != clean):
			t.Errorf("%q leads to %+v, %v; want %s", p, to, err, best)
		}
	})
}

// 1,000 toolsets with 100 mounts each: routing takes no more than 1 µs.
func BenchmarkRoute(b *testing.B) {
	tables := make([]*Table, 1000)
	for i := range tables {
		var mounts []Mount
		for j := range 100 {
			mounts = append(mounts, Mount{fmt.Sprintf("/team-%d/project-%d", i, j), ReadWrite, Physical})
		}
		tables[i], _ = NewTable(mounts)
	}
	paths := make([][]string, len(tables))
	for i := range paths {
		for j := range 8 {
			paths[i] = append(paths[i], fmt.Sprintf("/team-%d/project-%d/src/internal/package/file.go", i, j*11))
		}
	}
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		n := i % len(tables)
		if _, err := tables[n].Resolve(paths[n][i&7], Write); err != nil {
			b.Fatal(err)
		}
	}
}
