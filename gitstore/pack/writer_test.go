package pack_test

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"umbra/gitstore/object"
	"umbra/gitstore/pack"
	"umbra/internal/need"
	"umbra/internal/vfs"
)

func TestWriterAgainstGit(t *testing.T) {
	dir, fsys := bare(t)
	r := rand.New(rand.NewPCG(1, 2))
	all := history(t, r, 120)
	w := newWriter(t, fsys, "pack-w")
	var prev thing
	for _, o := range all {
		if o.kind == object.Tree && prev.kind == object.Tree {
			need.NoError(t, w.AddDelta(o.id, prev.id, object.SpliceDelta(prev.data, o.data)))
		} else if o.kind == object.Blob && len(o.data)%2 == 0 {
			id, err := w.AddStream(o.kind, int64(len(o.data)), bytes.NewReader(o.data))
			if err != nil || id != o.id {
				t.Fatalf("AddStream = %v, %v; want %v", id, err, o.id)
			}
		} else {
			id, err := w.Add(o.kind, o.data)
			if err != nil || id != o.id {
				t.Fatalf("Add = %v, %v; want %v", id, err, o.id)
			}
		}
		prev = o
	}
	before := w.Size()
	if _, err := w.Add(all[0].kind, all[0].data); err != nil || w.Size() != before {
		t.Errorf("an object that is there was written again, %v", err)
	}
	finish(t, fsys, "pack-w", w)

	mine, err := os.ReadFile(filepath.Join(dir, "objects/pack/pack-w.idx"))
	need.NoError(t, err)
	git(t, dir, nil, "index-pack", "--strict", "-o", "git.idx", "objects/pack/pack-w.pack")
	theirs, err := os.ReadFile(filepath.Join(dir, "git.idx"))
	need.NoError(t, err)
	if !bytes.Equal(mine, theirs) {
		t.Error("the index is not what git index-pack writes")
	}
	git(t, dir, nil, "verify-pack", "-v", "objects/pack/pack-w.idx")
	fsck(t, dir, all)
	catFile(t, dir, all)
	p := open(t, fsys, "pack-w", pack.Options{Verify: true})
	getAll(t, p, all)
	if err := p.VerifyChecksum(); err != nil {
		t.Error(err)
	}
}

func TestAddStreamTakesBackWhatFails(t *testing.T) {
	dir, fsys := bare(t)
	w := newWriter(t, fsys, "pack-w")
	r := rand.New(rand.NewPCG(3, 4))
	first := blob(text(r, 1000))
	if _, err := w.Add(first.kind, first.data); err != nil {
		t.Fatal(err)
	}
	size := w.Size()
	big := make([]byte, 3<<20)
	for i := range big {
		big[i] = byte(r.Uint32())
	}
	for name, c := range map[string]struct {
		size int64
		r    io.Reader
		want error
	}{
		"short":  {int64(len(big)) + 1, bytes.NewReader(big), io.ErrUnexpectedEOF},
		"long":   {int64(len(big)) - 1, bytes.NewReader(big), pack.ErrLonger},
		"broken": {int64(len(big)), io.MultiReader(bytes.NewReader(big[:2<<20]), brokenReader{}), errBroken},
		"again":  {int64(len(first.data)), bytes.NewReader(first.data), nil},
	} {
		if _, err := w.AddStream(object.Blob, c.size, c.r); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
		if w.Size() != size || w.Count() != 1 {
			t.Errorf("%s: left something behind", name)
		}
	}
	second := blob(big)
	if _, err := w.AddStream(object.Blob, int64(len(big)), bytes.NewReader(big)); err != nil {
		t.Fatal(err)
	}
	finish(t, fsys, "pack-w", w)
	git(t, dir, nil, "verify-pack", "objects/pack/pack-w.idx")
	catFile(t, dir, []thing{first, second})
	if _, err := w.Add(object.Blob, nil); err == nil {
		t.Error("a finished Writer takes more")
	}
}

var errBroken = errors.New("broken")

type brokenReader struct{}

func (brokenReader) Read([]byte) (int, error) { return 0, errBroken }

