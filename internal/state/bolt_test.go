package state

import (
	"encoding/binary"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"umbra/internal/need"
)

// listed reports whether the file has a list of free pages, as the next Open finds
// it after a kill. The layout is that of bbolt's meta pages.
func listed(t *testing.T, path string) bool {
	t.Helper()
	raw, err := os.ReadFile(path)
	need.NoError(t, err)
	const head, list, tx = 16, 32, 48 // of the page's header; of fields of the meta
	var newest, at uint64
	for page := range 2 {
		meta := raw[page*os.Getpagesize()+head:]
		if n := binary.NativeEndian.Uint64(meta[tx:]); n >= newest {
			newest, at = n, binary.NativeEndian.Uint64(meta[list:])
		}
	}
	return at != ^uint64(0)
}

// TestFreeListWhenQuiet writes the list a while after the last change, and with Close.
func TestFreeListWhenQuiet(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.db")
	synctest.Test(t, func(t *testing.T) {
		db, err := Open(path)
		need.NoError(t, err)
		put := func() {
			t.Helper()
			need.NoError(t, db.Put("things", "a", 1))
			if listed(t, path) {
				t.Error("a commit wrote the list")
			}
		}
		for range 3 {
			put()
			<-time.After(listAfter - time.Millisecond)
			put()
			<-time.After(listAfter - time.Millisecond)
			if listed(t, path) {
				t.Error("the list was written between changes")
			}
			<-time.After(time.Millisecond)
			synctest.Wait()
			if !listed(t, path) {
				t.Error("the list was not written when it was quiet")
			}
		}
		put()
		need.NoError(t, db.Close())
		if !listed(t, path) {
			t.Error("Close did not write the list")
		}
		<-time.After(2 * listAfter)
		synctest.Wait()
		if db, err = Open(path); err != nil {
			t.Fatal(err)
		}
		var n int
		if found, err := db.Get("things", "a", &n); !found || err != nil {
			t.Error(found, err)
		}
		need.NoError(t, db.Close())
	})
}
