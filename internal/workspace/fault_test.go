package workspace

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"

	"umbra/gitstore/object"
	"umbra/internal/vfs"
	"umbra/internal/workspace/reconcile"
	"umbra/internal/wspath"
)

// scenario is one change set on files that hold every kind of thing.
type scenario struct {
	name string
	ops  []Op
	// edit is what a person does on disk before, behind the server's back.
	edit map[string]string
	deny []string
}

func scenarios() []scenario {
	return []scenario{
		{name: "create", ops: []Op{write("n", "N")}},
		{name: "create deep", ops: []Op{write("p/q/n", "N")}},
		{name: "replace", ops: []Op{write("a", "A2")}},
		{name: "replace what a person changed", ops: []Op{write("a", "A2")}, edit: map[string]string{"a": "person"}},
		{name: "delete", ops: []Op{del("a")}},
		{name: "delete what a person changed", ops: []Op{del("a")}, edit: map[string]string{"a": "person"}},
		{name: "delete folder", ops: []Op{del("d")}},
		{name: "delete folder with unknown files", ops: []Op{del("d")}, edit: map[string]string{"d/new": "person", "d/x": "changed"}},
		{name: "rename", ops: []Op{rename("a", "c")}},
		{name: "rename over", ops: []Op{rename("a", "b")}},
		{name: "rename folder", ops: []Op{rename("d", "m/e")}},
		{name: "chmod", ops: []Op{chmod("a", object.Executable)}},
		{name: "mkdir", ops: []Op{mkdir("n/m")}},
		{name: "symlink", ops: []Op{symlink("s", "a")}},
		{name: "batch", ops: []Op{write("a", "1"), rename("d", "e"), write("e/x", "2"), del("b"), write("n/m", "3"), chmod("x.sh", object.Executable), rename("a", "n/a")}},
		{name: "swap", ops: []Op{rename("a", "t"), rename("b", "a"), rename("t", "b")}},
		{name: "folder to file", ops: []Op{del("d"), write("d", "file")}},
		{name: "no unlinked files, batch", ops: []Op{write("d/x", "1"), rename("d", "e"), write("e/x", "2"), write("e/n", "3")}, deny: []string{vfs.OpTmpfile}},
		{name: "no unlinked files, folder to file", ops: []Op{del("d"), write("d", "file")}, deny: []string{vfs.OpTmpfile}},
		{name: "no unlinked files, folder anew", ops: []Op{del("d"), write("d/x", "new")}, deny: []string{vfs.OpTmpfile}},
		{name: "no exchange, replace", ops: []Op{write("a", "1")}, deny: []string{vfs.OpExchange}},
		{name: "no exchange, rename over", ops: []Op{rename("a", "b")}, deny: []string{vfs.OpExchange}},
		{name: "neither, batch", ops: []Op{write("a", "1"), rename("a", "b"), write("a", "2")}, deny: []string{vfs.OpExchange, vfs.OpTmpfile}},
	}
}

func scenarioFiles() map[string]string {
	return map[string]string{"a": "A", "b": "B", "d/x": "X", "d/sub/y": "Y", "l": "->a", "x.sh": "S"}
}

func (s *scenario) bench(t testing.TB) *bench {
	b := newBench(t, scenarioFiles(), s.deny...)
	for name, data := range s.edit {
		writeDisk(t, b.mem, "ws/"+name, data)
	}
	return b
}

// calls counts the file system calls of a scenario.
func (s *scenario) calls(t testing.TB, reads bool) int {
	b := s.bench(t)
	defer b.stop()
	b.hook.Reads = reads
	before := b.hook.Count()
	b.ok(s.ops...)
	return b.hook.Count() - before
}

// An error at any call of a change set: an error is answered (or the call did
// not matter), the files are as before, history says the same, and the next
// request works.
func TestErrorAtEveryCall(t *testing.T) {
	points := 0
	for _, s := range scenarios() {
		t.Run(s.name, func(t *testing.T) {
			calls := s.calls(t, false)
			for n := 1; n <= calls+2; n += stride() {
				errnos := []syscall.Errno{syscall.ENOSPC, syscall.EIO, syscall.EACCES, syscall.EROFS, syscall.EMFILE}
				if !soak() {
					errnos = errnos[n%5 : n%5+1]
				}
				for _, errno := range errnos {
					points++
					s.failAt(t, n, errno, false)
				}
			}
			for n := 1; n <= s.calls(t, true)+2; n += stride() {
				points++
				s.failAt(t, n, []syscall.Errno{syscall.EIO, syscall.EMFILE}[n%2], true)
			}
		})
	}
	t.Logf("%d points", points)
}

