package ignore_test

import (
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"umbra/internal/ignore"
	"umbra/internal/need"
	"umbra/internal/wspath"
)

// project makes a repository with some files, among them awkward names and an
// executable, all in the index.
func project(t *testing.T, initArgs ...string) string {
	t.Helper()
	dir := scratch(t)
	git(t, dir, "", append([]string{"init", "-q"}, initArgs...)...)
	for i := range 40 {
		write(t, filepath.Join(dir, fmt.Sprintf("src/pkg%d/file%d.go", i%4, i)), fmt.Sprint(i))
	}
	write(t, filepath.Join(dir, "a b\n\xff"), "odd")
	write(t, filepath.Join(dir, "src.txt"), "next to src/")
	write(t, filepath.Join(dir, "run.sh"), "#!/bin/sh\n")
	need.NoError(t, os.Chmod(filepath.Join(dir, "run.sh"), 0o755))
	need.NoError(t, os.Symlink("src", filepath.Join(dir, "link")))
	git(t, dir, "", "add", "-A")
	return dir
}

func readIndex(t *testing.T, dir string) *ignore.Index {
	t.Helper()
	g, err := ignore.FindGitDir(dir)
	need.NoError(t, err)
	ix, err := g.ReadIndex()
	need.NoError(t, err)
	return ix
}

// same compares an index with what git says of it, and the stat data with the disk.
func same(t *testing.T, dir string, ix *ignore.Index) {
	t.Helper()
	var got strings.Builder
	for _, e := range ix.Entries {
		fmt.Fprintf(&got, "%06o %s %d\t%s\x00", e.Mode, hex.EncodeToString(e.ID[:]), e.Stage, e.Path)
	}
	if want := git(t, dir, "", "ls-files", "-s", "-z"); got.String() != want {
		t.Errorf("entries differ:\n%.2000q\ngit:\n%.2000q", got.String(), want)
	}
	for _, e := range ix.Entries {
		info, err := os.Lstat(filepath.Join(dir, e.Path))
		if err != nil || e.Stage != 0 || e.IntentToAdd || e.IsGitlink() {
			continue
		}
		at, st := info.ModTime(), info.Sys().(*syscall.Stat_t)
		if e.Ino != uint32(st.Ino) || e.UID != st.Uid || e.Size != uint32(st.Size) || e.Mtime != (ignore.Timestamp{Sec: uint32(at.Unix()), Nsec: uint32(at.Nanosecond())}) {
			t.Errorf("%q: stat data %+v", e.Path, e)
		}
	}
}

func TestIndexVersions(t *testing.T) {
	for _, version := range []string{"2", "3", "4"} {
		t.Run(version, func(t *testing.T) {
			dir := project(t)
			write(t, filepath.Join(dir, "later"), "x")
			if version != "2" {
				git(t, dir, "", "add", "-N", "later")
				git(t, dir, "", "update-index", "--skip-worktree", "src.txt")
			}
			git(t, dir, "", "update-index", "--assume-unchanged", "run.sh")
			// Longer than the 12 bits that the flags have for a path's length.
			id := strings.TrimSpace(git(t, dir, "x", "hash-object", "-w", "--stdin"))
			git(t, dir, fmt.Sprintf("100644 %s\t%send\n", id, strings.Repeat("long/", 900)), "update-index", "--add", "--index-info")
			git(t, dir, "", "update-index", "--index-version", version)
			ix := readIndex(t, dir)
			if fmt.Sprint(ix.Version) != version {
				t.Fatalf("version %d", ix.Version)
			}
			same(t, dir, ix)
			if e := ix.Find("run.sh"); e == nil || !e.AssumeValid || e.Mode != 0o100755 || e.SkipWorktree {
				t.Errorf("run.sh: %+v", e)
			}
			if version != "2" {
				if e := ix.Find("later"); e == nil || !e.IntentToAdd {
					t.Errorf("later: %+v", e)
				}
				if e := ix.Find("src.txt"); e == nil || !e.SkipWorktree {
					t.Errorf("src.txt: %+v", e)
				}
			}
			for p, want := range map[wspath.Path][2]bool{
				"src": {false, true}, "src/pkg0": {false, true}, "src/pkg0/file0.go": {true, false}, "src/pkg": {false, false},
				"src.txt": {true, false}, "link": {true, false}, ".": {false, true}, "zzz": {false, false}, "a b\n\xff": {true, false},
			} {
				if ix.Has(p) != want[0] || ix.HasUnder(p) != want[1] {
					t.Errorf("%q: Has %v, HasUnder %v", p, ix.Has(p), ix.HasUnder(p))
				}
			}
			if e := ix.Find("link"); e.Mode != ignore.IndexSymlink {
				t.Errorf("link: %o", e.Mode)
			}
		})
	}
}

