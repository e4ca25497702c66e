package gitstore

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"umbra/gitstore/message"
	"umbra/gitstore/sink"
	"umbra/gitstore/sink/sinktest"
	"umbra/internal/errs"
	"umbra/internal/need"
	"umbra/internal/vfs"
)

// onSink opens a store over a log, in an empty directory.
func onSink(t testing.TB, m *sinktest.Memory, more ...func(*Options)) *Store {
	t.Helper()
	opt := Options{FS: vfs.NewMem(vfs.MemOptions{}), Sink: m.Claim(), Foreground: true, InlineBlob: 2 << 10, MergeGrace: time.Minute,
		InUse: func(context.Context, []vfs.Info, []vfs.Info) (bool, error) { return false, nil }}
	for _, f := range more {
		f(&opt)
	}
	s, err := Open(t.Context(), opt)
	need.NoError(t, err)
	return s
}

// leaksOf searches what a log holds, once its garbage is swept.
func leaksOf(t testing.TB, m *sinktest.Memory, what string) []string {
	t.Helper()
	m.Sweep()
	dir := t.TempDir()
	for name, data := range m.Objects() {
		need.NoError(t, os.WriteFile(filepath.Join(dir, "object-"+name), data, 0o600))
	}
	tail, err := m.Claim().Tail(t.Context())
	need.NoError(t, err)
	for _, g := range tail.Groups {
		need.NoError(t, os.WriteFile(filepath.Join(dir, fmt.Sprint("group-", g.Pos)), g.Data, 0o600))
	}
	return need.Leaks(t, dir, what)
}

func TestPurgeOnSink(t *testing.T) {
	m := sinktest.NewMemory()
	s := onSink(t, m)
	blob, commits := secretHistory(t, s)
	if found := leaksOf(t, m.Clone(), secret); len(found) == 0 {
		t.Fatal("the search finds nothing before the purge")
	}
	need.NoError(t, s.Seal(t.Context()))
	if _, err := purgeOf(t.Context(), s, PurgeOptions{Blobs: []ID{blob}}); err != nil {
		t.Fatal(err)
	}
	checkPurged(t, s, blob, commits)
	if found := leaksOf(t, m.Clone(), secret); len(found) > 0 {
		t.Errorf("the purged bytes are in %v", found)
	}
	if _, purged := m.Dropped(); len(purged) == 0 {
		t.Error("nothing is to be swept at once")
	}
	checkPurged(t, onSink(t, m.Clone()), blob, commits)
	mustPut(t, s, "", "after", "5\n")
	closeStore(t, s)
	s = onSink(t, m)
	checkPurged(t, s, blob, commits)
	if s.Tip().Seq != uint64(len(commits)+1) {
		t.Errorf("the tip is %v", s.Tip())
	}
}

// TestPurgeFaultOnSink lets each call of the sink that a purge makes go wrong: the
// next owner finds the history of before or the rewritten one, whole, and the latter
// if the purge was answered.
func TestPurgeFaultOnSink(t *testing.T) {
	for _, fault := range []sinktest.Fault{sinktest.Refused, sinktest.UnknownNot, sinktest.UnknownIs, sinktest.FencedNot, sinktest.FencedIs, sinktest.StaleOnce} {
		for n := 1; ; n++ {
			m := sinktest.NewMemory()
			s := onSink(t, m)
			blob, commits := secretHistory(t, s)
			before, met := m.Calls(), ""
			m.OnCall = func(c sinktest.Call) sinktest.Fault {
				if c.N == before+n {
					met = c.Op
					return fault
				}
				return sinktest.None
			}
			_, err := purgeOf(t.Context(), s, PurgeOptions{Blobs: []ID{blob}})
			s.Close(t.Context())
			if met == "" {
				break
			}
			t.Run(fmt.Sprintf("fault %d at call %d, %s", fault, n, met), func(t *testing.T) {
				c := m.Clone()
				c.Sweep()
				o := onSink(t, c)
				defer closeStore(t, o)
				if !o.HasBlob(blob) {
					checkPurged(t, o, blob, commits)
					return
				}
				if err == nil {
					t.Error("the purge was answered, and the bytes are there")
				}
				for i, want := range commits {
					if id, err := o.CommitAt(t.Context(), uint64(i+1)); err != nil || id != want.Commit {
						t.Fatalf("commit %d is %s, %v", i+1, id, err)
					}
				}
				if rep, err := o.Verify(t.Context(), nil); err != nil || len(rep.Problems) > 0 {
					t.Error(rep.Problems, err)
				}
			})
		}
	}
}

