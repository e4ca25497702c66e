package workspace

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"testing"
	"time"

	"umbra/gitstore/message"
	"umbra/gitstore/object"
	"umbra/internal/vfs"
	"umbra/internal/workspace/reconcile"
)

// A user changes what the server wrote, and the user's change is on stable storage
// when the power fails: it is on disk after the start as the user left it, and in
// history, and so is what the server wrote.
func TestUsersChangeBeforeAPowerFailure(t *testing.T) {
	ours := map[string]string{"a": strings.Repeat("0123456789ABCDE\n", 200), "b": strings.Repeat("another file ok\n", 300), "c": ""}
	open := func(t *testing.T, b *bench, name string) vfs.File {
		f, err := b.mem.OpenFile("ws/"+name, os.O_RDWR, 0)
		must(t, err)
		return f
	}
	sync := func(t *testing.T, b *bench, names ...string) {
		for _, name := range names {
			f := open(t, b, name)
			must(t, f.Sync())
			must(t, f.Close())
		}
		must(t, b.mem.SyncDir("ws"))
	}
	truncate := func(size int64) func(*testing.T, *bench) {
		return func(t *testing.T, b *bench) {
			f := open(t, b, "a")
			must(t, f.Truncate(size))
			must(t, f.Close())
			sync(t, b, "a")
		}
	}
	for _, c := range []struct {
		name string
		edit func(*testing.T, *bench)
	}{
		{"cut short", truncate(1024)},
		{"cut to nothing", truncate(0)},
		{"bytes written in place, without the time of it", func(t *testing.T, b *bench) {
			f := open(t, b, "a")
			must(t, f.Sync())
			_, err := f.WriteAt([]byte("the user's"), 700)
			must(t, err)
			must(t, f.Datasync())
			must(t, f.Close())
			must(t, b.mem.SyncDir("ws"))
		}},
		{"renamed over another", func(t *testing.T, b *bench) {
			must(t, b.mem.Rename("ws/a", "ws/b"))
			sync(t, b, "b")
		}},
		{"an empty one renamed over another", func(t *testing.T, b *bench) {
			must(t, b.mem.Rename("ws/c", "ws/b"))
			sync(t, b, "a", "b")
		}},
		{"an old empty file renamed over another", func(t *testing.T, b *bench) {
			writeDisk(t, b.mem, "ws/o", "")
			f := open(t, b, "o")
			must(t, f.SetMtime(1e18))
			must(t, f.Close())
			must(t, b.mem.Rename("ws/o", "ws/b"))
			sync(t, b, "a", "b")
		}},
		{"two swapped", func(t *testing.T, b *bench) {
			must(t, b.mem.Exchange("ws/a", "ws/b"))
			sync(t, b, "a", "b")
		}},
		{"made executable", func(t *testing.T, b *bench) {
			must(t, b.mem.Chmod("ws/a", 0o755))
			sync(t, b, "a")
		}},
		{"another file of the first bytes", func(t *testing.T, b *bench) {
			must(t, b.mem.Remove("ws/a"))
			writeDisk(t, b.mem, "ws/a", ours["a"][:512])
		}},
		{"zeros from a block on", func(t *testing.T, b *bench) {
			writeDisk(t, b.mem, "ws/a", ours["a"][:1024]+strings.Repeat("\x00", len(ours["a"])-1024))
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			for seed := range uint64(24) {
				b := newBench(t, map[string]string{"a": "old", "b": "old"})
				for name, data := range ours {
					b.ok(write(name, "before "+data))
				}
				must(t, b.w.checkpoint(t.Context(), false))
				for name, data := range ours {
					b.ok(write(name, data))
				}
				c.edit(t, b)
				want := inFolder(t, b.mem, "ws")
				mode := []vfs.CrashMode{vfs.CrashSyncedOnly, vfs.CrashNamesOnly, vfs.CrashRandom, vfs.CrashRandom}[seed%4]
				r := b.reboot(t, b.mem.CrashClone(vfs.CrashOptions{Mode: mode, Rand: rand.New(rand.NewPCG(seed, 8))}), "two")
				b.stop()
				must(t, r.open())
				is := inFolder(t, r.mem, "ws")
				for name, data := range want {
					left := strings.TrimSuffix(name, "*")
					if left == "a" || left == "b" && strings.Contains(c.name, "another") || left == "b" && strings.Contains(c.name, "swap") {
						if is[name] != data {
							t.Errorf("%v, seed %d: %s is %.20q (%d bytes), want %.20q (%d bytes)", mode, seed, name, is[name], len(is[name]), data, len(data))
						}
					}
				}
				_, err := r.w.Sync(t.Context(), reconcile.SyncOptions{})
				must(t, err)
				r.same()
				for name, data := range ours {
					if !r.w.store.HasBlob(object.Hash(object.Blob, []byte(data))) {
						t.Errorf("%v, seed %d: what was written to %s is lost", mode, seed, name)
					}
				}
				r.stop()
			}
		})
	}
}

