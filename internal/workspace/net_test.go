package workspace

import (
	"fmt"
	"io/fs"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"umbra/gitstore/object"
	"umbra/internal/vfs"
	"umbra/internal/workspace/reconcile"
	"umbra/internal/wspath"
)

// modes gives the permission bits of all files in a directory.
func modes(t *testing.T, f vfs.FS, dir string, out map[string]fs.FileMode) map[string]fs.FileMode {
	t.Helper()
	list, err := f.ReadDir(dir)
	must(t, err)
	for _, e := range list {
		at := dir + "/" + e.Name
		if e.Type.IsDir() {
			modes(t, f, at, out)
			continue
		}
		info, err := f.Lstat(at)
		must(t, err)
		out[at] = info.Mode.Perm()
	}
	return out
}

// A change set leaves on disk what its operations leave when each is a request of
// its own, with what is in no history, permission bits and empty directories.
func TestNetEffect(t *testing.T) {
	seeds := uint64(400)
	if testing.Short() {
		seeds = 80
	}
	if soak() {
		seeds = 20_000
	}
	done := 0
	for seed := range seeds {
		r := rand.New(rand.NewPCG(seed, 21))
		ops := netOps(r)
		whole, single := netBench(t), netBench(t)
		res, err := whole.apply(ops...)
		var serr error
		for _, op := range ops {
			if _, serr = single.apply(op); serr != nil {
				break
			}
		}
		if err == nil && serr == nil && res.Commit.IsZero() {
			// It comes to nothing: not even a directory is made for what is gone.
		} else if err == nil && serr == nil {
			done++
			if d := diffMaps(inFolder(t, whole.mem, "ws"), inFolder(t, single.mem, "ws")); d != "" {
				t.Fatalf("seed %d: %s\n%s", seed, opsText(ops), d)
			}
			is, want := modes(t, whole.mem, "ws", map[string]fs.FileMode{}), modes(t, single.mem, "ws", map[string]fs.FileMode{})
			for at, m := range want {
				if is[at] != m {
					t.Fatalf("seed %d: %s\n%s has mode %o, want %o", seed, opsText(ops), at, is[at], m)
				}
			}
		} else if (err == nil) != (serr == nil) {
			t.Fatalf("seed %d: %s\nat once %v, one by one %v", seed, opsText(ops), err, serr)
		}
		whole.w.keeper.Settle(t.Context(), false)
		for p := range inFolder(t, whole.mem, "ws") {
			if strings.Contains(p, ".umbra-") {
				t.Fatalf("seed %d: %s\nleft %s", seed, opsText(ops), p)
			}
		}
		if d := diffMaps(tree(t, whole.w), tree(t, single.w)); err == nil && serr == nil && d != "" {
			t.Fatalf("seed %d: %s\n%s", seed, opsText(ops), d)
		}
		whole.stop()
		single.stop()
	}
	if done < int(seeds)/10 {
		t.Errorf("only %d of %d were done", done, seeds)
	}
}

func netBench(t *testing.T) *bench {
	b := newBench(t, map[string]string{"a": "A", "b": "B", "x.sh": "S", "d/x": "X", "d/sub/y": "Y", "e/x": "Z", "l": "->a", ".gitignore": "*.log",
		"d/d.log": "1", "d/sub/s.log": "2", "e/e.log": "3", "empty/": ""})
	for name, perm := range map[string]fs.FileMode{"ws/b": 0o600, "ws/d/x": 0o640, "ws/e/x": 0o755} {
		must(t, b.mem.Chmod(name, perm))
	}
	_, err := b.w.Sync(t.Context(), reconcile.SyncOptions{})
	must(t, err)
	return b
}

func netOps(r *rand.Rand) []Op {
	names := []string{"a", "b", "d", "e", "d/x", "d/sub", "d/sub/y", "e/x", "n", "n/m", "t", "d/n", "e/sub", "empty", "x.sh", "l"}
	pick := func() string { return names[r.IntN(len(names))] }
	var ops []Op
	for range 1 + r.IntN(6) {
		switch r.IntN(9) {
		case 0:
			ops = append(ops, Op{Kind: OpDelete, Path: wspath.Path(pick()), Recursive: true, Force: true})
		case 1, 2, 3:
			ops = append(ops, rename(pick(), pick()))
		case 4:
			ops = append(ops, chmod(pick(), []object.Mode{object.Executable, object.Regular}[r.IntN(2)]))
		case 5:
			ops = append(ops, mkdir(pick()))
		case 6:
			ops = append(ops, copyOp(pick(), pick()))
		case 7:
			ops = append(ops, Op{Kind: OpPrune, Path: wspath.Path(pick()), Listed: true})
		default:
			ops = append(ops, write(pick(), fmt.Sprint(r.IntN(100))))
		}
	}
	if r.IntN(4) == 0 { // a swap
		p, q := pick(), pick()
		ops = slices.Concat(ops, []Op{rename(p, "s"), rename(q, p), rename("s", q)})
	}
	return ops
}

func opsText(ops []Op) string {
	var out []string
	for _, o := range ops {
		out = append(out, fmt.Sprintf("%d:%s>%s(%s)", o.Kind, o.Path, o.To, o.Data))
	}
	return strings.Join(out, " ")
}

// No power failure leaves, after the start, anything but the tree before or the
// tree after a change set; after the answer always the latter. So of what the
// operations made for one another's sake nothing reaches the disk.
func TestCutOfNetEffect(t *testing.T) {
	long := func(s string) string { return strings.Repeat(s, 2000/len(s)) }
	b := newBench(t, map[string]string{"a": "A", "d/x": "X"})
	defer b.stop()
	b.ok(write("z", "z"))
	must(t, b.w.checkpoint(t.Context(), false))
	before := files(inFolder(t, b.mem, "ws"))
	var cuts []*vfs.Mem
	cut := func(seeds uint64) {
		for seed := range seeds {
			cuts = append(cuts, b.mem.CrashClone(vfs.CrashOptions{Mode: vfs.CrashRandom, Rand: rand.New(rand.NewPCG(uint64(len(cuts)), seed))}))
		}
	}
	b.on(func(vfs.Call) error {
		cut(4)
		return nil
	})
	b.ok(write("a", long("one request only\n")), rename("a", "t"), rename("d", "a"), write("t", long("the last\n")), rename("t", "d"))
	b.on(nil)
	answered := len(cuts)
	cut(200)
	after := files(inFolder(t, b.mem, "ws"))
	for i, mem := range cuts {
		c := b.reboot(t, mem, "two")
		must(t, c.open())
		is := files(inFolder(t, c.mem, "ws"))
		if diffMaps(is, after) != "" && (i >= answered || diffMaps(is, before) != "") {
			t.Errorf("cut %d of %d, answered after %d: %q", i, len(cuts), answered, is)
		}
		c.stop()
	}
}