func TestIndexOfConflictAndRace(t *testing.T) {
	dir := project(t)
	id := strings.TrimSpace(git(t, dir, "x", "hash-object", "-w", "--stdin"))
	git(t, dir, fmt.Sprintf("0 "+strings.Repeat("0", 40)+"\tsrc.txt\n100644 %s 1\tsrc.txt\n100644 %s 2\tsrc.txt\n100644 %s 3\tsrc.txt\n", id, id, id), "update-index", "--index-info")
	ix := readIndex(t, dir)
	same(t, dir, ix)
	if e := ix.Find("src.txt"); e == nil || e.Stage != 1 {
		t.Errorf("conflict: %+v", e)
	}
	e := &ignore.Entry{Mtime: ignore.Timestamp{Sec: 100, Nsec: 5}}
	for _, c := range []struct {
		at   ignore.Timestamp
		racy bool
	}{{ignore.Timestamp{}, true}, {ignore.Timestamp{Sec: 100, Nsec: 5}, true}, {ignore.Timestamp{Sec: 100, Nsec: 4}, true}, {ignore.Timestamp{Sec: 100, Nsec: 6}, false}, {ignore.Timestamp{Sec: 101}, false}} {
		if got := (&ignore.Index{Mtime: c.at}).Racy(e); got != c.racy {
			t.Errorf("%+v: racy is %v", c.at, got)
		}
	}
}

