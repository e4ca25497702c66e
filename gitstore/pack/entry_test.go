package pack_test

import (
	"bytes"
	"errors"
	"io"
	"math"
	"math/rand/v2"
	"testing"

	"pgregory.net/rapid"

	"umbra/gitstore/object"
	"umbra/gitstore/pack"
)

func TestHeaderRoundTrip(t *testing.T) {
	distance := rapid.OneOf(rapid.Uint64Range(1, 70000), rapid.Uint64Range(1, math.MaxInt64))
	size := rapid.OneOf(rapid.Int64Range(0, 5000), rapid.Int64Range(0, math.MaxInt64))
	rapid.Check(t, func(t *rapid.T) {
		h := pack.EntryHeader{Kind: rapid.SampledFrom([]object.Kind{1, 2, 3, 4, 6, 7}).Draw(t, "kind"), Size: size.Draw(t, "size")}
		switch h.Kind {
		case pack.OfsDelta:
			h.BaseDistance = distance.Draw(t, "distance")
		case pack.RefDelta:
			h.BaseID = object.ID{1, 2, 19: 3}
		}
		b := pack.AppendRaw(nil, h, nil)
		h.HeaderLen = len(b)
		got, err := pack.ParseHeader(append(b, 0xff, 0x80))
		if err != nil || got != h {
			t.Fatalf("%x read as %+v, %v; want %+v", b, got, err, h)
		}
		for i := range b {
			if _, err := pack.ParseHeader(b[:i]); err != io.ErrUnexpectedEOF {
				t.Fatalf("%x cut at %d: %v", b, i, err)
			}
		}
	})
}

func TestAppendEntryLevels(t *testing.T) {
	data := text(rand.New(rand.NewPCG(51, 52)), 100_000)
	for level := -5; level < 12; level++ {
		head := pack.Header(0)
		b := pack.AppendEntry(head[:], object.Blob, data, level)
		e, err := pack.NewScanner(bytes.NewReader(b), int64(len(b)), pack.ScanOptions{}).Next()
		if err != nil || !bytes.Equal(e.Data, data) || e.End != int64(len(b)) {
			t.Errorf("level %d: %v", level, err)
		}
	}
}

func TestApplyDeltaRefuses(t *testing.T) {
	base := []byte("0123456789")
	for name, d := range map[string][]byte{
		"empty":            {},
		"no target":        {10},
		"other base":       {9, 0},
		"too little":       {10, 5, 0x90, 4},
		"too much":         {10, 5, 0x90, 6},
		"beyond the base":  {10, 5, 0x91, 6, 5},
		"far beyond":       {10, 5, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff},
		"instruction 0":    {10, 1, 0},
		"cut insertion":    {10, 3, 3, 'a'},
		"cut copy":         {10, 5, 0x91, 0},
		"endless size":     bytes.Repeat([]byte{0xff}, 20),
		"64K, short base":  {10, 0x80, 0x80, 4, 0x80},
		"large and absent": {10, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f},
	} {
		if got, err := pack.ApplyDelta(base, d); !errors.Is(err, pack.ErrCorrupt) {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
	if got, err := pack.ApplyDelta(base, []byte{10, 8, 0x91, 7, 3, 2, 'a', 'b', 0x90, 3}); err != nil || string(got) != "789ab012" {
		t.Errorf("%q, %v", got, err)
	}
}

func TestInflateEntry(t *testing.T) {
	b := pack.AppendEntry(nil, object.Tag, []byte("data"), 1)
	h, data, err := pack.InflateEntry(append(b, "more"...))
	if err != nil || h.Kind != object.Tag || string(data) != "data" {
		t.Errorf("%+v, %q, %v", h, data, err)
	}
	for i := range b {
		if _, _, err := pack.InflateEntry(b[:i]); err == nil {
			t.Errorf("cut at %d: no error", i)
		}
	}
}

func FuzzParseHeader(f *testing.F) {
	f.Add([]byte{0x30})
	f.Add([]byte{0xb0, 0x7f})
	f.Add([]byte{0x65, 0x80, 0x00})
	f.Add(bytes.Repeat([]byte{0xff}, 30))
	f.Fuzz(func(t *testing.T, b []byte) {
		h, err := pack.ParseHeader(b)
		if err != nil {
			return
		}
		if h.HeaderLen > len(b) || h.Size < 0 {
			t.Fatalf("%x reads as %+v", b, h)
		}
		again, err := pack.ParseHeader(pack.AppendRaw(nil, h, nil))
		again.HeaderLen = h.HeaderLen // a size may be spelt longer than needed
		if err != nil || again != h {
			t.Fatalf("%+v is written and read as %+v, %v", h, again, err)
		}
	})
}

func FuzzApplyDelta(f *testing.F) {
	f.Add([]byte("0123456789"), []byte{10, 8, 0x91, 7, 3, 2, 'a', 'b', 0x90, 3})
	f.Add([]byte(""), []byte{0, 0})
	f.Add([]byte("abc"), object.SpliceDelta([]byte("abc"), []byte("abd")))
	f.Fuzz(func(t *testing.T, base, delta []byte) {
		_, size, err := pack.DeltaSizes(delta)
		if err == nil && size > 1<<24 {
			return
		}
		got, err := pack.ApplyDelta(base, delta)
		if err == nil && int64(len(got)) != size {
			t.Fatalf("%d bytes, not %d", len(got), size)
		}
		// Any two byte slices have a delta between them.
		again, err := pack.ApplyDelta(base, object.SpliceDelta(base, delta))
		if err != nil || !bytes.Equal(again, delta) {
			t.Fatalf("%q from %q: %q, %v", delta, base, again, err)
		}
	})
}

func BenchmarkAppendEntry(b *testing.B) {
	data := text(rand.New(rand.NewPCG(53, 54)), 1024)
	for _, level := range []int{0, 1, 6} {
		b.Run(string(rune('0'+level)), func(b *testing.B) {
			b.ReportAllocs()
			b.SetBytes(int64(len(data)))
			var buf []byte
			for b.Loop() {
				buf = pack.AppendEntry(buf[:0], object.Blob, data, level)
			}
		})
	}
}