// The next owner has the same beginning of history, and what was dropped is garbage.
func TestRetentionOnSink(t *testing.T) {
	m := sinktest.NewMemory()
	now := time.Unix(1_700_000_000, 0)
	s := onSink(t, m, func(o *Options) { o.Now = func() time.Time { return now } })
	baselineOf(t, s, map[string]string{"a": "base\n"})
	if _, err := s.PutTask(t.Context(), message.Info{TaskID: "t", Goal: "g", Status: "completed"}, ID{}); err != nil {
		t.Fatal(err)
	}
	var list []Committed
	for i := range 200 { // more dropped ids than a manifest has in itself
		now = now.Add(time.Minute)
		list = append(list, mustPut(t, s, "t", fmt.Sprint("f", i%3), strings.Repeat(fmt.Sprint(i, "\n"), 50)))
	}
	need.NoError(t, s.Seal(t.Context()))
	at := list[190]
	if _, err := s.Retain(t.Context(), RetainOptions{Before: at.When.Add(time.Second)}); err != nil {
		t.Fatal(err)
	}
	whole := objectBytes(m)
	if _, err := s.Collect(t.Context(), CollectOptions{Now: true}); err != nil {
		t.Fatal(err)
	}
	m.Sweep()
	if left := objectBytes(m); left > whole/2 {
		t.Errorf("%d of %d bytes are left", left, whole)
	}
	for _, o := range []*Store{onSink(t, m.Clone()), s} {
		if b := o.Boundary(); b.Commit != at.Commit || b.Seq != at.Seq {
			t.Errorf("history begins at %v", b)
		}
		if _, err := o.ReadCommit(t.Context(), list[3].Commit); errs.CodeOf(err) != "history_dropped" {
			t.Errorf("a dropped commit: %v", err)
		}
		if rep, err := o.Verify(t.Context(), nil); err != nil || len(rep.Problems) > 0 {
			t.Error(rep.Problems, err)
		}
		closeStore(t, o)
	}
}

func objectBytes(m *sinktest.Memory) (n int) {
	for _, data := range m.Objects() {
		n += len(data)
	}
	return n
}

// What is committed while a seal puts its pack stays in the log.
func TestCommitWhileSealing(t *testing.T) {
	m := sinktest.NewMemory()
	s := onSink(t, m)
	mustPut(t, s, "", "a", "1")
	n := 0
	m.OnCall = func(c sinktest.Call) sinktest.Fault {
		if c.Op == "put" || c.Op == "swap" {
			n++
			if _, err := put(context.Background(), s, "", fmt.Sprint("late", n), "2"); err != nil {
				t.Error(err)
			}
		}
		return sinktest.None
	}
	need.NoError(t, s.Seal(t.Context()))
	m.OnCall = nil
	if n != 2 || m.Unsealed() != n {
		t.Fatalf("%d commits came meanwhile, the log has %d groups", n, m.Unsealed())
	}
	o := onSink(t, m.Clone())
	defer closeStore(t, o)
	if o.Tip().Commit != s.Tip().Commit {
		t.Fatalf("the tip is %v, not %v", o.Tip(), s.Tip())
	}
	closeStore(t, s)
}

