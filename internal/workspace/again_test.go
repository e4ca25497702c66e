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
