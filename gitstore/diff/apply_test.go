package diff_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"umbra/gitstore/diff"
	"umbra/gitstore/diff/difftest"
	"umbra/gitstore/object"
	"umbra/internal/need"
)

// pair is one file's two sides; a side without mode is absent.
type pair struct{ old, new diff.File }

func regular(path, data string) diff.File {
	return diff.File{Path: path, Mode: object.Regular, Data: []byte(data)}
}

func withMode(f diff.File, m object.Mode) diff.File { f.Mode = m; return f }

var absent diff.File

// judge lets git apply the concatenated patches of the pairs forward and back,
// to the index and to a directory, and compares the trees.
func judge(t *testing.T, opts diff.Options, pairs []pair) []diff.Patch {
	t.Helper()
	old, new := difftest.Tree{"stays": regular("", "as it is\n")}, difftest.Tree{"stays": regular("", "as it is\n")}
	var series diff.Series
	var patches []diff.Patch
	for _, p := range pairs {
		if p.old.Mode != 0 {
			old[p.old.Path] = p.old
		}
		if p.new.Mode != 0 {
			new[p.new.Path] = p.new
		}
		patch, err := diff.Format(p.old, p.new, opts)
		need.NoError(t, err)
		if patch.Truncated {
			t.Errorf("%q: truncated", p.new.Path)
		}
		patches = append(patches, patch)
		series.Add(patch)
	}
	text := series.Bytes()
	dir := t.TempDir()
	difftest.Import(t, dir, old, new)
	if len(text) == 0 {
		return patches
	}
	tree := func(args ...string) string { return string(difftest.MustGit(t, dir, nil, args...)) }
	want := []string{tree("rev-parse", "t0^{tree}"), tree("rev-parse", "t1^{tree}")}

	apply := func(args ...string) {
		t.Helper()
		args = append([]string{"apply", "--whitespace=nowarn"}, args...)
		if opts.Context < 0 {
			args = append(args, "--unidiff-zero")
		}
		if _, status := difftest.Git(t, dir, text, append(args, "-")...); status != 0 {
			t.Fatalf("git %v refused\n%q", args, text)
		}
	}
	tree("read-tree", "t0")
	apply("--check", "--cached")
	apply("--cached")
	if got := tree("write-tree"); got != want[1] {
		t.Errorf("applied to the index: another tree\n%s\n%q", tree("diff", "--cached", "t1"), text)
	}
	apply("--cached", "-R")
	if got := tree("write-tree"); got != want[0] {
		t.Errorf("taken back from the index: another tree\n%s\n%q", tree("diff", "--cached", "t0"), text)
	}

	tree("reset", "-q", "--hard", "t0")
	apply()
	tree("add", "-A", "-f", ".")
	if got := tree("write-tree"); got != want[1] {
		t.Errorf("applied to the directory: another tree\n%s\n%q", tree("diff", "--cached", "t1"), text)
	}
	apply("-R")
	tree("add", "-A", "-f", ".")
	if got := tree("write-tree"); got != want[0] {
		t.Errorf("taken back from the directory: another tree\n%s\n%q", tree("diff", "--cached", "t0"), text)
	}
	return patches
}

// names that have led some tool astray.
func names() []string {
	return []string{
		"plain", "deep/er/file.go", "with space", " leading", "trailing ", "two  spaces", "dir with space/x y",
		"-dash", "--", "tab\tin", "tab\t", "\ttab", "new\nline", "\nnewline", "newline\n", "cr\rin", "quote\"in", "\"quoted\"", "back\\slash", "a\\nb",
		"bell\a\b\v\f", "\x01\x1f\x7f", "h\u00e4h", "\u65e5\u672c", "bad\xff\xfeutf8", "$dollar", "`tick`", "a b/a b", "x b/x", "x b/x b/x", "b/x b/x",
		"a/x", "b/x", "x a/y", "dev/null", "a => b", "{a => b}/c", "'single'", "*", "?", "[x]", ":colon", "#", "~", "@@ -1 +1 @@",
		"a\u00a0b", "name 2024-01-01 00:00:00.000000000 +0000", "name\t2024-01-01", strings.Repeat("n", 200), " ", "  ", "q b/q ",
	}
}

