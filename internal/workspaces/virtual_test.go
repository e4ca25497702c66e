package workspaces

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"path"
	"slices"
	"strings"
	"testing"
	"time"

	"umbra/gitstore/object"
	"umbra/internal/errs"
	"umbra/internal/vfs"
	"umbra/internal/workspace"
	"umbra/internal/wspath"
)

// virtualBench is a bench whose workspace has no folder.
func virtualBench(t testing.TB, namespace ...string) *bench {
	t.Helper()
	b := newBench(t, nil)
	b.w.Release()
	w, err := b.m.OpenVirtual(t.Context(), namespace)
	must(t, err)
	b.w = w
	return b
}

func read(t testing.TB, w *workspace.Workspace, p string) string {
	t.Helper()
	f, err := w.OpenFile(context.Background(), wspath.Path(p))
	must(t, err)
	defer f.Close()
	data, err := io.ReadAll(f)
	must(t, err)
	return string(data)
}

func TestVirtualFiles(t *testing.T) {
	b := virtualBench(t, "workspaces", "agent-1")
	if r, _ := b.m.Record(b.w.ID()); r.Kind != VirtualKind || r.Root != "" || b.w.Root() != "" || b.w.State() != workspace.Clean {
		t.Errorf("%+v %s", r, b.w.State())
	}
	before := time.Now()
	if res := b.ok(write("a/b.txt", "one")); brief(res.Entries) != "create a/b.txt" || res.Seq != 2 {
		t.Errorf("%s, seq %d", brief(res.Entries), res.Seq)
	}
	if got := read(t, b.w, "a/b.txt"); got != "one" {
		t.Errorf("%q", got)
	}
	if res := b.ok(write("a/b.txt", "one")); !res.Commit.IsZero() {
		t.Error("the same bytes made a commit")
	}
	l, err := b.w.Stat(t.Context(), "a/b.txt")
	must(t, err)
	if at := time.Unix(0, l.Info.MtimeNs); l.Kind != workspace.KindFile || l.Info.Size != 3 || at.Before(before.Truncate(time.Second)) || l.Blob != object.Hash(object.Blob, []byte("one")) {
		t.Errorf("%+v %v", l, at)
	}
	big := strings.Repeat("0123456789abcdef", 1<<17) // 2 MiB: a stream
	b.ok(workspace.Op{Kind: workspace.OpWrite, Path: "big", Body: strings.NewReader(big), Size: -1})
	f, err := b.w.OpenFile(t.Context(), "big")
	must(t, err)
	tail := make([]byte, 16)
	for _, off := range []int64{1 << 20, 16, 2<<20 - 16} { // forth and back
		if _, err := f.ReadAt(tail, off); err != nil || string(tail) != big[off:off+16] {
			t.Errorf("at %d: %q, %v", off, tail, err)
		}
	}
	if _, err := f.Seek(-4, io.SeekEnd); err != nil {
		t.Error(err)
	}
	if rest, err := io.ReadAll(f); err != nil || string(rest) != "cdef" {
		t.Errorf("%q, %v", rest, err)
	}
	must(t, f.Close())
	// A folder is there as long as it holds a file.
	if res := b.ok(mkdir("x/y")); !res.Commit.IsZero() || res.Ops[0].Operation != "" {
		t.Errorf("an empty folder was made: %+v", res.Ops)
	}
	b.ok(del("a/b.txt"))
	if _, err := b.w.Stat(t.Context(), "a"); errs.CodeOf(err) != "file_not_found" {
		t.Errorf("the empty folder is still there: %v", err)
	}
	list, n, err := b.w.List(t.Context(), wspath.Root, workspace.ListOptions{Count: 10, GitIgnore: true})
	if err != nil || n != 1 || list[0].Path != "big" {
		t.Errorf("%v, %d, %v", list, n, err)
	}
	if _, err := b.w.Sync(t.Context(), workspace.SyncOptions{}); err != nil {
		t.Error(err)
	}
	if cov, err := b.w.Coverage(t.Context()); err != nil || cov.Tracked != 1 || len(cov.Skipped) != 0 {
		t.Errorf("%+v, %v", cov, err)
	}
	if _, err := b.m.Rebind(t.Context(), b.w.ID(), "/ws", OpenOptions{}); errs.CodeOf(err) != "workspace_virtual" {
		t.Error(err)
	}
	for _, e := range must1(b.host.Top.ReadDir("data/workspaces/" + b.w.ID())) {
		if wspath.IsTemp(e.Name) {
			t.Errorf("%s is left", e.Name)
		}
	}
	b.stop()
}

