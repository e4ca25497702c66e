package pack_test

import (
	"bytes"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"math/rand/v2"
	"testing"

	"umbra/gitstore/object"
	"umbra/gitstore/pack"
	"umbra/internal/need"
)

func checksum(b []byte) uint32 { return crc32.ChecksumIEEE(b) }

func formatIdx(e pack.IdxEntry) string {
	return fmt.Sprintf("%d %v (%08x)\n", e.Offset, e.ID, e.CRC)
}

// journal gives the bytes of a journal of n entries and where each ends.
func journal(r *rand.Rand, n int) (data []byte, ends []int, things []thing) {
	head := pack.Header(0)
	data = head[:]
	ends = []int{len(data)}
	for i := range n {
		o := blob(text(r, r.IntN(400)))
		if i%3 == 2 {
			prev := things[i-1]
			o = blob(edited(r, prev.data))
			data = pack.AppendOfsDelta(data, uint64(ends[i]-ends[i-1]), object.SpliceDelta(prev.data, o.data), 1)
		} else {
			data = pack.AppendEntry(data, object.Blob, o.data, 1)
		}
		things = append(things, o)
		ends = append(ends, len(data))
	}
	return data, ends, things
}

// scan reads to the end and gives how many entries there were.
func scan(data []byte) (int, error) {
	s := pack.NewScanner(bytes.NewReader(data), int64(len(data)), pack.ScanOptions{})
	for n := 0; ; n++ {
		if _, err := s.Next(); err != nil {
			return n, err
		}
	}
}

func finished(t testing.TB, data []byte, count int) []byte {
	t.Helper()
	fsys := osFS(t, t.TempDir())
	f := create(t, fsys, "j")
	if _, err := f.WriteAt(data, 0); err != nil {
		t.Fatal(err)
	}
	if _, err := pack.FinishJournal(f, int64(len(data)), uint32(count)); err != nil {
		t.Fatal(err)
	}
	out := make([]byte, len(data)+pack.TrailerSize)
	if _, err := f.ReadAt(out, 0); err != nil {
		t.Fatal(err)
	}
	return out
}

func TestScannerReadsEntries(t *testing.T) {
	data, ends, things := journal(rand.New(rand.NewPCG(41, 42)), 50)
	s := pack.NewScanner(bytes.NewReader(data), int64(len(data)), pack.ScanOptions{})
	var got [][]byte
	for i, o := range things {
		e, err := s.Next()
		need.NoError(t, err)
		if e.Offset != int64(ends[i]) || e.End != int64(ends[i+1]) || e.CRC != checksum(data[ends[i]:ends[i+1]]) {
			t.Fatalf("entry %d: %d to %d, want %d to %d", i, e.Offset, e.End, ends[i], ends[i+1])
		}
		if e.Header.Kind == pack.OfsDelta {
			if e.Data, err = pack.ApplyDelta(got[i-1], e.Data); err != nil {
				t.Fatal(err)
			}
		}
		if !bytes.Equal(e.Data, o.data) {
			t.Fatalf("entry %d holds %q", i, e.Data)
		}
		got = append(got, e.Data)
	}
	for range 2 {
		if _, err := s.Next(); err != io.EOF {
			t.Errorf("the end is %v", err)
		}
	}
	if s.Count() != 50 || s.Pos() != int64(len(data)) {
		t.Errorf("%d entries to %d", s.Count(), s.Pos())
	}
}

func TestScannerEnds(t *testing.T) {
	data, ends, _ := journal(rand.New(rand.NewPCG(43, 44)), 9)
	zeros := make([]byte, 300<<10)
	whole := finished(t, data, 9)
	cat := func(parts ...[]byte) []byte { return bytes.Join(parts, nil) }
	edit := func(b []byte, at int, with ...byte) []byte {
		b = bytes.Clone(b)
		copy(b[at:], with)
		return b
	}
	cases := []struct {
		name string
		data []byte
		n    int
		torn bool
	}{
		{"nothing", nil, 0, false},
		{"part of a header", data[:7], 0, false},
		{"header", data[:12], 0, false},
		{"zeros alone", zeros, 0, false},
		{"few zeros", zeros[:5], 0, false},
		{"zeros and more", edit(zeros, 200<<10, 1), 0, true},
		{"other header", cat([]byte("PACK\x00\x00\x00\x03"), zeros), 0, true},
		{"some text", []byte("some text, longer than a header"), 0, true},
		{"no tail", data, 9, false},
		{"zero tail", cat(data, zeros), 9, false},
		{"one zero", cat(data, zeros[:1]), 9, false},
		{"something in the tail", cat(data, edit(zeros, len(zeros)-1, 1)), 9, true},
		{"something near in the tail", cat(data, edit(zeros, 21, 1)), 9, true},
		{"trailer", whole, 9, false},
		{"trailer and zeros", cat(whole, zeros), 9, false},
		{"trailer and more", cat(whole, []byte{1}), 9, true},
		{"count without trailer", edit(data, 8, 0, 0, 0, 9), 9, false},
		{"trailer without count", edit(whole, 8, 0, 0, 0, 0), 9, false},
		{"half a trailer", cat(whole[:len(whole)-10], zeros), 9, false},
		{"other half of a trailer", cat(data, zeros[:10], whole[len(whole)-10:]), 9, false},
		{"wrong trailer", edit(whole, len(whole)-1, whole[len(whole)-1]^1), 9, true},
		{"wrong count", edit(whole, 8, 0, 0, 0, 8), 9, true},
		{"fewer than counted", cat(edit(data[:ends[8]], 8, 0, 0, 0, 9), zeros), 8, true},
		{"cut in an entry", data[:ends[9]-3], 8, true},
		{"cut in an entry, zeros", cat(data[:ends[9]-3], zeros), 8, true},
		{"hole", cat(data[:ends[4]], zeros[:64], data[ends[4]+64:]), 4, true},
		{"bit", edit(data, ends[5]+9, data[ends[5]+9]^4), 5, true},
	}
	for _, c := range cases {
		n, err := scan(c.data)
		if n != c.n || errors.Is(err, pack.ErrTorn) != c.torn || !c.torn && err != io.EOF {
			t.Errorf("%s: %d entries, %v; want %d, torn %v", c.name, n, err, c.n, c.torn)
		}
	}
}

