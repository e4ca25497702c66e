package workspace

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"umbra/internal/vfs"
	"umbra/internal/workspace/reconcile"
)

// A kill, a start, and a power cut: what the kill left unsynced is not known to
// the new server's memory, and its first checkpoint must sync it all the same.
func TestPowerCutAfterAKill(t *testing.T) {
	for _, mode := range []vfs.CrashMode{vfs.CrashSyncedOnly, vfs.CrashNamesOnly, vfs.CrashRandom} {
		b := newBench(t, scenarioFiles())
		b.ok(write("a", "new"), mkdir("m"), write("m/n/o", "deep"))
		b.ok(write("b", "other"))
		b.ok(write("b", "B")) // the bytes of before, in a new file
		b.ok(write("d/x", "other"), rename("d/sub/y", "y"), write("d/x", "X"))
		killed := b.mem.CrashClone(vfs.CrashOptions{Mode: vfs.CrashNothing})
		want := tree(t, b.w)
		b.stop()
		c := b.reboot(t, killed, "one")
		must(t, c.open())
		cut := c.mem.CrashClone(vfs.CrashOptions{Mode: mode, Rand: rand.New(rand.NewPCG(1, 1))})
		c.stop()
		d := c.reboot(t, cut, "two")
		must(t, d.open())
		if diff := diffMaps(tree(t, d.w), want); diff != "" {
			t.Errorf("%v: history is another:\n%s", mode, diff)
		}
		d.same()
		d.stop()
	}
}

// What a person did to folders is on stable storage with the checkpoint that
// says so: a power cut after it does not bring the old ones back.
func TestPowerCutAfterAPersonsFolders(t *testing.T) {
	b := newBench(t, scenarioFiles())
	must(t, b.mem.Mkdir("ws/m", 0o755))
	must(t, b.mem.Rename("ws/d", "ws/m/d"))
	must(t, removeAll(b.mem, "ws/m/d/sub"))
	_, err := b.w.Sync(t.Context(), reconcile.SyncOptions{})
	must(t, err)
	must(t, b.w.checkpoint(t.Context(), false))
	want := tree(t, b.w)
	cut := b.mem.CrashClone(vfs.CrashOptions{Mode: vfs.CrashSyncedOnly})
	b.stop()
	c := b.reboot(t, cut, "two")
	must(t, c.open())
	defer c.stop()
	if diff := diffMaps(tree(t, c.w), want); diff != "" {
		t.Errorf("history is another:\n%s", diff)
	}
	c.same()
}

// The process is killed at every call of a change set; the next one starts, and the
// power fails before or after its first checkpoint: what the start relied on is
// durable, and the renames that it finished are finished again.
func TestPowerFailureAfterAKillAtEveryCall(t *testing.T) {
	points := 0
	for _, s := range scenarios() {
		if len(s.deny) > 0 && !soak() {
			continue
		}
		t.Run(s.name, func(t *testing.T) {
			calls := s.calls(t, false)
			for n := 1; n <= calls+1; n += stride() {
				points++
				s.killThenFail(t, n, uint64(points))
			}
		})
	}
	t.Logf("%d points", points)
}

func (s *scenario) killThenFail(t *testing.T, n int, seed uint64) {
	b := s.bench(t)
	defer b.stop()
	old, base := tree(t, b.w), b.hook.Count()
	var killed *vfs.Mem
	b.on(func(c vfs.Call) error {
		if c.N == base+n {
			killed = b.mem.CrashClone(vfs.CrashOptions{Mode: vfs.CrashNothing})
		}
		return nil
	})
	b.ok(s.ops...)
	b.on(nil)
	answered := killed == nil
	if answered {
		killed = b.mem.CrashClone(vfs.CrashOptions{Mode: vfs.CrashNothing})
	}
	// How many calls a start makes, to fail the power at one of them.
	mode := []vfs.CrashMode{vfs.CrashSyncedOnly, vfs.CrashNamesOnly, vfs.CrashRandom}[seed%3]
	c := b.reboot(t, killed, "one")
	first, failed := c.hook.Count(), (*vfs.Mem)(nil)
	at := 1 + int(seed*7%40)
	c.on(func(x vfs.Call) error {
		if x.N == first+at {
			failed = c.mem.CrashClone(vfs.CrashOptions{Mode: mode, Rand: rand.New(rand.NewPCG(seed, 4))})
		}
		return nil
	})
	must(t, c.open())
	c.on(nil)
	started := failed == nil // then what was not answered has been seen
	if started {
		failed = c.mem.CrashClone(vfs.CrashOptions{Mode: mode, Rand: rand.New(rand.NewPCG(seed, 4))})
	}
	want := tree(t, c.w)
	c.stop()
	d := b.reboot(t, failed, "two")
	defer d.stop()
	where := fmt.Sprintf("killed at call %d, %v at call %d of the start", n, mode, at)
	if err := d.open(); err != nil {
		t.Fatalf("%s: %v", where, err)
	}
	d.settle()
	if diff := d.differ(); diff != "" {
		t.Fatalf("%s: disk and history differ:\n%s", where, diff)
	}
	got := tree(t, d.w)
	if diff := diffMaps(got, want); diff != "" && s.edit == nil && (answered || started || diffMaps(got, old) != "") {
		t.Fatalf("%s: history is another:\n%s", where, diff)
	}
	for name := range inFolder(t, d.mem, "ws") {
		if strings.Contains(name, ".umbra-") || strings.Contains(name, "umbra-recovered") {
			t.Fatalf("%s: left behind: %s", where, name)
		}
	}
}
