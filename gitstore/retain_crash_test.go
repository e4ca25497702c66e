package gitstore

import (
	"context"
	"fmt"
	"math/rand/v2"
	"syscall"
	"testing"
	"time"

	"umbra/gitstore/message"
	"umbra/gitstore/object"
	"umbra/internal/errs"
	"umbra/internal/need"
	"umbra/internal/vfs"
	"umbra/internal/wspath"
)

// cutting is a history whose older part is dropped, and collected, twice, with
// commits before, between and after.
type cutting struct {
	now   time.Time
	acked []Committed // by number, from 1
	last  map[string]string
	begin uint64 // the newest boundary that was answered
	kept  map[string]bool
	reach int // calls before the first cut
}

func (c *cutting) options(fs vfs.FS) Options {
	return Options{FS: fs, Foreground: true, InlineBlob: 2 << 10, MergeGrace: time.Minute, Now: func() time.Time { return c.now },
		InUse: func(context.Context, []vfs.Info, []vfs.Info) (bool, error) { return false, nil }}
}

// play runs it; it ends at the first error.
func (c *cutting) play(fs vfs.FS, calls func() int) error {
	ctx := context.Background()
	c.now, c.last, c.kept = time.Unix(1_700_000_000, 0), map[string]string{}, map[string]bool{}
	s, err := Open(ctx, c.options(fs))
	if err != nil {
		return err
	}
	defer s.Close(ctx)
	note := func(done Committed, err error) error {
		if err == nil {
			c.acked = append(c.acked, done)
		}
		return err
	}
	done, err := s.Baseline(ctx, message.Message{Source: message.Baseline}, func(add AddFile) error {
		for i := range 3 {
			text := fmt.Sprintf("base %d\n", i)
			if _, err := add(wspath.Path(fmt.Sprintf("d%d/f", i)), object.Regular, newReader(text), int64(len(text))); err != nil {
				return err
			}
			c.last[fmt.Sprintf("d%d/f", i)] = text
		}
		return nil
	})
	if err := note(done, err); err != nil {
		return err
	}
	write := func(task string, n int) error {
		for i := range n {
			c.now = c.now.Add(time.Minute)
			path, text := fmt.Sprintf("d%d/f", i%3), fmt.Sprintf("%s %d of %d\n", task, i, len(c.acked))
			done, err := put(ctx, s, task, path, text)
			if err := note(done, err); err != nil {
				return err
			}
			c.last[path] = text
			if i%4 == 3 {
				if err := s.Publish(ctx); err != nil {
					return err
				}
			}
		}
		return nil
	}
	status := func(task, status string) error {
		_, err := s.PutTask(ctx, message.Info{TaskID: task, Goal: task, Status: status, Updated: c.now}, ID{})
		return err
	}
	for i, task := range []string{"first", "second", "third"} {
		if err := status(task, "executing"); err != nil {
			return err
		}
		if err := write(task, 9+i); err != nil {
			return err
		}
		if task == "third" {
			break
		}
		if err := status(task, "completed"); err != nil {
			return err
		}
	}
	if err := s.Publish(ctx); err != nil {
		return err
	}
	c.reach = calls()
	for _, at := range []uint64{14, 18} {
		if err := c.cut(ctx, s, at); err != nil {
			return err
		}
		c.now = c.now.Add(2 * time.Minute)
		if err := s.Maintain(ctx); err != nil {
			return err
		}
		if err := write("third", 3); err != nil {
			return err
		}
	}
	return nil
}

// cut drops what is before a commit and collects.
func (c *cutting) cut(ctx context.Context, s *Store, at uint64) error {
	_, err := s.Retain(ctx, RetainOptions{Before: c.acked[at-1].When.Add(time.Second), Keep: func(tasks []Task) error {
		for _, t := range tasks {
			c.kept[t.ID] = true
		}
		return nil
	}})
	if err != nil {
		return err
	}
	c.begin = max(c.begin, at)
	_, err = s.Collect(ctx, CollectOptions{Thorough: true, Now: at > 14})
	return err
}

// check looks at what a crash left, and finishes it.
func (c *cutting) check(t *testing.T, m *vfs.Mem, fsckIt bool) {
	ctx := t.Context()
	s, err := Open(ctx, c.options(m))
	if err != nil {
		t.Fatalf("open after the crash: %v", err)
	}
	defer s.Close(ctx)
	c.holds(t, s)
	for _, at := range []uint64{14, 18} {
		if err := c.cut(ctx, s, at); err != nil {
			t.Fatalf("the next run: %v", err)
		}
		c.holds(t, s)
	}
	if s.Boundary().Seq != 18 {
		t.Fatalf("history begins at %v", s.Boundary())
	}
	for _, id := range []string{"first", "second", "third"} {
		task, ok := s.Task(id)
		if ok != (id != "first") || id == "first" && !c.kept[id] {
			t.Errorf("task %s is there: %v, its record was kept: %v", id, ok, c.kept[id])
		}
		if ok && task.BaseDropped() != (id == "second") {
			t.Errorf("task %s: base dropped: %v", id, task.BaseDropped())
		}
	}
	if _, err := put(ctx, s, "third", "after", "the crash\n"); err != nil {
		t.Fatal(err)
	}
	need.NoError(t, s.Publish(ctx))
	if fsckIt {
		dir := testDir(t)
		need.NoError(t, m.Export(dir))
		fsck(t, dir, "--no-dangling")
	}
}

