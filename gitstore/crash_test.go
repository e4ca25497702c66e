package gitstore

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"os"
	"syscall"
	"testing"
	"time"

	"umbra/gitstore/message"
	"umbra/gitstore/object"
	"umbra/internal/need"
	"umbra/internal/vfs"
	"umbra/internal/wspath"
)

// scenario is a run of a store whose every answered step is noted, so that
// what a crash leaves can be compared with it.
type scenario struct {
	acked  []ID                // by sequence number
	files  []map[string]string // tree after each sequence number
	tasks  map[string]string
	failed int
	// opt changes how the store is opened; nil: not at all.
	opt func(*Options)
}

func (sc *scenario) open(ctx context.Context, opt Options) (*Store, error) {
	if sc.opt != nil {
		sc.opt(&opt)
	}
	return Open(ctx, opt)
}

var errKilled = errors.New("killed")

// play runs the scenario on fs. Errors of the store are counted, not fatal.
func (sc *scenario) play(fs vfs.FS) error {
	ctx := context.Background()
	now := time.Unix(1_700_000_000, 0)
	s, err := sc.open(ctx, Options{FS: fs, Foreground: true, InlineBlob: 2 << 10, BaselinePart: 40, MergeGrace: time.Second,
		Now: func() time.Time { now = now.Add(time.Second); return now }})
	if err != nil {
		return err
	}
	sc.tasks = make(map[string]string)
	tree := map[string]string{}
	note := func(c Committed, err error, change func(map[string]string)) {
		if err != nil {
			sc.failed++
			return
		}
		next := make(map[string]string, len(tree))
		maps.Copy(next, tree)
		change(next)
		tree = next
		sc.acked = append(sc.acked, c.Commit)
		sc.files = append(sc.files, tree)
	}
	c, err := s.Baseline(ctx, message.Message{Source: message.Baseline}, func(add AddFile) error {
		for i := range 3 {
			text := fmt.Sprintf("base %d\n", i)
			if _, err := add(wspath.Path(fmt.Sprintf("d%d/f", i)), object.Regular, newReader(text), int64(len(text))); err != nil {
				return err
			}
		}
		return nil
	})
	note(c, err, func(m map[string]string) {
		for i := range 3 {
			m[fmt.Sprintf("d%d/f", i)] = fmt.Sprintf("base %d\n", i)
		}
	})
	if len(sc.acked) == 0 {
		s.Close(ctx)
		return nil
	}
	if _, err := s.PutTask(ctx, message.Info{TaskID: "t", Goal: "g1", Status: "executing"}, ID{}); err == nil {
		sc.tasks["t"] = "g1"
	}
	write := func(path, data string) {
		task := ""
		if sc.tasks["t"] != "" {
			task = "t"
		}
		var b Blob
		var err error
		if len(data) > 2<<10 {
			b, err = s.StreamBlob(ctx, newReader(data), int64(len(data)))
		} else {
			b = s.NewBlob([]byte(data))
		}
		var c Committed
		if err == nil {
			c, err = s.Commit(ctx, Draft{Edits: []Edit{{Path: wspath.Path(path), Mode: object.Regular, Blob: b}}, Entries: 1,
				Message: message.Message{TaskID: task, Source: message.API,
					Entries: []message.Entry{{Operation: message.Modify, Path: path, AfterHash: b.AfterHash()}}}})
			if err != nil {
				s.Discard(b)
			}
		}
		note(c, err, func(m map[string]string) { m[path] = data })
	}
	large := make([]byte, 5<<10)
	for round := range 7 {
		for i := range 3 {
			write(fmt.Sprintf("d%d/sub/n%d", i, round), fmt.Sprintf("round %d\n", round))
		}
		if round == 2 {
			for i := range large {
				large[i] = byte(i * 7)
			}
			write("large", string(large))
			c, err := s.Commit(ctx, Draft{Edits: []Edit{{Path: "d0", MoveTo: "moved"}}, Message: message.Message{Source: message.API}})
			note(c, err, func(m map[string]string) {
				for k, v := range m {
					if len(k) > 3 && k[:3] == "d0/" {
						m["moved/"+k[3:]] = v
						delete(m, k)
					}
				}
			})
		}
		if round == 3 {
			if _, err := s.PutTask(ctx, message.Info{TaskID: "t", Goal: "g2", Status: "paused"}, ID{}); err == nil {
				sc.tasks["t"] = "g2"
			}
		}
		if err := s.Publish(ctx); err != nil {
			sc.failed++
		}
		if err := s.Maintain(ctx); err != nil {
			sc.failed++
		}
		if round%3 == 1 {
			if err := s.Seal(ctx); err != nil {
				sc.failed++
			}
		}
	}
	return s.Close(ctx)
}

func newReader(s string) *readerAt { return &readerAt{s: s} }

// readerAt is a Reader and a ReaderAt of a string.
type readerAt struct {
	s   string
	off int
}

