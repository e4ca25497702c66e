package workspace

import (
	"context"
	"fmt"
	"os"
	"path"
	"slices"
	"strings"
	"syscall"
	"testing"

	"umbra/gitstore/object"
	"umbra/internal/vfs"
	"umbra/internal/workspace/disk"
	"umbra/internal/workspace/reconcile"
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

// A user saves in the instant before the exchange, or once more after it, and from any
// call on the disk is full, also when the server stops: once there is room, what the user
// saved is in history, and no temporary file is left over.
func TestNoRoomWithAUserAtTheExchange(t *testing.T) {
	const saved, again = "saved at the last moment", "saved once more"
	needsRoom := []string{vfs.OpCreate, vfs.OpTmpfile, vfs.OpMkdir, vfs.OpWrite, vfs.OpAllocate, vfs.OpSymlink}
	for _, s := range []struct {
		name string
		ops  []Op
		save string
	}{
		{"replace", []Op{write("a", "ours")}, "a"},
		{"create", []Op{write("n", "ours")}, "n"},
		{"delete", []Op{del("a")}, "a"},
		{"rename over", []Op{rename("b", "a")}, "a"},
		{"batch", []Op{write("d/sub/y", "ours"), write("n", "new"), del("b")}, "d/sub/y"},
		{"directory to file", []Op{del("d"), write("d", "file")}, "d/x"},
	} {
		for v := range 4 {
			stops, twice := v%2 > 0, v/2 > 0
			for n := 1; ; n++ {
				b := newBench(t, scenarioFiles())
				must(t, b.w.checkpoint(context.Background(), false))
				saves := 0
				save := func(text string) {
					writeDisk(t, b.mem, "saving~", text)
					if b.mem.Rename("saving~", "ws/"+s.save) == nil { // else its directory is gone
						saves++
					}
				}
				calls, full, at := 0, false, ""
				b.on(func(c vfs.Call) error {
					if saves == 0 {
						if strings.HasPrefix(c.Name, "ws/") && slices.Contains([]string{vfs.OpExchange, vfs.OpLinkFile, vfs.OpRenameNoReplace}, c.Op) {
							save(saved)
						}
						return nil
					}
					if data, err := vfs.ReadFile(b.mem, "ws/"+s.save); twice && saves == 1 && (err != nil || string(data) != saved) {
						save(again)
					}
					if calls++; calls == n {
						full, at = true, c.Op+" "+c.Name
					}
					if full && slices.Contains(needsRoom, c.Op) {
						return syscall.ENOSPC
					}
					return nil
				})
				_, err := b.apply(s.ops...)
				where := fmt.Sprintf("%s, saved twice: %v, stopped: %v, call %d (%s), err %v", s.name, twice, stops, n, at, err)
				if saves == 0 {
					t.Fatalf("%s: nothing was exchanged", where)
				}
				b.w.keeper.Settle(context.Background(), false)
				_, _ = b.w.Sync(context.Background(), reconcile.SyncOptions{})
				if stops {
					b.w.Release()
					_ = b.m.Close(context.Background()) // says that there was no room
					b = b.reboot(t, b.mem, "one")
					must(t, b.open())
				} else {
					b.on(nil)
				}
				b.settle()
				if _, err := b.w.Sync(context.Background(), reconcile.SyncOptions{}); err != nil {
					t.Fatalf("%s: sync: %v", where, err)
				}
				if d := b.differ(); d != "" {
					t.Fatalf("%s: disk and history differ:\n%s", where, d)
				}
				for text, written := range map[string]bool{saved: true, again: saves > 1} {
					if written && !b.w.store.HasBlob(object.Hash(object.Blob, []byte(text))) {
						t.Fatalf("%s: %q is lost", where, text)
					}
				}
				if left := b.leftAside(); len(left) > 0 {
					t.Fatalf("%s: left aside: %v", where, left)
				}
				for name := range inFolder(t, b.mem, "ws") {
					if strings.Contains(name, ".umbra-") || !twice && strings.Contains(name, "umbra-recovered") {
						t.Fatalf("%s: left behind: %s", where, name)
					}
				}
				b.stop()
				if !full {
					break
				}
			}
		}
	}
}
