package watcher

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"umbra/internal/errs"
	"umbra/internal/need"
	"umbra/internal/wspath"
)

func TestWhatPeopleDo(t *testing.T) {
	cases := []struct {
		name  string
		setup []string // files
		act   func(t *testing.T, root string)
		dirty []wspath.Path
		clean []wspath.Path
	}{
		{"create", nil, func(t *testing.T, root string) { write(t, root+"/a.txt", "x") }, []wspath.Path{"a.txt"}, nil},
		{"change", []string{"d/a", "d/b"}, func(t *testing.T, root string) { write(t, root+"/d/a", "more") }, []wspath.Path{"d/a"}, []wspath.Path{"d/b"}},
		{"remove", []string{"d/a", "d/b"}, func(t *testing.T, root string) { need.NoError(t, os.Remove(root+"/d/a")) }, []wspath.Path{"d/a"}, []wspath.Path{"d/b"}},
		{"mode", []string{"run.sh"}, func(t *testing.T, root string) { need.NoError(t, os.Chmod(root+"/run.sh", 0o755)) }, []wspath.Path{"run.sh"}, nil},
		{"save by rename", []string{"doc.md"}, func(t *testing.T, root string) {
			write(t, root+"/.doc.md.swp", "new")
			need.NoError(t, os.Rename(root+"/.doc.md.swp", root+"/doc.md"))
		}, []wspath.Path{"doc.md"}, nil},
		{"save with a backup", []string{"doc.md"}, func(t *testing.T, root string) {
			need.NoError(t, os.Rename(root+"/doc.md", root+"/doc.md~"))
			write(t, root+"/doc.md", "new")
		}, []wspath.Path{"doc.md", "doc.md~"}, nil},
		{"deep folders at once", nil, func(t *testing.T, root string) { write(t, root+"/a/b/c/d/e/f", "x") }, []wspath.Path{"a/b/c/d/e/f"}, nil},
		{"delete and recreate a folder", []string{"d/s/a"}, func(t *testing.T, root string) {
			need.NoError(t, os.RemoveAll(root+"/d"))
			write(t, root+"/d/s/b", "x")
		}, []wspath.Path{"d/s/a", "d/s/b"}, nil},
		{"rename a folder", []string{"d/s/a", "e"}, func(t *testing.T, root string) { need.NoError(t, os.Rename(root+"/d", root+"/n")) },
			[]wspath.Path{"d/s/a", "n/s/a"}, []wspath.Path{"e"}},
		{"a folder in a file's place", []string{"x"}, func(t *testing.T, root string) {
			need.NoError(t, os.Remove(root+"/x"))
			write(t, root+"/x/y", "y")
		}, []wspath.Path{"x", "x/y"}, nil},
		{"a link to a folder", []string{"d/a"}, func(t *testing.T, root string) { need.NoError(t, os.Symlink("d", root+"/l")) }, []wspath.Path{"l"}, []wspath.Path{"d"}},
		{"names with anything in them", nil, func(t *testing.T, root string) {
			write(t, root+"/a b\n\xff/\t", "x")
		}, []wspath.Path{"a b\n\xff/\t"}, nil},
		{"server's own and git's", []string{".git/HEAD", "a"}, func(t *testing.T, root string) {
			write(t, root+"/.git/HEAD", "y")
			write(t, root+"/.umbra-0123456789abcdef.tmp", "y")
			need.NoError(t, os.Rename(root+"/.umbra-0123456789abcdef.tmp", root+"/a"))
			write(t, root+"/GIT~1/x", "y")
		}, []wspath.Path{"a"}, []wspath.Path{".git", ".git/HEAD", ".umbra-0123456789abcdef.tmp", "GIT~1"}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			onDisks(t, func(t *testing.T, root string) {
				for _, f := range c.setup {
					write(t, filepath.Join(root, f), "old")
				}
				w, r := watched(t, root, Options{})
				c.act(t, root)
				w.mustSync(t, "ws")
				r.mu.Lock()
				defer r.mu.Unlock()
				for _, p := range c.dirty {
					if !r.covered(p) {
						t.Errorf("%q is not dirty; dirty are %q", p, r.batches)
					}
				}
				for _, p := range c.clean {
					if r.covered(p) {
						t.Errorf("%q is dirty", p)
					}
				}
				if len(r.lost)+r.gone+r.rules > 0 {
					t.Errorf("lost %v, gone %d, rules %d", r.lost, r.gone, r.rules)
				}
			})
		})
	}
}

