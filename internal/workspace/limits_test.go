package workspace

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"umbra/internal/errs"
	"umbra/internal/need"
	"umbra/internal/vfs"
	"umbra/internal/workspace/content"
	"umbra/internal/workspace/disk"
	"umbra/internal/workspace/reconcile"
)

// A panic at any call of a request releases its paths, and what it left half done
// is recorded by the scan that is due.
func TestPanicAtEveryCall(t *testing.T) {
	for _, s := range scenarios() {
		t.Run(s.name, func(t *testing.T) {
			calls := s.calls(t, false)
			step := stride()
			if !soak() {
				step *= 3
			}
			for n := 1; n <= calls; n += step {
				s.panicAt(t, n)
			}
		})
	}
}

func (s *scenario) panicAt(t *testing.T, n int) {
	b := s.bench(t)
	defer b.stop()
	base, at := b.hook.Count(), ""
	began := b.w.store.Tip().Seq
	panicked := false
	b.on(func(c vfs.Call) error {
		// A panic inside the store, while it holds its locks, is not this test's.
		if c.N >= base+n && at == "" && strings.HasPrefix(c.Name, "ws") {
			at = c.Op + " " + c.Name
			panic("at a call")
		}
		return nil
	})
	func() {
		defer func() { panicked = recover() != nil }()
		_, _ = b.apply(s.ops...)
	}()
	b.on(nil)
	if !panicked {
		return
	}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	if _, err := b.w.Apply(ctx, Request{Ops: []Op{write("a", "after"), write("d/x", "after")}}); err != nil && errs.CodeOf(err) != "not_a_directory" {
		t.Fatalf("panic at call %d (%s), then a write: %v", n, at, err)
	}
	if _, err := b.w.Sync(ctx, reconcile.SyncOptions{}); err != nil {
		t.Fatal(err)
	}
	if d := diffMaps(files(withoutTemps(inFolder(t, b.mem, "ws"))), tree(t, b.w)); d != "" {
		t.Fatalf("panic at call %d (%s): %s", n, at, d)
	}
	if tip := b.w.store.Tip().Seq; tip > began && b.w.Settled() != tip {
		t.Fatalf("panic at call %d (%s): settled %d of %d", n, at, b.w.Settled(), tip)
	}
}

// withoutTemps leaves out temporary names: the next start settles them.
func withoutTemps(m map[string]string) map[string]string {
	for name := range m {
		if strings.Contains(name, ".umbra-") {
			delete(m, name)
		}
	}
	return m
}

// A file that cannot be opened is not synced, so the checkpoint does not cover it.
func TestCheckpointWithoutUnopened(t *testing.T) {
	b := newBench(t, map[string]string{"a": "A", "b": "B"})
	defer b.stop()
	must(t, b.w.checkpoint(t.Context(), false))
	covered := b.w.progress.SyncedTo()
	b.ok(write("a", "A2"))
	b.ok(write("b", "B2"))
	b.hook.Reads = true
	b.on(func(c vfs.Call) error {
		if c.Op == vfs.OpOpen && strings.HasSuffix(c.Name, "ws/a") {
			return fs.ErrPermission
		}
		return nil
	})
	must(t, b.w.checkpoint(t.Context(), false))
	if got := b.w.progress.SyncedTo(); got != covered {
		t.Fatalf("the checkpoint is at %d, was at %d: it covers a file that was not synced", got, covered)
	}
	must(t, b.w.checkpoint(t.Context(), false))
	if w := b.w.Warnings(); len(w) != 1 || !strings.Contains(w[0], `"a"`) {
		t.Fatalf("warnings %q", w)
	}
	b.on(nil)
	must(t, b.w.checkpoint(t.Context(), false))
	if got := b.w.progress.SyncedTo(); got != b.w.Settled() {
		t.Fatalf("the checkpoint is at %d of %d", got, b.w.Settled())
	}
}

