package gitstore

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"fmt"
	mrand "math/rand/v2"
	"strings"
	"syscall"
	"testing"

	"umbra/gitstore/journal"
	"umbra/gitstore/message"
	"umbra/gitstore/object"
	"umbra/internal/errs"
	"umbra/internal/need"
	"umbra/internal/vfs"
	"umbra/internal/wspath"
)

// faulty is a store whose calls a test fails at will.
type faulty struct {
	*Store
	mem  *vfs.Mem
	fail func(vfs.Call) error // nil: nothing fails
}

func newFaulty(t *testing.T) *faulty {
	t.Helper()
	f := &faulty{mem: vfs.NewMem(vfs.MemOptions{})}
	hook := &vfs.Hook{OnCall: func(c vfs.Call) error {
		if f.fail != nil {
			return f.fail(c)
		}
		return nil
	}}
	var err error
	if f.Store, err = Open(t.Context(), Options{FS: vfs.Inject(f.mem, hook), Foreground: true}); err != nil {
		t.Fatal(err)
	}
	baselineOf(t, f.Store, map[string]string{"a": "1\n"})
	need.NoError(t, f.Publish(t.Context()))
	return f
}

// noise is text that does not compress.
func noise(n int) string {
	b := make([]byte, n)
	_, _ = rand.Read(b)
	return base64.StdEncoding.EncodeToString(b)
}

// full reports that the disk has no room for a salvaged journal, and that the
// open journal's sync fails while sync is set.
func full(sync *bool) func(vfs.Call) error {
	return func(c vfs.Call) error {
		if *sync && c.Op == vfs.OpFdatasync && strings.HasPrefix(c.Name, "journal/") ||
			c.Op == vfs.OpCreate && strings.HasSuffix(c.Name, ".journal.new") {
			return syscall.ENOSPC
		}
		return nil
	}
}

// A full disk leaves an open journal that can be neither written nor salvaged,
// with a full one before it: what a publication notes then must lose nothing,
// neither at a crash nor at a clean stop.
func TestPublishWithUnsoundJournal(t *testing.T) {
	ctx := t.Context()
	for name, after := range map[string]func(t *testing.T, f *faulty) (*vfs.Mem, uint64){
		"killed": func(_ *testing.T, f *faulty) (*vfs.Mem, uint64) {
			return f.mem.CrashClone(vfs.CrashOptions{Mode: vfs.CrashNothing}), f.Tip().Seq
		},
		"power failure": func(_ *testing.T, f *faulty) (*vfs.Mem, uint64) {
			return f.mem.CrashClone(vfs.CrashOptions{Mode: vfs.CrashSyncedOnly}), f.Tip().Seq
		},
		"stopped with room again": func(t *testing.T, f *faulty) (*vfs.Mem, uint64) {
			f.fail = nil
			last := mustPut(t, f.Store, "", "later", "of no task\n").Seq
			need.NoError(t, f.Close(ctx))
			return f.mem, last
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFaulty(t)
			if _, err := f.PutTask(ctx, message.Info{TaskID: "t", Goal: "g", Status: "executing"}, ID{}); err != nil {
				t.Fatal(err)
			}
			for i := 0; len(f.logs.closing) == 0; i++ { // until one journal is full
				mustPut(t, f.Store, "t", fmt.Sprintf("f%d", i), noise(4000))
			}
			mustPut(t, f.Store, "t", "g", "in the open journal\n")
			sync := true
			f.fail = full(&sync)
			if _, err := put(ctx, f.Store, "t", "h", "fails\n"); err == nil {
				t.Fatal("the write did not fail")
			}
			sync = false
			if err := f.Publish(ctx); err == nil {
				t.Error("a publication that cannot show everything says that it did")
			}
			mem, last := after(t, f)
			s, err := Open(ctx, Options{FS: mem, Foreground: true})
			need.NoError(t, err)
			defer s.Close(context.WithoutCancel(ctx))
			if s.Tip().Seq < last {
				t.Errorf("%d acknowledged commits are lost; %q", last-s.Tip().Seq, s.Warnings())
			}
			if _, ok := s.Task("t"); !ok {
				t.Error("the acknowledged task is lost")
			}
		})
	}
}

// While the ref log cannot be written no ref is moved; then each is known for ours.
func TestRefLogNotWritten(t *testing.T) {
	ctx := t.Context()
	f := newFaulty(t)
	defer f.Close(context.WithoutCancel(ctx))
	mustPut(t, f.Store, "", "f", "one")
	f.fail = func(c vfs.Call) error {
		if c.Name == "refs" || c.Name == "refs.tmp" {
			return syscall.ENOSPC
		}
		return nil
	}
	for range 2 {
		if err := f.Publish(ctx); err == nil {
			t.Fatal("the ref log was written")
		}
	}
	f.fail = nil
	mustPut(t, f.Store, "", "f", "two")
	need.NoError(t, f.Publish(ctx))
	if w := f.Warnings(); len(w) > 0 {
		t.Errorf("nobody else touched a ref: %q", w)
	}
}

// A stop while nothing can be published ends the publisher: it tried again without a
// pause, for ever.
func TestStopWhilePublishingFails(t *testing.T) {
	f := newFaulty(t)
	defer f.Close(context.WithoutCancel(t.Context()))
	mustPut(t, f.Store, "", "f", "one")
	ctx, stop := context.WithCancel(t.Context())
	tries := 0
	f.fail = func(c vfs.Call) error {
		if c.Name != "refs" && c.Name != "refs.tmp" {
			return nil
		}
		stop()
		if tries++; tries > 100 { // let it end
			return nil
		}
		return syscall.ENOSPC
	}
	f.pub.run(ctx)
	f.fail = nil
	if tries > 2 {
		t.Errorf("tried %d times after the stop", tries)
	}
}

