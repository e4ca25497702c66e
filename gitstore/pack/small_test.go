package pack_test

import (
	"bytes"
	"compress/zlib"
	"crypto/sha1"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"umbra/gitstore/object"
	"umbra/gitstore/pack"
	"umbra/internal/need"
)

// smallMax is the longest input that is compressed without tables that are kept.
const smallMax = 32 << 10

// deflated gives the zlib stream of a blob's entry.
func deflated(t testing.TB, data []byte) []byte {
	t.Helper()
	entry := pack.AppendEntry([]byte("before"), object.Blob, data, 1)
	if !bytes.HasPrefix(entry, []byte("before")) {
		t.Fatal("what stood before is lost")
	}
	entry = entry[len("before"):]
	h, err := pack.ParseHeader(entry)
	if err != nil || h.Size != int64(len(data)) {
		t.Fatal(h, err)
	}
	return entry[h.HeaderLen:]
}

// source gives a text like source code.
func source(n int) []byte {
	rng := rand.New(rand.NewPCG(uint64(n), 1))
	words := strings.Fields("return func context error nil path range value index struct import string append length buffer reader")
	var b bytes.Buffer
	for b.Len() < 1500+n%600 {
		for range 5 {
			fmt.Fprintf(&b, "%s%d ", words[rng.IntN(len(words))], rng.IntN(300))
		}
		b.WriteByte('\n')
	}
	return b.Bytes()
}

// inflateAll reads a stream with the standard library, to its very end.
func inflateAll(t testing.TB, stream []byte) []byte {
	t.Helper()
	src := bytes.NewReader(stream)
	z, err := zlib.NewReader(src)
	need.NoError(t, err)
	data, err := io.ReadAll(z)
	if err != nil {
		t.Fatalf("%v after %d bytes", err, len(data))
	}
	if src.Len() != 0 {
		t.Fatalf("%d bytes after the stream", src.Len())
	}
	return data
}

func checkSmall(t testing.TB, data []byte) {
	t.Helper()
	stream := deflated(t, data)
	if got := inflateAll(t, stream); !bytes.Equal(got, data) {
		t.Fatalf("%d bytes came back as %d", len(data), len(got))
	}
	if len(stream) > len(data)+11+5*(len(data)/(32<<10)) {
		t.Fatalf("%d bytes became %d: longer than stored", len(data), len(stream))
	}
	if !bytes.Equal(deflated(t, data), stream) {
		t.Fatal("the same bytes are compressed otherwise the second time")
	}
}

// TestSmall compresses inputs of every shape, up to and beyond smallMax, and reads
// them with the standard library and with git.
func TestSmall(t *testing.T) {
	rng := rand.New(rand.NewChaCha8([32]byte{1}))
	cases := [][]byte{nil, {7}, {7, 7}, []byte(strings.Repeat("the quick brown fox\n", 90)), source(1), source(2)}
	for _, kinds := range []int{1, 2, 17, 200, 256} {
		for _, n := range []int{3, 63, 64, 65, 4096, smallMax - 1, smallMax, smallMax + 1} {
			b := make([]byte, n)
			for i := range b {
				b[i] = byte(rng.IntN(kinds))
			}
			far := append(slices.Clone(b[:n/2]), b[:n-n/2]...)
			cases = append(cases, b, far)
		}
	}
	dir, _ := bare(t)
	byID := make(map[object.ID][]byte)
	for _, data := range cases {
		checkSmall(t, data)
		byID[object.Hash(object.Blob, data)] = data
	}
	head := pack.Header(uint32(len(byID)))
	body := slices.Clone(head[:])
	for _, data := range byID {
		body = pack.AppendEntry(body, object.Blob, data, 1)
	}
	sum := sha1.Sum(body)
	git(t, dir, append(body, sum[:]...), "index-pack", "--strict", "--stdin")
	for id, data := range byID {
		if len(data) > 5000 && !bytes.Equal(git(t, dir, nil, "cat-file", "blob", id.String()), data) {
			t.Errorf("git reads %v otherwise", id)
		}
	}
}

func BenchmarkSmall(b *testing.B) {
	files := make([][]byte, 256)
	for i := range files {
		files[i] = source(i)
	}
	for _, level := range []int{1, 2} {
		b.Run(fmt.Sprint("level ", level), func(b *testing.B) {
			b.ReportAllocs()
			var out []byte
			total := 0
			for i := range b.N {
				data := files[i%len(files)]
				out = pack.AppendEntry(out[:0], object.Blob, data, level)
				total += len(out)
				b.SetBytes(int64(len(data)))
			}
			b.ReportMetric(float64(total)/float64(b.N), "B-compressed/op")
		})
	}
}
