package scan_test

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"

	"umbra/internal/ignore"
	"umbra/internal/need"
	"umbra/internal/scan"
	"umbra/internal/wspath"
)

// Paths finds at each path what a walk over everything does.
func TestPathsTellsWhatWalkDoes(t *testing.T) {
	_, f := makeTree(t, ".gitignore=build/\n*.o\n!keep.o\n", "a", "d/.gitignore=x\n", "d/x", "d/y", "d/e/x", "d/e/z", "build/out", "build/kept", "m.o", "keep.o",
		"pipe|", "l@a", "ld@d", "sub/.git/config=", "sub/f", "own/secret", "empty/", "deep/1/2/3/f", ".umbra-0123456789abcdef.tmp")
	rules, err := ignore.NewRoot(ignore.Options{ReadFile: scan.RuleReader(f)})
	need.NoError(t, err)
	opts := scan.Options{Rules: rules,
		Prune:        func(p wspath.Path) bool { return p == "own" },
		Tracked:      func(p wspath.Path) bool { return p == "build/kept" },
		TrackedUnder: func(p wspath.Path) bool { return p == "build" },
	}
	gather := func(walk func(visit func(scan.Found) error) error) (list []string) {
		t.Helper()
		var mu sync.Mutex
		err := walk(func(f scan.Found) error {
			mu.Lock()
			defer mu.Unlock()
			list = append(list, string(f.Path)+" "+string(f.Skip))
			return nil
		})
		need.NoError(t, err)
		slices.Sort(list)
		return list
	}
	all := gather(func(visit func(scan.Found) error) error {
		_, err := scan.Walk(t.Context(), f, opts, visit)
		return err
	})
	for _, at := range []wspath.Path{wspath.Root, "a", "d", "d/x", "d/y", "d/e", "d/e/x", "d/e/z", "build", "build/out", "build/kept", "m.o", "keep.o", "pipe", "l", "ld", "ld/y",
		"sub", "sub/.git", "sub/.git/config", "sub/f", "own", "own/secret", "empty", "deep/1", "deep/1/2/3/f", "gone", "gone/below", "a/below", ".umbra-0123456789abcdef.tmp"} {
		var want []string
		for _, line := range all {
			name, _, _ := strings.Cut(line, " ")
			p := wspath.Path(name)
			if p.Within(at) {
				want = append(want, line)
			}
		}
		got := gather(func(visit func(scan.Found) error) error {
			_, err := scan.Paths(t.Context(), f, opts, []wspath.Path{at}, visit)
			return err
		})
		if !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", at, got, want)
		}
	}
	if _, err := scan.Paths(cancelled(t), f, opts, []wspath.Path{"d"}, func(scan.Found) error { return nil }); err == nil {
		t.Error("a cancelled look is no error")
	}
}

func cancelled(t *testing.T) context.Context {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	return ctx
}