// A user removes or renames a file that was there at the checkpoint and that the
// server has replaced since, and that is on stable storage when the power fails: it
// stays so. An exchange leaves one of two files at a path.
func TestUsersRemovalBeforeAPowerFailure(t *testing.T) {
	for _, to := range []string{"", "b", "d/a"} {
		for seed := range uint64(24) {
			b := newBench(t, map[string]string{"a": "old", "d/x": "x"})
			must(t, b.w.checkpoint(t.Context(), false))
			b.ok(write("a", "new"))
			b.ok(write("a", "newer"))
			f, err := b.mem.OpenFile("ws/a", os.O_RDWR, 0)
			must(t, err)
			must(t, f.Sync())
			must(t, f.Close())
			must(t, b.mem.SyncDir("ws"))
			if to == "" {
				must(t, b.mem.Remove("ws/a"))
			} else {
				must(t, b.mem.Rename("ws/a", "ws/"+to))
				must(t, b.mem.SyncDir("ws/d"))
			}
			must(t, b.mem.SyncDir("ws"))
			want := files(inFolder(t, b.mem, "ws"))
			mode := []vfs.CrashMode{vfs.CrashSyncedOnly, vfs.CrashNamesOnly, vfs.CrashRandom, vfs.CrashRandom}[seed%4]
			r := b.reboot(t, b.mem.CrashClone(vfs.CrashOptions{Mode: mode, Rand: rand.New(rand.NewPCG(seed, 8))}), "two")
			b.stop()
			must(t, r.open())
			if d := diffMaps(files(inFolder(t, r.mem, "ws")), want); d != "" {
				t.Errorf("renamed to %q, %v, seed %d:\n%s", to, mode, seed, d)
			}
			r.same()
			if m := messageOf(t, r.w, r.w.store.Tip().Seq); m.Source != message.External || m.TaskID != "" {
				t.Errorf("recorded as %q", m.Summary)
			}
			r.stop()
		}
	}
}

// Where a file system keeps no stamps, nothing on it is taken for torn: what a
// power failure left is in history and on disk, and so is what was answered in
// history.
func TestCrashWithoutStamps(t *testing.T) {
	points := 0
	for _, s := range scenarios() {
		s.deny = append(s.deny, vfs.OpSetMtime)
		calls := s.calls(t, false)
		for n := 1; n <= calls+1; n += stride() {
			modes := []vfs.CrashMode{vfs.CrashNothing, vfs.CrashSyncedOnly, vfs.CrashNamesOnly, vfs.CrashRandom}
			if !soak() {
				modes = []vfs.CrashMode{modes[n%4]}
			}
			for _, mode := range modes {
				points++
				s.crashAt(t, n, mode, uint64(points))
			}
		}
	}
	t.Logf("%d points", points)
}

