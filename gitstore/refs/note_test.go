package refs

import (
	"bytes"
	"errors"
	"fmt"
	"hash/crc32"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"syscall"
	"testing"

	"umbra/gitstore/object"
	"umbra/internal/need"
	"umbra/internal/vfs"
)

func openNote(t *testing.T, f vfs.FS) *Note {
	t.Helper()
	n, err := OpenNote(f, "refs")
	need.NoError(t, err)
	t.Cleanup(func() { n.Close() })
	return n
}

func wantNote(t *testing.T, f vfs.FS, want map[string]object.ID) {
	t.Helper()
	n, err := OpenNote(f, "refs")
	need.NoError(t, err)
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
	for _, vs := range [][]Value{
		{{"refs/a", object.ID{1}}},
		{{"refs/b", object.ID{2}}, {"refs/a", object.ID{3}}},
		{{"refs/b", object.Zero}},
		{{"refs/a", object.ID{1}}},
	} {
		need.NoError(t, n.Append(n.Shown()+1, vs...))
	}
	if n.Shown() != 4 {
		t.Errorf("shown is %d", n.Shown())
	}
	want := map[string]object.ID{"refs/a": {1}}
	if !maps.Equal(n.All(), want) {
		t.Errorf("got %v", n.All())
	}
	wantNote(t, f.CrashClone(vfs.CrashOptions{Mode: vfs.CrashSyncedOnly}), want)
	if id, ok := n.Get("refs/a"); !ok || id != (object.ID{1}) {
		t.Errorf("Get: %s, %v", id, ok)
	}
	if err := n.Append(5, Value{"refs/a\n", object.ID{1}}); err == nil {
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
		need.NoError(t, n.Append(uint64(i+1), Value{fmt.Sprintf("refs/r%d", i), object.ID{byte(i + 1)}}))
		states, sizes = append(states, n.All()), append(sizes, int(n.end))
	}
	data, err := vfs.ReadFile(f, "refs")
	need.NoError(t, err)
	with := func(data []byte) *vfs.Mem {
		m := vfs.NewMem(vfs.MemOptions{})
		h, err := m.OpenFile("refs", os.O_CREATE|os.O_WRONLY, 0o666)
		need.NoError(t, err)
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
			need.NoError(t, n.Append(0, Value{"refs/new", object.ID{9}}))
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
		// Only what is before a good group is damage; a torn append is at the end.
		// Without the line end between the last two neither is good.
		if i != sizes[1]-1 && n.Damage() != (i < sizes[1]) {
			t.Errorf("byte %d: damage is %v", i, n.Damage())
		}
	}
}

// TestNoteBefore follows the values that a ref may have, while it is not moved and
// after, through starts and a rewritten file.
func TestNoteBefore(t *testing.T) {
	f := vfs.NewMem(vfs.MemOptions{})
	v := func(i byte) object.ID { return object.ID{i} }
	n := openNote(t, f)
	pending := func(when string, want ...Update) {
		t.Helper()
		again := openNote(t, f.CrashClone(vfs.CrashOptions{Mode: vfs.CrashSyncedOnly}))
		if got := n.Pending(); !slices.EqualFunc(got, want, sameUpdate) {
			t.Errorf("%s: pending %v, want %v", when, got, want)
		}
		if got := again.Pending(); !slices.EqualFunc(got, want, sameUpdate) {
			t.Errorf("%s, after a start: pending %v, want %v", when, got, want)
		}
		if !maps.Equal(n.All(), again.All()) || n.Shown() != again.Shown() {
			t.Errorf("%s, after a start: %v", when, again.All())
		}
	}
	add := func(shown uint64, values ...Value) {
		t.Helper()
		need.NoError(t, n.Append(shown, values...))
	}
	add(1, Value{ShadowRef, v(1)}, Value{"refs/a", v(1)})
	pending("new", Update{Name: "refs/a", New: v(1), Before: was(v(0))}, Update{Name: ShadowRef, New: v(1), Before: was(v(0))})
	n.Moved(ShadowRef)
	add(2, Value{ShadowRef, v(2)}, Value{"refs/a", v(2)})
	pending("one was moved", Update{Name: "refs/a", New: v(2), Before: was(v(0), v(1))}, Update{Name: ShadowRef, New: v(2), Before: was(v(1))})
	n.Moved(ShadowRef)
	add(3, Value{"refs/a", v(0)}, Value{ShadowRef, v(3)})
	need.NoError(t, n.rewrite(nil))
	pending("rewritten", Update{Name: "refs/a", Before: was(v(0), v(1), v(2))}, Update{Name: ShadowRef, New: v(3), Before: was(v(2))})
	for i := range byte(20) {
		add(4, Value{"refs/a", v(100 + i)})
	}
	if p := n.Pending(); len(p[0].Before) != maxBefore || p[0].Before[0] != v(0) || p[0].Before[maxBefore-1] != v(118) {
		t.Errorf("after many moves: %v", p[0])
	}
	n.Moved("refs/a")
	n.Moved(ShadowRef)
	need.NoError(t, n.rewrite(nil))
	pending("all moved")
	add(5, Value{"refs/a", v(120)})
	add(6) // a journal that changes no value
	pending("nothing new", Update{Name: "refs/a", New: v(120), Before: was(v(119))})
	n.Moved("refs/a")
	need.NoError(t, n.Close())
	n = openNote(t, f)
	if p := n.Pending(); len(p) > 0 || n.Shown() != 6 {
		t.Errorf("after a clean stop: pending %v", p)
	}
	n.Expect("refs/a")
	if p := n.Pending(); len(p) != 1 || !slices.Equal(p[0].Before, was(v(120))) {
		t.Errorf("a ref of unknown value: %v", p)
	}
}

