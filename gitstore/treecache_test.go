package gitstore

import (
	"fmt"
	"testing"

	"umbra/internal/need"
)

// TestStoresShareTheirCaches has two stores read more than both may keep: they
// stay within it together, read what is right, and what one kept is free when it
// is closed.
func TestStoresShareTheirCaches(t *testing.T) {
	const (
		limit   = 512 << 10
		folders = 60
		files   = 60
	)
	caches := NewCaches(limit)
	var stores [2]*Store
	for i := range stores {
		stores[i] = openAt(t, testDir(t), Options{Caches: caches, Foreground: true})
		all := make(map[string]string)
		for d := range folders {
			for f := range files {
				all[fmt.Sprintf("d%d/f%d", d, f)] = fmt.Sprintf("%d %d %d\n", i, d, f)
			}
		}
		baselineOf(t, stores[i], all)
	}
	read := func(s *Store) {
		t.Helper()
		for d := range folders {
			top, err := s.r.Tree(s.Tip().Tree)
			need.NoError(t, err)
			e, ok := top.Find(fmt.Sprintf("d%d", d))
			if !ok {
				t.Fatalf("d%d is not there", d)
			}
			low, err := s.r.Tree(e.ID)
			need.NoError(t, err)
			if low.Len() != files || low.ID() != e.ID {
				t.Fatalf("d%d has %d files and is %v, not %v", d, low.Len(), low.ID(), e.ID)
			}
			if n := caches.Used(); n > limit {
				t.Fatalf("%d bytes kept, of %d", n, limit)
			}
		}
	}
	for range 3 {
		read(stores[0])
		read(stores[1])
	}
	both := caches.Used()
	if both < limit/2 {
		t.Errorf("only %d bytes kept, of %d: nothing had to go", both, limit)
	}
	closeStore(t, stores[1])
	if one := caches.Used(); one > both/2 { // it was read last, so most was of it
		t.Errorf("%d bytes kept before one of the stores was closed, %d after", both, one)
	}
	read(stores[0])
	closeStore(t, stores[0])
	if n := caches.Used(); n != 0 {
		t.Errorf("%d bytes kept of no store", n)
	}
}
