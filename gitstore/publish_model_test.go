package gitstore

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"umbra/gitstore/journal"
	"umbra/gitstore/message"
	"umbra/gitstore/refs"
	"umbra/gitstore/repo"
	"umbra/gitstore/storedir"
	"umbra/internal/errs"
	"umbra/internal/need"
	"umbra/internal/vfs"
)

// diskFaults are the ways in which the model's disk fails for a while.
var diskFaults = map[string]func(vfs.Call) error{
	"sound": nil,
	"journals cannot be synced nor salvaged": func(c vfs.Call) error {
		if c.Op == vfs.OpFdatasync && strings.HasPrefix(c.Name, "journal/") || strings.HasSuffix(c.Name, ".journal.new") {
			return syscall.ENOSPC
		}
		return nil
	},
	"no packs": func(c vfs.Call) error { return failsAt(c, storedir.Packs, syscall.EIO) },
	"no ref log": func(c vfs.Call) error {
		if c.Name == "refs" || c.Name == "refs.tmp" {
			return vfs.Partial(syscall.ENOSPC)
		}
		return nil
	},
	"no refs":      func(c vfs.Call) error { return failsAt(c, storedir.Repo+"/refs", syscall.EROFS) },
	"no tasks":     func(c vfs.Call) error { return failsAt(c, storedir.Repo+"/refs/umbra/tasks", syscall.EMFILE) },
	"nothing goes": func(c vfs.Call) error { return failsAt(c, "", syscall.EIO) },
}

func failsAt(c vfs.Call, dir string, err error) error {
	if strings.HasPrefix(c.Name, dir) {
		return err
	}
	return nil
}

// Commits, tasks, full journals, publications and starts in any order, on a disk
// that fails for a while in one way or the other: what was acknowledged is there
// after a kill and after a power failure at any time, and no value of ours is taken
// for another process's.
func TestPublicationModel(t *testing.T) {
	modes := slices.Sorted(maps.Keys(diskFaults)) // for the seeds
	runs := 40
	if testing.Short() {
		runs = 4
	}
	for seed := range uint64(runs) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			rnd := rand.New(rand.NewPCG(seed, 17))
			ctx := context.Background()
			f := newFaulty(t)
			acked, goals := f.Tip().Seq, map[string]int{}
			look := func(s *Store, when string) {
				t.Helper()
				if s.Tip().Seq < acked {
					t.Fatalf("%s: %d commits of %d; %q", when, s.Tip().Seq, acked, s.Warnings())
				}
				for id, goal := range goals {
					// One that was not acknowledged may be there.
					task, _ := s.Task(id)
					if is, err := strconv.Atoi(task.Info.Goal); err != nil || is < goal {
						t.Fatalf("%s: task %s is %+v, acknowledged was %d", when, id, task.Info, goal)
					}
				}
				for _, w := range s.Warnings() {
					if strings.Contains(w, "foreign") || strings.Contains(w, "moved by") || strings.Contains(w, "put back") {
						t.Fatalf("%s: %s", when, w)
					}
				}
			}
			crash := func(when string) {
				t.Helper()
				for _, mode := range []vfs.CrashMode{vfs.CrashNothing, vfs.CrashSyncedOnly, vfs.CrashRandom} {
					s, err := Open(ctx, Options{FS: f.mem.CrashClone(vfs.CrashOptions{Mode: mode, Rand: rnd}), Foreground: true})
					if err != nil {
						t.Fatalf("%s, %s: %v", when, mode, err)
					}
					look(s, fmt.Sprint(when, ", ", mode))
					need.NoError(t, s.Close(ctx))
				}
			}
			calls := 0
			disk := f.fail
			f.fail = func(c vfs.Call) error {
				if calls++; calls%97 == int(seed)%97 {
					crash(fmt.Sprintf("before %s %s", c.Op, c.Name))
				}
				if disk != nil {
					return disk(c)
				}
				return nil
			}
			for step := range 60 {
				size := 10
				switch rnd.IntN(8) {
				case 0:
					disk = diskFaults[modes[rnd.IntN(len(modes))]]
				case 1, 2:
					disk = nil
				case 3:
					id := fmt.Sprint("t", rnd.IntN(4))
					if _, err := f.PutTask(ctx, message.Info{TaskID: id, Goal: fmt.Sprint(step), Status: "executing"}, ID{}); err == nil {
						goals[id] = step
					}
				case 4, 5:
					_ = f.Publish(ctx)
				case 6:
					size = 20_000 // two or three fill a journal
					fallthrough
				default:
					if c, err := put(ctx, f.Store, "", fmt.Sprint("f", rnd.IntN(5)), noise(size)); err == nil {
						acked = c.Seq
					}
				}
			}
			disk = nil
			need.NoError(t, f.Publish(ctx))
			look(f.Store, "at the end")
			if n := len(f.logs.closing); n > 0 || len(f.r.Note.Pending()) > 0 {
				t.Errorf("%d journals wait, refs %v", n, f.r.Note.Pending())
			}
			need.NoError(t, f.Close(ctx))
			crash("stopped")
		})
	}
}

