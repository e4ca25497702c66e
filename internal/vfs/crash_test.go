package vfs

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"strings"
	"syscall"
	"testing"

	"pgregory.net/rapid"

	"umbra/internal/need"
)

// cut gives a random crash clone.
func cut(m *Mem, seed uint64) *Mem {
	return m.CrashClone(CrashOptions{Rand: rand.New(rand.NewPCG(seed, 0))})
}

// outcomes counts what see finds in 200 random clones.
func outcomes(m *Mem, see func(*Mem) string) map[string]int {
	counts := map[string]int{}
	for seed := range uint64(200) {
		counts[see(cut(m, seed))]++
	}
	return counts
}

func wantOutcomes(t *testing.T, m *Mem, see func(*Mem) string, want ...string) {
	t.Helper()
	got := outcomes(m, see)
	for _, w := range want {
		if got[w] == 0 {
			t.Errorf("never %q: %v", w, got)
		}
	}
	if len(got) != len(want) {
		t.Errorf("outcomes %v, want only %q", got, want)
	}
}

func syncMem(t testing.TB, f FS, name string) {
	t.Helper()
	h, err := f.Open(name)
	need.NoError(t, err)
	need.NoError(t, h.Sync())
	need.NoError(t, h.Close())
}

func contents(names ...string) func(*Mem) string {
	return func(m *Mem) string {
		var all []string
		for _, name := range names {
			b, err := ReadFile(m, name)
			if err != nil {
				b = []byte("-")
			}
			all = append(all, string(b))
		}
		return strings.Join(all, "|")
	}
}

func TestCrashNames(t *testing.T) {
	synced := func(t *testing.T, m *Mem, name, data string) {
		write(t, m, name, data)
		syncMem(t, m, name)
	}
	for _, c := range []struct {
		name string
		do   func(*testing.T, *Mem)
		see  []string
		want []string
	}{
		{"a synced file in a folder that is not", func(t *testing.T, m *Mem) { synced(t, m, "new", "N") },
			[]string{"new"}, []string{"-", "N"}},
		{"both synced", func(t *testing.T, m *Mem) { synced(t, m, "new", "N"); need.NoError(t, m.SyncDir(".")) },
			[]string{"new"}, []string{"N"}},
		{"each entry for itself", func(t *testing.T, m *Mem) { synced(t, m, "new", "N"); synced(t, m, "more", "M") },
			[]string{"new", "more"}, []string{"-|-", "N|-", "-|M", "N|M"}},
		{"an exchange has both sides", func(t *testing.T, m *Mem) { need.NoError(t, m.Exchange("a", "d/b")); synced(t, m, "new", "N") },
			[]string{"a", "d/b", "new"}, []string{"A|B|-", "B|A|-", "A|B|N", "B|A|N"}},
		{"one synced folder takes both sides", func(t *testing.T, m *Mem) { need.NoError(t, m.Exchange("a", "d/b")); need.NoError(t, m.SyncDir("d")) },
			[]string{"a", "d/b"}, []string{"B|A"}},
		{"a rename loses nothing", func(t *testing.T, m *Mem) { need.NoError(t, m.Rename("a", "d/c")) },
			[]string{"a", "d/c"}, []string{"A|-", "-|A"}},
		{"a rename over a file", func(t *testing.T, m *Mem) { need.NoError(t, m.Rename("a", "d/b")) },
			[]string{"a", "d/b"}, []string{"A|B", "-|A"}},
		{"into a new folder", func(t *testing.T, m *Mem) {
			need.NoError(t, m.Mkdir("e", 0o755))
			need.NoError(t, m.Rename("a", "e/a"))
		},
			[]string{"a", "e/a"}, []string{"A|-", "-|A"}},
		{"a folder synced, its name not", func(t *testing.T, m *Mem) {
			need.NoError(t, m.Mkdir("e", 0o755))
			synced(t, m, "e/f", "F")
			need.NoError(t, m.SyncDir("e"))
		}, []string{"e/f"}, []string{"-", "F"}},
		{"out of a folder, and the folder removed", func(t *testing.T, m *Mem) { need.NoError(t, m.Rename("d/b", "b")); need.NoError(t, m.Remove("d")) },
			[]string{"d/b", "b"}, []string{"B|-", "-|B"}},
		{"a link and a removal are two", func(t *testing.T, m *Mem) { need.NoError(t, m.Link("a", "l")); need.NoError(t, m.Remove("a")) },
			[]string{"a", "l"}, []string{"A|-", "A|A", "-|A", "-|-"}},
		{"an unlinked file's name", func(t *testing.T, m *Mem) {
			h, err := m.CreateUnlinked("d", 0o644)
			need.NoError(t, err)
			_, err = h.Write([]byte("T"))
			need.NoError(t, err)
			need.NoError(t, h.Datasync())
			need.NoError(t, m.LinkFile(h, "d/t"))
		}, []string{"d/t"}, []string{"-", "T"}},
		{"renamed on", func(t *testing.T, m *Mem) {
			need.NoError(t, m.Exchange("a", "d/b"))
			need.NoError(t, m.Rename("a", "c"))
		},
			[]string{"a", "d/b", "c"}, []string{"A|B|-", "B|A|-", "-|A|B"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := NewMem(MemOptions{})
			need.NoError(t, m.Mkdir("d", 0o755))
			synced(t, m, "a", "A")
			synced(t, m, "d/b", "B")
			need.NoError(t, m.SyncDir("."))
			need.NoError(t, m.SyncDir("d"))
			before := contents(c.see...)(m.CrashClone(CrashOptions{Mode: CrashSyncedOnly}))
			c.do(t, m)
			wantOutcomes(t, m, contents(c.see...), c.want...)
			if got := contents(c.see...)(m.CrashClone(CrashOptions{Mode: CrashSyncedOnly})); len(c.want) > 1 && got != before {
				t.Errorf("synced only: %q, before %q", got, before)
			}
			newest := contents(c.see...)(m)
			if got := contents(c.see...)(m.CrashClone(CrashOptions{Mode: CrashNothing})); got != newest {
				t.Errorf("kill: %q, not %q", got, newest)
			}
			if got := contents(c.see...)(m.CrashClone(CrashOptions{Mode: CrashNamesOnly})); got != newest {
				t.Errorf("names only, all of them synced files: %q, not %q", got, newest)
			}
		})
	}
}

