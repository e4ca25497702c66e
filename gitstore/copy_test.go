package gitstore

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"umbra/gitstore/message"
	"umbra/gitstore/object"
	"umbra/gitstore/remote"
	"umbra/gitstore/sink"
	"umbra/gitstore/sink/sinktest"
	"umbra/internal/need"
	"umbra/internal/vfs"
)

// openCopied opens a store whose history is in its folder, with a copy in a log.
func openCopied(t testing.TB, fs vfs.FS, m *sinktest.Memory) *Store {
	t.Helper()
	s, err := Open(t.Context(), Options{FS: fs, InlineBlob: 2 << 10, MergeGrace: time.Minute,
		InUse: func(context.Context, []vfs.Info, []vfs.Info) (bool, error) { return false, nil },
		Copy:  func(context.Context) (sink.Sink, error) { return m.Claim(), nil }})
	need.NoError(t, err)
	return s
}

// checkCopy opens the copy, and fails unless it is a part of the history from its
// beginning. It returns the number of its newest commit.
func checkCopy(t testing.TB, s *Store, m *sinktest.Memory) uint64 {
	t.Helper()
	m = m.Clone()
	m.Sweep()
	if bad := m.Damaged(); len(bad) > 0 {
		t.Fatal(bad)
	}
	c := onSink(t, m)
	defer closeStore(t, c)
	tip := c.Tip()
	if tip.Seq == 0 {
		return 0
	}
	if want, err := s.CommitAt(t.Context(), tip.Seq); err != nil || want != tip.Commit {
		t.Fatalf("commit %d is %s in the copy, and %s (%v)", tip.Seq, tip.Commit, want, err)
	}
	snap := c.Snapshot()
	err := snap.Walk("", func(e Entry) error {
		if e.Mode == object.Dir {
			return nil
		}
		_, err := c.ReadBlob(t.Context(), e.ID, 1<<20)
		return err
	})
	need.NoError(t, err)
	if tip.Seq == s.Tip().Seq {
		for _, task := range s.Tasks() {
			got, ok := c.Task(task.ID)
			if !ok && task.Changes == 0 {
				continue // it has no commit by which the copy would be known to have it
			}
			if !ok || got.Head != task.Head || got.Info.Goal != task.Info.Goal && m.Unsealed() == 0 {
				t.Fatalf("task %s is %v in the copy, not %v", task.ID, got, task)
			}
		}
	}
	return tip.Seq
}

// TestCopyFollows: a copy is complete two seconds after a commit, and whatever becomes of
// the calls of its sink, it is a prefix of the history, and complete once they succeed.
func TestCopyFollows(t *testing.T) {
	for seed := range uint64(60) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				rnd := rand.New(rand.NewPCG(seed, 1))
				m, fs := sinktest.NewMemory(), vfs.NewMem(vfs.MemOptions{})
				var faults atomic.Int32 // in a hundred calls
				frnd := rand.New(rand.NewPCG(seed, 2))
				m.OnCall = func(sinktest.Call) sinktest.Fault { // one at a time
					if frnd.IntN(100) < int(faults.Load()) {
						return sinktest.Fault(1 + frnd.IntN(6))
					}
					return sinktest.None
				}
				s := openCopied(t, fs, m)
				baselineOf(t, s, map[string]string{"base": "base\n"})
				putTask := func(goal string) {
					if _, err := s.PutTask(t.Context(), message.Info{TaskID: "t", Goal: goal, Status: "executing"}, ID{}); err != nil {
						t.Fatal(err)
					}
				}
				putTask("first")
				for step := range 60 {
					switch n := rnd.IntN(30); {
					case n < 20:
						mustPut(t, s, "t", fmt.Sprintf("d%d/f%d", rnd.IntN(3), rnd.IntN(5)), fmt.Sprint("step ", step, "\n"))
					case n < 22:
						data := strings.Repeat(fmt.Sprint(step), 4<<10)
						b, err := s.StreamBlob(t.Context(), newReader(data), int64(len(data)))
						if err == nil {
							_, err = s.Commit(t.Context(), Draft{Edits: []Edit{{Path: "large", Mode: object.Regular, Blob: b}}, Message: message.Message{Source: message.API}})
						}
						need.NoError(t, err)
					case n < 24:
						putTask(fmt.Sprint(step))
					case n < 25:
						need.NoError(t, s.Maintain(t.Context()))
					case n < 26:
						closeStore(t, s)
						s = openCopied(t, fs, m)
					case n < 27:
						faults.Store(int32(rnd.IntN(2) * 30))
					case n < 28:
						<-time.After(remote.SealAfter - time.Second)
						mustPut(t, s, "t", "sealed", fmt.Sprint(step))
						<-time.After(time.Duration(rnd.IntN(4000)) * time.Millisecond)
					default:
						<-time.After(time.Duration(rnd.IntN(2000)) * time.Millisecond)
						checkCopy(t, s, m)
					}
				}
				if faults.Swap(0) == 0 {
					<-time.After(2 * time.Second)
				} else {
					<-time.After(30 * time.Second)
				}
				if got := checkCopy(t, s, m); got != s.Tip().Seq {
					t.Errorf("the copy has commit %d, the history %d", got, s.Tip().Seq)
				}
				mustPut(t, s, "t", "last", "last\n")
				closeStore(t, s)
				if n := m.Unsealed(); n > 0 {
					t.Errorf("%d groups are not sealed after Close", n)
				}
			})
		})
	}
}

// TestCopyIsPurged: bytes that a purge removes are in no copy either, also where the
// program was killed before it had notified the copy.
func TestCopyIsPurged(t *testing.T) {
	for _, killed := range []bool{false, true} {
		t.Run(fmt.Sprint("killed ", killed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m, fs := sinktest.NewMemory(), vfs.NewMem(vfs.MemOptions{})
				s := openCopied(t, fs, m)
				blob, commits := secretHistory(t, s)
				for range 60 { // what is in no pack of the copy is gone without being swept
					if <-time.After(time.Minute); m.Unsealed() == 0 {
						break
					}
				}
				if n := m.Unsealed(); n > 0 {
					t.Fatalf("%d groups are not sealed", n)
				}
				if found := leaksOf(t, m.Clone(), secret); len(found) == 0 {
					t.Fatal("the search finds nothing before the purge")
				}
				if killed {
					m.OnCall = func(sinktest.Call) sinktest.Fault { return sinktest.Refused }
				}
				if _, err := purgeOf(t.Context(), s, PurgeOptions{Blobs: []ID{blob}}); err != nil {
					t.Fatal(err)
				}
				mustPut(t, s, "", "after", "5\n")
				if killed {
					closeStore(t, s)
					m.OnCall = nil
					s = openCopied(t, fs, m)
				}
				<-time.After(2 * time.Second)
				if found := leaksOf(t, m.Clone(), secret); len(found) > 0 {
					t.Errorf("the purged bytes are in %v", found)
				}
				if _, purged := m.Dropped(); len(purged) == 0 {
					t.Error("nothing is to be swept at once")
				}
				if got := checkCopy(t, s, m); got != uint64(len(commits)+1) {
					t.Errorf("the copy has commit %d", got)
				}
				closeStore(t, s)
			})
		})
	}
}
