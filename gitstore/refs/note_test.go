package refs

import (
	"bytes"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"syscall"
	"testing"

	"umbra/gitstore/object"
	"umbra/internal/vfs"
)

func openNote(t *testing.T, f vfs.FS) *Note {
	t.Helper()
	n, err := OpenNote(f, "refs")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { n.Close() })
	return n
}

func wantNote(t *testing.T, f vfs.FS, want map[string]object.ID) {
	t.Helper()
	n, err := OpenNote(f, "refs")
	if err != nil {
		t.Fatal(err)
	}
	defer n.Close()
	if got := n.All(); !maps.Equal(got, want) {
		t.Fatalf("noted %v, want %v", got, want)
	}
}

func TestNote(t *testing.T) {
	f := vfs.NewMem(vfs.MemOptions{})
	n := openNote(t, f)
	if len(n.All()) != 0 {
		t.Error("a new note is not empty")
	}
	for _, us := range [][]Update{
		{{Name: "refs/a", New: object.ID{1}}, {Name: HeadRef, Symbolic: ShadowRef}},
		{{Name: "refs/b", New: object.ID{2}}, {Name: "refs/a", New: object.ID{3}}, {Name: "refs/a", New: object.ID{1}}},
		{{Name: "refs/b"}},
		{{Name: "refs/a", New: object.ID{1}}},
	} {
		if err := n.Append(us); err != nil {
			t.Fatal(err)
		}
	}
	want := map[string]object.ID{"refs/a": {1}}
	if !maps.Equal(n.All(), want) {
		t.Errorf("got %v", n.All())
	}
	wantNote(t, f.CrashClone(vfs.CrashOptions{Mode: vfs.CrashSyncedOnly}), want)
	if id, ok := n.Get("refs/a"); !ok || id != (object.ID{1}) {
		t.Errorf("Get: %s, %v", id, ok)
	}
	if err := n.Append([]Update{{Name: "refs/a\n", New: object.ID{1}}}); err == nil {
		t.Error("a bad name was noted")
	}
}

// TestNoteDamaged cuts the file at every byte, and flips every byte.
func TestNoteDamaged(t *testing.T) {
	f := vfs.NewMem(vfs.MemOptions{})
	n := openNote(t, f)
	var states []map[string]object.ID
	var sizes []int
	for i := range 3 {
		if err := n.Append([]Update{{Name: fmt.Sprintf("refs/r%d", i), New: object.ID{byte(i + 1)}}}); err != nil {
			t.Fatal(err)
		}
		states, sizes = append(states, n.All()), append(sizes, int(n.end))
	}
	data, err := vfs.ReadFile(f, "refs")
	if err != nil {
		t.Fatal(err)
	}
	with := func(data []byte) *vfs.Mem {
		m := vfs.NewMem(vfs.MemOptions{})
		h, err := m.OpenFile("refs", os.O_CREATE|os.O_WRONLY, 0o666)
		if err != nil {
			t.Fatal(err)
		}
		defer h.Close()
		if _, err := h.Write(data); err != nil {
			t.Fatal(err)
		}
		return m
	}
	for cut := range len(data) + 1 {
		want := map[string]object.ID{}
		for i := range sizes {
			if cut >= sizes[i] {
				want = states[i]
			}
		}
		for _, tail := range []string{"", "\x00\x00\x00", "\n", "x\n"} {
			m := with(append(bytes.Clone(data[:cut]), tail...))
			if tail != "\n" { // which may be just the byte that is missing
				wantNote(t, m, want)
			}
			// And what is appended after it holds.
			n := openNote(t, m)
			after := n.All()
			after["refs/new"] = object.ID{9}
			if err := n.Append([]Update{{Name: "refs/new", New: object.ID{9}}}); err != nil {
				t.Fatal(err)
			}
			wantNote(t, m.CrashClone(vfs.CrashOptions{Mode: vfs.CrashSyncedOnly}), after)
		}
	}
	for i := range data {
		flipped := bytes.Clone(data)
		flipped[i] ^= 1
		n := openNote(t, with(flipped))
		for name, id := range n.All() {
			if states[2][name] != id {
				t.Errorf("byte %d: %s is %s", i, name, id)
			}
		}
		if len(n.All()) < 1 {
			t.Errorf("byte %d: all is lost", i)
		}
	}
}

// TestNoteCrashAndErrors cuts the power before, and fails, every call of many
// appends, among them those that write the file anew.
func TestNoteCrashAndErrors(t *testing.T) {
	rnd := rand.New(rand.NewPCG(3, 4))
	mem := vfs.NewMem(vfs.MemOptions{})
	hook := &vfs.Hook{}
	n := openNote(t, vfs.Inject(mem, hook))
	held, failed := map[string]object.ID{}, 0
	for i := range 600 {
		name := fmt.Sprintf("refs/umbra/tasks/%0100d/head", i%40)
		next := maps.Clone(held)
		next[name] = object.ID{byte(i), byte(i >> 8), 1}
		fail := rnd.IntN(4) == 0
		hook.OnCall = func(c vfs.Call) error {
			if rnd.IntN(3) == 0 {
				c, err := OpenNote(mem.CrashClone(vfs.CrashOptions{Rand: rnd}), "refs")
				if err != nil {
					t.Fatal(err)
				}
				defer c.Close()
				if got := c.All(); !maps.Equal(got, held) && !maps.Equal(got, next) {
					t.Fatalf("append %d: noted %v", i, got)
				}
			}
			if fail && rnd.IntN(2) == 0 {
				return syscall.EIO
			}
			return nil
		}
		err := n.Append([]Update{{Name: name, New: next[name]}})
		if err != nil {
			failed++
			hook.OnCall = nil
			if !maps.Equal(n.All(), held) {
				t.Fatal("what failed is noted")
			}
			if err := n.Append([]Update{{Name: name, New: next[name]}}); err != nil {
				t.Fatal(err)
			}
		}
		held = next
		wantNote(t, mem.CrashClone(vfs.CrashOptions{Mode: vfs.CrashSyncedOnly}), held)
	}
	if failed == 0 {
		t.Error("nothing failed")
	}
}

// TestNoteCost wants the bytes written for an append not to grow with the
// number of refs.
func TestNoteCost(t *testing.T) {
	for _, refs := range []int{10, 5000} {
		mem := vfs.NewMem(vfs.MemOptions{})
		hook := &vfs.Hook{}
		n := openNote(t, vfs.Inject(mem, hook))
		var all []Update
		for i := range refs {
			all = append(all, Update{Name: fmt.Sprintf("refs/umbra/tasks/t%d/head", i), New: object.ID{1}})
		}
		if err := n.Append(all); err != nil {
			t.Fatal(err)
		}
		const appends = 20000
		var bytesWritten int64
		for i := range appends {
			end := n.end
			all[i%refs].New = object.ID{byte(i), byte(i >> 8), 2}
			if err := n.Append(all[i%refs : i%refs+1]); err != nil {
				t.Fatal(err)
			}
			if n.end > end {
				bytesWritten += n.end - end
			} else {
				bytesWritten += n.end
			}
		}
		if per := bytesWritten / appends; per > 300 {
			t.Errorf("%d refs: %d bytes an append", refs, per)
		}
		info, err := mem.Lstat("refs")
		if err != nil || info.Size > n.compactAt() {
			t.Errorf("%d refs: the file is %d bytes, %v", refs, info.Size, err)
		}
		if len(n.All()) != refs {
			t.Errorf("%d of %d refs", len(n.All()), refs)
		}
	}
}
