// Package statetest has the suite that every backend of package state passes.
package statetest

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"

	"umbra/internal/need"
	"umbra/internal/state"
)

// Conform runs the suite; each part gets an empty backend.
func Conform(t *testing.T, open func(t *testing.T) state.Backend) {
	for _, part := range []struct {
		name string
		run  func(t *testing.T, b state.Backend)
	}{
		{"records", testRecords}, {"order", testOrder}, {"undone", testUndone}, {"read-only", testReadOnly},
		{"consistent", testConsistent}, {"counted", testCounted}, {"like a map", testLikeAMap},
	} {
		t.Run(part.name, func(t *testing.T) { part.run(t, open(t)) })
	}
}

func get(t testing.TB, tx state.BackendTx, bucket, key string) (string, bool) {
	t.Helper()
	value, found, err := tx.Get(bucket, key)
	need.NoError(t, err)
	return string(value), found
}

func testRecords(t *testing.T, b state.Backend) {
	odd := []string{"a", "\x00", "\xff\xfe", "a\x00b", "ä", "a/b", "'; --", strings.Repeat("k", 1024)}
	big := strings.Repeat("x", 1<<20)
	need.NoError(t, b.Update(func(tx state.BackendTx) error {
		for i, key := range odd {
			need.NoError(t, tx.Put("odd", key, fmt.Append(nil, i)))
			if got, found := get(t, tx, "odd", key); !found || got != fmt.Sprint(i) {
				t.Errorf("%q: %q in the transaction that wrote it", key, got)
			}
		}
		need.NoError(t, tx.Put("other", "a", nil)) // an empty value exists
		need.NoError(t, tx.Put("other", "big", []byte(big)))
		return tx.Put("other", "binary", []byte{0, 255, '\'', '\\'})
	}))
	need.NoError(t, b.View(func(tx state.BackendTx) error {
		for i, key := range odd {
			if got, found := get(t, tx, "odd", key); !found || got != fmt.Sprint(i) {
				t.Errorf("%q: %q", key, got)
			}
		}
		for key, want := range map[string]string{"a": "", "big": big, "binary": "\x00\xff'\\"} {
			if got, found := get(t, tx, "other", key); !found || got != want {
				t.Errorf("%s: %d bytes, found %v", key, len(got), found)
			}
		}
		for _, missing := range [][2]string{{"odd", "b"}, {"none", "a"}, {"other", "\x00"}} {
			if _, found := get(t, tx, missing[0], missing[1]); found {
				t.Errorf("%q was found", missing)
			}
		}
		return nil
	}))
	if g, ok := b.(state.Getter); ok {
		for key, want := range map[string]string{"a": "", "big": big, "binary": "\x00\xff'\\"} {
			if got, found, err := g.Get("other", key); err != nil || !found || string(got) != want {
				t.Errorf("%s: %d bytes, found %v, %v", key, len(got), found, err)
			}
		}
		if _, found, err := g.Get("none", "a"); found || err != nil {
			t.Error(found, err)
		}
	}
	need.NoError(t, b.Update(func(tx state.BackendTx) error {
		need.NoError(t, tx.Put("other", "new", []byte("2")))
		need.NoError(t, tx.Delete("other", "a"))
		if m, ok := tx.(state.ManyGetter); ok {
			got, err := m.GetMany("other", []string{"new", "a", "none", "binary"})
			need.NoError(t, err)
			if len(got) != 2 || string(got["new"]) != "2" || string(got["binary"]) != "\x00\xff'\\" {
				t.Errorf("%q", got)
			}
		}
		return nil
	}))
	need.NoError(t, b.Update(func(tx state.BackendTx) error {
		need.NoError(t, tx.Put("odd", "a", []byte("again")))
		need.NoError(t, errors.Join(tx.Delete("odd", "ä"), tx.Delete("odd", "none"), tx.Delete("none", "a"), tx.DeleteBucket("other"), tx.DeleteBucket("none")))
		if _, found := get(t, tx, "other", "a"); found {
			t.Error("a record of a deleted bucket was found")
		}
		return tx.Put("other", "new", []byte("1"))
	}))
	need.NoError(t, b.View(func(tx state.BackendTx) error {
		if got, _ := get(t, tx, "odd", "a"); got != "again" {
			t.Errorf("%q", got)
		}
		if _, found := get(t, tx, "odd", "ä"); found {
			t.Error("a deleted record was found")
		}
		if got := keys(t, tx, "other", "", false); !slices.Equal(got, []string{"new"}) {
			t.Errorf("%q", got)
		}
		return nil
	}))
}