// The power fails after the answer to a change that replaced or removed what a user
// had saved a moment before, or by a clock that was set back or forward since: the change
// is on disk, whatever was left of the user's file.
func TestReplacedSoonAfterAUsersSave(t *testing.T) {
	for name, ops := range map[string][]Op{
		"written over": {write("d/a", "the server's")}, "deleted": {del("d/a")}, "deleted with its directory": {del("d")},
		"renamed over": {rename("o", "d/a")}, "given another's name": {rename("d/a", "o")},
	} {
		t.Run(name, func(t *testing.T) {
			for seed := range uint64(60) {
				behind := []time.Duration{0, 40 * 24 * time.Hour, -time.Hour}[seed%7%3]
				b := newBenchOn(t, vfs.MemOptions{Now: func() time.Time { return time.Now().Add(-behind) }}, map[string]string{"d/a": "old", "o": "other"})
				must(t, b.w.checkpoint(t.Context(), false))
				f, err := b.mem.OpenFile("ws/d/a", os.O_WRONLY|os.O_TRUNC, 0)
				must(t, err)
				_, err = f.WriteAt([]byte(strings.Repeat("saved by a user\n", 300)), 0)
				must(t, errors.Join(err, f.Close()))
				for _, op := range ops {
					op.Recursive = op.Path == "d"
					b.ok(op)
				}
				want := inFolder(t, b.mem, "ws")
				mode := []vfs.CrashMode{vfs.CrashSyncedOnly, vfs.CrashNamesOnly, vfs.CrashRandom}[seed%3]
				r := b.reboot(t, b.mem.CrashClone(vfs.CrashOptions{Mode: mode, Rand: rand.New(rand.NewPCG(seed, 8))}), "two")
				b.stop()
				must(t, r.open())
				if d := diffMaps(files(inFolder(t, r.mem, "ws")), files(want)); d != "" {
					t.Fatalf("%v, seed %d:\n%s", mode, seed, d)
				}
				r.same()
				r.stop()
			}
		})
	}
}

// The power fails after a directory was renamed and deleted, and another one, which has
// its inode number, was made under its first name: that one stays where it is, with what a
// user saved in it.
func TestInodeOfARenamedDirectoryUsedAgain(t *testing.T) {
	for seed := range uint64(20) {
		b := newBench(t, map[string]string{"d/a": "old", "o": "other"})
		must(t, b.w.checkpoint(t.Context(), false))
		was, err := b.mem.Lstat("ws/d")
		must(t, err)
		b.ok(rename("d", "g"))
		remove := del("g")
		remove.Recursive = true
		b.ok(remove)
		b.w.keeper.DropNow()
		for _, top := range []string{"ws", "data"} {
			must(t, b.mem.SyncDir(top))
			for p := range inFolder(t, b.mem, top) {
				if info, err := b.mem.Lstat(top + "/" + p); err == nil && info.IsDir() {
					must(t, b.mem.SyncDir(top+"/"+p))
				}
			}
		}
		for i, ino := 0, uint64(0); ino != was.Ino; i++ { // the others are taken first
			name := fmt.Sprintf("data/x%d", i)
			must(t, b.mem.Mkdir(name, 0o755))
			is, err := b.mem.Lstat(name)
			must(t, err)
			if ino = is.Ino; ino == was.Ino {
				must(t, b.mem.Rename(name, "ws/d"))
			} else if i > 100 {
				t.Fatalf("inode %d is not used again", was.Ino)
			}
		}
		b.ok(write("d/s/f", "the server's"))
		writeDisk(t, b.mem, "ws/d/s/u", "a user's")
		for _, dir := range []string{"ws", "ws/d", "ws/d/s"} {
			must(t, b.mem.SyncDir(dir))
		}
		want := inFolder(t, b.mem, "ws")
		r := b.reboot(t, b.mem.CrashClone(vfs.CrashOptions{Mode: vfs.CrashRandom, Rand: rand.New(rand.NewPCG(seed, 8))}), "two")
		b.stop()
		must(t, r.open())
		if d := diffMaps(files(inFolder(t, r.mem, "ws")), files(want)); d != "" {
			t.Fatalf("seed %d:\n%s", seed, d)
		}
		r.same()
		r.stop()
	}
}