func TestReportsUnasked(t *testing.T) {
	root := t.TempDir()
	_, r := watched(t, root, Options{})
	write(t, root+"/a/b", "x")
	r.awaitDirty(t, "a/b")
	write(t, root+"/a/c", "x")
	r.awaitDirty(t, "a/c")
}

// A directory under a new name reports its files under that name.
func TestMovedFoldersGoOn(t *testing.T) {
	onDisks(t, func(t *testing.T, root string) {
		write(t, root+"/a/s/f", "x")
		w, r := watched(t, root, Options{})
		for i, to := range []string{"b", "c/d", "a", "b", "a"} {
			from := []string{"a", "b", "c/d", "a", "b"}[i]
			need.NoError(t, os.MkdirAll(filepath.Dir(filepath.Join(root, to)), 0o777))
			need.NoError(t, os.Rename(filepath.Join(root, from), filepath.Join(root, to)))
			w.mustSync(t, "ws")
			r.forget()
			write(t, filepath.Join(root, to, "s/f"), fmt.Sprint(i))
			w.mustSync(t, "ws")
			r.mu.Lock()
			if want := wspath.Path(to + "/s/f"); len(r.paths) != 1 || r.paths[want] == 0 {
				t.Errorf("%s to %s: dirty %v, want %q", from, to, r.paths, want)
			}
			r.mu.Unlock()
		}
	})
}

func TestStormOfNewFolders(t *testing.T) {
	onDisks(t, func(t *testing.T, root string) {
		w, r := watched(t, root, Options{})
		var want []wspath.Path
		for i := range 5000 {
			p := wspath.Path(fmt.Sprintf("new/%d/%d/%d/f%d", i%7, i%31, i%101, i))
			write(t, filepath.Join(root, string(p)), "x")
			want = append(want, p)
		}
		err := w.Sync(t.Context(), "ws")
		r.mu.Lock()
		defer r.mu.Unlock()
		if err != nil && len(r.lost) > 0 {
			return // notified that a scan is needed
		}
		need.NoError(t, err)
		for _, p := range want {
			if !r.covered(p) {
				t.Fatalf("%q is not dirty", p)
			}
		}
		t.Log(w.Stats())
	})
}

func TestRulesPrune(t *testing.T) {
	root := t.TempDir()
	write(t, root+"/.gitignore", "node_modules/\n/build\n")
	write(t, root+"/node_modules/p/lib/x.js", "x")
	write(t, root+"/build/kept/x", "x")
	write(t, root+"/build/other/x", "x")
	write(t, root+"/src/.gitignore", "gen/\n")
	write(t, root+"/src/gen/x", "x")
	write(t, root+"/own/x", "x")
	write(t, root+"/.git/info/exclude", "# none\n")
	w, r := start(t, Options{}), newRecorder()
	opts := r.space()
	opts.Rules = rulesOf(t, root)
	opts.TrackedUnder = func(p wspath.Path) bool { return p == "build" || p == "build/kept" }
	opts.Prune = func(p wspath.Path) bool { return p == "own" }
	need.NoError(t, w.Add(t.Context(), "ws", root, opts))
	check := func(want ...wspath.Path) {
		t.Helper()
		if got := w.folders("ws"); !slices.Equal(got, want) {
			t.Errorf("watched %q, want %q", got, want)
		}
	}
	check(".", "build", "build/kept", "src")

	write(t, root+"/node_modules/q/x.js", "x")
	write(t, root+"/src/deep/gen/x", "x")
	w.mustSync(t, "ws")
	check(".", "build", "build/kept", "src", "src/deep")
	r.forget()

	write(t, root+"/src/.gitignore", "nothing\n")
	w.mustSync(t, "ws")
	r.await(t, "rules", func() bool { return r.rules > 0 && r.paths["src/.gitignore"] > 0 })
	check(".", "build", "build/kept", "src", "src/deep", "src/deep/gen", "src/gen")
	r.forget()

	write(t, root+"/.git/info/exclude", "src/\n")
	r.await(t, "rules", func() bool { return r.rules > 0 })
	w.mustSync(t, "ws")
	check(".", "build", "build/kept")
	r.forget()

	need.NoError(t, os.RemoveAll(root+"/.git"))
	r.await(t, "rules", func() bool { return r.rules > 0 })
	w.mustSync(t, "ws")
	check(".", "build", "build/kept", "src", "src/deep", "src/deep/gen", "src/gen")
}