// A ref that cannot be moved stops no other one, and no journal: it is named, and
// moved later.
func TestOneRefFails(t *testing.T) {
	ctx := t.Context()
	for name, task := range map[string]string{"a task": "b", "the history": ""} {
		t.Run(name, func(t *testing.T) {
			f := newFaulty(t)
			for _, id := range []string{"a.", "b", "c"} {
				if _, err := f.PutTask(ctx, message.Info{TaskID: id, Goal: "g", Status: "executing"}, ID{}); err != nil {
					t.Fatal(err)
				}
			}
			need.NoError(t, f.Publish(ctx))
			bad := refs.ShadowRef
			if task != "" {
				bad = storedir.Tasks + task + "/head"
			}
			f.fail = func(c vfs.Call) error {
				if c.Op == vfs.OpRename && c.Name == storedir.Repo+"/"+bad {
					return syscall.EIO
				}
				return nil
			}
			for _, id := range []string{"a.", "b", "c"} {
				mustPut(t, f.Store, id, "f", "of "+id)
			}
			tip := f.Tip()
			for range 2 {
				if err := f.Publish(ctx); (err != nil) != (bad == refs.ShadowRef) {
					t.Errorf("publishing: %v", err)
				}
			}
			for _, id := range []string{"a.", "b", "c"} {
				want, _ := f.Task(id)
				if now, _, _, err := f.r.Refs.Read(storedir.Tasks + id + "/head"); err != nil || (now == want.Head) != (id != task) {
					t.Errorf("the head of %s is %s, %v", id, now, err)
				}
			}
			if now, _, _, err := f.r.Refs.Read(refs.ShadowRef); err != nil || (now == tip.Commit) != (bad != refs.ShadowRef) {
				t.Errorf("%s is %s, %v", refs.ShadowRef, now, err)
			}
			if w := f.Warnings(); len(w) != 1 || !strings.HasPrefix(w[0], bad+" ") {
				t.Errorf("warnings %q", w)
			}
			names, err := f.mem.ReadDir(journal.Dir)
			if err != nil || len(names) > 1 { // the next one
				t.Errorf("left in journal/: %v, %v", names, err)
			}
			if err := f.Close(context.WithoutCancel(ctx)); err != nil {
				t.Errorf("stopping: %v", err)
			}
			s, err := Open(ctx, Options{FS: f.mem, Foreground: true})
			need.NoError(t, err)
			defer s.Close(context.WithoutCancel(ctx))
			want := tip.Commit
			if task != "" {
				b, _ := s.Task(task)
				want = b.Head
			}
			if now, _, _, err := s.r.Refs.Read(bad); err != nil || now != want || len(s.Warnings()) > 0 {
				t.Errorf("after a start %s is %s, %v; %q", bad, now, err, s.Warnings())
			}
		})
	}
}

// A lock that another process holds for long: through many publications, a kill and
// a start the ref is known for ours.
func TestRefLockedForLong(t *testing.T) {
	ctx := t.Context()
	f := newFaulty(t)
	const lock = storedir.Repo + "/" + refs.ShadowRef + ".lock"
	held := func(fs vfs.FS) {
		t.Helper()
		h, err := fs.OpenFile(lock, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o666)
		need.NoError(t, err)
		_ = h.Close()
	}
	held(f.mem)
	publish := func(s *Store) error {
		soon, cancel := context.WithTimeout(ctx, repo.LockPatience/100)
		defer cancel()
		return s.Publish(soon)
	}
	for i := range 20 {
		mustPut(t, f.Store, "", "f", fmt.Sprint(i))
		if err := publish(f.Store); errs.CodeOf(err) != "ref_locked" {
			t.Fatalf("publishing: %v", err)
		}
	}
	tip, mem := f.Tip(), f.mem.CrashClone(vfs.CrashOptions{Mode: vfs.CrashSyncedOnly})
	if _, err := mem.Lstat(lock); err != nil {
		held(mem)
	}
	s, err := Open(ctx, Options{FS: mem, Foreground: true})
	need.NoError(t, err)
	defer s.Close(context.WithoutCancel(ctx))
	if w := s.Warnings(); s.Tip() != tip || len(w) != 1 || !strings.Contains(w[0], "shadow.lock") {
		t.Errorf("after a start: %+v, %q", s.Tip(), w)
	}
	need.NoError(t, mem.Remove(lock))
	need.NoError(t, s.Publish(ctx))
	if now, _, _, err := s.r.Refs.Read(refs.ShadowRef); err != nil || now != tip.Commit || len(s.Warnings()) > 0 {
		t.Errorf("it is %s, %v; %q", now, err, s.Warnings())
	}
}
