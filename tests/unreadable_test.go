package tests

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"umbra/internal/need"
	"umbra/tests/harness"
)

// nobody is the user that has no rights anywhere.
const nobody = 65534

// limited is a folder of a user without rights, on a server that runs as that
// user: root reads everything.
func limited(t *testing.T, files map[string]string) *project {
	t.Helper()
	need.Root(t)
	p := &project{Server: harness.Start(t, harness.Options{User: nobody}), dir: t.TempDir()}
	p.fill(t, files)
	err := filepath.WalkDir(p.dir, func(name string, _ os.DirEntry, err error) error {
		if err == nil {
			p.Give(name)
		}
		return err
	})
	need.NoError(t, err)
	return p
}

// forbid takes all rights to a path away, for its owner too.
func (p *project) forbid(t *testing.T, names ...string) {
	t.Helper()
	for _, name := range names {
		need.NoError(t, os.Chmod(filepath.Join(p.dir, name), 0))
	}
}

func (p *project) allow(t *testing.T, name string, mode os.FileMode) {
	t.Helper()
	need.NoError(t, os.Chmod(filepath.Join(p.dir, name), mode))
}

// untouched fails unless what nobody may read stands there as it was.
func (p *project) untouched(t *testing.T, files map[string]string) {
	t.Helper()
	for name, want := range files {
		if got := p.read(t, name); got != want {
			t.Errorf("%s is %q, was %q", name, got, want)
		}
		if info, err := os.Stat(filepath.Join(p.dir, name)); err != nil || !strings.HasPrefix(name, "locked/") && info.Mode().Perm() != 0 {
			t.Errorf("%s: %v, %v", name, info, err)
		}
	}
}

func (w *watched) skippedNow(t *testing.T, want ...string) {
	t.Helper()
	for what, list := range map[string]any{
		"sync":     w.sync(t)["skipped"],
		"coverage": w.call(t, "GET", w.ws+"/coverage", nil).want(t, 200).obj(t)["skipped"],
	} {
		var got []string
		for _, raw := range list.([]any) {
			s := raw.(map[string]any)
			got = append(got, fmt.Sprint(s["path"], ": ", s["reason"]))
		}
		if testJSON(got) != testJSON(want) {
			t.Errorf("%s leaves out %v, want %v", what, got, want)
		}
	}
}

// What the server may not read is told of, stops nothing, and is never deleted.
func TestUnreadable(t *testing.T) {
	t.Parallel()
	secret := map[string]string{"secret": "s", "sub/secret": "t", "locked/in": "u", "locked/deep/in": "v"}
	files := map[string]string{"a": "1", "sub/b": "2", "open/c": "3", "open/d/e": "4"}
	maps.Copy(files, secret)
	p := limited(t, files)
	p.forbid(t, "secret", "sub/secret", "locked")
	w := watch(t, p)
	if got := testJSON(w.k.At["warnings"]); !strings.Contains(got, "3 paths are not recorded") {
		t.Errorf("warnings: %s", got)
	}
	left := []string{"locked: unreadable", "secret: unreadable", "sub/secret: unreadable"}
	w.skippedNow(t, left...)
	if tree := w.treeAsRoot(t); len(tree) != 4 {
		t.Errorf("recorded: %v", tree)
	}

	// A delete of what cannot be recorded is refused, and nothing goes.
	for _, dir := range []string{"locked", "sub"} {
		w.call(t, "DELETE", w.k.file(dir)+"&recursive=true", nil).fails(t, 409, "not_recordable")
	}
	w.k.put(t, "sub/new", "x").want(t, 201)
	w.k.put(t, "a", "changed").want(t, 200)
	w.call(t, "DELETE", w.k.file("sub/b"), nil).want(t, 200)
	w.call(t, "DELETE", w.k.file("open")+"&recursive=true", nil).want(t, 200)

	// A revert of it all leaves them alone.
	w.post(t, w.k.url("/revert"), map[string]any{}).want(t, 200)
	for name, want := range map[string]string{"a": "1", "sub/b": "2", "open/c": "3", "open/d/e": "4"} {
		if got := w.read(t, name); got != want {
			t.Errorf("after the revert %s is %q", name, got)
		}
	}
	w.absent(t, "sub/new")
	w.untouched(t, secret)

	// A folder that the task made and in which somebody hid something stays.
	w.k.put(t, "made/f", "x").want(t, 201)
	w.fill(t, map[string]string{"made/hidden": "h"})
	w.forbid(t, "made/hidden")
	w.skippedNow(t, append([]string{left[0], "made/hidden: unreadable"}, left[1:]...)...)
	w.post(t, w.k.url("/revert"), map[string]any{}).want(t, 200)
	w.absent(t, "made/f")
	w.untouched(t, map[string]string{"made/hidden": "h"})
	w.remove(t, "made")

	// What is in history and cannot be read any more is neither changed nor gone.
	before := w.treeAsRoot(t)
	w.forbid(t, "a", "open")
	w.skippedNow(t, append([]string{"a: unreadable", left[0], "open: unreadable"}, left[1:]...)...)
	if now := w.treeAsRoot(t); testJSON(now) != testJSON(before) {
		t.Errorf("history was %v, is %v", before, now)
	}
	w.allow(t, "open", 0o755)
	w.allow(t, "a", 0o644)
	w.fill(t, map[string]string{"a": "by a person", "open/d/e": "too"})
	w.skippedNow(t, left...)
	if tree := w.treeAsRoot(t); tree["a"] == before["a"] || tree["open/d/e"] == before["open/d/e"] || tree["open/c"] != before["open/c"] {
		t.Errorf("history was %v, is %v", before, tree)
	}

	// Once it may be read it is recorded, by a scan if nothing tells.
	w.allow(t, "locked", 0o755)
	w.skippedNow(t, left[1:]...)
	if tree := w.treeAsRoot(t); tree["locked/deep/in"] == "" {
		t.Errorf("recorded: %v", tree)
	}
	w.untouched(t, map[string]string{"secret": "s", "sub/secret": "t"})
	harness.Git(t, w.k.gitDir(), "-c", "safe.directory=*", "fsck", "--strict", "--full")
}