func (s *scenario) failAt(t *testing.T, n int, errno syscall.Errno, reads bool) {
	b := s.bench(t)
	defer b.stop()
	b.hook.Reads = reads
	before := inFolder(t, b.mem, "ws")
	base := b.hook.Count()
	failed := ""
	b.on(func(c vfs.Call) error {
		if c.N == base+n {
			failed = fmt.Sprintf("%s %s", c.Op, c.Name)
			return errno
		}
		return nil
	})
	res, err := b.apply(s.ops...)
	b.on(nil)
	where := fmt.Sprintf("%v at call %d (%s): err %v", errno, n, failed, err)
	b.w.keeper.Settle(context.Background(), false)
	if err != nil {
		if d := diffMaps(files(inFolder(t, b.mem, "ws")), files(before)); d != "" {
			t.Fatalf("%s: files changed:\n%s", where, d)
		}
	} else if res.Commit.IsZero() {
		t.Fatalf("%s: no commit", where)
	}
	if d := b.differ(); d != "" {
		// What could not be recorded then, a scan records.
		if _, serr := b.w.Sync(context.Background(), reconcile.SyncOptions{}); serr != nil {
			t.Fatalf("%s: sync: %v", where, serr)
		}
		if err != nil && s.edit == nil {
			t.Fatalf("%s: disk and history differ:\n%s", where, d)
		}
	}
	if d := b.differ(); d != "" {
		t.Fatalf("%s: disk and history differ after a scan:\n%s", where, d)
	}
	b.ok(write("after", "works"))
	b.ok(del("after"))
	if err != nil {
		if _, err := b.apply(s.ops...); err != nil {
			t.Fatalf("%s: again: %v", where, err)
		}
	}
	b.same()
	b.w.keeper.Settle(context.Background(), false)
	if left := b.leftAside(); len(left) > 0 {
		t.Fatalf("%s: left aside: %v", where, left)
	}
	if b.w.Settled() != b.w.store.Tip().Seq {
		t.Fatalf("%s: settled %d of %d", where, b.w.Settled(), b.w.store.Tip().Seq)
	}
}

// A crash at any call: what was answered is there, what was not is absent or
// whole, and after the start the disk is the tip.
func TestCrashAtEveryCall(t *testing.T) {
	points := 0
	for _, s := range scenarios() {
		t.Run(s.name, func(t *testing.T) {
			calls := s.calls(t, false)
			for n := 1; n <= calls+1; n += stride() {
				modes := []vfs.CrashMode{vfs.CrashNothing, vfs.CrashSyncedOnly, vfs.CrashNamesOnly, vfs.CrashRandom}
				if !soak() {
					modes = []vfs.CrashMode{vfs.CrashNothing, modes[1+n%3]}
				}
				for _, mode := range modes {
					points++
					s.crashAt(t, n, mode, uint64(points))
				}
			}
		})
	}
	t.Logf("%d points", points)
}

func (s *scenario) crashAt(t *testing.T, n int, mode vfs.CrashMode, seed uint64) {
	b := s.bench(t)
	b.hook.NoLeases.Store((uint64(n)+seed)%2 == 0)
	defer b.stop()
	must(t, b.w.checkpoint(context.Background(), false))
	old := tree(t, b.w)
	base := b.hook.Count()
	var clone *vfs.Mem
	at := ""
	b.on(func(c vfs.Call) error {
		if c.N == base+n {
			clone = b.mem.CrashClone(vfs.CrashOptions{Mode: mode, Rand: rand.New(rand.NewPCG(seed, 3))})
			at = c.Op + " " + c.Name
		}
		return nil
	})
	b.ok(s.ops...)
	b.on(nil)
	answered := clone == nil
	if answered {
		clone = b.mem.CrashClone(vfs.CrashOptions{Mode: mode, Rand: rand.New(rand.NewPCG(seed, 3))})
		at = "the end"
	}
	want := tree(t, b.w)
	epoch := "two"
	if mode == vfs.CrashNothing {
		epoch = "one"
	}
	where := fmt.Sprintf("%v at call %d (%s)", mode, n, at)
	c := b.reboot(t, clone, epoch)
	if err := c.open(); err != nil {
		t.Fatalf("%s: open: %v", where, err)
	}
	defer c.stop()
	c.settle() // what waited when it crashed
	if d := c.differ(); d != "" {
		t.Fatalf("%s: disk and history differ:\n%s", where, d)
	}
	for name := range inFolder(t, c.mem, "ws") {
		if strings.Contains(name, ".umbra-") || strings.Contains(name, "umbra-recovered") {
			t.Fatalf("%s: left behind: %s", where, name)
		}
	}
	if left := c.leftAside(); len(left) > 0 {
		t.Fatalf("%s: left aside: %v", where, left)
	}
	got := tree(t, c.w)
	// A person's edits are not in old; they are wherever the change set is not.
	for name, data := range s.edit {
		if _, ok := got[name]; ok && got[name] == data {
			old[name] = data
		} else if !answered && diffMaps(got, want) != "" {
			old[name] = got[name]
		}
	}
	if mode != vfs.CrashNothing && slices.Contains(s.deny, vfs.OpSetMtime) {
		// What is torn is not known to be the server's: it is left, and recorded.
		for name, data := range want {
			if data = strings.TrimPrefix(data, "->"); answered && !c.w.store.HasBlob(object.Hash(object.Blob, []byte(data))) {
				t.Fatalf("%s: %s was answered and is not in history", where, name)
			}
		}
		return
	}
	if isNew := diffMaps(got, want); isNew != "" {
		if answered {
			t.Fatalf("%s: answered, and not there:\n%s", where, isNew)
		}
		if d := diffMaps(got, old); d != "" {
			t.Fatalf("%s: neither old nor new:\n%s\n%s", where, d, isNew)
		}
	}
	c.ok(write("after", "works"))
	c.same()
}