func TestApplyNames(t *testing.T) {
	t.Parallel()
	kinds := map[string]func(name string) pair{
		"created":       func(n string) pair { return pair{absent, regular(n, "new\n")} },
		"created empty": func(n string) pair { return pair{absent, regular(n, "")} },
		"deleted":       func(n string) pair { return pair{regular(n, "old\n"), absent} },
		"deleted empty": func(n string) pair { return pair{regular(n, ""), absent} },
		"modified":      func(n string) pair { return pair{regular(n, "old\n"), regular(n, "new\n")} },
		"mode":          func(n string) pair { return pair{regular(n, "x\n"), withMode(regular(n, "x\n"), object.Executable)} },
		"binary":        func(n string) pair { return pair{regular(n, "a\x00b"), regular(n, "a\x00c")} },
		"binary made":   func(n string) pair { return pair{absent, regular(n, "a\x00c")} },
		"renamed":       func(n string) pair { return pair{regular(n, "x\n"), regular("to/"+n, "x\n")} },
		"renamed to":    func(n string) pair { return pair{regular("from/"+n, "x\ny\nz\n"), regular(n, "x\ny\n")} },
		"link":          func(n string) pair { return pair{absent, withMode(regular(n, n), object.Symlink)} },
	}
	for kind, of := range kinds {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			cases := map[string][]pair{}
			for i, name := range names() {
				cases[fmt.Sprint(i)] = []pair{of(name)}
			}
			judgeAll(t, diff.Options{}, cases)
		})
	}
}

// TestApplyNamesAtTop has the names at the top, with nothing before them.
func TestApplyNamesAtTop(t *testing.T) {
	t.Parallel()
	var made, gone, chmod []pair
	for _, name := range names() {
		made = append(made, pair{absent, regular(name, "")})
		gone = append(gone, pair{regular(name, "x"), absent})
		chmod = append(chmod, pair{regular(name, ""), withMode(regular(name, ""), object.Executable)})
	}
	for _, pairs := range [][]pair{made, gone, chmod} {
		judge(t, diff.Options{}, pairs)
	}
}

