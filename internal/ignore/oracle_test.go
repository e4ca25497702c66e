package ignore_test

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"umbra/internal/ignore"
	"umbra/internal/need"
	"umbra/internal/wspath"
)

// tree is a repository on disk with rule files and paths to judge. A path that
// ends in a slash is a folder.
type tree struct {
	rules map[string]string // ".gitignore", "a/.gitignore", ".git/info/exclude"
	paths []string
}

func git(t *testing.T, dir, stdin string, args ...string) string {
	t.Helper()
	need.Tool(t, "git")
	cmd := exec.Command("git", args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_SYSTEM=/dev/null", "LC_ALL=C")
	cmd.Stdin = strings.NewReader(stdin)
	var out, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &stderr
	if err := cmd.Run(); err != nil {
		// check-ignore exits with 1 where nothing is ignored.
		if exit, ok := errors.AsType[*exec.ExitError](err); !ok || args[0] != "check-ignore" || exit.ExitCode() != 1 {
			t.Fatalf("git %v: %v\n%s", args, err, stderr.String())
		}
	}
	return out.String()
}

// scratch makes a folder in memory where there is one: the trees are many and small.
func scratch(t *testing.T) string {
	t.Helper()
	if st, err := os.Stat("/dev/shm"); err == nil && st.IsDir() {
		if dir, err := os.MkdirTemp("/dev/shm", "ignore"); err == nil {
			t.Cleanup(func() { os.RemoveAll(dir) })
			return dir
		}
	}
	return t.TempDir()
}

func write(t *testing.T, path, content string) {
	t.Helper()
	need.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
	need.NoError(t, os.WriteFile(path, []byte(content), 0o644))
}

// compare judges all paths of a tree, and the folders above them, by git and by
// us: whether ignored, and by which rule. It gives the number of judgements.
func compare(t *testing.T, tr tree) int {
	t.Helper()
	dir := scratch(t)
	git(t, dir, "", "init", "-q")
	for name, content := range tr.rules {
		write(t, filepath.Join(dir, name), content)
	}
	isDir := map[string]bool{}
	for _, p := range tr.paths {
		name := strings.TrimSuffix(p, "/")
		if st, err := os.Lstat(filepath.Join(dir, name)); err == nil {
			isDir[name] = st.IsDir() // another path made it already
			continue
		}
		folder := filepath.Join(dir, name)
		if name == p {
			folder = filepath.Dir(folder)
		}
		if err := os.MkdirAll(folder, 0o755); err != nil {
			continue // a file exists where a directory would have to
		}
		if name == p {
			write(t, filepath.Join(dir, name), "")
		}
		isDir[name] = name != p
		for up := range wspath.Path(name).Ancestors() {
			if !up.IsRoot() {
				isDir[string(up)] = true
			}
		}
	}
	var stdin strings.Builder
	for name := range isDir {
		stdin.WriteString(name + "\x00")
	}
	out := strings.Split(git(t, dir, stdin.String(), "check-ignore", "--no-index", "-v", "-n", "-z", "--stdin"), "\x00")

	exclude, err := os.ReadFile(filepath.Join(dir, ".git/info/exclude"))
	need.NoError(t, err)
	root, err := ignore.NewRoot(ignore.Options{InfoExclude: exclude, ReadFile: func(p wspath.Path) ([]byte, error) {
		return os.ReadFile(filepath.Join(dir, string(p)))
	}})
	need.NoError(t, err)
	n := 0
	for rec := range slices.Chunk(out, 4) {
		if len(rec) < 4 {
			break
		}
		n++
		source, line, pattern, path := rec[0], rec[1], rec[2], rec[3]
		v, err := root.Lookup(wspath.Path(path), isDir[path])
		need.NoError(t, err)
		got := "no rule"
		if v.Git != nil {
			got = fmt.Sprintf("%s:%d:%s", v.Git.Source, v.Git.Line, v.Git.Pattern)
		}
		want := "no rule"
		if source != "" {
			want = source + ":" + line + ":" + pattern
		}
		if got != want {
			t.Errorf("%q (folder: %v): %q, git says %q\nrules: %q", path, isDir[path], got, want, tr.rules)
		}
		if v.ByGit() != (source != "" && !strings.HasPrefix(pattern, "!")) {
			t.Errorf("%q: ignored is %v", path, v.ByGit())
		}
	}
	if n != len(isDir) {
		t.Errorf("git judged %d of %d paths", n, len(isDir))
	}
	return n
}

// Every pattern is judged alone over every path, in one repository a batch: each
// pattern has a folder of its own, which its .gitignore rules.
func TestPatternsAgainstGit(t *testing.T) {
	patterns := []string{
		"foo", "/foo", "foo/", "/foo/", "foo/bar", "/foo/bar", "foo/bar/", "foo/*", "foo/**", "**/foo", "**/foo/", "**/foo/bar",
		"/**/foo", "**", "*", "/*", "*/", "/*/", "**/", "/**/", "*/*", "*/bar", "foo/*/bar", "foo/**/bar", "foo/**/", "foo**bar", "f**", "f**/bar", "**foo", "**oo/bar",
		"foo/***/bar", "***/bar", "***", "foo/**/**/bar", `**\/bar`, `foo/**\/bar`, `foo\/bar`, "*.o", "*.[oa]", "*o", "f*", "f*o", "*oo*", "?oo", "f?o", "???", "????", "foo?bar", "foo[/]bar", "foo*bar",
		"[a-f]oo", "[!a-f]oo", "[^a-f]oo", "[f]oo", "[]f]oo", "[!]f]oo", "[f-]oo", "[-f]oo", "[a-]oo", `[\f]oo`, `[\]f]oo`, `[\a-\f]oo`, "[f", "[", "f[", "[]", "[!]", "[^]", "[!", "foo[", "[a-f", `[\`,
		"[[:alpha:]]oo", "[[:digit:]]", "[[:upper:]]oo", "[[:lower:]]oo", "[![:digit:]]oo", "[[:nope:]]oo", "[[:alpha:]", "[[:alpha]oo", "[[:]oo", "[[::]]oo", "[[:alpha:]-z]oo", "[a-[:digit:]]oo", "[[.f.]]oo", "[[=f=]]oo",
		"[[:punct:]]oo", "[[:space:]]oo", "[[:xdigit:]]oo", "[[:cntrl:]]oo", "[[:graph:]]oo", "[[:print:]]oo", "[[:blank:]]oo", "[[:alnum:]]oo", "[a-fx-z]oo", "[z-a]oo", "[a-c-f]oo", "[--0]oo", "[+--]oo",
		`\foo`, `f\oo`, `foo\`, `\`, `\\`, `foo\\`, `\*`, `\?`, `\[`, `\#a`, "#a", `\!a`, "!a", "!", "/", "//", "!/", "foo//", "//foo", "foo//bar", "./foo", "../foo", ".", "..", "foo/.", "foo/./bar",
		"foo ", "foo  ", `foo\ `, `foo\  `, `foo \ `, "foo\t", " foo", "  ", `\ `, "foo \\", "foo\r", "foo\r\r", "foo \r", "\rfoo", "foo\x00bar", "FOO", "é", "[é]", "?", "??", "\xff", "[\xff]", "[\x80-\xff]*",
		"a b", "*b", "* b", "*\n!foo", "*\n!foo/", "*\n!foo/\n!foo/bar", "foo/*\n!foo/bar", "foo/\n!foo/bar", "foo\n!foo", "!foo\nfoo", "*\n!*/", "*\n!*/\n!*.o", "/*\n!/foo\n/foo/*\n!/foo/bar", "**/bar\n!foo/bar",
		"*o\n!*oo", "*.o\n!x.o\n/x.o", "foo/**\n!foo/**/", "foo/**\n!foo/**/bar", "\xef\xbb\xbffoo", "a\n\xef\xbb\xbffoo", "#foo\nbar", "\n\n\nfoo\n", "foo\n\n", "foo\r\nbar\r\n", "\r\nfoo", "# c\r\nfoo #c", "foo#", "foo #",
		"*/foo", "*/*/bar", "**/x/**", "x/**/y", "x/**/**/y", "**/**/y", "x**/y", "x/**y", "x/*y", "x/?", "x?y", "x[!a]y", "?*", "*?", "*?*", "?*?", "*[o]", "[!.]*", ".*", "*.*", "*.", ".[!.]*", "x.*", "*~", "~*",
		"*a*a*b", "*a*b*c", "a*a*a", "*aab", "*ab*ab", "a**b", "**a**", "a*/b", "a*/*b", "a**/b", "a*/**/b", "*a/b", "*a/**/b*", "**/a*/b", "**/*b", "**/*a/*b", "**/?", "**/[xy]", "*/**", "*/**/", "**/*/", "**/*", "/**/*/y", "dir/keep/",
		"foo/bar/**", "foo/bar/*/", "/foo/**/bar/", "x/y/z", "/x/y/z/", "x/*/z", "x/**/z", "x/y/**/z", "**/y/z", "y/z", "/y", "z", "z/", "/x/**", "/x/*", "/x*", "/x?y", "x/y*", "x/y/*", "x/[y]/z", "x/[!y]/z", "x/[y-z]/z",
	}
	paths := []string{
		"foo", "bar", "Foo", "FOO", "boo", "goo", "-oo", "]oo", "[oo", ":oo", "0oo", " oo", "\too", "+oo", ",oo", "\x01oo", "\x0boo", "\x7foo", "foobar", "fooxbar", "xfoo", "afoo", "f", "fo", "fx", "x.o", "x.a", "a.o", "x.", ".o", ".x", "..x", "~", "x~", "~x",
		"#a", "!a", "a", "*", "?", "[", "\\", "\\foo", "foo\\", "foo ", "foo  ", " foo", "foo\t", "foo\r", "foo#", "foo #c", " ", "é", "\xff", "\xc3", "ab", "aab", "aaab", "aXaXb", "abab", "abcab", "xaya", "a b", "xb", "x b", "\xef\xbb\xbffoo",
		"[f", "[]", "[a-f", "foo[", "foo x", "xy", "xay", "xby", "x-y", "[[:alpha:]", "5",
		"d/foo/", "d/foo/bar", "d/foo/bar2/", "d/foo/x/bar", "d/foo/x/y/bar/", "d/foo.o", "d/x.o", "d/bar/", "d/bar/foo", "e/foo", "e/bar", "dfoo/bar", "foo.d/bar", "foo.d/x.o", "fd/bar/", "fd/e/bar", "ax/b", "ax/y/b", "ax/y/xb", "xa/b", "xa/y/bz", "ya/yb",
		"x/y/z/", "x/y/z/foo", "x/y/a/z", "x/z", "x/b/z", "x/ay", "x/a/b/y", "x/y2", "q/x/y/z", "q/x/k", "dir/keep/", "dir/keep/f", "dir/f", "q/y/", "q/y/z",
	}
	// The same with folders where the others have files, so that both kinds meet each pattern.
	folders := []string{"foo/bar/", "foo/bar/x.o", "foo/x/bar", "foo/x/y/bar", "foo/.x", "bar/foo/bar", "a/b", "a/x/b", "x.o/", "fo/", "boo/bar", "#a/", "!a/f", "foobar/", "x/y", "f/bar", "[/", "é/", "foo /", "\xff/"}

	total := 0
	for _, set := range [][]string{paths, folders} {
		tr := tree{rules: map[string]string{".git/info/exclude": ""}}
		for i, p := range patterns {
			dir := "p" + strconv.Itoa(i) + "/"
			tr.rules[dir+".gitignore"] = p
			for _, name := range set {
				tr.paths = append(tr.paths, dir+name)
			}
		}
		total += compare(t, tr)
	}
	t.Logf("%d judgements of %d patterns", total, len(patterns))
}

// What one file of rules alone cannot show.
func TestNestingAgainstGit(t *testing.T) {
	trees := []tree{
		{rules: map[string]string{".gitignore": "*.log\n", "a/.gitignore": "!keep.log\n", "a/b/.gitignore": "*.log\n"},
			paths: []string{"x.log", "a/x.log", "a/keep.log", "a/b/keep.log", "a/c/keep.log"}},
		{rules: map[string]string{".git/info/exclude": "x\n!y\nq/\n", ".gitignore": "!x\ny\n"}, paths: []string{"x", "y", "a/x", "a/y", "q/f", "a/q/f", "b/q"}},
		{rules: map[string]string{".gitignore": "dir/\n!dir/keep\n", "dir/.gitignore": "!*\n"}, paths: []string{"dir/keep", "dir/x", "a/dir/keep"}},
		{rules: map[string]string{".gitignore": "/dir/*\n!/dir/keep/\n", "dir/keep/.gitignore": "x\n"}, paths: []string{"dir/keep/f", "dir/keep/x", "dir/x", "dir/.gitignore"}},
		{rules: map[string]string{"a/.gitignore": "/x\nb/y\n**/z\n"}, paths: []string{"x", "a/x", "a/a/x", "a/b/y", "b/y", "a/c/b/y", "a/c/z", "z", "ab/x"}},
		{rules: map[string]string{".gitignore": "*\n!*/\n!.gitignore\n", "src/.gitignore": "!*.go\n"}, paths: []string{"src/a.go", "src/b.c", "src/x/c.go", "x.go"}},
		{rules: map[string]string{".gitignore/x": "no file\n", "a/.gitignore": "x\n"}, paths: []string{"a/x", "x"}},
		{rules: map[string]string{".gitignore": "a\n!a\n", ".git/info/exclude": "a\n"}, paths: []string{"a", "b/a/c"}},
		{rules: map[string]string{"a/.gitignore": "!b/\n", ".gitignore": "b/\n"}, paths: []string{"a/b/x", "b/x"}},
	}
	for _, tr := range trees {
		compare(t, tr)
	}
}

// Random rules over random trees.
func TestRandomAgainstGit(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 14))
	pick := func(from []string, atMost int) string {
		var b strings.Builder
		for range 1 + r.IntN(atMost) {
			b.WriteString(from[r.IntN(len(from))])
		}
		return b.String()
	}
	bits := []string{"a", "b", "c", "ab", ".", "/", "/", "*", "*", "**", "?", "[ab]", "[!a]", "[^b-c]", "[[:alpha:]]", "[a-", "]", `\`, `\*`, "!", " ", "**/", "/**", "/**/", "-"}
	names := []string{"a", "b", "c", "ab", "ba", ".", "*", "]", "aab", "-", " ", "d"}
	total := 0
	for range 40 {
		tr := tree{rules: map[string]string{".git/info/exclude": pick(bits, 5)}}
		for i := range 40 {
			dir := fmt.Sprintf("p%d/", i)
			for _, sub := range []string{"", "a/", "b/"} {
				if sub != "" && r.IntN(3) > 0 {
					continue
				}
				var lines strings.Builder
				for range 1 + r.IntN(4) {
					if r.IntN(4) == 0 {
						lines.WriteByte('!')
					}
					lines.WriteString(pick(bits, 6) + []string{"", "", "/", "\r", " "}[r.IntN(5)] + "\n")
				}
				tr.rules[dir+sub+".gitignore"] = lines.String()
			}
			for range 12 {
				var parts []string
				for range 1 + r.IntN(4) {
					if name := pick(names, 3); name != "." && name != ".." {
						parts = append(parts, name)
					}
				}
				if len(parts) > 0 {
					tr.paths = append(tr.paths, dir+strings.Join(parts, "/")+[]string{"", "", "/"}[r.IntN(3)])
				}
			}
		}
		total += compare(t, tr)
	}
	t.Logf("%d judgements", total)
}