func must1[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// Namespaces never collide, however their segments are cut; the same one is the
// same store, also after a restart.
func TestVirtualNamespaces(t *testing.T) {
	b := virtualBench(t, "a", "b")
	b.ok(write("who", "a,b"))
	b.w.Release()
	all := [][]string{{"a/b"}, {"a", "b", "c"}, {"a-b"}, {"a", "b/c"}, {"a\x00b"}, {"A", "b"}, {"ä"}, {"a\u0308"}, {".."}, {"a,b"}, {" a", "b"}}
	ids := map[string]bool{b.w.ID(): true}
	for _, ns := range all {
		w, err := b.m.OpenVirtual(t.Context(), ns)
		must(t, err)
		if ids[w.ID()] {
			t.Errorf("%q collides", ns)
		}
		ids[w.ID()] = true
		_, err = w.Apply(t.Context(), workspace.Request{Ops: []workspace.Op{write("who", fmt.Sprintf("%q", ns))}})
		must(t, err)
		w.Release()
	}
	must(t, b.m.Close(t.Context()))
	n := b.reboot(t, b.mem, "one")
	for _, ns := range append(all, []string{"a", "b"}) {
		w, err := n.m.OpenVirtual(t.Context(), ns)
		must(t, err)
		want := fmt.Sprintf("%q", ns)
		if slices.Equal(ns, []string{"a", "b"}) {
			want = "a,b"
		}
		if got := read(t, w, "who"); got != want || !ids[w.ID()] {
			t.Errorf("%q holds %s", ns, got)
		}
		w.Release()
	}
	one, err := n.m.OpenVirtual(t.Context(), nil)
	must(t, err)
	two, err := n.m.OpenVirtual(t.Context(), nil)
	must(t, err)
	if one.ID() == two.ID() {
		t.Error("two new ones are one")
	}
	one.Release()
	two.Release()
	for _, ns := range [][]string{{}, {""}, {"a", ""}, make([]string, 65), {strings.Repeat("x", 5000)}} {
		if _, err := n.m.OpenVirtual(t.Context(), ns); errs.CodeOf(err) != "invalid_namespace" {
			t.Errorf("%.40q: %v", ns, err)
		}
	}
	must(t, n.m.Close(t.Context()))
}

// The same operations on a folder and on a virtual workspace come to the same:
// results, errors, history. Empty folders, which only a disk holds, are removed
// as they come.
func TestVirtualLikePhysical(t *testing.T) {
	steps := 400
	if testing.Short() {
		steps = 100
	}
	seed := rand.Uint64()
	rnd := rand.New(rand.NewPCG(seed, 1))
	phys, virt := newBench(t, nil), virtualBench(t, "twin")
	names := []string{"a", "b", "a/x", "a/y", "b/x", "a/d/z", "c", "d/e/f", "l"}
	pick := func() string { return names[rnd.IntN(len(names))] }
	for i := range steps {
		var ops []workspace.Op
		for range 1 + rnd.IntN(3) {
			switch p := pick(); rnd.IntN(12) {
			case 0, 1, 2:
				ops = append(ops, write(p, fmt.Sprint(rnd.IntN(5))))
			case 3:
				o := write(p, fmt.Sprint(rnd.IntN(5)))
				o.If.NoneMatchAny = true
				ops = append(ops, o)
			case 4:
				ops = append(ops, workspace.Op{Kind: workspace.OpEdit, Path: wspath.Path(p), Edit: func(old []byte) ([]byte, error) { return append(bytes.Clone(old), '+'), nil }})
			case 5:
				ops = append(ops, del(p))
			case 6:
				ops = append(ops, workspace.Op{Kind: workspace.OpDelete, Path: wspath.Path(p)})
			case 7, 8:
				ops = append(ops, rename(p, pick()))
			case 9:
				ops = append(ops, copyOp(p, pick()))
			case 10:
				ops = append(ops, chmod(p, []object.Mode{object.Regular, object.Executable}[rnd.IntN(2)]))
			case 11:
				ops = append(ops, symlink(p, path.Base(pick())))
			}
		}
		dry := rnd.IntN(8) == 0
		told := func(b *bench) string {
			res, err := b.w.Apply(t.Context(), workspace.Request{Ops: ops, DryRun: dry})
			if err != nil {
				return errs.CodeOf(err)
			}
			s := brief(slices.DeleteFunc(res.Entries, func(e workspace.ChangeEntry) bool { return strings.HasSuffix(e.Path, "/") }))
			for _, o := range res.Ops {
				s += fmt.Sprintf(" | %s %s %s %s %v %d", o.Path, o.To, o.Operation, o.Blob, o.Mode, o.Size)
			}
			return s
		}
		a, c := told(phys), told(virt)
		if a != c {
			t.Fatalf("seed %d, step %d: %+v\na folder: %s\nvirtual:  %s\n%v", seed, i, describe(ops), a, c, tree(t, virt.w))
		}
		dropEmpty(t, phys.mem, "ws")
		if d := diffMaps(tree(t, phys.w), tree(t, virt.w)); d != "" {
			t.Fatalf("seed %d, step %d: %+v\n%s", seed, i, describe(ops), d)
		}
	}
	phys.same()
	if vs := virt.w.Settled(); vs != virt.w.Store().Tip().Seq {
		t.Errorf("settled through %d of %d", vs, virt.w.Store().Tip().Seq)
	}
	phys.stop()
	virt.stop()
}

func describe(ops []workspace.Op) string {
	var out []string
	for _, o := range ops {
		out = append(out, fmt.Sprintf("%d %s %s %s %s", o.Kind, o.Path, o.To, o.Target, o.Data))
	}
	return strings.Join(out, "; ")
}

func dropEmpty(t *testing.T, f vfs.FS, dir string) {
	list, err := f.ReadDir(dir)
	must(t, err)
	for _, e := range list {
		if !e.Type.IsDir() {
			continue
		}
		at := dir + "/" + e.Name
		dropEmpty(t, f, at)
		if left, err := f.ReadDir(at); err == nil && len(left) == 0 {
			must(t, f.Remove(at))
		}
	}
}

// What was acknowledged is there after a power cut.
func TestVirtualDurable(t *testing.T) {
	b := virtualBench(t, "cut")
	for i := range 20 {
		b.ok(write(fmt.Sprintf("d/%d", i%7), fmt.Sprint(i)))
	}
	want := tree(t, b.w)
	crashed := b.mem.CrashClone(vfs.CrashOptions{})
	n := b.reboot(t, crashed, "two")
	w, err := n.m.OpenVirtual(t.Context(), []string{"cut"})
	must(t, err)
	if d := diffMaps(want, tree(t, w)); d != "" {
		t.Error(d)
	}
	if w.Settled() != w.Store().Tip().Seq {
		t.Error("not settled")
	}
	w.Release()
	must(t, n.m.Close(t.Context()))
	b.stop()
}

// The machine stops at every call of making a virtual workspace: it is there whole, or
// nothing of it is.
func TestVirtualCrashWhileMade(t *testing.T) {
	for _, mode := range []vfs.CrashMode{vfs.CrashNothing, vfs.CrashSyncedOnly} {
		b := newBench(t, nil)
		type crash struct {
			mem  *vfs.Mem
			recs *memRecords
			at   string
		}
		var crashes []crash
		b.on(func(c vfs.Call) error {
			all, err := b.recs.All()
			recs := &memRecords{}
			must(t, errors.Join(err, recs.Put(all...)))
			crashes = append(crashes, crash{b.mem.CrashClone(vfs.CrashOptions{Mode: mode}), recs, fmt.Sprintf("call %d, %s %s", len(crashes), c.Op, c.Name)})
			return nil
		})
		w, err := b.m.OpenVirtual(t.Context(), []string{"made"})
		must(t, err)
		b.on(nil)
		w.Release()
		b.stop()
		for _, c := range crashes {
			was := b.recs
			b.recs = c.recs
			n := b.reboot(t, c.mem, "two")
			b.recs = was
			list, err := n.host.Top.ReadDir("data/workspaces")
			must(t, err)
			for _, e := range list {
				if _, known := n.m.Record(e.Name); !known {
					t.Errorf("%s: %s is left behind", c.at, e.Name)
				}
			}
			w, err := n.m.OpenVirtual(t.Context(), []string{"made"})
			if err != nil {
				t.Errorf("%s: %v", c.at, err)
			} else {
				w.Release()
			}
			must(t, n.m.Close(t.Context()))
		}
	}
}
