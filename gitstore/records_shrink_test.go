package gitstore

import (
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"sync"
	"syscall"
	"testing"
	"time"

	"umbra/gitstore/message"
	"umbra/gitstore/records"
	"umbra/internal/need"
	"umbra/internal/vfs"
)

// longHistory commits n times, each time by another task that ends at once.
func longHistory(t *testing.T, s *Store, from, n int) {
	t.Helper()
	for i := from; i < from+n; i++ {
		task := fmt.Sprintf("task-%d", i)
		if _, err := s.PutTask(t.Context(), message.Info{TaskID: task, Goal: "g", Status: "completed"}, ID{}); err != nil {
			t.Fatal(err)
		}
		mustPut(t, s, task, fmt.Sprintf("f%d", i%10), task)
	}
}

// blocksOf gives the bytes that a file takes on disk.
func blocksOf(t *testing.T, names ...string) (sum int64) {
	t.Helper()
	for _, name := range names {
		info, err := os.Stat(name)
		need.NoError(t, err)
		sum += info.Sys().(*syscall.Stat_t).Blocks * 512
	}
	return sum
}

// TestRecordsShrink: what was dropped leaves the commit index's files and memory,
// while others commit, and what is left reads as before, also after a start.
func TestRecordsShrink(t *testing.T) {
	dir := testDir(t)
	now := time.Unix(1_700_000_000, 0)
	s := openAt(t, dir, Options{Foreground: true, Now: func() time.Time { return now }})
	baselineOf(t, s, map[string]string{"f": "x"})
	const dropped, left = 3 * records.WorthShrinking, 200
	longHistory(t, s, 0, dropped)
	now = now.Add(time.Hour)
	longHistory(t, s, dropped, left)
	files := []string{filepath.Join(dir, records.File), filepath.Join(dir, records.NamesFile)}
	before, names := blocksOf(t, files...), s.r.Index.Stats().Texts
	var beside sync.WaitGroup
	beside.Go(func() { longHistory(t, s, dropped+left, left) })
	rep, err := s.Retain(t.Context(), RetainOptions{Before: now})
	if err != nil || rep.Commits < dropped-1 {
		t.Fatal(rep, err)
	}
	beside.Wait()
	if after := blocksOf(t, files...); after > before/4 || s.r.Index.Stats().Texts > names/4 {
		t.Errorf("%d bytes and %d texts before, %d and %d after", before, names, after, s.r.Index.Stats().Texts)
	}
	if took, stands := s.r.Index.Bytes(), blocksOf(t, files...); took > stands+8192 || took < stands-16384 {
		t.Errorf("the index is said to take %d bytes, and takes %d", took, stands)
	}
	longHistory(t, s, dropped+2*left, left)
	want, wantByTask := indexOf(t, s)
	if len(want) < 3*left {
		t.Fatal(len(want))
	}
	closeStore(t, s)
	s = openAt(t, dir, Options{Foreground: true})
	got, gotByTask := indexOf(t, s)
	if !reflect.DeepEqual(got, want) || !reflect.DeepEqual(gotByTask, wantByTask) {
		t.Error("the index reads otherwise after a start")
	}
	if rep, err := s.Verify(t.Context(), nil); err != nil || len(rep.Problems) > 0 {
		t.Fatal(rep.Problems, err)
	}
	closeStore(t, s)
}

// TestRecordsShrinkFails: where any call of it fails the index goes on as it was,
// and a start after a kill right before that call reads the same.
func TestRecordsShrinkFails(t *testing.T) {
	mem, hook := vfs.NewMem(vfs.MemOptions{}), &vfs.Hook{}
	at, failing := 0, 0
	var left *vfs.Mem
	hook.OnCall = func(c vfs.Call) error {
		if failing == 0 {
			return nil
		}
		if at++; at == failing {
			left = mem.CrashClone(vfs.CrashOptions{Mode: vfs.CrashNothing})
			return syscall.EIO
		}
		return nil
	}
	now := time.Unix(1_700_000_000, 0)
	s, err := Open(t.Context(), Options{FS: vfs.Inject(mem, hook), Foreground: true, Now: func() time.Time { return now }})
	need.NoError(t, err)
	baselineOf(t, s, map[string]string{"f": "x"})
	longHistory(t, s, 0, records.WorthShrinking+300)
	cut := s.Tip().Seq - 5
	now = now.Add(time.Hour)
	want, _ := indexOf(t, s)
	want = want[cut-1:]
	// A cut whose last step never succeeds leaves the shrinking to us.
	s.r.Index.Drop(cut)
	for failing = 1; s.r.Index.Stats().Hole == 0; failing++ {
		at = 0
		s.r.Index.Shrink()
		if got, _ := indexOf(t, s); !reflect.DeepEqual(got, want) {
			t.Fatalf("after a failure of call %d the index reads otherwise", failing)
		}
		if at < failing {
			break // all of it was done
		}
		again, err := Open(t.Context(), Options{FS: left, Foreground: true})
		if err != nil {
			t.Fatalf("killed before call %d: %v", failing, err)
		}
		again.r.Index.Drop(cut)
		if got, _ := indexOf(t, again); !reflect.DeepEqual(got, want) {
			t.Fatalf("killed before call %d, the index reads otherwise", failing)
		}
		closeStore(t, again)
	}
	if failing < 6 || s.r.Index.Stats().Hole == 0 {
		t.Errorf("%d calls; the hole ends at %d", failing, s.r.Index.Stats().Hole)
	}
	failing = 0
	closeStore(t, s)
}