func TestCrashTearsFiles(t *testing.T) {
	m := NewMem(MemOptions{})
	old := bytes.Repeat([]byte("o"), 3*sector+100)
	write(t, m, "f", string(old))
	syncMem(t, m, "f")
	need.NoError(t, m.SyncDir("."))
	h, err := m.OpenFile("f", os.O_RDWR, 0)
	need.NoError(t, err)
	defer h.Close()
	newer := bytes.Repeat([]byte("n"), 6*sector)
	_, err = h.WriteAt(newer[:5*sector], sector)
	need.NoError(t, err)
	need.NoError(t, h.StartWriteout())
	kinds := map[string]int{}
	for seed := range uint64(2000) {
		got := []byte(read(t, cut(m, seed), "f"))
		if len(got) < len(old) || len(got) > 6*sector {
			t.Fatalf("%d bytes", len(got))
		}
		if !bytes.Equal(got[:sector], old[:sector]) {
			t.Fatal("a sector that was not written changed")
		}
		for at := sector; at < len(got); at += sector {
			part := got[at:min(at+sector, len(got))]
			kind := strings.Trim(string(part), string(part[0]))
			// The sector of the old end has 100 old bytes and zeros.
			if kind != "" && at != 3*sector {
				t.Fatalf("sector at %d is torn: %q", at, part)
			}
			kinds[fmt.Sprintf("%d%c", at/sector, part[0])]++
		}
		switch len(got) {
		case len(old):
			kinds["old size"]++
		case 6 * sector:
			kinds["new size"]++
		default:
			kinds["size between"]++
		}
		if bytes.Equal(got, old) {
			kinds["old"]++
		}
		if bytes.Equal(got[sector:], newer[:5*sector]) {
			kinds["new"]++
		}
	}
	for _, kind := range []string{"1o", "1n", "3o", "3n", "4\x00", "4n", "5\x00", "5n", "old size", "new size", "size between", "old", "new"} {
		if kinds[kind] == 0 {
			t.Errorf("never %q: %v", kind, kinds)
		}
	}
	need.NoError(t, h.Datasync())
	for seed := range uint64(50) {
		if got := read(t, cut(m, seed), "f"); got[sector:] != string(newer[:5*sector]) {
			t.Fatal("synced bytes are lost")
		}
	}
}

