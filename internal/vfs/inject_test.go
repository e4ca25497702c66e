package vfs

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"

	"umbra/internal/need"
)

func TestHookSeesCalls(t *testing.T) {
	var seen []string
	hook := &Hook{OnCall: func(c Call) error {
		seen = append(seen, fmt.Sprintf("%d %s#%d %s", c.N, c.Op, c.OpN, c.Name))
		return nil
	}}
	f := Inject(NewMem(MemOptions{}), hook)
	need.NoError(t, f.Mkdir("d", 0o755))
	sub, err := f.Sub("d")
	need.NoError(t, err)
	h, err := sub.CreateUnlinked(".", 0o644)
	need.NoError(t, err)
	_, err = h.Write([]byte("x"))
	need.NoError(t, err)
	need.NoError(t, sub.LinkFile(h, "f"))
	_, err = h.WriteAt([]byte("y"), 1)
	need.NoError(t, err)
	need.NoError(t, h.Datasync())
	need.NoError(t, h.Sync())
	need.NoError(t, h.StartWriteout())
	need.NoError(t, h.Close())
	need.NoError(t, sub.SyncDir("."))
	_ = read(t, f, "d/f")
	need.NoError(t, f.Remove("d/f"))
	want := []string{"1 mkdir#1 d", "2 tmpfile#1 d", "3 write#1 d", "4 linkfile#1 d/f", "5 write#2 d/f", "6 fdatasync#1 d/f",
		"7 fsync#1 d/f", "8 writeout#1 d/f", "9 syncdir#1 d", "10 remove#1 d/f"}
	if !slices.Equal(seen, want) {
		t.Fatal(strings.Join(seen, "\n"))
	}
	if hook.Count() != 10 || hook.CountOf(OpWrite) != 2 {
		t.Fatal(hook.Count(), hook.CountOf(OpWrite))
	}
}

func TestInjectedErrors(t *testing.T) {
	m := NewMem(MemOptions{})
	hook := &Hook{Reads: true}
	f := Inject(m, hook)
	hook.OnCall = FailNth(OpExchange, 2, syscall.EROFS)
	write(t, f, "a", "A")
	write(t, f, "b", "B")
	need.NoError(t, f.Exchange("a", "b"))
	err := f.Exchange("a", "b")
	wantErr(t, err, syscall.EROFS)
	if p, ok := errors.AsType[*fs.PathError](err); !ok || p.Op != OpExchange {
		t.Fatalf("%T", err)
	}
	if read(t, f, "a") != "B" {
		t.Fatal("done all the same")
	}
	need.NoError(t, f.Exchange("a", "b"))

	hook.OnCall = FailFrom(OpOpen, 1, syscall.EMFILE)
	_, err = f.Open("a")
	wantErr(t, err, syscall.EMFILE)
	hook.OnCall = nil

	h, err := f.OpenFile("a", os.O_RDWR, 0)
	need.NoError(t, err)
	hook.OnCall = FailFrom(OpWrite, 1, Partial(syscall.ENOSPC))
	n, err := h.WriteAt([]byte("1234"), 1)
	wantErr(t, err, syscall.ENOSPC)
	if n != 2 || read(t, f, "a") != "A12" {
		t.Fatal(n, read(t, f, "a"))
	}
	hook.OnCall = func(Call) error { return Partial(syscall.EIO) }
	wantErr(t, f.Mkdir("d", 0o755), syscall.EIO)
	hook.OnCall = nil
	need.NoError(t, h.Close())
}

func TestStop(t *testing.T) {
	killed := errors.New("killed")
	m := NewMem(MemOptions{})
	hook := &Hook{}
	f := Inject(m, hook)
	h, err := f.OpenFile("a", os.O_RDWR|os.O_CREATE, 0o644)
	need.NoError(t, err)
	hook.StopAt(3, Partial(killed))
	_, err = h.Write([]byte("12"))
	need.NoError(t, err)
	if hook.Stopped() {
		t.Fatal("too early")
	}
	n, err := h.Write([]byte("3456"))
	wantErr(t, err, killed)
	if n != 2 || !hook.Stopped() {
		t.Fatal(n)
	}
	n, err = h.Write([]byte("78"))
	wantErr(t, err, killed)
	if n != 0 {
		t.Fatal("written after the stop")
	}
	wantErr(t, h.Sync(), killed)
	wantErr(t, f.Mkdir("d", 0o755), killed)
	_, err = f.Open("a")
	wantErr(t, err, killed)
	need.NoError(t, h.Close())
	if got := read(t, m, "a"); got != "1234" {
		t.Fatal(got)
	}
	// A process that is gone has not failed to sync: its pages are still dirty.
	h, err = m.Open("a")
	need.NoError(t, err)
	need.NoError(t, h.Sync())
	need.NoError(t, m.SyncDir("."))
	if got := read(t, m.CrashClone(CrashOptions{Mode: CrashSyncedOnly}), "a"); got != "1234" {
		t.Fatal(got)
	}
}

func TestOnCallMayClone(t *testing.T) {
	m := NewMem(MemOptions{})
	var clones []*Mem
	f := Inject(m, &Hook{OnCall: func(Call) error {
		clones = append(clones, m.CrashClone(CrashOptions{Mode: CrashNothing}))
		return nil
	}})
	need.NoError(t, f.Mkdir("a", 0o755))
	need.NoError(t, f.Mkdir("b", 0o755))
	if len(names(t, clones[0], ".")) != 0 || len(names(t, clones[1], ".")) != 1 {
		t.Fatal("not the moment before the call")
	}
}
