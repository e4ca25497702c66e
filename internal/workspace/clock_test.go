package workspace

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"umbra/gitstore/object"
	"umbra/internal/clock"
	"umbra/internal/vfs"
	"umbra/internal/workspace/reconcile"
)

// A wall clock that is set back neither makes an old scan look new nor puts the
// next one off.
func TestClockSetBack(t *testing.T) {
	root := t.TempDir()
	now := time.Now()
	must(t, os.WriteFile(filepath.Join(root, "a"), []byte("1\n"), 0o644))
	m := &opener{DataDir: t.TempDir(), Records: &memRecords{}, Foreground: true, Now: func() time.Time { return now }}
	defer m.Close(t.Context())
	w, err := m.Open(t.Context(), root)
	must(t, err)
	defer w.Release()
	_, err = w.Sync(t.Context(), reconcile.SyncOptions{})
	must(t, err)
	now = now.Add(-time.Hour)
	must(t, os.WriteFile(filepath.Join(root, "a"), []byte("a person's\n"), 0o644))
	res, err := w.Reconcile(t.Context(), reconcile.SyncOptions{}, clock.Boot())
	must(t, err)
	if res.Changed != 1 {
		t.Error("Reconcile found nothing; a file was changed on disk")
	}
}

// TestWriteRightAfterItIsPlaced: a user writes to a file in the moment in which a request
// has given it its name, or its bits. Times of files that are far behind the server's do not
// make that the request's bytes, which the next request would replace.
func TestWriteRightAfterItIsPlaced(t *testing.T) {
	for name, request := range map[string]func(b *bench){
		"written": func(b *bench) { b.ok(write("f", "theirs\n")) },
		"over another": func(b *bench) {
			b.ok(write("f", "before\n"))
			b.ok(write("f", "theirs\n"))
		},
		"made executable": func(b *bench) {
			b.ok(write("f", "theirs\n"))
			b.ok(chmod("f", object.Executable))
		},
	} {
		for _, behind := range []time.Duration{0, time.Hour} {
			t.Run(fmt.Sprint(name, " ", behind), func(t *testing.T) {
				for n := 1; ; n++ { // each look of the request
					b := newBenchOn(t, vfs.MemOptions{Now: func() time.Time { return time.Now().Add(-behind) }}, nil)
					looks, wrote := 0, false
					b.hook.Reads = true
					b.on(func(c vfs.Call) error {
						if c.Op != vfs.OpStat {
							return nil
						}
						if data, err := vfs.ReadFile(b.mem, "ws/f"); err != nil || string(data) != "theirs\n" {
							return nil
						}
						if looks++; looks == n {
							wrote = true
							f, err := b.mem.OpenFile("ws/f", os.O_WRONLY, 0)
							must(t, err)
							_, err = f.WriteAt([]byte("mine\n"), 7)
							must(t, errors.Join(err, f.Close()))
						}
						return nil
					})
					request(b)
					b.on(nil)
					b.ok(write("f", "next\n"))
					b.same()
					if wrote && !b.w.store.HasBlob(object.Hash(object.Blob, []byte("theirs\nmine\n"))) {
						t.Errorf("what the user wrote before look %d is lost", n)
					}
					b.stop()
					if !wrote {
						return
					}
				}
			})
		}
	}
}
