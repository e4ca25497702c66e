package scan_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"umbra/internal/ignore"
	"umbra/internal/need"
	"umbra/internal/scan"
	"umbra/internal/vfs"
	"umbra/internal/wspath"
)

// scratch makes a folder in memory where there is one.
func scratch(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("/dev/shm", "scan")
	if err != nil {
		return t.TempDir()
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

// makeTree makes files in a new folder; "d/" is a folder, "l@t" a link to t,
// "p|" a FIFO, "f=text" a file with a text.
func makeTree(t testing.TB, entries ...string) (string, vfs.FS) {
	t.Helper()
	dir := scratch(t)
	for _, e := range entries {
		name, text, _ := strings.Cut(e, "=")
		link, target, isLink := strings.Cut(name, "@")
		pipe, isPipe := strings.CutSuffix(name, "|")
		path := filepath.Join(dir, strings.TrimSuffix(link, "|"))
		err := os.MkdirAll(filepath.Dir(path), 0o755)
		switch {
		case isLink:
			err = errors.Join(err, os.Symlink(target, path))
		case isPipe:
			err = errors.Join(err, syscall.Mkfifo(filepath.Join(dir, pipe), 0o600))
		case strings.HasSuffix(name, "/"):
			err = errors.Join(err, os.MkdirAll(path, 0o755))
		default:
			err = errors.Join(err, os.WriteFile(path, []byte(text), 0o644))
		}
		need.NoError(t, err)
	}
	f, err := vfs.OS(dir)
	need.NoError(t, err)
	t.Cleanup(func() { f.Close() })
	return dir, f
}

func withRules(t testing.TB, f vfs.FS, opts scan.Options) scan.Options {
	t.Helper()
	rules, err := ignore.NewRoot(ignore.Options{ReadFile: scan.RuleReader(f)})
	need.NoError(t, err)
	opts.Rules = rules
	return opts
}

// walk returns what a walk finds, each as "path", "path!reason", or "path?" for
// an ignored path that is tracked, in order.
func walk(t testing.TB, f vfs.FS, opts scan.Options) ([]string, scan.Stats) {
	t.Helper()
	var mu sync.Mutex
	var got []string
	stats, err := scan.Walk(t.Context(), f, opts, func(x scan.Found) error {
		s := string(x.Path)
		switch {
		case x.Skip != "":
			s += "!" + string(x.Skip)
			if x.Info != (vfs.Info{}) {
				t.Errorf("%s: skipped with %+v", s, x.Info)
			}
		case x.Ignored:
			s += "?"
		}
		if x.Skip == "" {
			if info, err := f.Lstat(string(x.Path)); err != nil || info != x.Info {
				t.Errorf("%s: %+v, Lstat says %+v, %v", x.Path, x.Info, info, err)
			}
		}
		mu.Lock()
		defer mu.Unlock()
		got = append(got, s)
		return nil
	})
	need.NoError(t, err)
	if opts.Workers != 1 {
		slices.Sort(got)
	}
	return got, stats
}

func expect(t *testing.T, got []string, want ...string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("found\n%q\nwant\n%q", got, want)
	}
}

func TestOrderAndKinds(t *testing.T) {
	_, f := makeTree(t, "b/x", "b/a/y", "a", "c@b", "z@/etc", "dangling@nowhere", "b/p|", "empty/", "d\n\xff")
	got, stats := walk(t, f, scan.Options{Workers: 1, Dirs: true})
	expect(t, got, "a", "b", "c", "d\n\xff", "dangling", "empty", "z", "b/a", "b/p!special", "b/x", "b/a/y")
	if stats != (scan.Stats{Files: 4, Links: 3, Dirs: 4, Skipped: 1}) {
		t.Errorf("%+v", stats)
	}
	got, _ = walk(t, f, scan.Options{})
	expect(t, got, "a", "b/a/y", "b/p!special", "b/x", "c", "d\n\xff", "dangling", "z")
}

func TestNames(t *testing.T) {
	_, f := makeTree(t, ".git/config", "nested/.git/HEAD", "nested/f", "sub/.git=gitdir: ../x", "sub/f", "linked/.git@../.git", "linked/f",
		".GIT/x", "a/git~1", "a/.gitmodules@b", ".gitmodules", ".umbra-0123456789abcdef.tmp", "a/.umbra-0123456789abcdef.tmp/x", "a/.umbra-x.tmp", "own/data/x", "own/f")
	got, stats := walk(t, f, scan.Options{Prune: func(p wspath.Path) bool { return p == "own/data" }})
	expect(t, got, ".GIT!name_refused", ".gitmodules", "a/.gitmodules!name_refused", "a/.umbra-x.tmp", "a/git~1!name_refused", "linked/f", "nested/f", "own/f", "sub/f")
	if stats.Skipped != 3 || stats.Ignored != 0 {
		t.Errorf("%+v", stats)
	}
}

func TestIgnored(t *testing.T) {
	_, f := makeTree(t, ".gitignore=*.o\nout/\n/own\np\nGIT~1\n", "a.o", "a.c", "out/x", "out/deep/y", "out/deep/z", "src/.gitignore=!b.o\n*.tmp\n", "src/b.o", "src/c.o", "src/x.tmp",
		"own/f", ".umbraignore=secret\n", "secret/k", "src/secret", "p|", "git~1", "link@out")
	opts := withRules(t, f, scan.Options{})
	got, stats := walk(t, f, opts)
	expect(t, got, ".gitignore", ".umbraignore", "a.c", "git~1!name_refused", "link", "src/.gitignore", "src/b.o")
	if stats.Ignored != 8 || stats.Dirs != 2 {
		t.Errorf("%+v", stats)
	}

	tracked := map[wspath.Path]bool{"out/deep/y": true, "secret/k": true, "src/c.o": true}
	opts.Tracked = func(p wspath.Path) bool { return tracked[p] }
	opts.TrackedUnder = func(d wspath.Path) bool {
		for p := range tracked {
			if p.IsUnder(d) {
				return true
			}
		}
		return false
	}
	got, _ = walk(t, f, opts)
	expect(t, got, ".gitignore", ".umbraignore", "a.c", "git~1!name_refused", "link", "out/deep/y?", "secret/k?", "src/.gitignore", "src/b.o", "src/c.o?")
}

// The project's index has a say against git's rules, and none against ours.
func TestIndexTracks(t *testing.T) {
	_, f := makeTree(t, ".gitignore=out/\n*.o\n", ".umbraignore=secret\n", "out/x", "out/deep/y", "a.o", "b.o", "secret/k")
	opts := withRules(t, f, scan.Options{Index: &ignore.Index{Entries: []ignore.Entry{{Path: "a.o"}, {Path: "out/deep/y"}, {Path: "secret/k"}}}})
	got, _ := walk(t, f, opts)
	expect(t, got, ".gitignore", ".umbraignore", "a.o?", "out/deep/y?")
}

func TestStart(t *testing.T) {
	_, f := makeTree(t, ".gitignore=*.o\n/a/b/skip\nout/\n", "a/.gitignore=!k.o\n", "a/b/k.o", "a/b/x.o", "a/b/c", "a/b/skip", "other", "out/f", "link@a")
	opts := withRules(t, f, scan.Options{Start: "a/b"})
	got, _ := walk(t, f, opts)
	expect(t, got, "a/b/c", "a/b/k.o")
	for start, want := range map[wspath.Path][]string{"out": nil, "gone": nil, "link": {"link"}, "other": {"other"}, "a": {"a/.gitignore", "a/b/c", "a/b/k.o"}} {
		opts.Start = start
		got, _ = walk(t, f, opts)
		expect(t, got, want...)
	}
}

// An unreadable file is reported and stops nothing; an error of the process ends
// the walk.
func TestFaults(t *testing.T) {
	_, f := makeTree(t, "a/x", "b/x", "c/x", "c/.gitignore=x\n", "d")
	for _, c := range []struct {
		op, name string
		err      error
		want     []string // nil: the walk fails
	}{
		{vfs.OpReadDir, "b", syscall.EACCES, []string{"a/x", "b!unreadable", "c/.gitignore", "d"}},
		{vfs.OpReadDir, "b", syscall.EIO, []string{"a/x", "b!unreadable", "c/.gitignore", "d"}},
		{vfs.OpReadDir, "b", syscall.ENOENT, []string{"a/x", "c/.gitignore", "d"}},
		{vfs.OpReadDir, "b", syscall.EMFILE, nil},
		{vfs.OpReadDir, ".", syscall.EACCES, nil},
		{vfs.OpReadDir, ".", syscall.ENOENT, nil},
		{vfs.OpLstat, "a/x", syscall.EACCES, []string{"a/x!unreadable", "b/x", "c/.gitignore", "d"}},
		{vfs.OpLstat, "a/x", syscall.ENOENT, []string{"b/x", "c/.gitignore", "d"}},
		{vfs.OpLstat, "a/x", syscall.ENFILE, nil},
		{vfs.OpOpen, "c/.gitignore", syscall.EIO, []string{"a/x", "b/x", "c!unreadable", "d"}},
		{vfs.OpOpen, "c/.gitignore", syscall.EACCES, []string{"a/x", "b/x", "c/.gitignore", "c/x", "d"}},
		{vfs.OpOpen, "c/.gitignore", syscall.EMFILE, nil},
	} {
		t.Run(fmt.Sprint(c.op, c.name, c.err), func(t *testing.T) {
			broken := vfs.Inject(f, &vfs.Hook{Reads: true, OnCall: func(call vfs.Call) error {
				if call.Op == c.op && call.Name == c.name {
					return c.err
				}
				return nil
			}})
			opts := withRules(t, broken, scan.Options{})
			var mu sync.Mutex
			var got []string
			_, err := scan.Walk(t.Context(), broken, opts, func(x scan.Found) error {
				mu.Lock()
				defer mu.Unlock()
				if x.Skip != "" {
					x.Path += wspath.Path("!" + x.Skip)
				}
				got = append(got, string(x.Path))
				return nil
			})
			if c.want == nil {
				if !errors.Is(err, c.err) {
					t.Fatalf("%q, %v", got, err)
				}
				return
			}
			slices.Sort(got)
			need.NoError(t, err)
			expect(t, got, c.want...)
		})
	}
}

// An entry that changes its kind between the listing and the lstat is reported as
// what it then is.
func TestReplaced(t *testing.T) {
	for _, dirs := range []bool{false, true} {
		dir, f := makeTree(t, "a/x", "b", "c", "d")
		changed := false
		racy := vfs.Inject(f, &vfs.Hook{Reads: true, OnCall: func(call vfs.Call) error {
			if call.Op == vfs.OpLstat && !changed {
				changed = true // the root is listed, nothing is read yet
				return errors.Join(os.RemoveAll(filepath.Join(dir, "a")), os.WriteFile(filepath.Join(dir, "a"), nil, 0o600),
					os.Remove(filepath.Join(dir, "b")), os.MkdirAll(filepath.Join(dir, "b/in"), 0o755), os.WriteFile(filepath.Join(dir, "b/in/f"), nil, 0o600),
					os.Remove(filepath.Join(dir, "c")), os.Symlink("d", filepath.Join(dir, "c")),
					os.Remove(filepath.Join(dir, "d")), syscall.Mkfifo(filepath.Join(dir, "d"), 0o600))
			}
			return nil
		}})
		got, _ := walk(t, racy, scan.Options{Workers: 1, Dirs: dirs})
		slices.Sort(got)
		if dirs {
			expect(t, got, "a", "b", "b/in", "b/in/f", "c", "d!special")
		} else {
			expect(t, got, "a", "b/in/f", "c", "d!special")
		}
	}
}

func TestEndings(t *testing.T) {
	var entries []string
	for i := range 3000 {
		entries = append(entries, fmt.Sprintf("d%d/e%d/f%d", i%10, i%100, i))
	}
	_, f := makeTree(t, entries...)
	mine := errors.New("mine")
	var n atomic.Int64
	_, err := scan.Walk(t.Context(), f, scan.Options{Workers: 4}, func(scan.Found) error {
		if n.Add(1) == 500 {
			return mine
		}
		return nil
	})
	if !errors.Is(err, mine) || n.Load() > 600 {
		t.Errorf("%d visits, %v", n.Load(), err)
	}

	ctx, cancel := context.WithCancel(t.Context())
	n.Store(0)
	_, err = scan.Walk(ctx, f, scan.Options{Workers: 4}, func(scan.Found) error {
		if n.Add(1) == 500 {
			cancel()
		}
		return nil
	})
	if !errors.Is(err, context.Canceled) || n.Load() > 800 {
		t.Errorf("%d visits, %v", n.Load(), err)
	}

	var last scan.Stats
	calls := 0
	got, stats := walk(t, f, scan.Options{Progress: func(s scan.Stats) {
		if s.Files < last.Files {
			t.Errorf("progress goes back: %+v after %+v", s, last)
		}
		last = s
		calls++
	}})
	if len(got) != 3000 || stats.Files != 3000 || last != stats || calls < 2 {
		t.Errorf("%d found, %+v, last reported %+v of %d", len(got), stats, last, calls)
	}
}

// One folder of very many entries, and a path beyond the limit.
func TestLargeAndDeep(t *testing.T) {
	dir, f := makeTree(t, "big/")
	for i := range 20000 {
		need.NoError(t, os.Symlink("x", filepath.Join(dir, "big", fmt.Sprint(i))))
	}
	root, err := os.OpenRoot(dir)
	need.NoError(t, err)
	defer root.Close()
	name := strings.Repeat("n", 250)
	at := root
	for range 17 { // 17 × 251 bytes
		need.NoError(t, at.Mkdir(name, 0o755))
		next, err := at.OpenRoot(name)
		need.NoError(t, err)
		defer next.Close()
		at = next
	}
	got, stats := walk(t, f, scan.Options{})
	tooLong := slices.IndexFunc(got, func(s string) bool { return strings.HasSuffix(s, "!path_too_long") })
	if stats.Links != 20000 || stats.Skipped != 1 || tooLong < 0 {
		t.Errorf("%+v", stats)
	}
}

func TestRuleReader(t *testing.T) {
	_, f := makeTree(t, "a/.gitignore@../rules", "rules=x\n", "b/.gitignore|", "c/.gitignore/", "a/x", "b/x", "c/x")
	got, _ := walk(t, f, withRules(t, f, scan.Options{}))
	expect(t, got, "a/.gitignore", "a/x", "b/.gitignore!special", "b/x", "c/x", "rules")
	read := scan.RuleReader(f)
	for _, p := range []wspath.Path{"a/.gitignore", "b/.gitignore", "c/.gitignore", "gone"} {
		if data, err := read(p); err == nil {
			t.Errorf("%s: %q", p, data)
		}
	}
	if data, err := read("rules"); err != nil || string(data) != "x\n" {
		t.Errorf("%q, %v", data, err)
	}
}
