package workspace

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"umbra/gitstore/object"
	"umbra/internal/errs"
	"umbra/internal/vfs"
	"umbra/internal/workspace/reconcile"
	"umbra/internal/wspath"
)

// real is a workspace on a real directory.
func real(t testing.TB, files map[string]string) *bench {
	t.Helper()
	top := t.TempDir()
	ws, data := filepath.Join(top, "ws"), filepath.Join(top, "data")
	must(t, os.MkdirAll(ws, 0o755))
	for name, content := range files {
		full := filepath.Join(ws, name)
		must(t, os.MkdirAll(filepath.Dir(full), 0o755))
		must(t, os.WriteFile(full, []byte(content), 0o644))
	}
	b := &bench{t: t, recs: &memRecords{}}
	m := &opener{DataDir: data, Records: b.recs, CheckpointEvery: 50 * time.Millisecond}
	b.m = m
	w, err := m.Open(context.Background(), ws)
	must(t, err)
	b.w = w
	t.Cleanup(func() { b.stop() })
	return b
}

func (b *bench) host0(p string) string { return filepath.Join(b.w.disk.Dir, p) }

func (b *bench) realSame() {
	b.t.Helper()
	f, err := vfs.OS(filepath.Dir(b.w.disk.Dir))
	must(b.t, err)
	defer f.Close()
	if d := diffMaps(files(inFolder(b.t, f, filepath.Base(b.w.disk.Dir))), tree(b.t, b.w)); d != "" {
		b.t.Fatal(d)
	}
}

// An editor saves, by rename or in place, in the instant in which the API
// writes the same file: the bytes of both are in history.
func TestEditorRaces(t *testing.T) {
	styles := map[string]func(name, data string) error{
		"by rename": func(name, data string) error {
			temp := filepath.Join(filepath.Dir(name), ".editor")
			if err := os.WriteFile(temp, []byte(data), 0o644); err != nil {
				return err
			}
			return os.Rename(temp, name)
		},
		"in place": func(name, data string) error { return os.WriteFile(name, []byte(data), 0o644) },
		"remove and make": func(name, data string) error {
			_ = os.Remove(name)
			f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
			if os.IsExist(err) {
				return os.WriteFile(name, []byte(data), 0o644)
			}
			if err != nil {
				return err
			}
			_, err = f.WriteString(data)
			return errors.Join(err, f.Close())
		},
	}
	for style, save := range styles {
		t.Run(style, func(t *testing.T) {
			b := real(t, map[string]string{"a": "0"})
			var all []string
			for i := range 150 {
				editor, api, last := fmt.Sprintf("editor %d", i), fmt.Sprintf("api %d", i), fmt.Sprintf("last %d", i)
				var wg sync.WaitGroup
				wg.Go(func() {
					for range rand.IntN(2000) {
						runtime.Gosched()
					}
					if err := save(b.host0("a"), editor); err != nil {
						t.Error(err)
					}
				})
				wg.Go(func() {
					if _, err := b.apply(write("a", api)); err != nil {
						t.Error(err)
					}
				})
				wg.Wait()
				// What the editor left is replaced by us, never by itself.
				b.ok(write("a", last))
				all = append(all, editor, api, last)
			}
			for b.w.keeper.Settle(context.Background(), false) > 0 {
				runtime.Gosched()
			}
			b.realSame()
			for _, data := range all {
				if !b.w.store.HasBlob(object.Hash(object.Blob, []byte(data))) {
					t.Errorf("%q is lost", data)
				}
			}
		})
	}
}

// A program that has the file open and writes on after it was replaced.
func TestOpenWriter(t *testing.T) {
	b := real(t, map[string]string{"a": "0"})
	f, err := os.OpenFile(b.host0("a"), os.O_RDWR, 0)
	must(t, err)
	b.ok(write("a", "api"))
	_, err = f.WriteAt([]byte("late bytes"), 0)
	must(t, err)
	must(t, f.Close())
	for b.w.keeper.Settle(context.Background(), false) > 0 {
	}
	if !b.w.store.HasBlob(object.Hash(object.Blob, []byte("late bytes"))) {
		t.Fatal("late bytes are lost")
	}
	b.realSame()
	if got := tree(t, b.w)["a"]; got != "api" {
		t.Errorf("a is %q", got)
	}
}

func TestFIFO(t *testing.T) {
	b := real(t, map[string]string{"d/a": "0"})
	must(t, syscall.Mkfifo(b.host0("d/fifo"), 0o644))
	done := make(chan struct{})
	go func() {
		defer close(done)
		if _, err := b.apply(write("d/fifo", "x")); errs.CodeOf(err) != "special_file" {
			t.Error(err)
		}
		if _, err := b.w.OpenFile(context.Background(), "d/fifo"); errs.CodeOf(err) != "special_file" {
			t.Error(err)
		}
		_, err := b.apply(del("d"))
		if errs.CodeOf(err) != "not_recordable" {
			t.Error(err)
		}
		res, err := b.w.Sync(context.Background(), reconcile.SyncOptions{})
		if err != nil || len(res.Skipped) != 1 || res.Skipped[0] != (Skip{Path: "d/fifo", Reason: "special"}) {
			t.Error(res, err)
		}
		force := del("d")
		force.Force = true
		got, err := b.apply(force)
		if err != nil || len(got.Unrecorded) != 1 {
			t.Error(got, err)
		}
	}()
	select {
	case <-done:
	case <-time.After(20 * time.Second):
		t.Fatal("hangs")
	}
	b.realSame()
}

