package pack_test

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"umbra/gitstore/object"
	"umbra/gitstore/pack"
	"umbra/internal/need"
)

// randomEntries gives n entries, a tenth of them beyond 2 GiB.
func randomEntries(r *rand.Rand, n int) []pack.IdxEntry {
	out := make([]pack.IdxEntry, n)
	for i := range out {
		for j := range out[i].ID {
			out[i].ID[j] = byte(r.Uint32())
		}
		out[i].CRC = r.Uint32()
		out[i].Offset = uint64(r.Uint32N(1 << 31))
		if i%10 == 0 {
			out[i].Offset = 1<<31 + r.Uint64N(1<<40)
		}
	}
	return out
}

func TestIdx(t *testing.T) {
	r := rand.New(rand.NewPCG(31, 32))
	for _, n := range []int{0, 1, 2, 300, 20000} {
		entries := randomEntries(r, n)
		given := slices.Clone(entries)
		data := pack.EncodeIdx(entries, [20]byte{7})
		if !slices.Equal(entries, given) {
			t.Error("EncodeIdx changed its argument")
		}
		for _, limit := range []int64{-1, 1 << 30} {
			x, err := pack.OpenIdx(bytes.NewReader(data), int64(len(data)), pack.IdxOptions{Verify: true, InMemoryMax: limit})
			need.NoError(t, err)
			if x.Count() != n {
				t.Errorf("Count %d, want %d", x.Count(), n)
			}
			if sum, err := x.PackChecksum(); err != nil || sum != [20]byte{7} {
				t.Error(sum, err)
			}
			for i, e := range entries {
				if i > 1000 {
					break
				}
				off, crc, ok, err := x.Find(e.ID)
				if err != nil || !ok || off != e.Offset || crc != e.CRC {
					t.Fatalf("Find(%v) = %d, %x, %v, %v", e.ID, off, crc, ok, err)
				}
				for k := range 20 {
					near := e.ID
					near[k]++
					if _, _, ok, err := x.Find(near); ok != slices.ContainsFunc(entries, func(e pack.IdxEntry) bool { return e.ID == near }) || err != nil {
						t.Fatalf("Find(%v) = %v, %v", near, ok, err)
					}
					if n > 300 {
						break
					}
				}
				if ids, err := x.Prefix(e.ID.String()[:20+i%21], 2); err != nil || !slices.Equal(ids, []object.ID{e.ID}) {
					t.Fatalf("Prefix: %v, %v", ids, err)
				}
			}
			sorted := slices.SortedFunc(slices.Values(entries), func(a, b pack.IdxEntry) int { return bytes.Compare(a.ID[:], b.ID[:]) })
			i := 0
			for e, err := range x.All() {
				if err != nil || e != sorted[i] {
					t.Fatalf("entry %d is %v, %v; want %v", i, e, err, sorted[i])
				}
				i++
			}
			if i != n {
				t.Errorf("%d entries of %d", i, n)
			}
			if ids, err := x.Prefix("", n+1); err != nil || len(ids) != n {
				t.Errorf("Prefix of nothing: %d, %v", len(ids), err)
			}
			if _, err := x.Prefix("xy", 2); err == nil {
				t.Error("Prefix takes what is not hexadecimal")
			}
			if n == 20000 {
				if ids, err := x.Prefix("0a", 5); err != nil || len(ids) != 5 || ids[0][0] != 10 || ids[4][0] != 10 {
					t.Errorf("Prefix(0a) = %v, %v", ids, err)
				}
			}
		}
	}
}