// treeAsRoot is tree for a repository of another user's.
func (w *watched) treeAsRoot(t *testing.T) map[string]string {
	t.Helper()
	w.sync(t)
	out := make(map[string]string)
	list := harness.Git(t, w.k.gitDir(), "-c", "safe.directory=*", "ls-tree", "-r", "-z", "--format=%(objectname) %(path)", "refs/umbra/head")
	for line := range strings.SplitSeq(list, "\x00") {
		if id, path, ok := strings.Cut(line, " "); ok {
			out[path] = id
		}
	}
	return out
}

// TestClosedBeforeAStop: directories are closed in which a task has just changed, renamed
// and deleted files, and the server is killed before it noted that all was on disk. It
// opens the workspace; what is in them is as it was, and recorded when they are opened.
func TestClosedBeforeAStop(t *testing.T) {
	t.Parallel()
	p := limited(t, map[string]string{"d/a": "1", "d/b": "2", "m/n/c": "3", "e/x": "4", "g/h/i": "5"})
	w := watch(t, p)
	w.call(t, "DELETE", w.k.file("d/a"), nil).want(t, 200)
	w.k.put(t, "d/new", "n").want(t, 201)
	w.k.put(t, "d/b", "changed").want(t, 200)
	for from, to := range map[string]string{"m/n": "e/n", "g/h": "g/j"} {
		w.post(t, w.k.url("/move"), map[string]any{"from": from, "to": to}).want(t, 200)
	}
	before := need.Tree(t, p.dir)
	closed := []string{"d", "e", "g", "m"}
	for i, name := range closed {
		w.allow(t, name, []os.FileMode{0, 0o600, 0o500, 0o100}[i])
	}
	w.Kill()
	var list []string
	for _, dir := range w.DataDirs() {
		found, err := filepath.Glob(filepath.Join(dir, "workspaces", "*", "progress"))
		need.NoError(t, err)
		list = append(list, found...)
	}
	if len(list) != 1 {
		t.Fatal(list)
	}
	need.NoError(t, os.Remove(list[0]))
	w.Restart()
	w.sync(t)
	for _, name := range closed {
		w.allow(t, name, 0o755)
	}
	if n := w.sync(t)["changed"]; fmt.Sprint(n) != "0" {
		t.Errorf("%v changes are recorded", n)
	}
	if now := need.Tree(t, p.dir); now != before {
		t.Errorf("there is\n%s\nbefore\n%s", now, before)
	}
}
