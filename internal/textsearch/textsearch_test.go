package textsearch

import (
	"context"
	"errors"
	"strings"
	"testing"

	"umbra/internal/need"
)

func TestCompile(t *testing.T) {
	for name, pattern := range map[string]string{
		"many steps": strings.Repeat("(a*)*", 1000), "many bytes": strings.Repeat("x", MaxPattern+1), "repeated": strings.Repeat("[a-f]{300}x", 10),
	} {
		if _, err := Compile(pattern); !errors.Is(err, ErrTooLarge) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := Compile("a("); err == nil || strings.Contains(err.Error(), "error parsing") {
		t.Error(err)
	}
	if re, err := Compile(strings.Repeat("(a*)*", 100)); err != nil || re == nil {
		t.Error(err)
	}
}

func TestFind(t *testing.T) {
	re, err := Compile("ne+dle")
	need.NoError(t, err)
	long := strings.Repeat("ä", MaxLine)
	for line, want := range map[string]int{"": -1, "x needle": 2, long: -1, long + "needle": len(long), "needle" + long: 0} {
		if got, err := Find(t.Context(), re, []byte(line)); got != want || err != nil {
			t.Errorf("a line of %d bytes: %d %v, want %d", len(line), got, err, want)
		}
	}
}

// A search ends with its context in the middle of a line.
func TestFindEnds(t *testing.T) {
	re, err := Compile(strings.Repeat("(a*)*", 100) + "b")
	need.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	// Whole, this line takes minutes.
	if _, err := Find(ctx, re, []byte(strings.Repeat("a", 20<<20))); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

func TestSlots(t *testing.T) {
	s := NewSlots()
	var releases []func()
	for range cap(s) {
		release, err := s.Take(t.Context())
		need.NoError(t, err)
		releases = append(releases, release)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := s.Take(ctx); !errors.Is(err, context.Canceled) {
		t.Error("a slot more than there are:", err)
	}
	releases[0]()
	if _, err := s.Take(t.Context()); err != nil {
		t.Error(err)
	}
}
