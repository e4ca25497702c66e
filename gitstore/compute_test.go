package gitstore

import (
	"errors"
	"testing"

	"umbra/gitstore/repo"
	"umbra/internal/need"
)

// TestCompute keeps what was made, until it may be another.
func TestCompute(t *testing.T) {
	caches := NewCaches(1 << 20)
	s := openAt(t, testDir(t), Options{Caches: caches, Foreground: true})
	defer closeStore(t, s)
	type key struct{ name string }
	calls := 0
	ask := func(name string, bytes int64) {
		t.Helper()
		v, err := s.Compute(key{name}, func() (any, int64, error) { calls++; return "made of " + name, bytes, nil })
		if v != "made of "+name || err != nil {
			t.Errorf("%s: %v, %v", name, v, err)
		}
	}
	made := func(want int, when string) {
		t.Helper()
		if calls != want {
			t.Errorf("%s: made %d times, not %d", when, calls, want)
		}
		calls = 0
	}
	ask("a", 10)
	ask("b", repo.MaxComputed)
	ask("a", 10)
	ask("b", repo.MaxComputed)
	made(2, "two, each twice")
	ask("large", repo.MaxComputed+1)
	ask("large", repo.MaxComputed+1)
	made(2, "one that is too large, twice")

	// As strings the keys are the same; by their types they are not.
	if v, err := s.Compute("a", func() (any, int64, error) { return 1, 1, nil }); v != 1 || err != nil {
		t.Errorf("a key of another type: %v, %v", v, err)
	}
	broken := errors.New("broken")
	for range 2 {
		if _, err := s.Compute(key{"bad"}, func() (any, int64, error) { return nil, 0, broken }); !errors.Is(err, broken) {
			t.Error(err)
		}
	}
	ask("bad", 1)
	made(1, "what failed at first")

	b := s.Boundary()
	b.Seq++
	s.r.Begins.Store(&b)
	ask("a", 10)
	made(1, "the history begins later")
}

// TestComputeForgetsPurged leaves nothing that was made of what a purge took, also
// where that came while it was made.
func TestComputeForgetsPurged(t *testing.T) {
	caches := NewCaches(1 << 20)
	s := openAt(t, testDir(t), Options{Caches: caches, Foreground: true})
	defer closeStore(t, s)
	blob, _ := secretHistory(t, s)
	one := func() (any, int64, error) { return secret, 1000, nil }
	before := s.Rewrites()
	kept := func() bool {
		_, ok := s.r.Cached.Computed.Get(repo.Computed{Of: "a", From: s.Boundary().Seq, Rewrites: before})
		return ok
	}
	if _, err := s.Compute("a", one); err != nil || !kept() {
		t.Fatalf("not kept, %v", err)
	}
	of := PurgeOptions{Blobs: []ID{blob}}
	if _, err := purgeOf(t.Context(), s, of); err != nil {
		t.Fatal(err)
	}
	if kept() {
		t.Error("still kept after the purge")
	}

	before = s.Rewrites()
	next := s.NewBlob([]byte("3\n")).ID()
	_, err := s.Compute("a", func() (any, int64, error) {
		if _, err := purgeOf(t.Context(), s, PurgeOptions{Blobs: []ID{next}}); err != nil {
			return nil, 0, err
		}
		return one()
	})
	need.NoError(t, err)
	if before == s.Rewrites() || kept() {
		t.Errorf("%d purges, %d before; kept: %v", s.Rewrites(), before, kept())
	}
}
