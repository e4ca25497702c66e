package gitstore

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"umbra/gitstore/message"
	"umbra/gitstore/object"
	"umbra/gitstore/remote"
	"umbra/gitstore/sink"
	"umbra/gitstore/sink/sinktest"
	"umbra/internal/errs"
	"umbra/internal/need"
	"umbra/internal/vfs"
	"umbra/internal/wspath"
)

// withSink makes a scenario's store one over the log.
func (sc *scenario) withSink(m *sinktest.Memory) {
	sc.opt = func(o *Options) {
		o.Sink = m.Claim()
		o.TaskRecords = func(t Task) []sink.Record {
			return []sink.Record{{Bucket: "tasks", Key: []byte(t.ID), Value: []byte(t.Info.Goal)}}
		}
	}
}

// checkSink opens what a log holds in an empty directory, and compares it with what
// was answered.
func (sc *scenario) checkSink(t *testing.T, m *sinktest.Memory, fsckIt bool) {
	t.Helper()
	m.Sweep() // nothing that is needed is garbage
	if bad := m.Damaged(); len(bad) > 0 {
		t.Fatal(bad)
	}
	if want := sc.tasks["t"]; want != "" {
		if got, _ := m.Record("tasks", "t"); string(got) != want && !(want == "g1" && string(got) == "g2") {
			t.Fatalf("the task's record is %q, answered was %q", got, want)
		}
	}
	sc.withSink(m)
	sc.check(t, vfs.NewMem(vfs.MemOptions{}), fsckIt)
}

func TestSinkHoldsHistory(t *testing.T) {
	m := sinktest.NewMemory()
	var sc scenario
	sc.withSink(m)
	if err := sc.play(vfs.NewMem(vfs.MemOptions{})); err != nil || sc.failed > 0 {
		t.Fatalf("%v, %d failed", err, sc.failed)
	}
	if n := m.Unsealed(); n > 0 {
		t.Fatalf("%d groups are not sealed after Close", n)
	}
	sc.checkSink(t, m, true)
}

// sinkCalls counts the calls of the undisturbed scenario.
func sinkCalls(t *testing.T) int {
	m := sinktest.NewMemory()
	var sc scenario
	sc.withSink(m)
	if err := sc.play(vfs.NewMem(vfs.MemOptions{})); err != nil || sc.failed > 0 {
		t.Fatalf("undisturbed run: %v, %d failed", err, sc.failed)
	}
	return m.Calls()
}

// sinkStride is stride for the calls of a sink, of which there are few.
func sinkStride() int { return min(stride(), 3) }

// TestSinkFaultAtEveryCall lets each call of the sink go wrong in each way: what was
// answered is there under the next owner, once, and a write that was refused is not.
func TestSinkFaultAtEveryCall(t *testing.T) {
	total := sinkCalls(t)
	points := 0
	for _, fault := range []sinktest.Fault{sinktest.Refused, sinktest.UnknownNot, sinktest.UnknownIs, sinktest.FencedNot, sinktest.FencedIs,
		sinktest.StaleOnce, sinktest.Torn} {
		for n := 1; n <= total; n += sinkStride() {
			points++
			m := sinktest.NewMemory()
			op := ""
			m.OnCall = func(c sinktest.Call) sinktest.Fault {
				if c.N == n {
					op = c.Op
					return fault
				}
				return sinktest.None
			}
			var sc scenario
			sc.withSink(m)
			sc.play(vfs.NewMem(vfs.MemOptions{})) // errors are counted
			if !t.Run(fmt.Sprintf("fault %d at call %d %s", fault, n, op), func(t *testing.T) {
				sc.checkSink(t, m.Clone(), points%23 == 0)
			}) {
				t.FailNow()
			}
		}
	}
	t.Logf("%d faults at %d calls", points, total)
}

// TestSinkKilledAtEveryCall stops everything before each call of the sink, and opens
// the log with the directory as a kill leaves it, as a power failure leaves it, and
// without it.
func TestSinkKilledAtEveryCall(t *testing.T) {
	total := sinkCalls(t)
	for n := 1; n <= total; n += sinkStride() {
		m := sinktest.NewMemory()
		mem := vfs.NewMem(vfs.MemOptions{})
		var at *sinktest.Memory
		var disk, torn *vfs.Mem
		var sc, then scenario
		m.OnCall = func(c sinktest.Call) sinktest.Fault {
			if c.N == n {
				at, then = m.Clone(), sc
				then.tasks = maps.Clone(sc.tasks)
				disk = mem.CrashClone(vfs.CrashOptions{Mode: vfs.CrashNothing})
				torn = mem.CrashClone(vfs.CrashOptions{Mode: vfs.CrashNamesOnly})
			}
			return sinktest.None
		}
		boot := ""
		open := func(m *sinktest.Memory) func(o *Options) {
			return func(o *Options) { o.Sink, o.Boot = m.Claim(), boot }
		}
		boot, sc.opt = "one", open(m)
		sc.play(mem)
		for name, c := range map[string]struct {
			disk *vfs.Mem
			boot string
		}{"kill": {disk, "one"}, "power": {torn, "two"}, "nothing": {vfs.NewMem(vfs.MemOptions{}), "one"}} {
			if !t.Run(fmt.Sprintf("call %d, %s", n, name), func(t *testing.T) {
				boot, then.opt = c.boot, open(at.Clone())
				then.check(t, c.disk, n%41 == 0)
			}) {
				t.FailNow()
			}
		}
	}
}