// TestIdxBuckets finds ids among many with the same first byte: where their values make
// it likely, and where they do not.
func TestIdxBuckets(t *testing.T) {
	r := rand.New(rand.NewPCG(35, 36))
	for _, most := range []uint32{1 << 8, 3, 1} {
		entries := randomEntries(r, 4000)
		for i := range entries {
			entries[i].ID[0] = []byte{0, 7, 255}[i%3]
			entries[i].ID[1] = byte(uint32(entries[i].ID[1]) % most)
			if i%2 == 0 {
				entries[i].ID[1] = ^entries[i].ID[1]
			}
		}
		data := pack.EncodeIdx(entries, [20]byte{})
		x, err := pack.OpenIdx(bytes.NewReader(data), int64(len(data)), pack.IdxOptions{InMemoryMax: -1})
		need.NoError(t, err)
		for _, e := range entries {
			if off, crc, ok, err := x.Find(e.ID); err != nil || !ok || off != e.Offset || crc != e.CRC {
				t.Fatalf("Find(%v) = %d, %x, %v, %v", e.ID, off, crc, ok, err)
			}
			e.ID[2+r.IntN(18)] ^= byte(1 + r.IntN(255))
			if _, _, ok, err := x.Find(e.ID); ok || err != nil {
				t.Fatalf("Find(%v) = %v, %v", e.ID, ok, err)
			}
		}
		for first := range 256 {
			for _, rest := range []byte{0, 255} {
				id := object.ID{byte(first)}
				for i := range id[1:] {
					id[1+i] = rest
				}
				if _, _, ok, err := x.Find(id); ok || err != nil {
					t.Fatalf("Find(%v) = %v, %v", id, ok, err)
				}
			}
		}
	}
}

// TestIdxLargeOffsets lets git read an index with 63-bit offsets.
func TestIdxLargeOffsets(t *testing.T) {
	entries := randomEntries(rand.New(rand.NewPCG(33, 34)), 100)
	name := filepath.Join(t.TempDir(), "x.idx")
	data := pack.EncodeIdx(entries, [20]byte{})
	need.NoError(t, os.WriteFile(name, data, 0o644))
	var want bytes.Buffer
	x, err := pack.OpenIdx(bytes.NewReader(data), int64(len(data)), pack.IdxOptions{})
	need.NoError(t, err)
	for e, err := range x.All() {
		need.NoError(t, err)
		want.WriteString(formatIdx(e))
	}
	if got := git(t, "", data, "show-index"); !bytes.Equal(got, want.Bytes()) {
		t.Errorf("git show-index prints\n%s\nwant\n%s", got, want.Bytes())
	}
}

func FuzzOpenIdx(f *testing.F) {
	r := rand.New(rand.NewPCG(35, 36))
	for _, n := range []int{0, 1, 20} {
		f.Add(pack.EncodeIdx(randomEntries(r, n), [20]byte{}))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		x, err := pack.OpenIdx(bytes.NewReader(data), int64(len(data)), pack.IdxOptions{InMemoryMax: -1})
		if err != nil {
			return
		}
		n := 0
		for e, err := range x.All() {
			if err != nil {
				break
			}
			// Whatever the order, a lookup ends, with an error or an answer.
			_, _, _, _ = x.Find(e.ID)
			_, _ = x.Prefix(e.ID.String()[:7], 2)
			n++
		}
		if n > x.Count() {
			t.Fatalf("%d entries of %d", n, x.Count())
		}
	})
}

func BenchmarkIdxFind(b *testing.B) {
	entries := randomEntries(rand.New(rand.NewPCG(37, 38)), 1_000_000)
	data := pack.EncodeIdx(entries, [20]byte{})
	fsys := osFS(b, b.TempDir())
	f := create(b, fsys, "x.idx")
	if _, err := f.WriteAt(data, 0); err != nil {
		b.Fatal(err)
	}
	x, err := pack.OpenIdx(f, int64(len(data)), pack.IdxOptions{})
	need.NoError(b, err)
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		if _, _, ok, err := x.Find(entries[i*7919%len(entries)].ID); !ok || err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkEncodeIdx(b *testing.B) {
	entries := randomEntries(rand.New(rand.NewPCG(39, 40)), 10_000)
	for b.Loop() {
		binary.BigEndian.Uint64(pack.EncodeIdx(entries, [20]byte{}))
	}
}