func TestCover(t *testing.T) {
	root := t.TempDir()
	write(t, root+"/.gitignore", "out/\n")
	write(t, root+"/out/a/b/f", "x")
	w, r := start(t, Options{}), newRecorder()
	tracked := map[wspath.Path]bool{}
	opts := r.space()
	opts.Rules = rulesOf(t, root)
	opts.TrackedUnder = func(p wspath.Path) bool { r.mu.Lock(); defer r.mu.Unlock(); return tracked[p] }
	need.NoError(t, w.Add(t.Context(), "ws", root, opts))
	r.mu.Lock()
	tracked["out"], tracked["out/a"], tracked["out/a/b"] = true, true, true
	r.mu.Unlock()
	w.Cover("ws", "out/a/b/f")
	w.Cover("ws", ".gitignore")
	w.Cover("unknown", "x")
	w.mustSync(t, "ws")
	if got := w.folders("ws"); !slices.Equal(got, []wspath.Path{".", "out", "out/a", "out/a/b"}) {
		t.Errorf("watched %q", got)
	}
	r.forget()
	write(t, root+"/out/a/b/f", "y")
	r.awaitDirty(t, "out/a/b/f")
}

func TestRefreshAsksForRulesAgain(t *testing.T) {
	root := t.TempDir()
	write(t, root+"/a/f", "x")
	w, r := watched(t, root, Options{})
	w.Refresh("ws")
	r.await(t, "rules", func() bool { return r.rules == 1 })
}

func TestManyNamesAreTheirFolder(t *testing.T) {
	root := t.TempDir()
	write(t, root+"/d/x", "x")
	write(t, root+"/e/x", "x")
	w, r := watched(t, root, Options{FolderNames: 10})
	for i := range 50 {
		write(t, fmt.Sprintf("%s/d/f%d", root, i), "x")
	}
	write(t, root+"/e/y", "x")
	w.mustSync(t, "ws")
	r.await(t, "folder", func() bool { return r.paths["d"] > 0 && r.paths["e/y"] > 0 && len(r.paths) <= 12 })
}

func TestRootGoes(t *testing.T) {
	cases := map[string]func(t *testing.T, root string){
		"removed": func(t *testing.T, root string) { need.NoError(t, os.RemoveAll(root)) },
		"moved":   func(t *testing.T, root string) { need.NoError(t, os.Rename(root, root+"-moved")) },
		"replaced": func(t *testing.T, root string) {
			need.NoError(t, os.Rename(root, root+"-moved"))
			write(t, root+"/a", "other")
		},
		"moved with its parent": func(t *testing.T, root string) {
			need.NoError(t, os.Rename(filepath.Dir(root), filepath.Dir(root)+"-moved"))
			write(t, filepath.Dir(root)+"-moved/root/a", "y") // raises an event under the old name
		},
		"replaced with its parent": func(t *testing.T, root string) {
			moved := filepath.Dir(root) + "-moved"
			need.NoError(t, os.Rename(filepath.Dir(root), moved))
			write(t, root+"/a", "other")
			write(t, moved+"/root/a", "y")
		},
	}
	for name, act := range cases {
		t.Run(name, func(t *testing.T) {
			root := filepath.Join(t.TempDir(), "parent/root")
			write(t, root+"/a", "x")
			write(t, root+"/d/a", "x")
			w, r := watched(t, root, Options{})
			act(t, root)
			r.await(t, "gone", func() bool { return r.gone == 1 })
			if w.Trusted("ws") || len(w.folders("ws")) > 0 {
				t.Errorf("still %+v", w.State("ws"))
			}
			if err := w.Sync(t.Context(), "ws"); err == nil {
				t.Error("Sync succeeds without a root")
			}
			r.mu.Lock()
			if r.paths["a"] > 0 && name != "removed" {
				t.Errorf("dirty %v", r.paths)
			}
			r.mu.Unlock()
			// Back again.
			r.forget()
			write(t, root+"/b", "x")
			need.NoError(t, w.Add(t.Context(), "ws", root, r.space()))
			write(t, root+"/b", "y")
			w.mustSync(t, "ws")
			r.awaitDirty(t, "b")
		})
	}
}

func TestSyncSeesThatTheRootIsGone(t *testing.T) {
	parent := filepath.Join(t.TempDir(), "p")
	write(t, parent+"/root/a", "x")
	w, _ := watched(t, parent+"/root", Options{})
	need.NoError(t, os.Rename(parent, parent+"2"))
	if err := w.Sync(t.Context(), "ws"); errs.CodeOf(err) != "workspace_missing" {
		t.Errorf("Sync: %v", err)
	}
}