func keys(t testing.TB, tx state.BackendTx, bucket, bound string, down bool) (got []string) {
	t.Helper()
	walk := tx.Ascend
	if down {
		walk = tx.Descend
	}
	need.NoError(t, walk(bucket, bound, func(key string, value []byte) (bool, error) {
		if string(value) != key+"!" && bucket != "other" {
			t.Errorf("%q has %q", key, value)
		}
		got = append(got, key)
		return true, nil
	}))
	return got
}

func testOrder(t *testing.T, b state.Backend) {
	all := []string{"\x00", "0/", "0/1", "0/10", "0/2", "00", "A", "a", "a\x00", "aa", "b", "ä", "\xff"} // bytewise, of no language
	need.NoError(t, b.Update(func(tx state.BackendTx) error {
		for _, i := range rand.Perm(len(all)) {
			need.NoError(t, tx.Put("x", all[i], []byte(all[i]+"!")))
			need.NoError(t, tx.Put("w", all[i]+"w", []byte(all[i]+"w!")))
		}
		return nil
	}))
	need.NoError(t, b.View(func(tx state.BackendTx) error {
		for i, key := range all {
			if got := keys(t, tx, "x", key, false); !slices.Equal(got, all[i:]) {
				t.Errorf("from %q: %q", key, got)
			}
			if got := keys(t, tx, "x", key+"\x00", false); key != "a" && !slices.Equal(got, all[i+1:]) {
				t.Errorf("above %q: %q", key, got)
			}
			below := slices.Clone(all[:i])
			slices.Reverse(below)
			if got := keys(t, tx, "x", key, true); !slices.Equal(got, below) {
				t.Errorf("below %q: %q", key, got)
			}
		}
		if got := keys(t, tx, "x", "", false); !slices.Equal(got, all) {
			t.Errorf("%q", got)
		}
		if got := keys(t, tx, "none", "", false); got != nil {
			t.Errorf("%q", got)
		}
		if got := keys(t, tx, "none", "z", true); got != nil {
			t.Errorf("%q", got)
		}
		stop := errors.New("enough")
		for _, walk := range []func(string, string, func(string, []byte) (bool, error)) error{tx.Ascend, tx.Descend} {
			n := 0
			need.NoError(t, walk("x", "a", func(string, []byte) (bool, error) { n++; return n < 2, nil }))
			if err := walk("x", "a", func(string, []byte) (bool, error) { n++; return true, stop }); !errors.Is(err, stop) || n != 3 {
				t.Error(n, err)
			}
		}
		return nil
	}))
}

func testUndone(t *testing.T, b state.Backend) {
	stop := errors.New("no")
	need.NoError(t, b.Update(func(tx state.BackendTx) error { return tx.Put("x", "a", []byte("a!")) }))
	err := b.Update(func(tx state.BackendTx) error {
		need.NoError(t, errors.Join(tx.Put("x", "b", nil), tx.Put("y", "a", nil), tx.Put("x", "a", nil), tx.DeleteBucket("x")))
		return stop
	})
	if !errors.Is(err, stop) {
		t.Error(err)
	}
	need.NoError(t, b.View(func(tx state.BackendTx) error {
		if got := keys(t, tx, "x", "", false); !slices.Equal(got, []string{"a"}) {
			t.Errorf("%q", got)
		}
		if got := keys(t, tx, "y", "", false); got != nil {
			t.Errorf("%q", got)
		}
		return nil
	}))
	if err := b.View(func(state.BackendTx) error { return stop }); !errors.Is(err, stop) {
		t.Error(err)
	}
}

