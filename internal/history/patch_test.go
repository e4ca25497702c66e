package history_test

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"umbra/gitstore/diff"
	"umbra/gitstore/object"
	"umbra/internal/errs"
	"umbra/internal/history"
	"umbra/internal/need"
	"umbra/internal/workspace"
)

// A patch is what its two sides give, the first time and every other one, and as
// the file goes on.
func TestPatch(t *testing.T) {
	w := newWorkspace(t)
	cache := history.NewCache()
	apply(t, w, "", write("b", "x\n"), write("large", strings.Repeat("a line of its own\n", 10_000)))
	apply(t, w, "", write("a", "1\n2\nthree\n4\n5\n6\n7\n8\n9\n"))
	exec := object.Executable
	checked := 0
	check := func(when string) {
		t.Helper()
		sum, err := cache.Summary(t.Context(), w, "t")
		need.NoError(t, err)
		for i := range sum.Files {
			f := &sum.Files[i]
			for _, opts := range []diff.Options{{}, {Context: 1}, {Context: diff.NoContext}} {
				old, now, err := f.Sides(t.Context(), w.Store(), 1<<20)
				need.NoError(t, err)
				want, err := diff.Format(old, now, opts)
				need.NoError(t, err)
				for range 3 {
					got, err := f.Patch(t.Context(), w.Store(), 1<<20, opts)
					if err != nil || !bytes.Equal(got.Text, want.Text) || got.Additions != want.Additions || got.Deletions != want.Deletions || got.Binary != want.Binary {
						t.Errorf("%s: %s with %+v: %v\n%s\nnot\n%s", when, f.Path, opts, err, got.Text, want.Text)
					}
					checked++
				}
			}
		}
	}
	check("at first")
	apply(t, w, "", write("a", "1\n2\nTHREE\n4\n5\n6\n7\n8\n9\n"))
	check("changed once more")
	apply(t, w, "", workspace.Op{Kind: workspace.OpChmod, Path: "a", Mode: &exec})
	check("another mode")
	apply(t, w, "", workspace.Op{Kind: workspace.OpRename, Path: "a", To: "c"}, workspace.Op{Kind: workspace.OpRename, Path: "b", To: "a"})
	check("other names")
	apply(t, w, "", workspace.Op{Kind: workspace.OpDelete, Path: "c"})
	check("deleted")
	// Somebody else's change between makes it mixed.
	if _, err := w.Apply(t.Context(), workspace.Request{Ops: []workspace.Op{write("a", "x\nother\n")}}); err != nil {
		t.Fatal(err)
	}
	apply(t, w, "", write("a", "x\nother\nmine\n"))
	check("mixed")
	if checked < 100 {
		t.Errorf("%d patches", checked)
	}

	sum, err := cache.Summary(t.Context(), w, "t")
	need.NoError(t, err)
	for _, name := range []string{"large", "a"} { // of which a's is kept, and large's is too long for it
		if _, err := sum.Find(name).Patch(t.Context(), w.Store(), 1, diff.Options{}); !errs.Is(err, errs.TooLarge) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A file is found by every name that it has or had in the task, the one that is
// there before the one that was.
func TestFindFile(t *testing.T) {
	w := newWorkspace(t)
	for n := range 50 {
		apply(t, w, "", write(fmt.Sprintf("f%d", n), "x"))
	}
	apply(t, w, "", workspace.Op{Kind: workspace.OpRename, Path: "f7", To: "z"}, workspace.Op{Kind: workspace.OpRename, Path: "f8", To: "f7"})
	sum, err := history.NewCache().Summary(t.Context(), w, "t")
	need.NoError(t, err)
	for asked, want := range map[string]string{"f0": "f0", "f49": "f49", "f7": "f7", "f8": "f7", "z": "z", "none": "", "": "", "zz": ""} {
		got := ""
		if f := sum.Find(asked); f != nil {
			got = f.Path
		}
		if got != want {
			t.Errorf("%q: %q, not %q", asked, got, want)
		}
	}
}