func sameUpdate(a, b Update) bool {
	return a.Name == b.Name && a.New == b.New && slices.Equal(a.Before, b.Before)
}

// TestNoteVersion1 reads a file of the version before, and rewrites it at the
// first append.
func TestNoteVersion1(t *testing.T) {
	f := vfs.NewMem(vfs.MemOptions{})
	h, err := f.OpenFile("refs", os.O_CREATE|os.O_WRONLY, 0o666)
	need.NoError(t, err)
	text := noteHeader1
	for _, body := range []string{(object.ID{1}).String() + " refs/a", object.ID{19: 7}.String() + " " + shownInNote1, object.ID{2}.String() + " refs/a", object.ID{3}.String() + " refs/b", object.Zero.String() + " refs/b"} {
		text += fmt.Sprintf("%08x %s\n", crc32.Checksum([]byte(body), crc32.MakeTable(crc32.Castagnoli)), body)
	}
	if _, err := h.Write([]byte(text + "torn")); err != nil {
		t.Fatal(err)
	}
	need.NoError(t, errors.Join(h.Sync(), h.Close()))
	n := openNote(t, f)
	if n.Shown() != 7 || len(n.Pending()) > 0 || n.Damage() {
		t.Errorf("shown %d, pending %v", n.Shown(), n.Pending())
	}
	wantNote(t, f, map[string]object.ID{"refs/a": {2}})
	need.NoError(t, n.Append(8, Value{"refs/c", object.ID{4}}))
	data, err := vfs.ReadFile(f, "refs")
	if err != nil || !bytes.HasPrefix(data, []byte(noteHeader)) {
		t.Errorf("rewritten as %q, %v", data, err)
	}
	wantNote(t, f, map[string]object.ID{"refs/a": {2}, "refs/c": {4}})
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
				need.NoError(t, err)
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
		err := n.Append(uint64(i), Value{name, next[name]})
		if err != nil {
			failed++
			hook.OnCall = nil
			if !maps.Equal(n.All(), held) {
				t.Fatal("what failed is noted")
			}
			need.NoError(t, n.Append(uint64(i), Value{name, next[name]}))
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
		var all []Value
		for i := range refs {
			all = append(all, Value{fmt.Sprintf("refs/umbra/tasks/t%d/head", i), object.ID{1}})
		}
		need.NoError(t, n.Append(1, all...))
		const appends = 20000
		var bytesWritten int64
		for i := range appends {
			end := n.end
			all[i%refs].ID = object.ID{byte(i), byte(i >> 8), 2}
			need.NoError(t, n.Append(1, all[i%refs]))
			n.Moved(all[i%refs].Name)
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