// TestLargeBlobInBoundedMemory streams 64 MiB in and out; the heap may not
// grow by more than 16 MiB.
func TestLargeBlobInBoundedMemory(t *testing.T) {
	_, fsys := bare(t)
	const size = 64 << 20
	w := newWriter(t, fsys, "pack-w")
	peak := watchHeap()
	id, err := w.AddStream(object.Blob, size, io.LimitReader(&pattern{peak: peak}, size))
	need.NoError(t, err)
	finish(t, fsys, "pack-w", w)
	p := open(t, fsys, "pack-w", pack.Options{Verify: true, MaxObject: 1 << 20})
	if _, _, err := p.Get(id); !errors.Is(err, pack.ErrTooLarge) {
		t.Errorf("Get of 64 MiB: %v", err)
	}
	kind, n, s, err := p.Stream(id)
	if err != nil || kind != object.Blob || n != size {
		t.Fatalf("Stream = %v, %d, %v", kind, n, err)
	}
	if got, err := io.Copy(&heapChecker{peak: peak}, s); err != nil || got != size {
		t.Errorf("read %d bytes, %v", got, err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if grown := peak.high - peak.start; grown > 16<<20 {
		t.Errorf("heap grew by %d MiB", grown>>20)
	}
}

// heapPeak samples the heap each 8 MiB of data, after a collection.
type heapPeak struct {
	start, high int64
	seen        int
}

func watchHeap() *heapPeak {
	h := &heapPeak{}
	h.start = h.sample()
	return h
}

func (h *heapPeak) sample() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

func (h *heapPeak) data(n int) {
	if h.seen += n; h.seen >= 8<<20 {
		h.seen = 0
		h.high = max(h.high, h.sample())
	}
}

// pattern gives bytes that compress about by half.
type pattern struct {
	n    uint32
	peak *heapPeak
}

func (p *pattern) Read(b []byte) (int, error) {
	for i := range b {
		p.n = p.n*1664525 + 1013904223
		b[i] = byte(p.n>>24) & 0x1f
	}
	p.peak.data(len(b))
	return len(b), nil
}

type heapChecker struct{ peak *heapPeak }

func (h *heapChecker) Write(b []byte) (int, error) {
	h.peak.data(len(b))
	return len(b), nil
}

func TestJournalBecomesPack(t *testing.T) {
	dir, fsys := bare(t)
	all := history(t, rand.New(rand.NewPCG(5, 6)), 60)
	f := create(t, fsys, "j")
	head := pack.Header(0)
	buf := head[:]
	var entries []pack.IdxEntry
	var prev thing
	var prevAt int
	for _, o := range all {
		start := len(buf)
		if o.kind == object.Tree && prev.kind == object.Tree {
			buf = pack.AppendOfsDelta(buf, uint64(start-prevAt), object.SpliceDelta(prev.data, o.data), 1)
		} else {
			buf = pack.AppendEntry(buf, o.kind, o.data, 1)
		}
		entries = append(entries, pack.IdxEntry{ID: o.id, Offset: uint64(start), CRC: checksum(buf[start:])})
		prev, prevAt = o, start
	}
	end := int64(len(buf))
	buf = append(buf, make([]byte, 1<<20)...)
	if _, err := f.WriteAt(buf, 0); err != nil {
		t.Fatal(err)
	}
	var sum [20]byte
	for range 2 {
		var err error
		if sum, err = pack.FinishJournal(f, end, uint32(len(entries))); err != nil {
			t.Fatal(err)
		}
	}
	if info, err := f.Stat(); err != nil || info.Size != end+20 {
		t.Errorf("%d bytes, %v; want %d", info.Size, err, end+20)
	}
	writeFile(t, fsys, "pack-j.idx", pack.EncodeIdx(entries, sum))
	need.NoError(t, fsys.Link("j", "pack-j.pack"))
	git(t, dir, nil, "index-pack", "--strict", "-o", "git.idx", "objects/pack/pack-j.pack")
	verbose := string(git(t, dir, nil, "verify-pack", "-v", "objects/pack/pack-j.idx"))
	if !strings.Contains(verbose, "chain length = 1") {
		t.Error("git sees no delta")
	}
	fsck(t, dir, all)
	catFile(t, dir, all)
	getAll(t, open(t, fsys, "pack-j", pack.Options{Verify: true}), all)
}

// TestFinishJournalAgain lets each step of finishing fail once: doing it again
// must give the same pack.
func TestFinishJournalAgain(t *testing.T) {
	dir, fsys := bare(t)
	data, _, things := journal(rand.New(rand.NewPCG(61, 62)), 10)
	want := finished(t, data, len(things))
	for n := range 4 {
		f := &faulty{File: create(t, fsys, "j"), left: n}
		if _, err := f.File.WriteAt(append(bytes.Clone(data), make([]byte, 5000)...), 0); err != nil {
			t.Fatal(err)
		}
		_, err := pack.FinishJournal(f, int64(len(data)), uint32(len(things)))
		if (err != nil) != (n < 3) || err != nil && !errors.Is(err, syscall.EIO) {
			t.Errorf("fault at %d: %v", n, err)
		}
		if count, err := scanFile(f.File); count != len(things) || err != io.EOF {
			t.Errorf("fault at %d: scanned %d entries, %v", n, count, err)
		}
		if _, err := pack.FinishJournal(f.File, int64(len(data)), uint32(len(things))); err != nil {
			t.Fatal(err)
		}
		got, err := os.ReadFile(filepath.Join(dir, "objects/pack/j"))
		if err != nil || !bytes.Equal(got, want) {
			t.Errorf("fault at %d: another pack, %v", n, err)
		}
	}
	if _, err := pack.FinishJournal(create(t, fsys, "empty"), 12, 0); !errors.Is(err, pack.ErrCorrupt) {
		t.Error(err)
	}
}

func scanFile(f vfs.File) (int, error) {
	info, err := f.Stat()
	if err != nil {
		return 0, err
	}
	s := pack.NewScanner(f, info.Size, pack.ScanOptions{})
	for n := 0; ; n++ {
		if _, err := s.Next(); err != nil {
			return n, err
		}
	}
}

// TestWriterStopsAtAFault: after a failed write nothing pretends to work.
func TestWriterStopsAtAFault(t *testing.T) {
	_, fsys := bare(t)
	r := rand.New(rand.NewPCG(63, 64))
	noise := make([]byte, 300<<10)
	for i := range noise {
		noise[i] = byte(r.Uint32())
	}
	for n := range 4 {
		w, err := pack.Create(&faulty{File: create(t, fsys, "w"), left: n}, pack.WriterOptions{Level: -1})
		need.NoError(t, err)
		for i := range 3 {
			noise[0] = byte(i)
			if _, err = w.AddStream(object.Blob, int64(len(noise)), bytes.NewReader(noise)); err != nil {
				break
			}
		}
		if err == nil {
			t.Fatalf("fault at %d: no error", n)
		}
		if !errors.Is(err, syscall.EIO) {
			t.Errorf("fault at %d: %v", n, err)
		}
		if _, err := w.Add(object.Blob, nil); !errors.Is(err, syscall.EIO) {
			t.Errorf("fault at %d: Add gives %v", n, err)
		}
		if _, _, err := w.Finish(); !errors.Is(err, syscall.EIO) {
			t.Errorf("fault at %d: Finish gives %v", n, err)
		}
	}
}

func TestCreateRefusesWhatIsNotEmpty(t *testing.T) {
	fsys := osFS(t, t.TempDir())
	writeFile(t, fsys, "old", []byte("x"))
	f, err := fsys.OpenFile("old", os.O_RDWR, 0)
	need.NoError(t, err)
	defer f.Close()
	if _, err := pack.Create(f, pack.WriterOptions{}); err == nil {
		t.Error("begins a pack over something else")
	}
}

// faulty is a file whose writes fail after some.
type faulty struct {
	vfs.File
	left int
}

func (f *faulty) fail() bool {
	f.left--
	return f.left < 0
}

func (f *faulty) WriteAt(b []byte, off int64) (int, error) {
	if f.fail() {
		return 0, syscall.EIO
	}
	return f.File.WriteAt(b, off)
}

func (f *faulty) Truncate(size int64) error {
	if f.fail() {
		return syscall.EIO
	}
	return f.File.Truncate(size)
}