// A workspace inside another is notified of its part, and works without the other.
func TestNestedWorkspaces(t *testing.T) {
	root := t.TempDir()
	write(t, root+"/in/s/f", "x")
	w := start(t, Options{})
	outer, inner := newRecorder(), newRecorder()
	need.NoError(t, w.Add(t.Context(), "outer", root, outer.space()))
	need.NoError(t, w.Add(t.Context(), "inner", root+"/in", inner.space()))
	if n := w.Stats().Watches; n != 3 {
		t.Errorf("%d watches", n)
	}
	check := func(file string) {
		t.Helper()
		outer.forget()
		inner.forget()
		write(t, filepath.Join(root, "in", file), "y")
		w.mustSync(t, "outer")
		w.mustSync(t, "inner")
		outer.awaitDirty(t, wspath.Path("in/"+file))
		inner.awaitDirty(t, wspath.Path(file))
	}
	check("s/f")
	need.NoError(t, os.Rename(root+"/in/s", root+"/in/t"))
	w.mustSync(t, "outer")
	w.mustSync(t, "inner")
	check("t/f")
	need.NoError(t, os.Rename(root+"/in/t", root+"/in/u"))
	need.NoError(t, os.Rename(root+"/in/u", root+"/in/t"))
	w.mustSync(t, "outer")
	w.mustSync(t, "inner")
	check("t/f")
	w.Remove("outer")
	inner.forget()
	write(t, root+"/in/t/g", "y")
	w.mustSync(t, "inner")
	inner.awaitDirty(t, "t/g")
	w.Remove("inner")
	if n := w.Stats().Watches; n != 0 {
		t.Errorf("%d watches are left", n)
	}
}

func TestFoldersThatCannotBeRead(t *testing.T) {
	root := t.TempDir()
	write(t, root+"/shut/f", "x")
	write(t, root+"/open/f", "x")
	need.NoError(t, os.Chmod(root+"/shut", 0))
	t.Cleanup(func() { _ = os.Chmod(root+"/shut", 0o755) })
	w, r := watched(t, root, Options{})
	write(t, root+"/open/f", "y")
	w.mustSync(t, "ws")
	r.awaitDirty(t, "open/f")
	need.NoError(t, os.Chmod(root+"/shut", 0o755))
	w.mustSync(t, "ws")
	write(t, root+"/shut/f", "y")
	r.awaitDirty(t, "shut/f")
}

func TestAddRefuses(t *testing.T) {
	root := t.TempDir()
	write(t, root+"/file", "x")
	w := start(t, Options{})
	for _, bad := range []string{"/file", "/absent"} {
		if err := w.Add(t.Context(), "ws", root+bad, Space{}); err == nil {
			t.Errorf("%s is watched", bad)
		}
	}
	if st := w.Stats(); st.Workspaces != 0 || st.Watches != 0 {
		t.Errorf("left over: %+v", st)
	}
	// With no functions at all it still works.
	need.NoError(t, w.Add(t.Context(), "ws", root, Space{}))
	write(t, root+"/d/.gitignore", "x")
	w.mustSync(t, "ws")
}

func TestPathsBelowOthersAreLeftOut(t *testing.T) {
	var p pending
	o := Options{}.withDefaults()
	for _, s := range []wspath.Path{"b", "a/b", "a", "a-b/c", "a/b/c", "b/x"} {
		p.mark(s, o)
	}
	if got := p.paths(); !slices.Equal(got, []wspath.Path{"a", "a-b/c", "b"}) {
		t.Errorf("%q", got)
	}
}

func TestPendingIsBounded(t *testing.T) {
	o := Options{FolderNames: 50, MaxNames: 1000}.withDefaults()
	var p pending
	want := map[wspath.Path]bool{}
	for i := range 20000 {
		path := wspath.Path(fmt.Sprintf("%s/%d/f%d", strings.Repeat("d/", i%3)+"x", i%400, i))
		p.mark(path, o)
		want[path] = true
		if n := p.count + len(p.folders); n > o.MaxNames+1 {
			t.Fatalf("%d names are kept", n)
		}
	}
	set := map[wspath.Path]bool{}
	for _, d := range p.paths() {
		set[d] = true
	}
next:
	for path := range want {
		if set[path] {
			continue
		}
		for up := range path.Ancestors() {
			if set[up] {
				continue next
			}
		}
		t.Fatalf("%q is lost", path)
	}
}
