package vfs

import (
	"errors"
	"io/fs"
	"os"
	"strings"
	"sync"
	"testing"

	"umbra/internal/need"
)

// Nothing is synced before Flush; what a crash leaves after it is all that was to be
// durable, under its newest name; and each is synced once.
func TestDeferred(t *testing.T) {
	mem := NewMem(MemOptions{})
	var mu sync.Mutex // Flush syncs files at the same time
	var calls []string
	h := &Hook{OnCall: func(c Call) error {
		if strings.Contains(c.Op, "sync") || c.Op == OpWriteout {
			mu.Lock()
			defer mu.Unlock()
			calls = append(calls, c.Op+" "+c.Name)
		}
		return nil
	}}
	d := Defer(Inject(mem, h))
	write := func(f FS, name, text string) File {
		t.Helper()
		file, err := f.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o644)
		need.NoError(t, err)
		_, err = file.Write([]byte(text))
		need.NoError(t, errors.Join(err, file.StartWriteout(), file.Sync(), file.Datasync(), f.SyncDir(".")))
		return file
	}
	open := write(d, "open", "open")
	need.NoError(t, write(d, "tmp", "final").Close())
	need.NoError(t, d.Rename("tmp", "final"))
	need.NoError(t, write(d, "gone", "x").Close())
	need.NoError(t, d.Remove("gone"))
	need.NoError(t, d.Mkdir("dir", 0o755))
	sub, err := d.Sub("dir")
	need.NoError(t, err)
	need.NoError(t, write(sub, "f", "sub").Close())
	need.NoError(t, d.Rename("dir", "moved"))
	need.NoError(t, write(d, "a", "a").Close())
	need.NoError(t, d.Exchange("a", "moved"))
	unnamed, err := d.CreateUnlinked(".", 0o644)
	need.NoError(t, err)
	_, err = unnamed.Write([]byte("linked"))
	need.NoError(t, errors.Join(err, unnamed.Sync(), d.LinkFile(unnamed, "linked"), unnamed.Close()))
	if len(calls) > 0 {
		t.Fatalf("before Flush: %q", calls)
	}
	need.NoError(t, d.Flush())
	// open, final, a/f, moved, linked; and the directories . and a
	if len(calls) != 7 {
		t.Errorf("Flush: %q", calls)
	}
	after := mem.CrashClone(CrashOptions{Mode: CrashSyncedOnly})
	for name, want := range map[string]string{"open": "open", "final": "final", "a/f": "sub", "moved": "a", "linked": "linked"} {
		if got, err := ReadFile(after, name); err != nil || string(got) != want {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
	if _, err := after.Lstat("gone"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("gone: %v", err)
	}
	// From then on it syncs at once.
	_, err = open.WriteAt([]byte("then"), 0)
	need.NoError(t, errors.Join(err, open.Datasync()))
	need.NoError(t, errors.Join(write(d, "late", "late").Close(), open.Close()))
	after = mem.CrashClone(CrashOptions{Mode: CrashSyncedOnly})
	for name, want := range map[string]string{"open": "then", "late": "late"} {
		if got, err := ReadFile(after, name); err != nil || string(got) != want {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
}