// holds: everything that was answered from the boundary on is there, all of it
// sound, and what lies before it is dropped and nothing else.
func (c *cutting) holds(t *testing.T, s *Store) {
	t.Helper()
	ctx := t.Context()
	if begin := s.Boundary().Seq; begin < c.begin || begin > 18 {
		t.Fatalf("history begins at %d, answered was %d", begin, c.begin)
	}
	if tip := s.Tip(); tip.Seq < uint64(len(c.acked)) {
		t.Fatalf("%d commits were answered, %d are there", len(c.acked), tip.Seq)
	}
	for i, want := range c.acked {
		got, err := s.CommitAt(ctx, uint64(i+1))
		if uint64(i+1) < s.Boundary().Seq {
			if !errs.Is(err, errs.Gone) {
				t.Fatalf("commit %d before the boundary: %s, %v", i+1, got, err)
			}
			if _, err := s.ReadCommit(ctx, want.Commit); !errs.Is(err, errs.Gone) {
				t.Fatalf("commit %d before the boundary is read: %v", i+1, err)
			}
		} else if err != nil || got != want.Commit {
			t.Fatalf("commit %d is %s (%v), answered was %s", i+1, got, err, want.Commit)
		}
	}
	for path, want := range c.last {
		if e, ok, err := s.Snapshot().Lookup(wspath.Path(path)); err != nil || !ok {
			t.Fatalf("%s: %v, %v", path, ok, err)
		} else if data, err := s.ReadBlob(ctx, e.ID, 1<<20); err != nil || string(data) != want && s.Tip().Seq == uint64(len(c.acked)) {
			t.Fatalf("%s is %q (%v), not %q", path, data, err, want)
		}
	}
	if rep, err := s.Verify(ctx, nil); err != nil || len(rep.Problems) > 0 {
		t.Fatalf("verify: %v %v", rep.Problems, err)
	}
}

// TestCutCrashAtEveryCall kills it, and cuts the power, at every file system call
// of dropping and collecting.
func TestCutCrashAtEveryCall(t *testing.T) {
	h := &vfs.Hook{}
	var whole cutting
	need.NoError(t, whole.play(vfs.Inject(vfs.NewMem(vfs.MemOptions{}), h), h.Count))
	points := 0
	for n := whole.reach + 1; n <= h.Count(); n += stride() {
		h := &vfs.Hook{}
		h.StopAt(n, errKilled)
		mem := vfs.NewMem(vfs.MemOptions{})
		var c cutting
		c.play(vfs.Inject(mem, h), h.Count) // ends with an error: it was killed
		for _, mode := range []vfs.CrashMode{vfs.CrashNothing, vfs.CrashSyncedOnly, vfs.CrashNamesOnly, vfs.CrashRandom} {
			points++
			clone := mem.CrashClone(vfs.CrashOptions{Mode: mode, Rand: rand.New(rand.NewPCG(uint64(n), 7))})
			again := c
			again.acked, again.kept = append([]Committed(nil), c.acked...), map[string]bool{}
			for id := range c.kept {
				again.kept[id] = true
			}
			if !t.Run(fmt.Sprintf("call %d %v", n, mode), func(t *testing.T) { again.check(t, clone, points%53 == 0) }) {
				t.FailNow()
			}
		}
	}
	t.Logf("%d crash points at %d calls", points, h.Count()-whole.reach)
}

// TestCutErrorAtEveryCall has each call fail once.
func TestCutErrorAtEveryCall(t *testing.T) {
	h := &vfs.Hook{}
	var whole cutting
	need.NoError(t, whole.play(vfs.Inject(vfs.NewMem(vfs.MemOptions{}), h), h.Count))
	for n := whole.reach + 1; n <= h.Count(); n += stride() {
		for _, errno := range []syscall.Errno{syscall.EIO, syscall.ENOSPC} {
			if errno == syscall.ENOSPC && n%3 != 0 {
				continue
			}
			h := &vfs.Hook{OnCall: func(c vfs.Call) error {
				if c.N == n {
					return vfs.Partial(errno)
				}
				return nil
			}}
			mem := vfs.NewMem(vfs.MemOptions{})
			var c cutting
			c.play(vfs.Inject(mem, h), h.Count)
			clone := mem.CrashClone(vfs.CrashOptions{Mode: vfs.CrashSyncedOnly})
			if !t.Run(fmt.Sprintf("%v at call %d", errno, n), func(t *testing.T) { c.check(t, clone, false) }) {
				t.FailNow()
			}
		}
	}
}