// TestScannerTrailersOfAllSorts runs over many journals: some trailers begin or
// end with zeros, some look like entries.
func TestScannerTrailersOfAllSorts(t *testing.T) {
	fsys := osFS(t, t.TempDir())
	f := create(t, fsys, "j")
	for i := range 600 {
		head := pack.Header(0)
		data := pack.AppendEntry(head[:], object.Blob, fmt.Appendf(nil, "blob %d", i), 1)
		if _, err := f.WriteAt(data, 0); err != nil {
			t.Fatal(err)
		}
		if _, err := pack.FinishJournal(f, int64(len(data)), 1); err != nil {
			t.Fatal(err)
		}
		s := pack.NewScanner(f, int64(len(data))+20+int64(i%3), pack.ScanOptions{})
		if i%3 > 0 {
			need.NoError(t, f.Truncate(int64(len(data))+20+int64(i%3)))
		}
		if _, err := s.Next(); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Next(); err != io.EOF {
			t.Fatalf("blob %d: %v", i, err)
		}
	}
}

func TestScannerBounds(t *testing.T) {
	head := pack.Header(0)
	data := pack.AppendEntry(head[:], object.Blob, make([]byte, 1<<20), 1)
	s := pack.NewScanner(bytes.NewReader(data), int64(len(data)), pack.ScanOptions{MaxObject: 1<<20 - 1})
	if _, err := s.Next(); !errors.Is(err, pack.ErrTorn) || !errors.Is(err, pack.ErrTooLarge) {
		t.Error(err)
	}
	// A header that promises what the file cannot hold takes no memory.
	lie := append(head[:], 0xbf, 0xff, 0xff, 0xff, 0xff, 0x7f, 0x78, 0x01)
	if n, err := scan(lie); n != 0 || !errors.Is(err, pack.ErrTorn) {
		t.Error(n, err)
	}
}

// TestScannerPassesFileErrors: an I/O error is no torn journal.
func TestScannerPassesFileErrors(t *testing.T) {
	data, _, _ := journal(rand.New(rand.NewPCG(45, 46)), 200)
	for at := 0; at < len(data); at += 777 {
		s := pack.NewScanner(&failing{data, int64(at)}, int64(len(data)), pack.ScanOptions{})
		for {
			_, err := s.Next()
			if err == nil {
				continue
			}
			if !errors.Is(err, errBroken) || errors.Is(err, pack.ErrTorn) {
				t.Fatalf("failing at %d: %v", at, err)
			}
			break
		}
	}
}

// failing gives an error for every read that reaches a byte.
type failing struct {
	data []byte
	at   int64
}

func (f *failing) ReadAt(p []byte, off int64) (int, error) {
	if off <= f.at && f.at < off+int64(len(p)) {
		return copy(p, f.data[off:f.at]), errBroken
	}
	return bytes.NewReader(f.data).ReadAt(p, off)
}

func FuzzScanner(f *testing.F) {
	data, ends, _ := journal(rand.New(rand.NewPCG(47, 48)), 4)
	f.Add(data)
	f.Add(data[:ends[2]+5])
	f.Add(append(bytes.Clone(data), make([]byte, 30)...))
	f.Fuzz(func(t *testing.T, data []byte) {
		s := pack.NewScanner(bytes.NewReader(data), int64(len(data)), pack.ScanOptions{MaxObject: 1 << 20})
		pos := int64(pack.HeaderSize)
		for {
			e, err := s.Next()
			if err != nil {
				if err != io.EOF && !errors.Is(err, pack.ErrTorn) {
					t.Fatal(err)
				}
				return
			}
			if e.Offset != pos || e.End <= e.Offset || e.End > int64(len(data)) || int64(len(e.Data)) != e.Header.Size {
				t.Fatalf("entry %+v after %d", e, pos)
			}
			pos = e.End
		}
	})
}
