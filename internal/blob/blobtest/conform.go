package blobtest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"umbra/internal/blob"
)

// Conform runs the suite that every store passes; each part gets an empty store.
func Conform(t *testing.T, open func(t *testing.T) blob.Store) {
	for _, part := range []struct {
		name string
		run  func(t *testing.T, s blob.Store)
	}{
		{"objects", testObjects}, {"ranges", testRanges}, {"lists", testLists}, {"keys", testKeys},
		{"replaced", testReplaced}, {"canceled", testCanceled}, {"short body", testShortBody}, {"concurrent", testConcurrent},
	} {
		t.Run(part.name, func(t *testing.T) { part.run(t, open(t)) })
	}
}

// Put stores data under key.
func Put(t testing.TB, s blob.Store, key string, data []byte) {
	t.Helper()
	if err := s.Put(context.Background(), key, bytes.NewReader(data), int64(len(data))); err != nil {
		t.Fatal(err)
	}
}

// Get returns the object of a key.
func Get(t testing.TB, s blob.Store, key string) []byte {
	t.Helper()
	data, err := get(context.Background(), s, key)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// GetRange returns n bytes of the object of a key, from an offset on.
func GetRange(ctx context.Context, s blob.Store, key string, offset, n int64) ([]byte, error) {
	r, err := s.GetRange(ctx, key, offset, n)
	if err != nil {
		return nil, err
	}
	data, err := io.ReadAll(r)
	return data, errors.Join(err, r.Close())
}

func get(ctx context.Context, s blob.Store, key string) ([]byte, error) {
	r, size, err := s.Get(ctx, key)
	if err != nil {
		return nil, err
	}
	data, err := io.ReadAll(r)
	if err == nil && int64(len(data)) != size {
		err = fmt.Errorf("%d bytes of %d", len(data), size)
	}
	return data, errors.Join(err, r.Close())
}

// Keys returns the keys of a list.
func Keys(t testing.TB, s blob.Store, prefix, after string) (keys []string) {
	t.Helper()
	for o, err := range s.List(context.Background(), prefix, after) {
		if err != nil {
			t.Fatal(err)
		}
		keys = append(keys, o.Key)
	}
	return keys
}

// Bytes returns n bytes that no two seeds share.
func Bytes(seed uint64, n int) []byte {
	data := make([]byte, n)
	r := rand.NewChaCha8([32]byte{byte(seed), byte(seed >> 8)})
	_, _ = r.Read(data)
	return data
}

func want(t testing.TB, err error, kind blob.Kind) {
	t.Helper()
	if !blob.Is(err, kind) {
		t.Fatalf("%v, want kind %v", err, kind)
	}
}

func testObjects(t *testing.T, s blob.Store) {
	ctx := context.Background()
	_, _, err := s.Get(ctx, "none")
	want(t, err, blob.NotFound)
	_, err = GetRange(ctx, s, "a/none", 0, 1)
	want(t, err, blob.NotFound)
	for i, n := range []int{0, 1, 4096, 1 << 20, 9<<20 + 5} {
		key, data := fmt.Sprintf("w%d/1-abc.pack", i), Bytes(uint64(n), n)
		Put(t, s, key, data)
		if !bytes.Equal(Get(t, s, key), data) {
			t.Fatalf("%d bytes changed", n)
		}
		for range 2 { // the second finds nothing
			if err := s.Delete(ctx, key); err != nil {
				t.Fatal(err)
			}
		}
		_, _, err := s.Get(ctx, key)
		want(t, err, blob.NotFound)
	}
	_, _, err = s.Get(ctx, "w1") // no object, whatever the store makes of slashes
	want(t, err, blob.NotFound)
}

func testRanges(t *testing.T, s blob.Store) {
	ctx := context.Background()
	data := Bytes(7, 10_000)
	Put(t, s, "a", data)
	for _, at := range [][2]int64{{0, 1}, {0, 10_000}, {9_999, 1}, {5_000, 4_000}} {
		got, err := GetRange(ctx, s, "a", at[0], at[1])
		if err != nil || !bytes.Equal(got, data[at[0]:at[0]+at[1]]) {
			t.Fatal(at, err)
		}
	}
	for _, at := range [][2]int64{{0, 10_001}, {9_999, 2}, {10_000, 1}, {20_000, 1}} {
		_, err := GetRange(ctx, s, "a", at[0], at[1])
		want(t, err, blob.TooShort)
	}
	for _, at := range [][2]int64{{-1, 1}, {0, 0}, {0, -1}, {1, 1<<63 - 1}} {
		_, err := GetRange(ctx, s, "a", at[0], at[1])
		want(t, err, blob.Refused)
	}
}

func testLists(t *testing.T, s blob.Store) {
	if keys := Keys(t, s, "", ""); len(keys) > 0 {
		t.Fatal(keys)
	}
	all := []string{"a", "b-", "b/1", "b/2", "b/20", "b/3/x", "b0", "c/1"} // bytewise: '-' < '/' < '0'
	before := time.Now().Add(-2 * time.Second)
	for i, key := range []int{5, 0, 7, 2, 1, 6, 3, 4} {
		Put(t, s, all[key], make([]byte, i))
	}
	for _, c := range []struct {
		prefix, after string
		want          []string
	}{
		{"", "", all}, {"b", "", all[1:7]}, {"b/", "", all[2:6]}, {"b/2", "", all[3:5]}, {"", "b/2", all[4:]},
		{"b/", "b/1x", all[3:6]}, {"d", "", nil}, {"", "z", nil}, {"b/", "a", all[2:6]}, {"b/3/", "", all[5:6]},
	} {
		if got := Keys(t, s, c.prefix, c.after); !slices.Equal(got, c.want) {
			t.Errorf("%q after %q: %q, want %q", c.prefix, c.after, got, c.want)
		}
	}
	for o, err := range s.List(context.Background(), "b/3", "") {
		if err != nil || o.Size != 0 || o.Modified.Before(before) || o.Modified.After(time.Now().Add(2*time.Second)) {
			t.Error(o, err)
		}
	}
	next, stop := iter.Pull2(s.List(context.Background(), "", "")) // ends where its caller does
	if o, err, _ := next(); o.Key != "a" || o.Size != 1 || err != nil {
		t.Error(o, err)
	}
	stop()
}

func testKeys(t *testing.T, s blob.Store) {
	ctx := context.Background()
	for _, key := range []string{"", "/", "/a", "a/", "a//b", ".", "..", "../a", "a/../b", "a b", "a\nb", "ä", "+a", strings.Repeat("x", 513)} {
		_, _, err := s.Get(ctx, key)
		want(t, err, blob.Refused)
		_, err = GetRange(ctx, s, key, 0, 1)
		want(t, err, blob.Refused)
		want(t, s.Put(ctx, key, strings.NewReader("x"), 1), blob.Refused)
		want(t, s.Delete(ctx, key), blob.Refused)
	}
	if keys := Keys(t, s, "", ""); len(keys) > 0 {
		t.Fatal(keys)
	}
	long := strings.Repeat("x", 200) + "/" + strings.Repeat("y~._-9", 30)
	Put(t, s, long, []byte("x"))
	if keys := Keys(t, s, "", ""); !slices.Equal(keys, []string{long}) {
		t.Fatal(keys)
	}
}

func testReplaced(t *testing.T, s blob.Store) {
	Put(t, s, "a", []byte("first"))
	Put(t, s, "a", []byte("2nd"))
	if got := Get(t, s, "a"); string(got) != "2nd" {
		t.Fatalf("%q", got)
	}
}

func testCanceled(t *testing.T, s blob.Store) {
	Put(t, s, "a", []byte("x"))
	stop := errors.New("enough")
	ctx, cancel := context.WithCancelCause(context.Background())
	cancel(stop)
	_, _, err := s.Get(ctx, "a")
	errs := []error{err, s.Put(ctx, "b", strings.NewReader("x"), 1), s.Delete(ctx, "a")}
	_, err = GetRange(ctx, s, "a", 0, 1)
	errs = append(errs, err)
	for _, err := range s.List(ctx, "", "") {
		errs = append(errs, err)
	}
	if len(errs) != 5 {
		t.Fatal(errs)
	}
	for _, err := range errs {
		want(t, err, blob.Canceled)
		if !errors.Is(err, stop) {
			t.Error(err)
		}
	}
	if keys := Keys(t, s, "", ""); !slices.Equal(keys, []string{"a"}) {
		t.Fatal(keys)
	}
}

// testShortBody puts a body that ends early: nothing may be stored.
func testShortBody(t *testing.T, s blob.Store) {
	if err := s.Put(context.Background(), "a", strings.NewReader("abc"), 5); err == nil {
		t.Fatal("stored")
	}
	if keys := Keys(t, s, "", ""); len(keys) > 0 {
		t.Fatal(keys)
	}
}

// testConcurrent replaces one object while others read it: each read is of one
// version, or fails.
func testConcurrent(t *testing.T, s blob.Store) {
	versions := [][]byte{Bytes(1, 300_000), Bytes(2, 200_000)}
	Put(t, s, "a", versions[0])
	var wg sync.WaitGroup
	for w := range 2 {
		wg.Go(func() {
			for range 10 {
				if err := s.Put(context.Background(), "a", bytes.NewReader(versions[w]), int64(len(versions[w]))); err != nil {
					t.Error(err)
				}
			}
		})
	}
	for range 2 {
		wg.Go(func() {
			for range 20 {
				got, err := get(context.Background(), s, "a")
				if err != nil || !bytes.Equal(got, versions[0]) && !bytes.Equal(got, versions[1]) {
					t.Errorf("%d bytes, %v", len(got), err)
				}
			}
		})
	}
	wg.Wait()
	if keys := Keys(t, s, "", ""); !slices.Equal(keys, []string{"a"}) {
		t.Fatal(keys)
	}
}
