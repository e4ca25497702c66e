package gitstore

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"syscall"
	"testing"
	"time"

	"umbra/internal/need"
	"umbra/internal/vfs"
)

// purgeRun is a history with a secret, and a purge of it, on a file system that
// may stop or fail at any call of the purge.
type purgeRun struct {
	mem      *vfs.Mem
	hook     *vfs.Hook
	blob     ID
	commits  []Committed
	was, now Tip
	err      error
	late     bool // a commit was answered after the purge, whatever became of it
}

// play makes the history undisturbed; arm is called before the purge begins.
func (r *purgeRun) play(t *testing.T, arm func(h *vfs.Hook)) {
	r.mem, r.hook = vfs.NewMem(vfs.MemOptions{}), &vfs.Hook{}
	now := time.Unix(1_700_000_000, 0)
	s, err := Open(t.Context(), Options{FS: vfs.Inject(r.mem, r.hook), Foreground: true,
		Now: func() time.Time { now = now.Add(time.Second); return now }})
	need.NoError(t, err)
	r.blob, r.commits = secretHistory(t, s)
	need.NoError(t, s.Publish(t.Context()))
	r.was = s.Tip()
	arm(r.hook)
	p, err := s.BeginPurge(context.Background(), PurgeOptions{Blobs: []ID{r.blob}})
	if err == nil {
		r.now = Tip(p.Rewriter.Tip)
		_, err = p.Finish(context.Background())
	}
	r.err = err
	if err == nil {
		r.now = s.Tip()
	}
	_, err = put(context.Background(), s, "", "late", "answered\n")
	r.late = err == nil
	s.Close(context.Background())
}

// check opens what is left: history is the one of before, whole, or the
// rewritten one, and then nothing of the secret is on disk.
func (r *purgeRun) check(t *testing.T, m *vfs.Mem, want Tip, must, fsckIt bool) {
	t.Helper()
	ctx := t.Context()
	s, err := Open(ctx, Options{FS: m, Foreground: true})
	if err != nil {
		t.Fatalf("open: %v", err)
	}
	defer s.Close(ctx)
	tip := s.Tip()
	if _, ok, err := s.Snapshot().Lookup("late"); err != nil || r.late && !ok {
		t.Fatalf("a commit that was answered is lost: %v", err)
	} else if ok {
		c, err := s.ReadCommit(ctx, tip.Commit)
		need.NoError(t, err)
		before, err := s.ReadCommit(ctx, c.Parent)
		need.NoError(t, err)
		tip = Tip{Commit: before.ID, Tree: before.Tree, Seq: before.Seq}
	}
	switch {
	case tip == want:
		checkPurged(t, s, r.blob, r.commits)
	case tip == r.was && !must:
		if !s.HasBlob(r.blob) {
			t.Error("history is the old one, and the blob is gone")
		}
		if rep, err := s.Verify(ctx, nil); err != nil || len(rep.Problems) > 0 {
			t.Errorf("verify: %v %v", rep.Problems, err)
		}
		if _, err := purgeOf(ctx, s, PurgeOptions{Blobs: []ID{r.blob}}); err != nil {
			t.Errorf("purging it then: %v", err)
		}
		checkPurged(t, s, r.blob, r.commits)
	default:
		t.Fatalf("tip is %+v, neither %+v nor %+v", tip, r.was, want)
	}
	mustPut(t, s, "", "after", "it goes on\n")
	need.NoError(t, s.Publish(ctx))
	dir := testDir(t)
	need.NoError(t, m.Export(dir))
	if found := need.Leaks(t, dir, secret); len(found) > 0 {
		t.Errorf("left on disk: %v", found)
	}
	if fsckIt {
		fsck(t, dir, "--no-dangling")
	}
}

// purgeCalls counts the calls of an undisturbed purge, and gives its outcome.
func purgeCalls(t *testing.T) (from, to int, now Tip) {
	var r purgeRun
	r.play(t, func(h *vfs.Hook) { from = h.Count() })
	if r.err != nil {
		t.Fatal(r.err)
	}
	return from, r.hook.Count(), r.now
}

func TestPurgeCrashAtEveryCall(t *testing.T) {
	from, to, now := purgeCalls(t)
	seeds := 2
	if os.Getenv("UMBRA_SOAK") != "" {
		seeds = 20
	}
	points := 0
	for n := from + 1; n <= to; n += stride() {
		var r purgeRun
		r.play(t, func(h *vfs.Hook) { h.StopAt(n, errKilled) })
		for _, mode := range []vfs.CrashMode{vfs.CrashNothing, vfs.CrashSyncedOnly, vfs.CrashNamesOnly, vfs.CrashRandom} {
			times := 1
			if mode == vfs.CrashRandom {
				times = seeds
			}
			for seed := range times {
				points++
				clone := r.mem.CrashClone(vfs.CrashOptions{Mode: mode, Rand: rand.New(rand.NewPCG(uint64(n), uint64(seed)))})
				ok := t.Run(fmt.Sprintf("call %d %v %d", n, mode, seed), func(t *testing.T) {
					r.check(t, clone, now, r.err == nil, points%23 == 0)
				})
				if !ok {
					t.FailNow()
				}
			}
		}
	}
	t.Logf("%d crash points at %d calls", points, to-from)
}

func TestPurgeErrorAtEveryCall(t *testing.T) {
	from, to, now := purgeCalls(t)
	injected := 0
	for _, errno := range []syscall.Errno{syscall.ENOSPC, syscall.EIO} {
		for n := from + 1; n <= to; n += stride() {
			injected++
			var r purgeRun
			r.play(t, func(h *vfs.Hook) {
				h.OnCall = func(c vfs.Call) error {
					if c.N == n {
						return vfs.Partial(errno)
					}
					return nil
				}
			})
			clone := r.mem.CrashClone(vfs.CrashOptions{Mode: vfs.CrashSyncedOnly})
			ok := t.Run(fmt.Sprintf("%v at call %d", errno, n), func(t *testing.T) { r.check(t, clone, now, r.err == nil, injected%23 == 0) })
			if !ok {
				t.FailNow()
			}
		}
	}
	t.Logf("%d errors injected at %d calls", injected, to-from)
}

// TestPurgeRepairAfterCrash: a repair before the next start ends the purge too.
func TestPurgeRepairAfterCrash(t *testing.T) {
	from, to, now := purgeCalls(t)
	for n := from + 1; n <= to; n += 7 * stride() {
		var r purgeRun
		r.play(t, func(h *vfs.Hook) { h.StopAt(n, errKilled) })
		clone := r.mem.CrashClone(vfs.CrashOptions{Mode: vfs.CrashNothing})
		top, err := clone.Sub(".")
		need.NoError(t, err)
		done, err := Repair(t.Context(), Options{FS: top})
		if err != nil || len(done.Cannot) > 0 {
			t.Fatalf("call %d: repair: %+v %v", n, done, err)
		}
		if !t.Run(fmt.Sprintf("call %d", n), func(t *testing.T) { r.check(t, clone, now, r.err == nil, true) }) {
			t.FailNow()
		}
	}
}
