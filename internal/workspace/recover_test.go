package workspace

import (
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"umbra/gitstore/message"
	"umbra/internal/vfs"
	"umbra/internal/workspace/recovery"
)

// answered is what change sets left, each answered, when the power goes.
type answered struct {
	name string
	sets [][]Op
}

func answeredSets() []answered {
	swap := func(a, b string) []Op { return []Op{rename(a, "tmp"), rename(b, a), rename("tmp", b)} }
	return []answered{
		{"folder and file swapped, and back", [][]Op{swap("d/sub", "b"), swap("b", "d/sub")}},
		{"folders swapped", [][]Op{swap("d", "e")}},
		{"folders swapped, and back", [][]Op{swap("d", "e"), swap("d", "e")}},
		{"three folders in a ring", [][]Op{{rename("d", "tmp"), rename("e", "d"), rename("f", "e"), rename("tmp", "f")}}},
		{"folder swapped with the one in it", [][]Op{{rename("d/sub", "tmp"), rename("d", "tmp/d"), rename("tmp", "d")}}},
		{"moved with the folder above, then out of it", [][]Op{{rename("d", "g")}, {rename("g/sub", "h")}, {rename("h", "e/sub")}}},
		{"moved, and another made there", [][]Op{{rename("d", "g")}, {write("d/x", "new")}, swap("d", "g")}},
		{"emptied, then moved", [][]Op{{del("d/sub/y")}, {rename("d/sub", "g")}}},
		{"a file moved out, then the folder", [][]Op{{rename("d/sub/y", "k")}, {rename("d/sub", "g")}}},
		{"a file in the place of a folder, moved on", [][]Op{{del("d"), write("d", "z"), rename("d", "b")}}},
		{"a link in a circle where a folder was", [][]Op{{symlink("l", "d")}, {rename("l", "tmp"), rename("d", "l"), rename("tmp", "d")}}},
		{"swapped, and removed", [][]Op{swap("d", "e"), {del("e")}}},
		{"made, filled and moved at once", [][]Op{{write("n/f", "N"), rename("n", "m")}}},
	}
}

// The power goes after the last answer, before a checkpoint: whatever it left on
// disk of what was answered, a start finishes it. Nothing of it is taken for a
// person's.
func TestCutAfterAnswers(t *testing.T) {
	for _, s := range answeredSets() {
		t.Run(s.name, func(t *testing.T) {
			b := newBench(t, map[string]string{"a": "A", "b": "B", "d/x": "X", "d/sub/y": "Y", "e/x": "Z", "e/in/q": "Q", "f/w": "W",
				".gitignore": "*.log", "d/d.log": "d", "d/sub/sub.log": "sub", "e/e.log": "e", "f/f.log": "f"})
			removes := false // of a folder, empty ones may be left
			for _, ops := range s.sets {
				b.ok(ops...)
				removes = removes || slices.ContainsFunc(ops, func(o Op) bool { return o.Kind == OpDelete })
			}
			defer b.stop()
			want, history, seq := files(inFolder(t, b.mem, "ws")), tree(t, b.w), b.w.store.Tip().Seq
			for seed := range uint64(64) {
				mode := vfs.CrashRandom
				if seed == 0 {
					mode = vfs.CrashSyncedOnly
				} else if seed == 1 {
					mode = vfs.CrashNamesOnly
				}
				c := b.reboot(t, b.mem.CrashClone(vfs.CrashOptions{Mode: mode, Rand: rand.New(rand.NewPCG(seed, 5))}), "two")
				left := inFolder(t, c.mem, "ws")
				must(t, c.open())
				is := inFolder(t, c.mem, "ws")
				if d := diffMaps(files(is), want) + diffMaps(tree(t, c.w), history); d != "" {
					t.Errorf("%v, seed %d: found %q\n%s", mode, seed, left, d)
				}
				if !removes && slices.ContainsFunc(slices.Collect(maps.Keys(is)), func(p string) bool { return strings.HasSuffix(p, "/") }) {
					t.Errorf("%v, seed %d: found %q, left empty folders: %q", mode, seed, left, is)
				}
				for n := seq + 1; n <= c.w.store.Tip().Seq; n++ {
					if m := messageOf(t, c.w, n); m.Reason != recovery.Unclean {
						t.Errorf("%v, seed %d: found %q, recorded %q", mode, seed, left, m.Summary)
					}
				}
				c.stop()
			}
		})
	}
}

func messageOf(t *testing.T, w *Workspace, seq uint64) *message.Message {
	t.Helper()
	id, err := w.store.CommitAt(t.Context(), seq)
	must(t, err)
	c, err := w.store.ReadCommit(t.Context(), id)
	must(t, err)
	return c.Message
}
