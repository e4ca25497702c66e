package diff_test

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"umbra/gitstore/diff"
	"umbra/gitstore/diff/difftest"
	"umbra/gitstore/object"
	"umbra/internal/need"
)

// TestSameTextAsGit compares thousands of patches, byte for byte, with those of
// git. Git's additional rule on indentation, which only moves blocks, is off.
func TestSameTextAsGit(t *testing.T) {
	t.Parallel()
	for _, context := range []int{diff.DefaultContext, diff.NoContext, 1, 25} {
		t.Run(fmt.Sprint(context), func(t *testing.T) {
			t.Parallel()
			n := difftest.Count(t, "UMBRA_DIFF_CASES", 1500)
			old, new := difftest.Tree{}, difftest.Tree{}
			add := func(name string, before, after []byte) {
				old[name] = diff.File{Path: name, Mode: object.Regular, Data: before}
				new[name] = diff.File{Path: name, Mode: object.Regular, Data: after}
			}
			for i := range n {
				base, ours, _ := difftest.Texts(difftest.Seeded(i))
				add(fmt.Sprintf("%06d", i), base, ours)
			}
			if context == diff.DefaultContext {
				for name, texts := range diff.Hard(12_000) {
					add(fmt.Sprintf("%-6.6s", name), texts[0], texts[1])
				}
			}
			dir := t.TempDir()
			difftest.Import(t, dir, old, new)
			arg := fmt.Sprintf("-U%d", max(context, 0))
			out := difftest.MustGit(t, dir, nil, "diff-tree", "-r", "-p", "--full-index", "--no-renames",
				"--indent-heuristic", arg, "t0", "t1")
			want := map[string]string{}
			for _, text := range strings.SplitAfter("\n"+string(out), "\ndiff --git ") {
				text = strings.TrimSuffix(text, "diff --git ")
				if len(text) > 8 {
					want[text[2:8]] = "diff --git " + text
				}
			}
			if len(want) < n/2 {
				t.Fatalf("git gave %d patches for %d files", len(want), n)
			}
			for name := range old {
				p, err := diff.Format(old[name], new[name], diff.Options{Context: context})
				need.NoError(t, err)
				if got := string(p.Text); got != want[name] && len(got) > 10_000 {
					t.Errorf("%s: another text of %d bytes than git's %d; coarse %v", name, len(got), len(want[name]), p.Coarse)
				} else if got != want[name] {
					t.Errorf("%s\nold\n%q\nnew\n%q\ngot\n%s\ngit\n%s", name, old[name].Data, new[name].Data, got, want[name])
				}
			}
		})
	}
}

// TestSameStatAsGit compares the counts with `git diff --numstat`.
func TestSameStatAsGit(t *testing.T) {
	t.Parallel()
	old, new := difftest.Tree{}, difftest.Tree{}
	for i := range 500 {
		name := fmt.Sprint(i)
		base, _, theirs := difftest.Texts(difftest.Seeded(10_000 + i))
		if i%50 == 0 {
			theirs = append(theirs, 0)
		}
		old[name] = diff.File{Mode: object.Regular, Data: base}
		new[name] = diff.File{Mode: object.Regular, Data: theirs}
	}
	dir := t.TempDir()
	difftest.Import(t, dir, old, new)
	want := map[string]string{}
	for line := range bytes.Lines(difftest.MustGit(t, dir, nil, "diff-tree", "-r", "--numstat", "--no-renames", "t0", "t1")) {
		counts, name, _ := strings.Cut(strings.TrimSpace(string(line)), "\t")
		plus, name, _ := strings.Cut(name, "\t")
		want[name] = counts + " " + plus
	}
	for name := range old {
		plus, minus, binary := diff.Stat(old[name].Data, new[name].Data)
		got := fmt.Sprint(plus, " ", minus)
		if binary {
			got = "- -"
		}
		if w := want[name]; got != w && (w != "" || got != "0 0") {
			t.Errorf("%s: got %s, git %s", name, got, w)
		}
	}
}
