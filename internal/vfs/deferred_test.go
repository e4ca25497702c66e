package vfs

import (
	"errors"
	"io/fs"
	"os"
	"strings"
	"testing"
)

// Nothing is synced before Flush; what a crash leaves after it is all that was to be
// durable, under its newest name; and each is synced once.
func TestDeferred(t *testing.T) {
	mem := NewMem(MemOptions{})
	var calls []string
	h := &Hook{OnCall: func(c Call) error {
		if strings.Contains(c.Op, "sync") || c.Op == OpWriteout {
			calls = append(calls, c.Op+" "+c.Name)
		}
		return nil
	}}
	d := Defer(Inject(mem, h))
	write := func(f FS, name, text string) File {
		t.Helper()
		file, err := f.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o644)
		must(t, err)
		_, err = file.Write([]byte(text))
		must(t, errors.Join(err, file.StartWriteout(), file.Sync(), file.Datasync(), f.SyncDir(".")))
		return file
	}
	open := write(d, "open", "open")
	must(t, write(d, "tmp", "final").Close())
	must(t, d.Rename("tmp", "final"))
	must(t, write(d, "gone", "x").Close())
	must(t, d.Remove("gone"))
	must(t, d.Mkdir("dir", 0o755))
	sub, err := d.Sub("dir")
	must(t, err)
	must(t, write(sub, "f", "sub").Close())
	must(t, d.Rename("dir", "moved"))
	must(t, write(d, "a", "a").Close())
	must(t, d.Exchange("a", "moved"))
	unnamed, err := d.CreateUnlinked(".", 0o644)
	must(t, err)
	_, err = unnamed.Write([]byte("linked"))
	must(t, errors.Join(err, unnamed.Sync(), d.LinkFile(unnamed, "linked"), unnamed.Close()))
	if len(calls) > 0 {
		t.Fatalf("before Flush: %q", calls)
	}
	must(t, d.Flush())
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
	must(t, errors.Join(err, open.Datasync()))
	must(t, errors.Join(write(d, "late", "late").Close(), open.Close()))
	after = mem.CrashClone(CrashOptions{Mode: CrashSyncedOnly})
	for name, want := range map[string]string{"open": "then", "late": "late"} {
		if got, err := ReadFile(after, name); err != nil || string(got) != want {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
}
