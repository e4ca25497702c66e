package workspace

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"umbra/gitstore/object"
	"umbra/internal/vfs"
	"umbra/internal/workspace/reconcile"
)

// settle looks at the files that wait until none does.
func (b *bench) settle() {
	b.t.Helper()
	for range 1 << 20 {
		if b.w.keeper.Settle(context.Background(), false) == 0 {
			return
		}
	}
	b.t.Fatal("files wait for ever")
}

func (b *bench) hasAndClean(late string) {
	b.t.Helper()
	if !b.w.store.HasBlob(object.Hash(object.Blob, []byte(late))) {
		b.t.Errorf("%q is lost", late)
	}
	for name := range inFolder(b.t, b.mem, "ws") {
		if strings.Contains(name, ".umbra-") || strings.Contains(name, "umbra-recovered") {
			b.t.Errorf("left in the workspace: %s", name)
		}
	}
	if left := b.leftAside(); len(left) > 0 {
		b.t.Errorf("left aside: %v", left)
	}
}

// A process has a file open; the file is replaced or deleted in any way, and its
// directory too; the process then writes. The bytes are in history, whatever
// happens to the server meanwhile.
func TestLateBytes(t *testing.T) {
	for name, ops := range map[string][][]Op{
		"write":                    {{write("d/x", "2")}},
		"delete":                   {{del("d/x")}},
		"rename over":              {{rename("a", "d/x")}},
		"directory deleted":        {{del("d")}},
		"written, then deleted":    {{write("d/x", "2")}, {del("d")}},
		"written, then renamed":    {{write("d/x", "2")}, {rename("d", "e")}},
		"both in one request":      {{write("d/x", "2"), del("d")}},
		"renamed in one request":   {{write("d/x", "2"), rename("d", "e")}},
		"directory becomes a file": {{del("d"), write("d", "file")}},
	} {
		for _, stop := range []string{"", "stop", "kill"} {
			for _, deny := range [][]string{nil, {vfs.OpExchange}, {vfs.OpTmpfile}} {
				t.Run(fmt.Sprintf("%s %s %v", name, stop, deny), func(t *testing.T) {
					b := newBench(t, scenarioFiles(), deny...)
					f, err := b.mem.OpenFile("ws/d/x", os.O_RDWR, 0)
					must(t, err)
					for _, o := range ops {
						b.ok(o...)
					}
					switch stop {
					case "stop":
						b.stop()
						b.start()
						must(t, b.open())
					case "kill":
						// The process lives on: the same disk, with an open file.
						b = b.reboot(t, b.mem, "one")
						must(t, b.open())
					}
					const late = "late bytes, longer than before"
					_, err = f.WriteAt([]byte(late), 0)
					must(t, err)
					must(t, f.Close())
					b.settle()
					if strings.HasPrefix(name, "directory becomes") {
						// No tree has that path now: it gets a name that people see.
						_, err := b.w.Sync(t.Context(), reconcile.SyncOptions{})
						must(t, err)
						if !b.w.store.HasBlob(object.Hash(object.Blob, []byte(late))) {
							t.Error("lost")
						}
					} else {
						b.hasAndClean(late)
					}
					b.same()
					b.stop()
				})
			}
		}
	}
}

// A process whose working directory is deleted creates a file or a link there, before any
// call of the deletion: it is in history.
func TestCreatedInADeletedDirectory(t *testing.T) {
	for _, link := range []bool{false, true} {
		createInDeleted(t, "", link)
		createInDeleted(t, "/sub", link)
	}
}

func createInDeleted(t *testing.T, sub string, link bool) {
	const late = "created in a deleted directory"
	created := false
	for n := 0; n == 0 || created; n++ {
		b := newBench(t, scenarioFiles())
		var taken string
		created = false
		calls := 0
		var where vfs.Call
		b.hook.Reads = true
		b.on(func(c vfs.Call) error {
			if c.Op == vfs.OpRenameNoReplace && strings.Contains(c.Name, ".umbra-") {
				taken = c.Name
			} else if taken != "" && !created {
				if calls++; calls > n {
					if link && b.mem.Symlink(late, taken+sub+"/new") == nil {
						created, where = true, c
						return nil
					}
					f, err := b.mem.OpenFile(taken+sub+"/new", os.O_WRONLY|os.O_CREATE, 0o644)
					if err != nil { // it is removed
						taken = ""
						return nil
					}
					created = true
					where = c
					_, err = f.WriteAt([]byte(late), 0)
					must(t, err)
					must(t, f.Close())
				}
			}
			return nil
		})
		b.ok(del("d"))
		b.on(nil)
		b.settle()
		if created {
			if _, err := b.w.Sync(t.Context(), reconcile.SyncOptions{}); err != nil {
				t.Fatal(err)
			}
			if !b.w.store.HasBlob(object.Hash(object.Blob, []byte(late))) {
				t.Errorf("d%s, link %t, created before %s %s: it is lost", sub, link, where.Op, where.Name)
			}
		} else if n == 0 {
			t.Fatal("the directory was not taken")
		}
		b.same()
		b.stop()
	}
}

// Where the system does not say whether a file is open, it is kept.
func TestUnknownIsNotClosed(t *testing.T) {
	b := newBench(t, scenarioFiles())
	defer b.stop()
	b.hook.NoLeases.Store(true)
	f, err := b.mem.OpenFile("ws/d/x", os.O_RDWR, 0)
	must(t, err)
	b.ok(write("d/x", "2"))
	b.ok(del("d"))
	b.ok(write("a", "2"))
	if n := b.w.keeper.Settle(t.Context(), false); n != 4 {
		t.Fatalf("%d files are kept, not d/x, its successor, d/sub/y and a", n)
	}
	const late = "late bytes, longer than before"
	_, err = f.WriteAt([]byte(late), 0)
	must(t, err)
	must(t, f.Close())
	b.hook.NoLeases.Store(false)
	b.stop()
	b.start()
	must(t, b.open())
	b.settle()
	b.hasAndClean(late)
	b.same()
}

// The data directory is on another file system: files wait in the workspace, out
// of reach of its directories.
func TestWaitInWorkspace(t *testing.T) {
	b := real(t, map[string]string{"d/x": "0"})
	b.w.disk.Root.SetAside(nil)
	f, err := os.OpenFile(b.host0("d/x"), os.O_RDWR, 0)
	must(t, err)
	b.ok(write("d/x", "api"))
	b.ok(del("d"))
	_, err = f.WriteAt([]byte("late bytes"), 0)
	must(t, err)
	must(t, f.Close())
	for b.w.keeper.Settle(context.Background(), false) > 0 {
	}
	if !b.w.store.HasBlob(object.Hash(object.Blob, []byte("late bytes"))) {
		t.Fatal("late bytes are lost")
	}
	b.realSame()
	list, err := os.ReadDir(filepath.Clean(b.w.disk.Dir))
	must(t, err)
	if len(list) > 0 {
		t.Errorf("left in the workspace: %v", list)
	}
}
