package doctor

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"testing"
	"time"

	"umbra/internal/need"
)

func level(list []Finding, check string) Level {
	rank := []Level{"", OK, Note, Hurts}
	worst := Level("")
	for _, f := range list {
		if f.Check == check && slices.Index(rank, f.Level) > slices.Index(rank, worst) {
			worst = f.Level
		}
	}
	return worst
}

func TestGitVersions(t *testing.T) {
	for text, want := range map[string]Level{"git version 2.39.5": OK, "git version 2.30.0 (Apple Git-1)": OK, "git version 3.0.rc1": OK,
		"git version 2.29.9": Note, "git version 2.26.0": Note, "git version 2.25.4": Hurts, "git version 1.9.1": Hurts, "hub 2.14": Hurts, "": Hurts} {
		r := &report{}
		r.judgeGit(text, "/usr/bin/git")
		if got := level(r.list, "git"); got != want {
			t.Errorf("%q: %s, want %s", text, got, want)
		}
	}
}

func TestDataDirectory(t *testing.T) {
	dir := t.TempDir()
	need.NoError(t, os.Chmod(dir, 0o700))
	run := func(o Options) []Finding {
		o.DataDir = dir
		list := Run(context.Background(), o)
		for _, f := range list {
			if f.Level == Hurts && f.Do == "" {
				t.Errorf("no advice: %+v", f)
			}
		}
		return list
	}
	if list := run(Options{}); level(list, "data") == Hurts || level(list, "clock") != OK {
		t.Errorf("%+v", list)
	}
	if list := run(Options{Now: func() time.Time { return time.Now().Add(-time.Hour) }}); level(list, "clock") != Hurts {
		t.Errorf("the disk is an hour ahead: %+v", list)
	}
	if list := run(Options{Now: func() time.Time { return time.Unix(0, 0) }}); level(list, "clock") != Hurts {
		t.Errorf("the clock begins: %+v", list)
	}
	if list := run(Options{FreeFloor: 1 << 62}); level(list, "room") != Hurts {
		t.Errorf("the floor: %+v", list)
	}
	for _, mode := range []os.FileMode{0o750, 0o701} {
		need.NoError(t, os.Chmod(dir, mode))
		if list := run(Options{}); level(list, "data") != Hurts {
			t.Errorf("mode %o: %+v", mode, list)
		}
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 0 {
		t.Errorf("left over: %v", left)
	}
}

func TestWorkspaceFolders(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	need.NoError(t, os.WriteFile(file, nil, 0o600))
	for path, want := range map[string]Level{filepath.Join(dir, "none"): Hurts, file: Hurts} {
		r := &report{}
		r.workspace(path)
		if got := level(r.list, "workspace"); got != want {
			t.Errorf("%s: %s", path, got)
		}
	}
	r := &report{}
	r.workspace(dir)
	if level(r.list, "workspace") == "" {
		t.Error("nothing was found")
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 1 {
		t.Errorf("left over: %v", left)
	}
}

func TestFoldersAreCounted(t *testing.T) {
	dir := t.TempDir()
	for _, sub := range []string{"a/b/c", "a/d", ".git/objects/00", "sub/.git/refs"} {
		need.NoError(t, os.MkdirAll(filepath.Join(dir, sub), 0o755))
	}
	if n, whole := folders(t.Context(), dir, 100); n != 6 || !whole {
		t.Errorf("%d folders, whole %v", n, whole)
	}
	if n, whole := folders(t.Context(), dir, 3); n != 3 || whole {
		t.Errorf("%d folders, whole %v", n, whole)
	}
	r := &report{}
	r.watches(t.Context(), Options{Workspaces: []string{dir}, MaxWatches: 5})
	if f := r.list[0]; f.Level != Hurts || f.Do == "" {
		t.Errorf("%+v", f)
	}
	if raised(3_000_000) < 6_000_000 || raised(1) != 524_288 {
		t.Error(strconv.Itoa(raised(3_000_000)))
	}
}
