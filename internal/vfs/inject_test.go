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
)

func TestHookSeesCalls(t *testing.T) {
	var seen []string
	hook := &Hook{OnCall: func(c Call) error {
		seen = append(seen, fmt.Sprintf("%d %s#%d %s", c.N, c.Op, c.OpN, c.Name))
		return nil
	}}
	f := Inject(NewMem(MemOptions{}), hook)
	must(t, f.Mkdir("d", 0o755))
	sub, err := f.Sub("d")
	must(t, err)
	h, err := sub.CreateUnlinked(".", 0o644)
	must(t, err)
	_, err = h.Write([]byte("x"))
	must(t, err)
	must(t, sub.LinkFile(h, "f"))
	_, err = h.WriteAt([]byte("y"), 1)
	must(t, err)
	must(t, h.Datasync())
	must(t, h.Sync())
	must(t, h.StartWriteout())
	must(t, h.Close())
	must(t, sub.SyncDir("."))
	_ = read(t, f, "d/f")
	must(t, f.Remove("d/f"))
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
	must(t, f.Exchange("a", "b"))
	err := f.Exchange("a", "b")
	wantErr(t, err, syscall.EROFS)
	if p, ok := errors.AsType[*fs.PathError](err); !ok || p.Op != OpExchange {
		t.Fatalf("%T", err)
	}
	if read(t, f, "a") != "B" {
		t.Fatal("done all the same")
	}
	must(t, f.Exchange("a", "b"))

	hook.OnCall = FailFrom(OpOpen, 1, syscall.EMFILE)
	_, err = f.Open("a")
	wantErr(t, err, syscall.EMFILE)
	hook.OnCall = nil

	h, err := f.OpenFile("a", os.O_RDWR, 0)
	must(t, err)
	hook.OnCall = FailFrom(OpWrite, 1, Partial(syscall.ENOSPC))
	n, err := h.WriteAt([]byte("1234"), 1)
	wantErr(t, err, syscall.ENOSPC)
	if n != 2 || read(t, f, "a") != "A12" {
		t.Fatal(n, read(t, f, "a"))
	}
	hook.OnCall = func(Call) error { return Partial(syscall.EIO) }
	wantErr(t, f.Mkdir("d", 0o755), syscall.EIO)
	hook.OnCall = nil
	must(t, h.Close())
}

func TestStop(t *testing.T) {
	killed := errors.New("killed")
	m := NewMem(MemOptions{})
	hook := &Hook{}
	f := Inject(m, hook)
	h, err := f.OpenFile("a", os.O_RDWR|os.O_CREATE, 0o644)
	must(t, err)
	hook.StopAt(3, Partial(killed))
	_, err = h.Write([]byte("12"))
	must(t, err)
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
	must(t, h.Close())
	if got := read(t, m, "a"); got != "1234" {
		t.Fatal(got)
	}
	// A process that is gone has not failed to sync: its pages are still dirty.
	h, err = m.Open("a")
	must(t, err)
	must(t, h.Sync())
	must(t, m.SyncDir("."))
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
	must(t, f.Mkdir("a", 0o755))
	must(t, f.Mkdir("b", 0o755))
	if len(names(t, clones[0], ".")) != 0 || len(names(t, clones[1], ".")) != 1 {
		t.Fatal("not the moment before the call")
	}
}