// A store whose sink says that another owns the workspace changes nothing any more,
// and answers nothing.
func TestFencedStore(t *testing.T) {
	ctx := context.Background()
	m := sinktest.NewMemory()
	a, err := Open(ctx, Options{FS: vfs.NewMem(vfs.MemOptions{}), Sink: m.Claim(), Foreground: true})
	need.NoError(t, err)
	first, err := put(ctx, a, "", "f", "one")
	need.NoError(t, err)
	b, err := Open(ctx, Options{FS: vfs.NewMem(vfs.MemOptions{}), Sink: m.Claim(), Foreground: true})
	need.NoError(t, err)
	defer b.Close(ctx)
	if b.Tip().Commit != first.Commit {
		t.Fatalf("the next owner's tip is %v", b.Tip())
	}
	if _, err := put(ctx, a, "", "f", "two"); !errors.Is(err, sink.ErrFenced) {
		t.Fatalf("a write by the deposed: %v", err)
	}
	select {
	case <-a.Held().Stopped():
	default:
		t.Fatal("the deposed store does not say so")
	}
	before := m.Clone()
	_, read := a.ReadBlob(ctx, b.blobOf(t, "f"), 1<<20)
	for op, err := range map[string]error{"write": second(put(ctx, a, "", "f", "three")), "read": read, "seal": a.Seal(ctx)} {
		if !errors.Is(err, sink.ErrFenced) {
			t.Errorf("%s by the deposed: %v", op, err)
		}
	}
	if err := a.Close(ctx); err != nil {
		t.Errorf("close: %v", err)
	}
	if m.Calls() != before.Calls()+2 && m.Unsealed() != before.Unsealed() {
		t.Error("the deposed changed the log")
	}
	if _, err := put(ctx, b, "", "f", "four"); err != nil || b.Tip().Seq != 2 {
		t.Fatalf("a write by the owner: %v, %v", err, b.Tip())
	}
}

func second(_ Committed, err error) error { return err }

// blobOf returns the blob at a path of the newest tree.
func (s *Store) blobOf(t *testing.T, path string) ID {
	t.Helper()
	e, ok, err := s.Snapshot().Lookup(wspath.Path(path))
	if err != nil || !ok {
		t.Fatalf("%s: %v, %v", path, ok, err)
	}
	return e.ID
}

// A write whose outcome is unknown ends the writes of a store, not its reads.
func TestUnknownOutcome(t *testing.T) {
	for _, fault := range []sinktest.Fault{sinktest.UnknownIs, sinktest.UnknownNot} {
		ctx := context.Background()
		m := sinktest.NewMemory()
		s, err := Open(ctx, Options{FS: vfs.NewMem(vfs.MemOptions{}), Sink: m.Claim(), Foreground: true})
		need.NoError(t, err)
		if _, err := put(ctx, s, "", "f", "one"); err != nil {
			t.Fatal(err)
		}
		m.OnCall = func(sinktest.Call) sinktest.Fault { return fault }
		if _, err := put(ctx, s, "", "f", "two"); !errors.Is(err, sink.ErrUnknown) {
			t.Fatalf("unknown outcome: %v", err)
		}
		m.OnCall = nil
		if _, err := put(ctx, s, "", "f", "three"); !errors.Is(err, sink.ErrRefused) {
			t.Fatalf("the next write: %v", err)
		}
		if data, err := s.ReadBlob(ctx, s.blobOf(t, "f"), 10); err != nil || string(data) != "one" {
			t.Fatalf("read: %q, %v", data, err)
		}
		need.NoError(t, s.Close(ctx))
		s, err = Open(ctx, Options{FS: vfs.NewMem(vfs.MemOptions{}), Sink: m.Claim(), Foreground: true})
		need.NoError(t, err)
		want := map[sinktest.Fault]string{sinktest.UnknownIs: "two", sinktest.UnknownNot: "one"}[fault]
		if data, err := s.ReadBlob(ctx, s.blobOf(t, "f"), 10); err != nil || string(data) != want {
			t.Fatalf("the next owner reads %q, %v, not %q", data, err, want)
		}
		s.Close(ctx)
	}
}