func (r *readerAt) Read(p []byte) (int, error) {
	n, err := r.ReadAt(p, int64(r.off))
	r.off += n
	return n, err
}

func (r *readerAt) ReadAt(p []byte, off int64) (int, error) {
	if off >= int64(len(r.s)) {
		return 0, io.EOF
	}
	n := copy(p, r.s[off:])
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

// check opens what a crash left and compares it with what was answered. A
// step that was not answered may be there, whole.
func (sc *scenario) check(t *testing.T, m *vfs.Mem, fsckIt bool) {
	t.Helper()
	ctx := context.Background()
	s, err := sc.open(ctx, Options{FS: m, Foreground: true, InlineBlob: 2 << 10})
	if err != nil {
		t.Fatalf("open after the crash: %v", err)
	}
	defer s.Close(ctx)
	tip := s.Tip()
	if tip.Seq < uint64(len(sc.acked)) {
		t.Fatalf("%d commits were answered, %d are there", len(sc.acked), tip.Seq)
	}
	for i, want := range sc.acked {
		if got, err := s.CommitAt(ctx, uint64(i+1)); err != nil || got != want {
			t.Fatalf("commit %d is %s (%v), answered was %s", i+1, got, err, want)
		}
	}
	if n := len(sc.acked); n > 0 {
		snap, err := s.SnapshotOf(ctx, sc.acked[n-1])
		need.NoError(t, err)
		got := map[string]string{}
		err = snap.Walk(wspath.Root, func(e Entry) error {
			data, err := s.ReadBlob(ctx, e.ID, 1<<20)
			got[string(e.Path)] = string(data)
			return err
		})
		if err != nil || fmt.Sprint(got) != fmt.Sprint(sc.files[n-1]) {
			t.Fatalf("tree: %v\ngot  %v\nwant %v", err, got, sc.files[n-1])
		}
	}
	if want := sc.tasks["t"]; want != "" {
		if task, ok := s.Task("t"); !ok || (task.Info.Goal != want && !(want == "g1" && task.Info.Goal == "g2")) {
			t.Fatalf("task: %+v, answered was goal %s", task, want)
		}
	}
	if rep, err := s.Verify(ctx, nil); err != nil || len(rep.Problems) > 0 {
		t.Fatalf("verify: %v %v", rep.Problems, err)
	}
	if _, err := put(ctx, s, "", "after", "the crash"); err != nil {
		t.Fatalf("writing after the crash: %v", err)
	}
	need.NoError(t, s.Publish(ctx))
	if fsckIt {
		dir := testDir(t)
		need.NoError(t, m.Export(dir))
		// A crash may cost the reflog that keeps an old record of a task from
		// being called dangling.
		fsck(t, dir, "--no-dangling")
	}
}

// calls counts the file system calls of the undisturbed scenario.
func calls(t *testing.T) int {
	h := &vfs.Hook{}
	var sc scenario
	if err := sc.play(vfs.Inject(vfs.NewMem(vfs.MemOptions{}), h)); err != nil || sc.failed > 0 {
		t.Fatalf("undisturbed run: %v, %d failed", err, sc.failed)
	}
	return h.Count()
}

// stride is how many calls lie between two points: every call is one, but with
// -short, which make test uses for the run with the race detector.
func stride() int {
	if testing.Short() {
		return 41
	}
	return 1
}

func TestCrashAtEveryCall(t *testing.T) {
	total := calls(t)
	seeds := 2
	if v := os.Getenv("UMBRA_SOAK"); v != "" {
		seeds = 20
	}
	points := 0
	for n := 1; n <= total; n += stride() {
		h := &vfs.Hook{}
		h.StopAt(n, errKilled)
		mem := vfs.NewMem(vfs.MemOptions{})
		var sc scenario
		sc.play(vfs.Inject(mem, h)) // ends with an error: it was killed
		for _, mode := range []vfs.CrashMode{vfs.CrashNothing, vfs.CrashSyncedOnly, vfs.CrashNamesOnly, vfs.CrashRandom} {
			times := 1
			if mode == vfs.CrashRandom {
				times = seeds
			}
			for seed := range times {
				points++
				clone := mem.CrashClone(vfs.CrashOptions{Mode: mode, Rand: rand.New(rand.NewPCG(uint64(n), uint64(seed)))})
				ok := t.Run(fmt.Sprintf("call %d %v %d", n, mode, seed), func(t *testing.T) {
					sc.check(t, clone, points%41 == 0)
				})
				if !ok {
					t.FailNow()
				}
			}
		}
	}
	t.Logf("%d crash points at %d calls", points, total)
}

func TestErrorAtEveryCall(t *testing.T) {
	total := calls(t)
	injected := 0
	for _, errno := range []syscall.Errno{syscall.ENOSPC, syscall.EIO, syscall.EROFS, syscall.EMFILE} {
		for n := 1; n <= total; n += stride() {
			if errno != syscall.EIO && errno != syscall.ENOSPC && n%3 != 0 {
				continue
			}
			injected++
			h := &vfs.Hook{OnCall: func(c vfs.Call) error {
				if c.N == n {
					return vfs.Partial(errno)
				}
				return nil
			}}
			mem := vfs.NewMem(vfs.MemOptions{})
			var sc scenario
			sc.play(vfs.Inject(mem, h))
			// A failed sync must never be taken for a good one: only what is
			// really on disk counts.
			clone := mem.CrashClone(vfs.CrashOptions{Mode: vfs.CrashSyncedOnly})
			if !t.Run(fmt.Sprintf("%v at call %d", errno, n), func(t *testing.T) { sc.check(t, clone, injected%41 == 0) }) {
				t.FailNow()
			}
		}
	}
	t.Logf("%d errors injected at %d calls", injected, total)
}

// TestTwoErrors samples pairs of faults: a salvage, a retry or a second try of a
// publication fails as well, or everything fails from one call to another.
func TestTwoErrors(t *testing.T) {
	total := calls(t)
	rnd := rand.New(rand.NewPCG(7, 9))
	pairs := 500
	if testing.Short() {
		pairs = 20
	}
	for i := range pairs {
		first := 1 + rnd.IntN(total)
		second := first + 1 + rnd.IntN(40) // near enough to meet what the first led to
		span, errno := i%4 == 0, []syscall.Errno{syscall.ENOSPC, syscall.EIO, syscall.EMFILE}[i%3]
		h := &vfs.Hook{OnCall: func(c vfs.Call) error {
			if c.N == first || c.N == second || span && c.N > first && c.N < second {
				return vfs.Partial(errno)
			}
			return nil
		}}
		mem := vfs.NewMem(vfs.MemOptions{})
		var sc scenario
		sc.play(vfs.Inject(mem, h))
		clone := mem.CrashClone(vfs.CrashOptions{Mode: vfs.CrashSyncedOnly})
		if !t.Run(fmt.Sprintf("%v at calls %d and %d, all between: %v", errno, first, second, span), func(t *testing.T) { sc.check(t, clone, i%97 == 0) }) {
			t.FailNow()
		}
	}
}

// TestPowerFailureAfterAKill kills the process at every call; the next one starts, and
// the power fails: what it took over from the page cache, and relied on, is durable by
// then. In half of the cases it has written something, which was answered.
func TestPowerFailureAfterAKill(t *testing.T) {
	ctx := context.Background()
	points := 0
	for n := 1; n <= calls(t); n += stride() {
		mem := vfs.NewMem(vfs.MemOptions{})
		var killed *vfs.Mem
		h := &vfs.Hook{}
		var acked int
		var sc scenario
		h.OnCall = func(c vfs.Call) error {
			if c.N == n {
				killed, acked = mem.CrashClone(vfs.CrashOptions{Mode: vfs.CrashNothing}), len(sc.acked)
			}
			return nil
		}
		need.NoError(t, sc.play(vfs.Inject(mem, h)))
		s, err := Open(ctx, Options{FS: killed, Foreground: true, InlineBlob: 2 << 10})
		if err != nil {
			t.Fatalf("call %d: %v", n, err)
		}
		want := s.Tip() // a reader may have seen it
		if want.Seq > 0 && n/stride()%2 == 0 {
			c, err := put(ctx, s, "", "later", "later\n")
			if err != nil {
				t.Fatalf("call %d: %v", n, err)
			}
			want = Tip{Commit: c.Commit, Seq: c.Seq}
		}
		for seed, mode := range []vfs.CrashMode{vfs.CrashSyncedOnly, vfs.CrashNamesOnly, vfs.CrashRandom, vfs.CrashRandom} {
			points++
			r, err := Open(ctx, Options{FS: killed.CrashClone(vfs.CrashOptions{Mode: mode, Rand: rand.New(rand.NewPCG(uint64(n), uint64(seed)))}), Foreground: true, InlineBlob: 2 << 10})
			if err != nil {
				t.Errorf("call %d, %v: %v", n, mode, err)
				continue
			}
			if r.Tip().Seq < uint64(acked) || r.Tip().Seq < want.Seq {
				t.Errorf("call %d, %v: of %d commits, and %d that were answered before the kill, %d are left; %q", n, mode, want.Seq, acked, r.Tip().Seq, r.Warnings())
			} else if want.Seq > 0 {
				if id, err := r.CommitAt(ctx, want.Seq); err != nil || id != want.Commit {
					t.Errorf("call %d, %v: commit %d is %s, not %s (%v)", n, mode, want.Seq, id, want.Commit, err)
				}
			}
			if err := r.Close(ctx); err != nil {
				t.Errorf("call %d, %v: %v", n, mode, err)
			}
		}
		need.NoError(t, s.Close(ctx))
	}
	t.Logf("%d points", points)
}