func testReadOnly(t *testing.T, b state.Backend) {
	need.NoError(t, b.Update(func(tx state.BackendTx) error { return tx.Put("x", "a", []byte("a!")) }))
	need.NoError(t, b.View(func(tx state.BackendTx) error {
		for _, err := range []error{tx.Put("x", "b", nil), tx.Put("y", "b", nil), tx.Delete("x", "a"), tx.Delete("none", "a"), tx.DeleteBucket("x"), tx.DeleteBucket("none")} {
			if !errors.Is(err, state.ErrReadOnly) {
				t.Error(err)
			}
		}
		if got := keys(t, tx, "x", "", false); !slices.Equal(got, []string{"a"}) {
			t.Errorf("%q", got)
		}
		return nil
	}))
}

// testConsistent changes two buckets together: a View must see both or neither.
func testConsistent(t *testing.T, b state.Backend) {
	set := func(i int) {
		need.NoError(t, b.Update(func(tx state.BackendTx) error {
			return errors.Join(tx.Put("x", "n", fmt.Append(nil, i)), tx.Put("y", "n", fmt.Append(nil, i)))
		}))
	}
	set(0)
	done := make(chan struct{})
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
				}
				err := b.View(func(tx state.BackendTx) error {
					x, _, err := tx.Get("x", "n")
					before := string(x)
					y, _, err2 := tx.Get("y", "n")
					if before != string(y) {
						t.Errorf("%s and %s", before, y)
					}
					return errors.Join(err, err2)
				})
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	for i := range 50 {
		set(i)
	}
	close(done)
	wg.Wait()
}

// testCounted adds to one record from several goroutines: no addition may be lost.
func testCounted(t *testing.T, b state.Backend) {
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range 25 {
				err := b.Update(func(tx state.BackendTx) error {
					value, _, err := tx.Get("x", "n")
					if err != nil {
						return err
					}
					n := 0
					if len(value) > 0 {
						if _, err := fmt.Sscan(string(value), &n); err != nil {
							return err
						}
					}
					return tx.Put("x", "n", fmt.Append(nil, n+1))
				})
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	need.NoError(t, b.View(func(tx state.BackendTx) error {
		if got, _ := get(t, tx, "x", "n"); got != "100" {
			t.Errorf("counted to %s", got)
		}
		return nil
	}))
}

// testLikeAMap does random changes on a backend and on a map.
func testLikeAMap(t *testing.T, b state.Backend) {
	seed := rand.Uint64()
	r := rand.New(rand.NewPCG(seed, 1))
	want := map[string]string{}
	for round := range 30 {
		next := map[string]string{}
		maps.Copy(next, want)
		undo := r.IntN(4) == 0
		err := b.Update(func(tx state.BackendTx) error {
			for range 1 + r.IntN(20) {
				key, value := fmt.Sprint(r.IntN(40)), fmt.Sprint(r.Uint64())
				switch n := r.IntN(20); {
				case n == 0:
					need.NoError(t, tx.DeleteBucket("m"))
					next = map[string]string{}
				case n < 6:
					need.NoError(t, tx.Delete("m", key))
					delete(next, key)
				default:
					need.NoError(t, tx.Put("m", key, []byte(value)))
					next[key] = value
				}
			}
			if undo {
				return errUndo
			}
			return nil
		})
		if undo {
			if !errors.Is(err, errUndo) {
				t.Fatal(err)
			}
		} else {
			need.NoError(t, err)
			want = next
		}
		need.NoError(t, b.View(func(tx state.BackendTx) error {
			n := 0
			err := tx.Ascend("m", "", func(key string, value []byte) (bool, error) {
				n++
				if v, ok := want[key]; !ok || v != string(value) {
					t.Errorf("%q is %q, want %q", key, value, v)
				}
				return true, nil
			})
			if n != len(want) || t.Failed() {
				t.Fatalf("round %d of seed %d: %d records, want %d", round, seed, n, len(want))
			}
			return err
		}))
	}
}

var errUndo = errors.New("undo")