// A file that a user moved before a checkpoint could sync it holds the checkpoint, until
// a scan has recorded where it is. What no scan records, such as the removal of an ignored
// file, holds it no longer than that.
func TestCheckpointWaitsForMovedFiles(t *testing.T) {
	b := newBench(t, map[string]string{"a": "A", "b": "B", "c": "C", ".gitignore": "log\n"})
	defer b.stop()
	for _, c := range []struct {
		name  string
		write []string
		move  func()
	}{
		{"moved", []string{"a"}, func() { must(t, b.mem.Rename("ws/a", "ws/moved")) }},
		{"over another", []string{"b", "c"}, func() { must(t, b.mem.Rename("ws/b", "ws/c")) }},
		{"an ignored one removed", []string{"log"}, func() { must(t, b.mem.Remove("ws/log")) }},
	} {
		must(t, b.w.checkpoint(t.Context(), false))
		covered := b.w.progress.SyncedTo()
		if covered != b.w.Settled() {
			t.Fatalf("%s: the checkpoint before is at %d of %d", c.name, covered, b.w.Settled())
		}
		for _, p := range c.write {
			b.ok(write(p, c.name))
		}
		c.move()
		for range 2 {
			must(t, b.w.checkpoint(t.Context(), false))
			if got := b.w.progress.SyncedTo(); got != covered {
				t.Errorf("%s: the checkpoint is at %d, was at %d: it covers a file that was not synced", c.name, got, covered)
			}
		}
		_, err := b.w.Sync(t.Context(), reconcile.SyncOptions{})
		must(t, err)
		must(t, b.w.checkpoint(t.Context(), false))
		if got := b.w.progress.SyncedTo(); got != b.w.Settled() {
			t.Errorf("%s: the checkpoint is at %d of %d", c.name, got, b.w.Settled())
		}
	}
	if w := b.w.Warnings(); len(w) != 0 {
		t.Errorf("warnings %q", w)
	}
}

// A request of any number of files holds a bounded number of descriptors.
func TestDescriptorsOfARequest(t *testing.T) {
	if _, err := os.ReadDir("/proc/self/fd"); err != nil {
		need.Missing(t, "/proc/self/fd: "+err.Error())
	}
	const n = 700
	before := make(map[string]string, n)
	for i := range n {
		before[fmt.Sprintf("d%d/f%d", i%7, i)] = "before"
	}
	b := real(t, before)
	count := func() int {
		list, err := os.ReadDir("/proc/self/fd")
		must(t, err)
		return len(list)
	}
	var ops []Op
	for name := range before {
		ops = append(ops, write(name, "after "+name))
	}
	slices.SortFunc(ops, func(a, c Op) int { return strings.Compare(string(a.Path), string(c.Path)) })
	ops = append(ops, rename("d0", "e0"), write("e0/f0", "once more"), write("new/file", "new"))
	idle, most := count(), 0
	_, err := b.w.Apply(t.Context(), Request{Ops: ops, Check: func() error { most = count(); return nil }})
	must(t, err)
	if most > idle+content.MaxOpen+60 {
		t.Errorf("%d descriptors while it is committed, %d before", most, idle)
	}
	b.realSame()
	if most == 0 {
		t.Error("not asked")
	}
	// Taken back and done again with a person in between.
	ops = ops[:0]
	for i := range n {
		if i%7 != 0 {
			ops = append(ops, write(fmt.Sprintf("d%d/f%d", i%7, i), "third"))
		}
	}
	last := b.host0(string(ops[len(ops)-1].Path))
	edited := false
	_, err = b.w.Apply(t.Context(), Request{Ops: ops, Check: func() error {
		if !edited {
			edited = true
			return os.WriteFile(last, []byte("a person's"), 0o644)
		}
		return nil
	}})
	must(t, err)
	b.realSame()
	left, err := os.ReadDir(b.m.DataDir + "/staging")
	must(t, err)
	for _, e := range left {
		if strings.HasPrefix(e.Name(), "parked-") {
			t.Errorf("%s is left in staging", e.Name())
		}
	}
}

// A scan leaves colliding content out and says why; it does not end.
func TestCollisionIsSkipped(t *testing.T) {
	err := errs.New(errs.Unprocessable, "sha1_collision", "")
	if reason, fatal := disk.SkipReason(err); reason != "sha1_collision" || fatal {
		t.Errorf("%q, fatal %v", reason, fatal)
	}
}