// soak asks for all points instead of a part of them.
func soak() bool { return os.Getenv("UMBRA_SOAK") != "" }

// stride is how many calls lie between two points: every call is one, but with
// -short, which make test uses for the run with the race detector.
func stride() int {
	if testing.Short() {
		return 7
	}
	return 1
}

// Several requests, a person's saves between them, checkpoints, a crash at any
// call: what was answered is there, and the disk is the tip or the difference
// is recorded.
func TestCrashRandomly(t *testing.T) {
	rounds := 60
	if soak() {
		rounds = 3000
	}
	for seed := range uint64(rounds) {
		crashRandomly(t, seed)
	}
}

func crashRandomly(t *testing.T, seed uint64) {
	r := rand.New(rand.NewPCG(seed, 9))
	b := newBench(t, scenarioFiles())
	defer b.stop()
	names := []string{"a", "b", "d/x", "d/sub/y", "n", "m/n", "d", "e", "e/x", "x.sh"}
	pick := func() string { return names[r.IntN(len(names))] }
	crashAt := b.hook.Count() + 1 + r.IntN(250)
	mode := []vfs.CrashMode{vfs.CrashNothing, vfs.CrashRandom, vfs.CrashNamesOnly, vfs.CrashSyncedOnly}[r.IntN(4)]
	var clone *vfs.Mem
	b.on(func(c vfs.Call) error {
		if c.N == crashAt {
			clone = b.mem.CrashClone(vfs.CrashOptions{Mode: mode, Rand: r})
		}
		return nil
	})
	var log []string
	answered := tree(t, b.w) // after the last request that was answered before the crash
	var blobs []string       // that a person saved, and we replaced and answered
	for i := 0; clone == nil && i < 100; i++ {
		var ops []Op
		for range 1 + r.IntN(3) {
			switch r.IntN(8) {
			case 0:
				ops = append(ops, del(pick()))
			case 1:
				ops = append(ops, rename(pick(), pick()))
			case 2:
				ops = append(ops, chmod(pick(), object.Executable))
			case 3:
				ops = append(ops, mkdir(pick()))
			default:
				ops = append(ops, write(pick(), fmt.Sprintf("%d-%d", i, r.IntN(1000))))
			}
		}
		person := ""
		if p := pick(); r.IntN(3) == 0 {
			if s, err := b.w.disk.Lstat(wspath.Path(p)); err == nil && s.Kind == KindFile && clone == nil {
				person = fmt.Sprintf("person %d", i)
				writeDisk(t, b.mem, "ws/"+p, person)
				ops = []Op{write(p, fmt.Sprintf("over %d", i))}
				if r.IntN(2) == 0 {
					ops = []Op{del(p)}
				}
			}
		}
		line := person
		for _, o := range ops {
			line += fmt.Sprintf(" %d:%s>%s(%s)", o.Kind, o.Path, o.To, o.Data)
		}
		log = append(log, line)
		_, err := b.apply(ops...)
		if clone != nil {
			break
		}
		if err == nil {
			answered = tree(t, b.w)
			if person != "" {
				blobs = append(blobs, person)
			}
		}
		if r.IntN(4) == 0 {
			must(t, b.w.checkpoint(context.Background(), false))
			log = append(log, "checkpoint")
		}
	}
	b.on(nil)
	if clone == nil {
		return
	}
	want := tree(t, b.w) // with the request that was under way
	epoch := "two"
	if mode == vfs.CrashNothing {
		epoch = "one"
	}
	c := b.reboot(t, clone, epoch)
	if err := c.open(); err != nil {
		t.Fatalf("seed %d, %v: open: %v\n%s", seed, mode, err, strings.Join(log, "\n"))
	}
	defer c.stop()
	c.settle() // what waited when it crashed
	if d := c.differ(); d != "" {
		t.Fatalf("seed %d, %v: disk and history differ:\n%s", seed, mode, d)
	}
	if left := c.leftAside(); len(left) > 0 {
		t.Fatalf("seed %d, %v: left aside: %v", seed, mode, left)
	}
	got := tree(t, c.w)
	for _, data := range blobs {
		if !c.w.store.HasBlob(object.Hash(object.Blob, []byte(data))) {
			t.Fatalf("seed %d, %v: %q is lost", seed, mode, data)
		}
	}
	d1, d2 := diffMaps(got, answered), diffMaps(got, want)
	if d1 != "" && d2 != "" && !strings.Contains(d1+d2, "person") {
		t.Fatalf("seed %d, %v: neither what was answered:\n%s\nnor with the last request:\n%s\n%s", seed, mode, d1, d2, strings.Join(log, "\n"))
	}
}