// A refused write leaves no trace, and the next one takes its position.
func TestRefusedWrite(t *testing.T) {
	ctx := context.Background()
	m := sinktest.NewMemory()
	s, err := Open(ctx, Options{FS: vfs.NewMem(vfs.MemOptions{}), Sink: m.Claim(), Foreground: true})
	need.NoError(t, err)
	m.OnCall = func(sinktest.Call) sinktest.Fault { return sinktest.Refused }
	if _, err := put(ctx, s, "", "f", "a longer text that is refused"); !errors.Is(err, sink.ErrRefused) {
		t.Fatal(err)
	}
	m.OnCall = nil
	for i := range 3 {
		if c, err := put(ctx, s, "", fmt.Sprint("f", i), "x"); err != nil || c.Seq != uint64(i+1) {
			t.Fatalf("%v %v", c, err)
		}
	}
	need.NoError(t, s.Close(ctx))
	dir := testDir(t)
	disk, err := vfs.OS(dir)
	need.NoError(t, err)
	s, err = Open(ctx, Options{FS: disk, Sink: m.Claim(), Foreground: true})
	if err != nil || s.Tip().Seq != 3 {
		t.Fatalf("%v", err)
	}
	need.NoError(t, s.Close(ctx))
	fsck(t, dir)
	if _, err := os.Stat(dir + "/journal"); err != nil {
		t.Fatal(err)
	}
}