func TestApplyKinds(t *testing.T) {
	t.Parallel()
	link := func(path, target string) diff.File { return withMode(regular(path, target), object.Symlink) }
	exec := func(path, data string) diff.File { return withMode(regular(path, data), object.Executable) }
	long := strings.Repeat("the same line\n", 50)
	noise := string(random(7, 5000))
	cases := map[string][]pair{
		"same":                  {{regular("f", "x\n"), regular("f", "x\n")}},
		"no newline, old":       {{regular("f", "a\nb"), regular("f", "a\nb\n")}},
		"no newline, new":       {{regular("f", "a\nb\n"), regular("f", "a\nb")}},
		"no newline, both":      {{regular("f", "a\nb"), regular("f", "c\nb")}},
		"no newline, appended":  {{regular("f", "a\nb"), regular("f", "a\nb\nc")}},
		"no newline, context":   {{regular("f", long+"end"), regular("f", "first\n"+long+"end")}},
		"crlf":                  {{regular("f", "a\r\nb\r\nc\r\n"), regular("f", "a\r\nB\r\nc\r\n")}},
		"crlf to lf":            {{regular("f", "a\r\nb\r\n"), regular("f", "a\nb\n")}},
		"cr alone":              {{regular("f", "a\rb\rc"), regular("f", "a\rb\rd")}},
		"emptied":               {{regular("f", "a\nb\n"), regular("f", "")}},
		"filled":                {{regular("f", ""), regular("f", "a\nb")}},
		"one newline":           {{regular("f", ""), regular("f", "\n")}},
		"nul beyond the sniff":  {{regular("f", strings.Repeat("x\n", 5000)+"\x00\n"), regular("f", strings.Repeat("x\n", 5000)+"\x00y\n")}},
		"becomes binary":        {{regular("f", "text\n"), regular("f", "te\x00xt\n")}},
		"becomes text":          {{regular("f", "te\x00xt\n"), regular("f", "text\n")}},
		"binary, delta":         {{regular("f", "\x00"+noise+noise), regular("f", "\x00"+noise+"middle"+noise)}},
		"binary, shuffled":      {{regular("f", "\x00"+noise[:2000]+noise[3000:]), regular("f", "\x00"+noise[3000:]+"x"+noise[:2000])}},
		"binary, literal":       {{regular("f", "\x00"+noise), regular("f", "\x00"+string(random(8, 5000)))}},
		"binary, emptied":       {{regular("f", "\x00"+noise), regular("f", "")}},
		"binary, filled":        {{regular("f", ""), regular("f", "\x00"+noise)}},
		"binary, deleted":       {{regular("f", "\x00"+noise), absent}},
		"binary, runs":          {{regular("f", strings.Repeat("\x00", 200_000)), regular("f", strings.Repeat("\x00", 300_000)+"end")}},
		"binary, and mode":      {{regular("f", "\x00a"), exec("f", "\x00b")}},
		"binary, renamed":       {{regular("f", "\x00"+noise), regular("g", "\x00"+noise+"more")}},
		"renamed, unchanged":    {{regular("f", long), regular("d/g", long)}},
		"renamed, empty":        {{regular("f", ""), regular("g", "")}},
		"renamed, changed":      {{regular("f", long+"x\n"), regular("g", long+"y\n")}},
		"renamed, all changed":  {{regular("f", "x\n"), regular("g", "y\n")}},
		"renamed, filled":       {{regular("f", ""), regular("g", "y\n")}},
		"renamed, and mode":     {{regular("f", long), exec("g", long)}},
		"renamed, mode, change": {{exec("f", long), regular("g", long+"x\n")}},
		"renamed link":          {{link("f", "t"), link("g", "t")}},
		"swapped":               {{regular("f", "1\n"), regular("g", "1\n")}, {regular("g", "2\n"), regular("f", "2\n")}},
		"circle": {{regular("f", "1\n"), regular("g", "1\n")}, {regular("g", "2\n"), regular("h", "2\n3\n")},
			{regular("h", "3\n"), regular("f", "3\n")}},
		"swapped, one a link":    {{regular("f", "1\n"), link("g", "t")}, {regular("g", "2\n"), regular("f", "2\n")}},
		"swapped, one a link, 2": {{regular("g", "2\n"), regular("f", "2\n")}, {regular("f", "1\n"), link("g", "t")}},
		"swapped, both links":    {{link("f", "1"), regular("g", "1\n")}, {regular("g", "2\n"), link("f", "2")}},
		"to a link's place":      {{link("f", "1"), regular("h", "1\n")}, {regular("g", "2\n"), regular("f", "2\n")}, {absent, link("g", "3")}},
		"chain":                  {{regular("f", "1\n"), regular("g", "1\n")}, {regular("g", "2\n"), regular("h", "2\n")}},
		"moved and remade":       {{regular("f", "1\n"), regular("g", "1\n")}, {absent, regular("f", "2\n")}},
		"folder moved":           {{regular("d/1", "1\n"), regular("e/1", "1\n")}, {regular("d/s/2", ""), regular("e/s/2", "")}},
		"file to link":           {{regular("f", "1\n"), link("f", "target")}},
		"link to file":           {{link("f", "target"), exec("f", "1\n")}},
		"empty to link":          {{regular("f", ""), link("f", "target")}},
		"binary to link":         {{regular("f", "\x00"), link("f", "target")}},
		"link moved":             {{link("f", "one"), link("f", "two")}},
		"link to renamed":        {{link("f", "one"), regular("g", "two")}},
		"odd links":              {{absent, link("f", "a\nb")}, {absent, link("g", "/abs olute")}, {absent, link("h", "..\xff")}},
		"file to folder":         {{regular("f", "1\n"), absent}, {absent, regular("f/x", "2\n")}},
		"folder to file":         {{regular("f/x", "2\n"), absent}, {absent, regular("f", "1\n")}},
		"file into folder":       {{regular("f", "1\n"), regular("f/f", "1\n")}},
		"exec created":           {{absent, exec("f", "#!/bin/sh\n")}},
		"exec lost":              {{exec("f", ""), regular("f", "")}},
		"mode and change":        {{exec("f", "a\n"), regular("f", "b\n")}},
		"like a patch":           {{regular("f", "--- a/x\n+++ b/x\n@@ -1 +1 @@\n"), regular("f", "--- a/x\n-- b/x\n@@ -1 +1 @@\n\\ No newline\n")}},
		"far apart":              {{regular("f", "a\n"+long+"b\n"+long+"c\n"), regular("f", "A\n"+long+long+"C\nd\n")}},
		"many lines":             {{absent, regular("f", long+long)}, {regular("g", long), absent}},
	}
	for _, context := range []int{0, diff.NoContext, 1, 1 << 30} {
		t.Run(fmt.Sprint("context ", context), func(t *testing.T) {
			t.Parallel()
			judgeAll(t, diff.Options{Context: context}, cases)
		})
	}
}