// Many requests on overlapping paths: each holds or fails whole, and in the end
// the disk is the tip.
func TestOverlappingRequests(t *testing.T) {
	b := real(t, map[string]string{"d/a": "0", "d/e/b": "0", "f": "0"})
	var wg sync.WaitGroup
	var done, failed atomic.Int64
	for g := range 8 {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(uint64(g), 1))
			paths := []string{"d", "d/a", "d/e", "d/e/b", "f", "g", "g/h", "d/new", "m/n/o"}
			pick := func() string { return paths[r.IntN(len(paths))] }
			for i := range 60 {
				var err error
				switch r.IntN(7) {
				case 0:
					_, err = b.apply(del(pick()))
				case 1:
					_, err = b.apply(rename(pick(), pick()))
				case 2:
					_, err = b.apply(copyOp(pick(), pick()))
				case 3:
					_, err = b.apply(write(pick(), fmt.Sprint(g, i)), rename(pick(), pick()))
				default:
					_, err = b.apply(write(pick(), fmt.Sprint(g, i)))
				}
				switch {
				case err == nil:
					done.Add(1)
				case errs.Is(err, errs.Internal), errs.Is(err, errs.Unavailable), errs.Is(err, errs.Forbidden):
					t.Error(err)
				default:
					failed.Add(1)
				}
			}
		})
	}
	wg.Wait()
	t.Logf("%d done, %d refused", done.Load(), failed.Load())
	b.realSame()
	if b.w.Settled() != b.w.store.Tip().Seq {
		t.Errorf("settled %d of %d", b.w.Settled(), b.w.store.Tip().Seq)
	}
}

// Of many writers with the same tag exactly one wins a round.
func TestOneWinner(t *testing.T) {
	b := real(t, map[string]string{"a": "0"})
	for round := range 10 {
		o, err := b.w.OpenFile(context.Background(), "a")
		must(t, err)
		tag := o.Blob.String()
		o.Close()
		var won atomic.Int64
		var wg sync.WaitGroup
		for g := range 16 {
			wg.Go(func() {
				op := write("a", fmt.Sprint(round, g))
				op.If.Match = []string{tag}
				if _, err := b.apply(op); err == nil {
					won.Add(1)
				} else if !errs.Is(err, errs.Precondition) {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if won.Load() != 1 {
			t.Fatalf("round %d: %d winners", round, won.Load())
		}
	}
}

func BenchmarkWrite(b *testing.B) {
	bb := real(b, map[string]string{"dir/a": "0"})
	data := make([]byte, 4096)
	b.ResetTimer()
	for i := range b.N {
		copy(data, fmt.Sprint(i))
		if _, err := bb.w.Apply(context.Background(), Request{Ops: []Op{{Kind: OpWrite, Path: wspath.Path("dir/a"), Data: data}}}); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkWrite64(b *testing.B) {
	bb := real(b, map[string]string{"dir/a": "0"})
	b.SetParallelism(32)
	var n atomic.Int64
	b.ResetTimer()
	b.RunParallel(func(pb *testing.PB) {
		id := n.Add(1)
		data := make([]byte, 4096)
		for i := 0; pb.Next(); i++ {
			copy(data, fmt.Sprint(id, i))
			if _, err := bb.w.Apply(context.Background(), Request{Ops: []Op{{Kind: OpWrite, Path: wspath.Path(fmt.Sprintf("dir/f%d", id)), Data: data}}}); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// A file that is replaced keeps its permission bits and extended attributes; a
// new one gets the umask's.
func TestAttributesStay(t *testing.T) {
	b := real(t, map[string]string{"a": "0", "x": "1"})
	must(t, os.Chmod(b.host0("a"), 0o640))
	must(t, os.Chmod(b.host0("x"), 0o750))
	xattr := unix.Setxattr(b.host0("a"), "user.note", []byte("kept"), 0) == nil
	regular := object.Regular
	b.ok(write("a", "1"), Op{Kind: OpWrite, Path: "x", Data: []byte("2"), Mode: &regular}, write("new", "3"))
	for name, want := range map[string]os.FileMode{"a": 0o640, "x": 0o640, "new": b.w.disk.Root.FilePerm(false)} {
		info, err := os.Stat(b.host0(name))
		must(t, err)
		if info.Mode().Perm() != want {
			t.Errorf("%s: %o, want %o", name, info.Mode().Perm(), want)
		}
	}
	if xattr {
		buf := make([]byte, 16)
		if n, err := unix.Getxattr(b.host0("a"), "user.note", buf); err != nil || string(buf[:n]) != "kept" {
			t.Errorf("%q, %v", buf[:max(n, 0)], err)
		}
	}
	c, err := b.w.store.ReadCommit(context.Background(), b.w.store.Tip().Commit)
	must(t, err)
	perms := map[string]string{}
	for _, e := range c.Message.Entries {
		perms[e.Path] = e.Permissions
	}
	if perms["a"] != "0640" || perms["x"] != "0750" || perms["new"] != "" {
		t.Errorf("%v", perms)
	}
}

// A copy of a file without any permission is not readable by others either.
func TestCopyOfClosedFile(t *testing.T) {
	b := real(t, map[string]string{"closed": "0", "dir/closed": "1"})
	limit := os.FileMode(0o600)
	if os.Geteuid() == 0 { // may read them
		limit = 0o200
	}
	for _, name := range []string{"closed", "dir/closed"} {
		must(t, os.Chmod(b.host0(name), limit&^0o200))
	}
	b.ok(Op{Kind: OpCopy, Path: "closed", To: "copy"}, Op{Kind: OpCopy, Path: "dir", To: "dirs"})
	for _, name := range []string{"copy", "dirs/closed"} {
		info, err := os.Stat(b.host0(name))
		must(t, err)
		if info.Mode().Perm()&^limit != 0 {
			t.Errorf("%s: %o, want at most %o", name, info.Mode().Perm(), limit)
		}
	}
}