// TestSealNextToWriters seals and merges while others write, and opens what the log
// is at one moment after another.
func TestSealNextToWriters(t *testing.T) {
	ctx := context.Background()
	m := sinktest.NewMemory()
	s, err := Open(ctx, Options{FS: vfs.NewMem(vfs.MemOptions{}), Sink: m.Claim(), InlineBlob: 2 << 10, Foreground: true})
	need.NoError(t, err)
	if _, err := put(ctx, s, "", "first", "x"); err != nil {
		t.Fatal(err)
	}
	var writers, upkeep sync.WaitGroup
	var acked atomic.Uint64
	for w := range 4 {
		writers.Go(func() {
			for i := range 60 {
				size := 1 + i
				if i%20 == 7 {
					size = 5 << 10
				}
				b, err := s.StreamBlob(ctx, newReader(strings.Repeat(fmt.Sprint(w, i, " "), size)), int64(size))
				if err == nil {
					var c Committed
					c, err = s.Commit(ctx, Draft{Edits: []Edit{{Path: wspath.Path(fmt.Sprintf("w%d/f%d", w, i)), Mode: object.Regular, Blob: b}},
						Message: message.Message{Source: message.API}})
					for old := acked.Load(); old < c.Seq && !acked.CompareAndSwap(old, c.Seq); old = acked.Load() {
					}
				}
				if err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	done := make(chan struct{})
	upkeep.Go(func() {
		for {
			select {
			case <-done:
				return
			default:
			}
			if err := errors.Join(s.Publish(ctx), s.Seal(ctx), s.Maintain(ctx)); err != nil {
				t.Error(err)
				return
			}
			if _, err := s.Collect(ctx, CollectOptions{Thorough: true}); err != nil {
				t.Error(err)
				return
			}
		}
	})
	upkeep.Go(func() {
		for {
			select {
			case <-done:
				return
			default:
			}
			want := acked.Load()
			c := m.Clone()
			c.Sweep()
			o, err := Open(ctx, Options{FS: vfs.NewMem(vfs.MemOptions{}), Sink: c.Claim(), Foreground: true})
			if err != nil {
				t.Error(err)
				return
			}
			rep, err := o.Verify(ctx, nil)
			if err != nil || len(rep.Problems) > 0 || o.Tip().Seq < want {
				t.Errorf("%v %v; %d commits, %d were answered", err, rep.Problems, o.Tip().Seq, want)
			}
			o.Close(ctx)
		}
	})
	writers.Wait()
	close(done)
	upkeep.Wait()
	need.NoError(t, s.Close(ctx))
	if n := m.Unsealed(); n > 0 {
		t.Errorf("%d groups are not sealed", n)
	}
}

// TestSealAhead: of a short log only the close makes a pack.
func TestSealAhead(t *testing.T) {
	for _, c := range []struct {
		bytes int
		left  int
	}{{10, 1}, {sealedAhead, 0}} {
		m := sinktest.NewMemory()
		s, err := Open(t.Context(), Options{FS: vfs.NewMem(vfs.MemOptions{}), Sink: m.Claim(), MaxUnsealed: 3 << 20})
		need.NoError(t, err)
		content := make([]byte, c.bytes)
		_, _ = rand.NewChaCha8([32]byte{}).Read(content) // never fails
		need.NoError(t, second(put(t.Context(), s, "", "f", string(content))))
		need.NoError(t, s.SealAhead(t.Context()))
		if n := m.Unsealed(); n != c.left {
			t.Errorf("of %d bytes %d groups are not sealed, want %d", c.bytes, n, c.left)
		}
		need.NoError(t, s.Close(t.Context()))
		if n := m.Unsealed(); n != 0 {
			t.Errorf("of %d bytes %d groups are not sealed by the close", c.bytes, n)
		}
	}
}

// TestHurriedSeal: a store that is closed while requests wait seals all it has, and computes
// no deltas for that.
func TestHurriedSeal(t *testing.T) {
	var sizes [2]int64
	text := make([]byte, 3000)
	_, _ = rand.NewChaCha8([32]byte{}).Read(text) // never fails
	for i, hurried := range []bool{false, true} {
		m := sinktest.NewMemory()
		open := func() *Store {
			s, err := Open(t.Context(), Options{FS: vfs.NewMem(vfs.MemOptions{}), Sink: m.Claim(), Foreground: true})
			need.NoError(t, err)
			return s
		}
		s := open()
		var last string
		for n := range 20 {
			last = fmt.Sprintf("version %d\n%x", n, text)
			need.NoError(t, second(put(t.Context(), s, "", "f", last)))
			if n%5 == 4 {
				need.NoError(t, s.Publish(t.Context()))
			}
		}
		if hurried {
			s.Held().Hurry()
		}
		need.NoError(t, s.Close(t.Context()))
		if n := m.Unsealed(); n != 0 {
			t.Errorf("%d groups are not sealed", n)
		}
		s = open()
		if got := s.Tip().Seq; got != 20 {
			t.Errorf("the next owner has commit %d", got)
		}
		for _, p := range s.Held().Manifest().Packs {
			sizes[i] += p.Size
		}
		if got, err := s.ReadBlob(t.Context(), s.blobOf(t, "f"), 1<<20); err != nil || string(got) != last {
			t.Errorf("the next owner reads %d bytes, %v", len(got), err)
		}
		need.NoError(t, s.Close(t.Context()))
	}
	if sizes[1] <= sizes[0] {
		t.Errorf("packs of %d bytes in a hurry, of %d else: deltas were computed", sizes[1], sizes[0])
	}
}

// TestSealIsDue checks by a clock of its own that a log is sealed by age and by size,
// again and again while the store of objects fails, and that writers are refused once
// too much waits.
func TestSealIsDue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := context.Background()
		m := sinktest.NewMemory()
		var down atomic.Bool
		m.OnCall = func(c sinktest.Call) sinktest.Fault {
			if down.Load() && c.Op == "put" {
				return sinktest.Refused
			}
			return sinktest.None
		}
		s, err := Open(ctx, Options{FS: vfs.NewMem(vfs.MemOptions{}), Sink: m.Claim(), MaxUnsealed: 3 << 20})
		need.NoError(t, err)
		write := func(path string, size int) error {
			data := make([]byte, size)
			for i := range data {
				data[i] = byte(rand.Uint32())
			}
			return second(put(ctx, s, "", path, string(data)))
		}
		must := func(err error) {
			t.Helper()
			need.NoError(t, err)
		}
		must(write("small", 10))
		<-time.After(remote.SealAfter - time.Minute)
		if m.Unsealed() != 1 {
			t.Fatal("sealed before its time")
		}
		<-time.After(2 * time.Minute)
		if n := m.Unsealed(); n != 0 {
			t.Fatalf("%d groups are not sealed after a quarter of an hour", n)
		}
		for i := range 8 {
			must(write(fmt.Sprint("large", i), 200<<10))
		}
		<-time.After(10 * time.Second)
		if bytes, _ := s.r.Held.Unsealed(); bytes >= remote.SealBytes {
			t.Fatalf("%d bytes are not sealed", bytes)
		}
		down.Store(true)
		var refused error
		for i := 0; i < 40 && refused == nil; i++ {
			refused = write(fmt.Sprint("more", i), 200<<10)
		}
		if e, ok := errors.AsType[*errs.Error](refused); !ok || e.Code != "blobs_unavailable" {
			t.Fatalf("beyond the bound: %v", refused)
		}
		<-time.After(time.Minute)
		down.Store(false)
		<-time.After(time.Minute)
		must(write("after", 10))
		need.NoError(t, s.Close(ctx))
	})
}
