package workspace

import (
	"math/rand/v2"
	"testing"

	"umbra/internal/vfs"
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
	_, err := b.w.Sync(t.Context(), SyncOptions{})
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