// Packs that were put too long ago are put again before they are named.
func TestStalePacks(t *testing.T) {
	ctx := t.Context()
	m := sinktest.NewMemory()
	s := onSink(t, m)
	mustPut(t, s, "", "a", "1")
	stale := ""
	m.OnCall = func(c sinktest.Call) sinktest.Fault {
		if c.Op == stale {
			stale = ""
			return sinktest.StaleOnce
		}
		return sinktest.None
	}
	large := strings.Repeat("large ", 1000)
	b, err := s.StreamBlob(ctx, newReader(large), int64(len(large)))
	need.NoError(t, err)
	stale = "append"
	if _, err := s.Commit(ctx, Draft{Edits: []Edit{{Path: "large", Mode: 0o100644, Blob: b}}, Message: message.Message{Source: message.API}}); err != nil {
		t.Fatal(err)
	}
	stale = "swap"
	if err := s.Seal(ctx); err != nil || stale != "" {
		t.Fatal(err)
	}
	m.OnCall = nil
	m.Sweep()
	o := onSink(t, m)
	defer closeStore(t, o)
	if data, err := o.ReadBlob(ctx, o.blobOf(t, "large"), 1<<20); err != nil || string(data) != large {
		t.Fatal(err)
	}
	if err := s.Close(ctx); err != nil && !errors.Is(err, sink.ErrFenced) {
		t.Fatal(err)
	}
}

// What a merge superseded in the directory of an owner that lost the workspace before the
// log knew of it is in use again when that owner has it back: the packs that the log names.
func TestMergeBeforeTakeover(t *testing.T) {
	ctx := t.Context()
	for _, trusted := range []string{"", "boot"} {
		m := sinktest.NewMemory()
		dir := vfs.NewMem(vfs.MemOptions{})
		here := func(o *Options) { o.FS, o.Boot = dir, trusted }
		s := onSink(t, m, here)
		for i := range mergeWidth {
			mustPut(t, s, "", fmt.Sprint("f", i), "1\n")
			need.NoError(t, s.Seal(ctx))
		}
		m.OnCall = func(c sinktest.Call) sinktest.Fault {
			if c.Op == "swap" {
				return sinktest.FencedNot
			}
			return sinktest.None
		}
		if err := s.Maintain(ctx); !errors.Is(err, sink.ErrFenced) {
			t.Fatalf("the owner was to lose the workspace between a merge and its swap: %v", err)
		}
		m.OnCall = nil
		_ = s.Close(ctx)
		other := onSink(t, m)
		mustPut(t, other, "", "g", "1\n")
		closeStore(t, other)
		s = onSink(t, m, here)
		mustPut(t, s, "", "h", "1\n")
		need.NoError(t, s.Seal(ctx))
		closeStore(t, s)
		m.Sweep()
		next := onSink(t, m)
		if rep, err := next.Verify(ctx, nil); err != nil || len(rep.Problems) > 0 || next.Tip().Seq != mergeWidth+2 {
			t.Error(rep.Problems, err, next.Tip())
		}
		closeStore(t, next)
	}
}

// switches notes which switches may be left to the release of the claim.
type switches struct {
	sink.Sink
	last []bool
}

func (s *switches) Swap(ctx context.Context, sw *sink.Switch) error {
	s.last = append(s.last, sw.Last)
	return s.Sink.Swap(ctx, sw)
}

// Only the close of a store whose claim is released then leaves its switch to that.
func TestLastSwitch(t *testing.T) {
	for _, lends := range []bool{false, true} {
		k := &switches{}
		s := onSink(t, sinktest.NewMemory(), func(o *Options) { k.Sink, o.Sink = o.Sink, k })
		mustPut(t, s, "", "a", "one\n")
		if lends {
			s.Held().LendLast()
		}
		need.NoError(t, s.Seal(t.Context()))
		mustPut(t, s, "", "a", "two\n")
		need.NoError(t, s.Close(t.Context()))
		if !slices.Equal(k.last, []bool{false, lends}) {
			t.Errorf("%v: %v", lends, k.last)
		}
	}
}
