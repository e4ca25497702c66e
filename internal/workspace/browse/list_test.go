package browse

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"umbra/internal/need"
	"umbra/internal/workspace/disk"
	"umbra/internal/workspace/host"
	"umbra/internal/wspath"
)

// ahead is a directory whose clock says that nothing was changed lately, so that
// readings are kept at once.
func ahead(t *testing.T) (*Reader, string) {
	t.Helper()
	dir := t.TempDir()
	is, err := host.OS{}.Stat(dir)
	must(t, err)
	d, err := disk.Open(disk.Options{Root: dir, Dir: t.TempDir(), Host: host.OS{}, Dev: is.Dev, Ino: is.Ino, Log: slog.Default(),
		Now: func() time.Time { return time.Now().Add(time.Hour) }})
	must(t, err)
	t.Cleanup(func() { must(t, d.Close()) })
	return NewReader(d), dir
}

// listed gives all of a listing, page by page.
func listed(t *testing.T, w *Reader, at wspath.Path, o ListOptions, page int) []string {
	t.Helper()
	out := []string{}
	for o.From, o.Count = 0, page; ; o.From += page {
		part, total, err := w.List(context.Background(), at, o)
		must(t, err)
		for _, e := range part {
			out = append(out, fmt.Sprint(e.Path, " ", e.Info.Mode.Type(), " ", e.Info.Size))
		}
		if o.From+page >= total {
			if len(out) != total {
				t.Fatalf("%d entries on the pages, %d in all", len(out), total)
			}
			return out
		}
	}
}

// What is kept of a listing never shows: whatever happens on disk, its pages
// are those of one that begins anew.
func TestListKeepsNothingStale(t *testing.T) {
	w, dir := ahead(t)
	rng := rand.New(rand.NewPCG(1, 2))
	name := func(depth int) string {
		var parts []string
		for range 1 + rng.IntN(depth) {
			parts = append(parts, string(rune('a'+rng.IntN(4))))
		}
		return filepath.Join(append([]string{dir}, parts...)...)
	}
	rules := []string{"a\n", "b/\n*c\n", "!a\n", "", "/d\n**/b/a\n"}
	change := func() {
		at := name(4)
		switch rng.IntN(9) {
		case 0, 1:
			os.MkdirAll(at, 0o755)
		case 2, 3:
			os.MkdirAll(filepath.Dir(at), 0o755)
			os.WriteFile(at, make([]byte, rng.IntN(9)), 0o644)
		case 4:
			os.RemoveAll(at)
		case 5:
			os.Rename(at, name(4))
		case 6:
			os.Symlink("a", at)
		case 7:
			file := []string{".gitignore", ".umbraignore", ".codeyignore"}[rng.IntN(3)]
			os.WriteFile(filepath.Join([]string{dir, name(2)}[rng.IntN(2)], file), []byte(rules[rng.IntN(len(rules))]), 0o644)
		case 8:
			os.Remove(filepath.Join(name(2), ".gitignore"))
		}
	}
	for round := range 400 {
		for range rng.IntN(4) {
			change()
		}
		at := wspath.Root
		if rng.IntN(3) == 0 {
			at = "a"
			if info, err := os.Lstat(filepath.Join(dir, "a")); err != nil || !info.IsDir() {
				continue
			}
		}
		o := ListOptions{Recursive: rng.IntN(2) == 0, GitIgnore: rng.IntN(2) == 0, CodeyIgnore: rng.IntN(2) == 0}
		kept := listed(t, w, at, o, 1+rng.IntN(3))
		if rng.IntN(2) == 0 {
			kept = listed(t, w, at, o, 1+rng.IntN(3))
		}
		w.kept.forget(w.disk.Now().Add(time.Hour))
		if fresh := listed(t, w, at, o, 10_000); !slices.Equal(kept, fresh) {
			t.Fatalf("round %d, %+v of %s:\n%s\nwant\n%s", round, o, at, strings.Join(kept, "\n"), strings.Join(fresh, "\n"))
		}
		if rng.IntN(2) == 0 {
			listed(t, w, at, o, 1) // is there again
		}
	}
}

// Page after page reads the names twice at most, and keeps a few listings only.
func TestListKeeps(t *testing.T) {
	w, dir := ahead(t)
	for i := range 100 {
		must(t, os.MkdirAll(filepath.Join(dir, fmt.Sprint("d", i%10)), 0o755))
		must(t, os.WriteFile(filepath.Join(dir, fmt.Sprint("d", i%10), fmt.Sprint("f", i)), nil, 0o644))
	}
	o := ListOptions{Recursive: true, GitIgnore: true}
	if n := len(listed(t, w, wspath.Root, o, 1000)); n != 110 || len(w.kept.list) != 0 {
		t.Fatalf("%d entries, %d listings kept of one page", n, len(w.kept.list))
	}
	listed(t, w, wspath.Root, o, 20)
	if len(w.kept.list) != 1 || len(w.kept.list[0].folders) != 11 || w.kept.list[0].names != 110 {
		t.Fatalf("%+v", w.kept.list)
	}
	before := w.kept.list[0].folders["d3"]
	must(t, os.Remove(filepath.Join(dir, "d4/f4")))
	if n := len(listed(t, w, wspath.Root, o, 20)); n != 109 {
		t.Errorf("%d entries", n)
	}
	if len(w.kept.list) != 1 || w.kept.list[0].folders["d3"] != before || w.kept.list[0].names != 109 {
		t.Errorf("%+v", w.kept.list)
	}
	for i := range 6 {
		listed(t, w, wspath.Path(fmt.Sprint("d", i)), ListOptions{}, 3)
	}
	if n := len(w.kept.list); n != maxKeptListings {
		t.Errorf("%d listings are kept", n)
	}
	w.kept.forget(w.disk.Now().Add(2 * keptFor))
	if n := len(w.kept.list); n != 0 {
		t.Errorf("%d listings are kept for ever", n)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	need.NoError(t, err)
}