// judgeAll judges every case in a directory of its own, all with one call of git,
// and each alone if that fails, to find which it is.
func judgeAll(t *testing.T, opts diff.Options, cases map[string][]pair) {
	var all []pair
	for name, pairs := range cases {
		for _, p := range pairs {
			p.old.Path, p.new.Path = name+"/"+p.old.Path, name+"/"+p.new.Path
			all = append(all, p)
		}
	}
	if t.Run("all", func(t *testing.T) { judge(t, opts, all) }) {
		return
	}
	for name, pairs := range cases {
		t.Run(name, func(t *testing.T) { judge(t, opts, pairs) })
	}
}

func random(seed int, n int) []byte {
	r := rand.New(rand.NewPCG(uint64(seed), 2))
	out := make([]byte, n)
	for i := range out {
		out[i] = byte(r.Uint32())
	}
	return out
}

// TestApplyRandom makes whole tasks of random changes.
func TestApplyRandom(t *testing.T) {
	t.Parallel()
	tasks := difftest.Count(t, "UMBRA_APPLY_TASKS", 12)
	for seed := range tasks {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			r := difftest.Seeded(seed)
			var pairs []pair
			for i := range 60 {
				pairs = append(pairs, randomPair(r, fmt.Sprintf("%d %s", i, names()[r.IntN(len(names()))])))
			}
			judge(t, diff.Options{Context: []int{0, 1, 7, diff.NoContext}[r.IntN(4)]}, pairs)
		})
	}
}

func randomPair(r *rand.Rand, name string) pair {
	modes := []object.Mode{object.Regular, object.Regular, object.Executable, object.Symlink}
	base, ours, _ := difftest.Texts(r)
	if r.IntN(4) == 0 {
		base = append(base, random(r.IntN(1000), r.IntN(3000))...)
		ours = append(base[len(base)/2:len(base):len(base)], ours...)
		base[r.IntN(len(base)+1)%max(len(base), 1)] = 0
	}
	side := func(data []byte) diff.File {
		f := diff.File{Path: name, Mode: modes[r.IntN(4)], Data: data}
		if f.Mode == object.Symlink {
			f.Data = fmt.Append(nil, "target ", r.IntN(3))
		}
		return f
	}
	p := pair{side(base), side(ours)}
	switch r.IntN(6) {
	case 0:
		p.old = absent
	case 1:
		p.new = absent
	case 2:
		p.new.Path = "moved/" + name
	case 3:
		p.new.Data, p.new.Mode = p.old.Data, p.old.Mode
		p.new.Path = "moved/" + name
	}
	return p
}

func TestFormatFacts(t *testing.T) {
	t.Parallel()
	p, err := diff.Format(regular("f", "a\nb\n"), regular("f", "a\nc\nd\n"), diff.Options{Abbrev: 7})
	if err != nil || p.Additions != 2 || p.Deletions != 1 || p.Binary || p.Coarse {
		t.Errorf("%+v, %v", p, err)
	}
	if !bytes.Contains(p.Text, []byte("\nindex 422c2b7..")) {
		t.Errorf("no short ids:\n%s", p.Text)
	}
	p, err = diff.Format(regular("f", "a\x00"), regular("f", "b\x00"), diff.Options{MaxBinary: 3})
	if err != nil || !p.Binary || !p.Truncated || !bytes.HasSuffix(p.Text, []byte("\nBinary files a/f and b/f differ\n")) {
		t.Errorf("%+v, %v\n%s", p, err, p.Text)
	}
	if _, err := diff.Format(absent, withMode(regular("f", ""), object.Submodule), diff.Options{}); err == nil {
		t.Error("a submodule has no patch")
	}
	if p, err := diff.Format(absent, absent, diff.Options{}); err != nil || len(p.Text) != 0 {
		t.Errorf("%+v, %v", p, err)
	}
}
