package workspace

import (
	"context"
	"fmt"
	"os"
	"path"
	"strings"
	"testing"

	"umbra/gitstore/object"
	"umbra/internal/vfs"
	"umbra/internal/workspace/disk"
	"umbra/internal/workspace/retire"
)

// leftAside lists what is in the folder aside.
func (b *bench) leftAside() (names []string) {
	b.t.Helper()
	list, err := b.mem.ReadDir(path.Join(rel(b.m.dirOf(b.w.id)), disk.AsideDir))
	must(b.t, err)
	for _, e := range list {
		names = append(names, e.Name)
	}
	return names
}

// What was displaced goes beside what comes next: at the latest when so many wait,
// before a checkpoint that covers it, and at a stop.
func TestDroppedSoon(t *testing.T) {
	b := newBench(t, scenarioFiles())
	most := 0
	for i := range retire.MaxToDrop + 10 {
		b.ok(write("a", fmt.Sprint(i)))
		most = max(most, len(b.leftAside()))
	}
	if most == 0 || most > retire.MaxToDrop {
		t.Errorf("up to %d waited", most)
	}
	must(t, b.w.checkpoint(context.Background(), false))
	if left := b.leftAside(); len(left) > 0 {
		t.Errorf("left after a checkpoint: %v", left)
	}
	b.ok(write("a", "last"))
	b.stop()
	if left := b.leftAside(); len(left) > 0 {
		t.Errorf("left after a stop: %v", left)
	}
}

// A request that finds many waiting removes a few of them, however many there are: it
// does not wait for all.
func TestDropsItsShare(t *testing.T) {
	b := newBench(t, scenarioFiles())
	defer b.stop()
	b.w.keeper.Go = nil // nothing is removed next to requests
	for i := range retire.MaxToDrop {
		b.ok(write("a", fmt.Sprint(i)))
	}
	before := len(b.leftAside())
	b.ok(write("a", "one more"))
	if after := len(b.leftAside()); after > before || after < before-5 {
		t.Errorf("%d waited, and %d after one more", before, after)
	}
}

// Who was just opening a file when it was replaced, and got it after it was looked
// at, may write to it: that is recorded.
func TestOpenedAtTheLastMoment(t *testing.T) {
	b := newBench(t, scenarioFiles())
	defer b.stop()
	const late = "written to what was replaced"
	b.ok(write("a", "ours"))
	waits := b.leftAside()
	if len(waits) != 1 {
		t.Fatalf("%v wait", waits)
	}
	f, err := b.mem.OpenFile(path.Join(rel(b.m.dirOf(b.w.id)), disk.AsideDir, waits[0]), os.O_RDWR, 0)
	must(t, err)
	must(t, b.w.checkpoint(context.Background(), false)) // before which it would go
	_, err = f.WriteAt([]byte(late), 0)
	must(t, err)
	if n := b.w.keeper.Settle(context.Background(), false); n != 1 {
		t.Errorf("%d are waited for: %v", n, b.leftAside())
	}
	must(t, f.Close())
	if n := b.w.keeper.Settle(context.Background(), false); n > 0 {
		t.Errorf("%d are still waited for", n)
	}
	b.same()
	if !b.w.store.HasBlob(object.Hash(object.Blob, []byte(late))) {
		t.Error("it is lost")
	}
}

// Who has the file open cuts it in the instant in which what came out is looked at:
// that is a person's change as any other.
func TestCutWhileItIsReplaced(t *testing.T) {
	b := newBench(t, scenarioFiles())
	defer b.stop()
	f, err := b.mem.OpenFile("ws/a", os.O_RDWR, 0)
	must(t, err)
	cut := false
	b.hook.Reads = true
	b.on(func(c vfs.Call) error {
		if c.Op == vfs.OpRead && !cut && strings.Contains(c.Name, "/"+disk.AsideDir+"/") {
			cut = true
			return f.Truncate(0)
		}
		return nil
	})
	_, err = b.apply(write("a", "ours"))
	b.on(nil)
	if err != nil || !cut {
		t.Errorf("cut %t: %v", cut, err)
	}
	must(t, f.Close())
	b.w.keeper.Settle(context.Background(), false)
	b.same()
	if got := tree(t, b.w)["a"]; got != "ours" {
		t.Errorf("a holds %q", got)
	}
}

// A person saves in the instant before the exchange, and the server is killed at
// any call after it: what the person saved is in history, at its path, and nothing
// is left over.
func TestKillWithAPersonAtTheExchange(t *testing.T) {
	const saved = "saved at the last moment"
	for _, name := range []string{"a", "d/sub/y"} {
		for n := 0; ; n++ {
			b := newBench(t, scenarioFiles())
			must(t, b.w.checkpoint(context.Background(), false))
			var clone *vfs.Mem
			since, at := -1, ""
			b.on(func(c vfs.Call) error {
				if c.Op == vfs.OpExchange && since < 0 {
					writeDisk(t, b.mem, "ws/"+name, saved)
					since = 0
				} else if since >= 0 {
					if since++; since == n {
						clone, at = b.mem.CrashClone(vfs.CrashOptions{Mode: vfs.CrashNothing}), c.Op+" "+c.Name
					}
				}
				return nil
			})
			_, err := b.apply(write(name, "ours"))
			must(t, err)
			b.on(nil)
			if since < 0 {
				t.Fatal("nothing was exchanged")
			}
			if clone == nil && n > 0 {
				b.stop()
				break
			}
			if n == 0 {
				b.stop()
				continue
			}
			where := fmt.Sprintf("%s, call %d after the exchange began (%s)", name, n, at)
			c := b.reboot(t, clone, "one")
			if err := c.open(); err != nil {
				t.Fatalf("%s: open: %v", where, err)
			}
			if d := c.differ(); d != "" {
				t.Fatalf("%s: disk and history differ:\n%s", where, d)
			}
			if left := c.leftAside(); len(left) > 0 {
				t.Fatalf("%s: left aside: %v", where, left)
			}
			if !c.w.store.HasBlob(object.Hash(object.Blob, []byte(saved))) {
				t.Fatalf("%s: what the person saved is lost", where)
			}
			for name := range inFolder(t, c.mem, "ws") {
				if strings.Contains(name, ".umbra-") || strings.Contains(name, "umbra-recovered") {
					t.Fatalf("%s: left behind: %s", where, name)
				}
			}
			c.stop()
			b.stop()
		}
	}
}
