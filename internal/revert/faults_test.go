package revert

import (
	"os"
	"path/filepath"
	"testing"

	"umbra/internal/need"
)

// TestDirectoryReplacedByLink: a user replaced a directory of the task's work by a
// link that leads out. The revert says what the dry run says.
func TestDirectoryReplacedByLink(t *testing.T) {
	for name, to := range map[string]string{"out": "..", "in": "other", "nowhere": "none"} {
		for _, way := range []OnConflict{Fail, Skip, Force} {
			for what, work := range map[string]string{"": "put dir/x changed", "deleted": "del dir/x", "all": "del dir", "moved": "mv dir/x moved"} {
				t.Run(name+string(way)+what, func(t *testing.T) {
					g := newRig(t, map[string]string{"dir/x": "x\n", "dir/y": "y\n", "other/x": "other\n", "a": "a\n"})
					g.task("A")
					g.do("A", work, "put a changed")
					need.NoError(t, os.RemoveAll(filepath.Join(g.root, "dir")))
					need.NoError(t, os.Symlink(to, filepath.Join(g.root, "dir")))
					dry, err := g.revert(Request{Task: "A", DryRun: true, OnConflict: way})
					if err != nil {
						t.Fatalf("dry run: %v", err)
					}
					res, err := g.revert(Request{Task: "A", OnConflict: way})
					want := ""
					if way == Fail && len(dry.Conflicts) > 0 {
						want = "revert_conflict"
					}
					if codeOf(err) != want {
						t.Fatalf("error %q (%v), want %q: dry run %+v", codeOf(err), err, want, dry)
					}
					t.Logf("%+v", res)
					if is, err := os.ReadFile(filepath.Join(g.root, "other", "x")); err != nil || string(is) != "other\n" {
						t.Errorf("what the link leads to: %q %v", is, err)
					}
				})
			}
		}
	}
}

// TestEmptyDirectoryStays: a directory that existed, empty, before the task wrote
// into it is not the task's, and stays.
func TestEmptyDirectoryStays(t *testing.T) {
	start := map[string]string{"a": "a\n", "empty/": "", "outer/inner/": "", "logs/x.log": "ignored", ".gitignore": "*.log\n"}
	for name, steps := range map[string][]string{
		"written into":        {"put empty/x new"},
		"deeper":              {"put empty/deep/er/x new"},
		"nested":              {"put outer/inner/x new", "put outer/y new"},
		"moved into":          {"mv a empty/a"},
		"written and deleted": {"put empty/x new", "del empty/x"},
		"twice":               {"put empty/x new", "put empty/y new"},
		"with ignored files":  {"put logs/y new"},
	} {
		t.Run(name, func(t *testing.T) {
			g := newRig(t, start)
			g.task("A")
			before := g.disk()
			for _, s := range steps {
				g.do("A", s)
			}
			dry, err := g.revert(Request{Task: "A", DryRun: true})
			if err != nil || len(dry.Conflicts) > 0 {
				t.Fatalf("%+v %v", dry, err)
			}
			g.mustRevert(Request{Task: "A"})
			g.want(before)
		})
	}
}
