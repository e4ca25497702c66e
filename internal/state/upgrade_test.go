package state

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"umbra/internal/need"
)

// errKilled is what a stop at a place of an upgrade gives.
var errKilled = errors.New("killed")

// testSteps change a file in ways that would show if they were done twice on
// what is there, or on what is half there.
func testSteps() []step {
	rewrite := func(dir, from, to string) error {
		name := filepath.Join(dir, "data", "a")
		text, err := os.ReadFile(name)
		if err != nil || string(text) == to {
			return err
		}
		if string(text) != from {
			return fmt.Errorf("%q, want %q", text, from)
		}
		return writeDurably(name, to)
	}
	return []step{
		{changes: []string{"data", "none"}, apply: func(dir string) error { return rewrite(dir, "one", "two") }},
		{changes: []string{"data", "link"}, apply: func(dir string) error {
			if err := rewrite(dir, "two", "three"); err != nil {
				return err
			}
			return os.RemoveAll(filepath.Join(dir, "link"))
		}},
	}
}

func oldDir(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if err := errors.Join(os.Mkdir(filepath.Join(dir, "data"), 0o700), os.Symlink("data/a", filepath.Join(dir, "link")),
		os.WriteFile(filepath.Join(dir, "data", "a"), []byte("one"), 0o600), os.WriteFile(filepath.Join(dir, formatFile), []byte("1\n"), 0o600)); err != nil {
		t.Fatal(err)
	}
	return dir
}

func wantFile(t *testing.T, want string, names ...string) {
	t.Helper()
	got, err := os.ReadFile(filepath.Join(names...))
	if err != nil || strings.TrimSpace(string(got)) != want {
		t.Errorf("%s: %q %v, want %q", filepath.Join(names...), got, err, want)
	}
}

// TestUpgradeKilled stops an upgrade over two formats before each of its changes,
// and after it, and goes on with it.
func TestUpgradeKilled(t *testing.T) {
	for stop := 0; ; stop++ {
		dir := oldDir(t)
		n, killed := 0, ""
		u := upgrader{dir: dir, steps: testSteps(), at: func(what string) error {
			if n == stop {
				killed = what
				return errKilled
			}
			n++
			return nil
		}}
		err := u.run(1)
		if killed == "" {
			need.NoError(t, err)
		} else {
			if !errors.Is(err, errKilled) {
				t.Fatalf("stopped at %q: %v", killed, err)
			}
			raw, err := os.ReadFile(filepath.Join(dir, formatFile))
			need.NoError(t, err)
			at := int(raw[0] - '0')
			u := upgrader{dir: dir, steps: testSteps()}
			if err := u.run(at); err != nil {
				t.Fatalf("after a stop at %q: %v", killed, err)
			}
		}
		wantFile(t, "3", dir, formatFile)
		wantFile(t, "three", dir, "data", "a")
		wantFile(t, "one", dir, "upgrade-1", "data", "a")
		wantFile(t, "two", dir, "upgrade-2", "data", "a")
		if target, err := os.Readlink(filepath.Join(dir, "upgrade-2", "link")); err != nil || target != "data/a" {
			t.Errorf("link: %q %v", target, err)
		}
		if left, _ := filepath.Glob(filepath.Join(dir, "*.new")); len(left) > 0 {
			t.Errorf("left behind: %q", left)
		}
		if t.Failed() {
			t.Fatalf("stopped at %q", killed)
		}
		if killed == "" {
			if stop < 10 {
				t.Fatalf("only %d places were found to stop at", stop)
			}
			return
		}
	}
}

// TestUpgradeAtStart upgrades the first format on the way in, once, and keeps
// what the upgrade changed.
func TestUpgradeAtStart(t *testing.T) {
	dir := t.TempDir()
	need.NoError(t, os.WriteFile(filepath.Join(dir, formatFile), []byte("1\n"), 0o600))
	for range 2 {
		d, err := Acquire(dir)
		need.NoError(t, err)
		need.NoError(t, d.Release())
		wantFile(t, fmt.Sprint(Format), dir, formatFile)
		wantFile(t, "1", dir, "upgrade-1", formatFile)
	}
	if len(steps()) != Format-1 {
		t.Errorf("%d steps lead to format %d", len(steps()), Format)
	}
}

func TestRestoringIsRefused(t *testing.T) {
	dir := t.TempDir()
	need.NoError(t, os.Mkdir(filepath.Join(dir, RestoringDir), 0o700))
	_, err := Acquire(dir)
	if _, ok := errors.AsType[*RestoringError](err); !ok {
		t.Fatalf("%v", err)
	}
	if list, err := os.ReadDir(dir); err != nil || len(list) != 1 {
		t.Errorf("%v %v: something was made", list, err)
	}
}