// Truncated and rewritten, unsynced bytes of three ages: never a byte that the
// file had at no time.
func TestCrashAfterTruncate(t *testing.T) {
	m := NewMem(MemOptions{})
	write(t, m, "f", strings.Repeat("1", 4*sector))
	syncMem(t, m, "f")
	need.NoError(t, m.SyncDir("."))
	h, err := m.OpenFile("f", os.O_RDWR, 0)
	need.NoError(t, err)
	defer h.Close()
	need.NoError(t, h.Truncate(100))
	need.NoError(t, h.Truncate(3*sector))
	_, err = h.WriteAt([]byte("3"), 2*sector)
	need.NoError(t, err)
	want := strings.Repeat("1", 100) + strings.Repeat("\x00", 2*sector-100) + "3" + strings.Repeat("\x00", sector-1)
	if read(t, m, "f") != want {
		t.Fatal("not what was written")
	}
	need.NoError(t, h.Sync())
	for _, mode := range []CrashMode{CrashSyncedOnly, CrashRandom, CrashNamesOnly, CrashNothing} {
		if got := read(t, m.CrashClone(CrashOptions{Mode: mode}), "f"); got != want {
			t.Fatalf("%v: %q", mode, got)
		}
	}
}

func TestExchangeWithoutWriteOut(t *testing.T) {
	m := NewMem(MemOptions{})
	write(t, m, "f", "old")
	syncMem(t, m, "f")
	need.NoError(t, m.SyncDir("."))
	write(t, m, "tmp", "new")
	need.NoError(t, m.Exchange("tmp", "f"))
	if got := contents("f", "tmp")(m.CrashClone(CrashOptions{Mode: CrashNamesOnly})); got != "|old" {
		t.Fatalf("%q", got)
	}
}

func TestFailedSyncLoses(t *testing.T) {
	m := NewMem(MemOptions{})
	var fail error
	f := Inject(m, &Hook{OnCall: func(c Call) error {
		if c.Op == OpFdatasync {
			return fail
		}
		return nil
	}})
	h, err := f.OpenFile("f", os.O_RDWR|os.O_CREATE, 0o644)
	need.NoError(t, err)
	defer h.Close()
	_, err = h.Write([]byte("one"))
	need.NoError(t, err)
	need.NoError(t, f.SyncDir("."))
	need.NoError(t, h.Datasync())
	_, err = h.WriteAt([]byte("two"), sector)
	need.NoError(t, err)
	fail = syscall.EIO
	wantErr(t, h.Datasync(), syscall.EIO)
	fail = nil
	need.NoError(t, h.Datasync()) // says nothing of what was lost
	zeros := "one" + strings.Repeat("\x00", sector)
	for seed := range uint64(100) {
		if got := read(t, cut(m, seed), "f"); got != zeros {
			t.Fatalf("%q", got)
		}
	}
	if got := read(t, m.CrashClone(CrashOptions{Mode: CrashNothing}), "f"); got != zeros[:sector]+"two" {
		t.Fatalf("the page cache has it: %q", got)
	}
	_, err = h.WriteAt([]byte("two"), sector)
	need.NoError(t, err)
	need.NoError(t, h.Datasync())
	if got := read(t, cut(m, 1), "f"); got != zeros[:sector]+"two" {
		t.Fatalf("written once more: %q", got)
	}
}

func TestCrashModes(t *testing.T) {
	m := NewMem(MemOptions{})
	write(t, m, "f", "x")
	syncMem(t, m, "f")
	need.NoError(t, m.SyncDir("."))
	need.NoError(t, m.Chmod("f", 0o755))
	perm := func(c *Mem) string {
		info, err := c.Lstat("f")
		need.NoError(t, err)
		return info.Mode.String()
	}
	wantOutcomes(t, m, perm, "-rw-r--r--", "-rwxr-xr-x")
	syncMem(t, m, "f")
	wantOutcomes(t, m, perm, "-rwxr-xr-x")
}

func TestInodesAreUsedAgain(t *testing.T) {
	m := NewMem(MemOptions{})
	ino := func(name string) uint64 {
		write(t, m, name, "")
		info, err := m.Lstat(name)
		need.NoError(t, err)
		return info.Ino
	}
	first := ino("a")
	need.NoError(t, m.SyncDir("."))
	h, err := m.Open("a")
	need.NoError(t, err)
	need.NoError(t, m.Remove("a"))
	if ino("b") == first {
		t.Fatal("a crash may bring a back")
	}
	need.NoError(t, m.SyncDir("."))
	if ino("c") == first {
		t.Fatal("it is open")
	}
	need.NoError(t, h.Close())
	if ino("d") != first {
		t.Fatal("not used again")
	}
}

