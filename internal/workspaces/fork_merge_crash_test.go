package workspaces

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"testing"

	"umbra/gitstore/object"
	"umbra/internal/merge"
	"umbra/internal/vfs"
	"umbra/internal/workspace"
)

// mergeScenario merges a fork that moved, wrote and deleted files into its parent.
type mergeScenario struct {
	b    *bench
	fork Record
	as   string
	// What package fork records: the parent's newest commit, until the merge ended.
	begun  object.ID
	merged bool // it was acknowledged
}

func (s *mergeScenario) prepare(t *testing.T) {
	made, err := s.b.m.ForkVirtual(t.Context(), s.b.w, ForkSpec{}, []string{""})
	must(t, err)
	s.fork = made[0]
	w, err := s.b.m.Get(t.Context(), s.fork.ID)
	must(t, err)
	defer w.Release()
	for _, ops := range [][]workspace.Op{{write("a", "forked")}, {write("new", "new"), rename("d/b", "e/b")}, {rename("new", "n/new")}, {del("gone"), write("e/b", "moved")}} {
		_, err := w.Apply(t.Context(), workspace.Request{Ops: ops})
		must(t, err)
	}
	must(t, w.Store().Publish(t.Context()))
}

func (s *mergeScenario) merge(b *bench, into *workspace.Workspace) error {
	from, err := b.m.Get(context.Background(), s.fork.ID)
	if err != nil {
		return err
	}
	defer from.Release()
	parent := merge.Ancestor{ID: into.ID(), Seq: math.MaxUint64}
	shared := merge.Ancestor{ID: into.ID(), Seq: s.fork.Fork.Seq}
	_, err = merge.Do(context.Background(), merge.Side{W: from, Lineage: []merge.Ancestor{{ID: from.ID(), Seq: math.MaxUint64}, shared}},
		merge.Side{W: into, Lineage: []merge.Ancestor{parent}}, merge.Request{As: s.as, Begin: func(before object.ID) (func() error, error) {
			s.begun = before
			return func() error { s.begun = object.ID{}; return nil }, nil
		}})
	return err
}

var (
	beforeMerge = map[string]string{"a": "one", "d/b": "two", "gone": "gone"}
	afterMerge  = map[string]string{"a": "forked", "e/b": "moved", "n/new": "new"}
)

// check opens what a crash left: the merge is there whole, or not at all, in history and on
// disk; then it can be carried out.
func (s *mergeScenario) check(t *testing.T, b *bench, at string) {
	w, err := b.m.Get(context.Background(), s.b.w.ID())
	must(t, err)
	b.w = w
	defer b.stop()
	if !s.begun.IsZero() {
		if err := merge.TakeBack(context.Background(), w, s.begun, workspace.By{}); err != nil {
			t.Errorf("%s: %v", at, err)
			return
		}
	}
	got := tree(t, w)
	whole, none := diffMaps(got, afterMerge), diffMaps(got, beforeMerge)
	if whole != "" && (none != "" || s.merged) || none != "" && !s.begun.IsZero() {
		t.Errorf("%s: acknowledged %v, begun %v: the parent has %v", at, s.merged, !s.begun.IsZero(), got)
	}
	if d := b.differ(); d != "" {
		t.Errorf("%s: history and disk: %s", at, d)
	}
	if err := s.merge(b, w); err != nil {
		t.Errorf("%s: again: %v", at, err)
	} else if d := diffMaps(tree(t, w), afterMerge); d != "" {
		t.Errorf("%s: merged again: %s", at, d)
	}
	report, err := w.Store().Verify(context.Background(), nil)
	if err != nil || len(report.Problems) > 0 {
		t.Errorf("%s: %v %v", at, report.Problems, err)
	}
}

// The machine stops at every call of a merge.
func TestForkMergeCrashAtEveryCall(t *testing.T) {
	type crash struct {
		mem  *vfs.Mem
		recs *memRecords
		s    mergeScenario
		at   string
	}
	stride := 1
	if testing.Short() {
		stride = 5
	}
	for _, as := range []string{merge.Replay, merge.Squash} {
		for _, mode := range []vfs.CrashMode{vfs.CrashNothing, vfs.CrashSyncedOnly, vfs.CrashRandom} {
			s := &mergeScenario{b: newBench(t, maps.Clone(beforeMerge)), as: as}
			s.prepare(t)
			var crashes []crash
			n := 0
			look := func(op, name string) {
				all, err := s.b.recs.All()
				recs := &memRecords{}
				must(t, errors.Join(err, recs.Put(all...)))
				mem := s.b.mem.CrashClone(vfs.CrashOptions{Mode: mode, Rand: rand.New(rand.NewPCG(uint64(n), 1))})
				crashes = append(crashes, crash{mem, recs, *s, fmt.Sprintf("%s, %v, call %d: %s %s", as, mode, n, op, name)})
			}
			s.b.on(func(c vfs.Call) error {
				if n++; n%stride == 0 {
					look(c.Op, c.Name)
				}
				return nil
			})
			must(t, s.merge(s.b, s.b.w))
			s.b.on(nil)
			s.merged = true
			look("answered", "")
			for _, c := range crashes {
				epoch := "one"
				if mode != vfs.CrashNothing {
					epoch = "two"
				}
				c.s.check(t, (&bench{t: t, recs: c.recs}).reboot(t, c.mem, epoch), c.at)
				if t.Failed() {
					return
				}
			}
			s.b.stop()
			t.Logf("%s, %v: %d calls", as, mode, n)
		}
	}
}