// While nothing can be published, no publication adds a journal to those that
// wait; the writers' own full ones are bounded, and what must be recorded still
// is.
func TestJournalsThatWait(t *testing.T) {
	ctx := t.Context()
	f := newFaulty(t)
	f.fail = func(c vfs.Call) error {
		if c.Name == "refs" || c.Name == "refs.tmp" {
			return syscall.EIO
		}
		return nil
	}
	for i := range 20 {
		mustPut(t, f.Store, "", "f", fmt.Sprint(i))
		if err := f.Publish(ctx); err == nil {
			t.Fatal("published")
		}
	}
	if n := len(f.logs.closing); n > 1 {
		t.Errorf("%d journals wait after 20 failures", n)
	}
	acked := f.Tip().Seq
	for range 32 * journal.MaxPrepared / 4000 {
		c, err := put(ctx, f.Store, "", "g", noise(4000))
		if errs.CodeOf(err) == "publishing_blocked" {
			break
		}
		need.NoError(t, err)
		acked = c.Seq
	}
	if n := len(f.logs.closing); n != maxClosing {
		t.Fatalf("%d journals wait", n)
	}
	b := f.NewBlob([]byte("must"))
	c, err := f.Commit(ctx, Draft{Must: true, Entries: 1, Edits: []Edit{{Path: "m", Mode: 0o100644, Blob: b}},
		Message: message.Message{Source: message.Rollback, Entries: []message.Entry{{Operation: message.Create, Path: "m", AfterHash: b.AfterHash()}}}})
	if err != nil || c.Seq != acked+1 {
		t.Errorf("what must be recorded: %v, %+v", err, c)
	}
	f.fail = nil
	need.NoError(t, f.Publish(ctx))
	if n := len(f.logs.closing); n != 0 {
		t.Errorf("%d journals wait after a publication", n)
	}
	mustPut(t, f.Store, "", "f", "as before")
	need.NoError(t, f.Close(ctx))
	s, err := Open(ctx, Options{FS: f.mem, Foreground: true})
	need.NoError(t, err)
	defer s.Close(context.WithoutCancel(ctx))
	if s.Tip().Seq != c.Seq+1 {
		t.Errorf("the tip is %d, not %d", s.Tip().Seq, c.Seq+1)
	}
}

// A power failure while the note is written keeps any part of it: no journal is
// noted as shown whose refs are not.
func TestNoteAtAPowerFailure(t *testing.T) {
	ctx := t.Context()
	f := newFaulty(t)
	acked, tasks, cuts, lost := f.Tip().Seq, map[string]bool{}, 0, 0
	f.fail = func(c vfs.Call) error {
		if c.Op != vfs.OpFdatasync || c.Name != "refs" && c.Name != "refs.tmp" { // a rewritten file was opened as refs.tmp
			return nil
		}
		for seed := range uint64(12) {
			cuts++
			s, err := Open(ctx, Options{FS: f.mem.CrashClone(vfs.CrashOptions{Mode: vfs.CrashRandom, Rand: mrand.New(mrand.NewPCG(uint64(c.N), seed))}), Foreground: true})
			if err != nil {
				t.Errorf("call %d, seed %d: %v", c.N, seed, err)
				continue
			}
			if s.Tip().Seq < acked {
				lost++
			}
			for id := range tasks {
				if _, ok := s.Task(id); !ok {
					lost++
				}
			}
			_ = s.Close(ctx)
		}
		return nil
	}
	for round := range 40 {
		id := fmt.Sprintf("task%04d", round)
		if round%3 == 0 {
			if _, err := f.PutTask(ctx, message.Info{TaskID: id, Goal: "g", Status: "executing"}, ID{}); err != nil {
				t.Fatal(err)
			}
			tasks[id] = true
		}
		acked = mustPut(t, f.Store, "", "f", fmt.Sprint(round)).Seq
		need.NoError(t, f.Publish(ctx))
	}
	f.fail = nil
	need.NoError(t, f.Close(ctx))
	if lost > 0 || cuts == 0 {
		t.Errorf("%d commits and tasks lost in %d power failures", lost, cuts)
	}
}

// A directory that history could not read again is refused, and only it.
func TestDirectoryTooLarge(t *testing.T) {
	before := maxTree
	maxTree = 4 << 10
	defer func() { maxTree = before }()
	ctx := t.Context()
	f := newFaulty(t)
	defer f.Close(context.WithoutCancel(ctx))
	refused := false
	for i := range 200 {
		_, err := put(ctx, f.Store, "", fmt.Sprintf("d/%060d", i), "x")
		if errs.CodeOf(err) == "directory_too_large" && errs.Is(err, errs.TooLarge) {
			refused = true
			break
		}
		need.NoError(t, err)
	}
	if !refused {
		t.Fatal("the directory grew beyond the limit")
	}
	tip := f.Tip().Seq
	if c := mustPut(t, f.Store, "", "elsewhere", "x"); c.Seq != tip+1 {
		t.Errorf("the next commit is %d after %d", c.Seq, tip)
	}
	need.NoError(t, f.Publish(ctx))
	s, err := Open(ctx, Options{FS: vfs.NewMem(vfs.MemOptions{}), Foreground: true})
	need.NoError(t, err)
	defer s.Close(context.WithoutCancel(ctx))
	_, err = s.Baseline(ctx, message.Message{Source: message.Baseline}, func(add AddFile) error {
		for i := range 200 {
			if _, err := add(wspath.Path(fmt.Sprintf("d/%060d", i)), object.Regular, strings.NewReader("x"), 1); err != nil {
				return err
			}
		}
		return nil
	})
	if errs.CodeOf(err) != "directory_too_large" {
		t.Errorf("a baseline: %v", err)
	}
}