func TestIndexUnsupported(t *testing.T) {
	split := project(t)
	git(t, split, "", "update-index", "--split-index")
	sparse := project(t)
	git(t, sparse, "", "-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "x")
	git(t, sparse, "", "sparse-checkout", "set", "--cone", "--sparse-index", "src/pkg1")
	sha256 := project(t, "--object-format=sha256")
	for name, dir := range map[string]string{"split": split, "sparse": sparse, "sha256": sha256} {
		g, err := ignore.FindGitDir(dir)
		need.NoError(t, err)
		if ix, err := g.ReadIndex(); !errors.Is(err, ignore.ErrUnsupported) || ix != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestIndexCorrupt(t *testing.T) {
	data, err := os.ReadFile(filepath.Join(project(t), ".git/index"))
	need.NoError(t, err)
	for _, cut := range []int{0, 4, 12, 31, len(data) / 2, len(data) - 1} {
		if _, err := ignore.ParseIndex(data[:cut]); !errors.Is(err, ignore.ErrCorrupt) {
			t.Errorf("cut at %d: %v", cut, err)
		}
	}
	data[100] ^= 1
	if _, err := ignore.ParseIndex(data); !errors.Is(err, ignore.ErrCorrupt) {
		t.Errorf("a flipped bit: %v", err)
	}
}

func TestFindGitDir(t *testing.T) {
	main := project(t)
	git(t, main, "", "-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "x")
	write(t, filepath.Join(main, ".git/info/exclude"), "excluded\n")
	other := filepath.Join(scratch(t), "linked")
	git(t, main, "", "worktree", "add", "-q", other)
	super := scratch(t)
	git(t, super, "", "init", "-q")
	git(t, super, "", "-c", "protocol.file.allow=always", "submodule", "add", "-q", main, "sub")
	linked := scratch(t)
	need.NoError(t, os.Symlink(filepath.Join(main, ".git"), filepath.Join(linked, ".git")))
	for _, c := range []struct {
		dir     string
		linked  bool
		exclude string
	}{{main, false, "excluded\n"}, {other, true, "excluded\n"}, {filepath.Join(super, "sub"), true, "#"}, {linked, true, "excluded\n"}} {
		g, err := ignore.FindGitDir(c.dir)
		if err != nil || g.Linked != c.linked {
			t.Errorf("%s: %+v, %v", c.dir, g, err)
		}
		ix := readIndex(t, c.dir)
		if !ix.Has("src.txt") {
			t.Errorf("%s: no index", c.dir)
		}
		if ex, err := g.ReadExclude(); err != nil || !strings.HasPrefix(string(ex), c.exclude) {
			t.Errorf("%s: exclude %q, %v", c.dir, ex, err)
		}
	}
	if e := readIndex(t, super).Find("sub"); e == nil || !e.IsGitlink() {
		t.Errorf("submodule: %+v", e)
	}

	for name, make := range map[string]func(path string) error{
		"nothing":    func(string) error { return nil },
		"text":       func(p string) error { return os.WriteFile(p, []byte("hello"), 0o600) },
		"empty":      func(p string) error { return os.WriteFile(p, nil, 0o600) },
		"dangling":   func(p string) error { return os.WriteFile(p, []byte("gitdir: /nowhere/at/all\n"), 0o600) },
		"fifo":       func(p string) error { return syscall.Mkfifo(p, 0o600) },
		"loop":       func(p string) error { return os.Symlink(".git", p) },
		"empty dir":  func(p string) error { return os.Mkdir(p, 0o700) },
		"fifo index": func(p string) error { return errors.Join(os.Mkdir(p, 0o700), syscall.Mkfifo(p+"/index", 0o600)) },
		"dir index":  func(p string) error { return os.MkdirAll(p+"/index", 0o700) },
	} {
		dir := scratch(t)
		need.NoError(t, make(filepath.Join(dir, ".git")))
		g, err := ignore.FindGitDir(dir)
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if ix, err := g.ReadIndex(); ix != nil || err != nil {
			t.Errorf("%s: %v, %v", name, ix, err)
		}
		if ex, err := g.ReadExclude(); len(ex) > 0 || err != nil {
			t.Errorf("%s: %q, %v", name, ex, err)
		}
	}
}

func FuzzParseIndex(f *testing.F) {
	entry := "\x00\x00\x00\x01" + strings.Repeat("\x00", 20) + "\x00\x00\x81\xa4" + strings.Repeat("\x00", 32) + "\x00\x01a"
	zero := strings.Repeat("\x00", 20)
	f.Add([]byte("DIRC\x00\x00\x00\x02\x00\x00\x00\x01" + entry + strings.Repeat("\x00", 9) + zero))
	f.Add([]byte("DIRC\x00\x00\x00\x04\x00\x00\x00\x01" + entry[:62] + "\x00a\x00" + "TREE\x00\x00\x00\x00" + zero))
	f.Add([]byte("DIRC\x00\x00\x00\x03\xff\xff\xff\xff" + zero))
	f.Fuzz(func(t *testing.T, data []byte) {
		if len(data) >= 20 {
			copy(data[len(data)-20:], zero) // no checksum
		}
		ix, err := ignore.ParseIndex(data)
		if err != nil {
			if ix != nil || !errors.Is(err, ignore.ErrCorrupt) && !errors.Is(err, ignore.ErrUnsupported) {
				t.Fatal(ix, err)
			}
			return
		}
		for _, e := range ix.Entries {
			if got := ix.Find(wspath.Path(e.Path)); got == nil || got.Path != e.Path || got.Stage > e.Stage {
				t.Fatalf("%q is not found", e.Path)
			}
		}
	})
}