// After any crash a tree is whole, and what was only ever renamed is there once.
func TestCrashIsSound(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := NewMem(MemOptions{})
		dirs := []string{"a", "b", "a/c"}
		for _, d := range dirs {
			need.NoError(t, m.Mkdir(d, 0o755))
		}
		files := map[uint64]string{} // never removed or replaced
		for i, name := range []string{"x", "a/x", "b/x", "a/c/x"} {
			h, err := m.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o644)
			need.NoError(t, err)
			_, err = h.Write([]byte{byte(i)})
			need.NoError(t, err)
			info, err := h.Stat()
			need.NoError(t, err)
			files[info.Ino] = string([]byte{byte(i)})
			need.NoError(t, h.Close())
		}
		m.settle()
		component := rapid.SampledFrom([]string{"a", "b", "c", "x"})
		path := func(label string) string {
			return strings.Join(rapid.SliceOfN(component, 1, 3).Draw(t, label), "/")
		}
		for range rapid.IntRange(1, 25).Draw(t, "steps") {
			a, b := path("a"), path("b")
			// Refused calls are part of the game: their errors say nothing.
			switch rapid.IntRange(0, 5).Draw(t, "op") {
			case 0:
				_ = m.Mkdir(a, 0o755)
			case 1:
				_ = m.RenameNoReplace(a, b)
			case 2:
				_ = m.Exchange(a, b)
			case 3:
				_ = m.SyncDir(a)
			case 4:
				if info, err := m.Lstat(a); err == nil && info.IsDir() {
					_ = m.Remove(a)
				}
			case 5:
				if info, err := m.Lstat(b); err == nil && info.IsDir() {
					_ = m.Rename(a, b)
				}
			}
		}
		seed := rapid.Uint64().Draw(t, "seed")
		found := soundTree(t, cut(m, seed))
		for ino, want := range files {
			if got, ok := found[ino]; !ok || got != want {
				t.Fatalf("inode %d: %q, want %q", ino, got, want)
			}
		}
		// A killed server's page cache meets the power cut later.
		again := m.CrashClone(CrashOptions{Mode: CrashNothing})
		if got, want := dump(t, again), dump(t, m); got != want {
			t.Fatalf("clone\n%s\nof\n%s", got, want)
		}
		if got, want := dump(t, cut(again, seed)), dump(t, cut(m, seed)); got != want {
			t.Fatalf("cut clone\n%s\nof\n%s", got, want)
		}
		need.NoError(t, again.Mkdir("only here", 0o755))
		if _, err := m.Lstat("only here"); !errors.Is(err, fs.ErrNotExist) {
			t.Fatal("the clone is the original")
		}
		m.settle()
		if got, want := dump(t, cut(m, seed)), dump(t, m); got != want {
			t.Fatalf("all synced: after the crash\n%s\nbefore\n%s", got, want)
		}
	})
}

// soundTree checks link counts and that each directory is there once.
func soundTree(t *rapid.T, m *Mem) map[uint64]string {
	found := map[uint64]string{}
	seen := map[*node]bool{}
	var visit func(n *node, name string)
	visit = func(n *node, name string) {
		if seen[n] {
			t.Fatalf("%q is there twice", name)
		}
		seen[n] = true
		if !n.mode.IsDir() {
			if _, ok := found[n.ino]; ok || n.nlink != 1 {
				t.Fatalf("%q: inode %d, %d links", name, n.ino, n.nlink)
			}
			found[n.ino] = string(n.data.cur)
			return
		}
		links := uint64(2)
		for base, child := range n.entries {
			if child.mode.IsDir() {
				links++
				if child.parent != n {
					t.Fatalf("%q has another parent", base)
				}
			}
			visit(child, name+"/"+base)
		}
		if n.nlink != links {
			t.Fatalf("%q: %d links, not %d", name, n.nlink, links)
		}
	}
	visit(m.s.root, "")
	return found
}

// dump writes a tree down.
func dump(t need.T, f FS) string {
	t.Helper()
	var out strings.Builder
	var visit func(name string)
	visit = func(name string) {
		info, err := f.Lstat(name)
		need.NoError(t, err)
		fmt.Fprintf(&out, "%q %v %d %d", name, info.Mode, info.Ino, info.Nlink)
		switch {
		case info.IsRegular():
			b, err := ReadFile(f, name)
			need.NoError(t, err)
			fmt.Fprintf(&out, " %q", b)
		case info.IsSymlink():
			target, err := f.Readlink(name)
			need.NoError(t, err)
			fmt.Fprintf(&out, " -> %q", target)
		}
		out.WriteByte('\n')
		if info.IsDir() {
			list, err := f.ReadDir(name)
			need.NoError(t, err)
			for _, e := range list {
				visit(joinName(name, e.Name))
			}
		}
	}
	visit(".")
	return out.String()
}
