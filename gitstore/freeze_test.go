package gitstore

import (
	"context"
	"fmt"
	"os"
	"path"
	"strings"
	"sync"
	"testing"

	"umbra/gitstore/message"
	"umbra/gitstore/refs"
	"umbra/gitstore/storedir"
	"umbra/internal/errs"
	"umbra/internal/need"
	"umbra/internal/vfs"
)

// thaw writes a moment into a new folder, as a copy of the store would hold it,
// and opens that.
func thaw(t *testing.T, from vfs.FS, f *Frozen) *Store {
	t.Helper()
	to := vfs.NewMem(vfs.MemOptions{})
	put := func(name string, data []byte) {
		t.Helper()
		for i, c := range name {
			if c == '/' {
				to.Mkdir(name[:i], 0o755) // there already, or the write below fails
			}
		}
		h, err := to.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
		need.NoError(t, err)
		if _, err := h.Write(data); err != nil {
			t.Fatal(err)
		}
		h.Close()
	}
	for _, file := range f.Files {
		put(file.Name, file.Data)
	}
	for _, name := range f.Packs {
		data, err := vfs.ReadFile(from, name)
		need.NoError(t, err)
		put(name, data)
	}
	s, err := Open(context.Background(), Options{FS: to, Foreground: true, InlineBlob: 2 << 10})
	need.NoError(t, err)
	t.Cleanup(func() { s.Close(context.Background()) })
	if r := s.Recovery(); len(r.Torn) > 0 || r.Foreign > 0 {
		t.Errorf("%+v", r)
	}
	if s.Tip() != f.Tip {
		t.Errorf("the copy's tip is %+v, the moment's %+v", s.Tip(), f.Tip)
	}
	if rep, err := s.Verify(context.Background(), nil); err != nil || len(rep.Problems) > 0 {
		t.Errorf("%q %v", rep.Problems, err)
	}
	return s
}

// TestFreezeUnderLoad takes moments while several write, small and large.
func TestFreezeUnderLoad(t *testing.T) {
	ctx := context.Background()
	mem := vfs.NewMem(vfs.MemOptions{})
	s, err := Open(ctx, Options{FS: mem, InlineBlob: 2 << 10})
	need.NoError(t, err)
	defer s.Close(ctx)
	if _, err := put(ctx, s, "", "first", "1"); err != nil {
		t.Fatal(err)
	}
	if _, err := s.PutTask(ctx, message.Info{TaskID: "t", Goal: "g", Status: "executing"}, ID{}); err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for w := range 3 {
		wg.Go(func() {
			for n := range 60 {
				text := fmt.Sprintf("%d %d", w, n)
				if n%20 == 7 {
					text += strings.Repeat("x", 3<<10)
				}
				if _, err := put(ctx, s, "t", fmt.Sprintf("w%d/f%d", w, n%9), text); err != nil {
					t.Error(err)
				}
			}
		})
	}
	for range 8 {
		before := s.Tip()
		f, err := s.Freeze(ctx)
		need.NoError(t, err)
		if f.Tip.Seq < before.Seq {
			t.Errorf("commit %d was answered before, the moment is %d", before.Seq, f.Tip.Seq)
		}
		if k, ok := thaw(t, mem, f).Task("t"); !ok || k.Info.Goal != "g" {
			t.Error("the task is gone")
		}
	}
	wg.Wait()
}

// TestFreezeWhileLocked takes a moment while somebody holds the ref: what is
// durable is in it.
func TestFreezeWhileLocked(t *testing.T) {
	ctx := t.Context()
	mem := vfs.NewMem(vfs.MemOptions{})
	s, err := Open(ctx, Options{FS: mem, Foreground: true})
	need.NoError(t, err)
	defer s.Close(context.Background())
	for i := range 3 {
		if _, err := put(ctx, s, "", "f", fmt.Sprint(i)); err != nil {
			t.Fatal(err)
		}
		if i == 0 {
			need.NoError(t, s.Publish(ctx))
			h, err := mem.OpenFile(path.Join(storedir.Repo, refs.ShadowRef+".lock"), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644)
			need.NoError(t, err)
			h.Close()
		}
	}
	for range 2 {
		f, err := s.Freeze(ctx)
		need.NoError(t, err)
		if f.Tip.Seq != 3 {
			t.Errorf("%+v", f.Tip)
		}
		thaw(t, mem, f)
	}
	need.NoError(t, mem.Remove(path.Join(storedir.Repo, refs.ShadowRef+".lock")))
}

// TestRoom has drafts with new content fail, and no others.
func TestRoom(t *testing.T) {
	ctx := context.Background()
	mem := vfs.NewMem(vfs.MemOptions{})
	var floor error
	s, err := Open(ctx, Options{FS: mem, Foreground: true, MaxHistory: 4 << 10, Room: func(int64) error { return floor }})
	need.NoError(t, err)
	defer s.Close(ctx)
	if _, err := put(ctx, s, "", "f", "1"); err != nil {
		t.Fatal(err)
	}
	tip := s.Tip()
	floor = errs.New(errs.NoSpace, "insufficient_storage", "full")
	if _, err := put(ctx, s, "", "g", "2"); errs.CodeOf(err) != "insufficient_storage" || s.Tip() != tip {
		t.Errorf("%v", err)
	}
	if _, err := s.Commit(ctx, Draft{Edits: []Edit{{Path: "f"}}, AllowEmpty: true, Message: message.Message{Source: message.API}}); err != nil {
		t.Errorf("a delete: %v", err)
	}
	b := s.NewBlob([]byte("must"))
	if _, err := s.Commit(ctx, Draft{Edits: []Edit{{Path: "must", Mode: 0o100644, Blob: b}}, Must: true, Message: message.Message{Source: message.API}}); err != nil {
		t.Errorf("what must be recorded: %v", err)
	}
	floor = nil
	for i := 0; ; i++ {
		_, err := put(ctx, s, "", fmt.Sprint("n", i), fmt.Sprint(i))
		if errs.CodeOf(err) == "quota_exceeded" {
			break
		}
		if err != nil || i > 1000 {
			t.Fatal(i, err)
		}
	}
	if n := s.HistoryBytes(); n < 3<<10 || n > 5<<10 { // a commit and its trees come on top
		t.Errorf("refused at %d bytes", n)
	}
	if n := s.DiskBytes(); n < s.HistoryBytes() {
		t.Errorf("%d bytes on disk", n)
	}
}
