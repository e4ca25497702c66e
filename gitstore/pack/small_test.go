package pack_test

import (
	"bytes"
	"compress/zlib"
	"crypto/sha1"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"umbra/gitstore/object"
	"umbra/gitstore/pack"
)

// smallMax is the longest input that is compressed as one block.
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
	if err != nil {
		t.Fatal(err)
	}
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
	if len(stream) > len(data)+11 {
		t.Fatalf("%d bytes became %d: longer than stored", len(data), len(stream))
	}
	if !bytes.Equal(deflated(t, data), stream) {
		t.Fatal("the same bytes are compressed otherwise the second time")
	}
}

// smallCases are inputs of every shape that a code can take.
func smallCases() map[string][]byte {
	rng := rand.New(rand.NewChaCha8([32]byte{1}))
	random := func(n, kinds int) []byte {
		b := make([]byte, n)
		for i := range b {
			b[i] = byte(rng.IntN(kinds))
		}
		return b
	}
	fibonacci := []byte{} // whose code would be longer than deflate allows
	for i, a, b := 0, 1, 1; len(fibonacci)+a <= smallMax; i, a, b = i+1, b, a+b {
		fibonacci = append(fibonacci, bytes.Repeat([]byte{byte(i)}, a)...)
	}
	rng.Shuffle(len(fibonacci), func(i, j int) { fibonacci[i], fibonacci[j] = fibonacci[j], fibonacci[i] })
	far := append(random(300, 256), random(smallMax-600, 200)...)
	far = append(far, far[:300]...)
	all := make([]byte, 256)
	for i := range all {
		all[i] = byte(i)
	}
	cases := map[string][]byte{
		"nothing": nil, "one": {7}, "two": {7, 7}, "zeros": make([]byte, smallMax), "all bytes": all, "fibonacci": fibonacci, "far": far,
		"text": []byte(strings.Repeat("the quick brown fox\n", 90)),
	}
	for _, kinds := range []int{1, 2, 3, 17, 256} {
		for _, n := range []int{3, 4, 5, 63, 64, 257, 258, 259, 4096, 4097, smallMax - 1, smallMax} {
			cases[fmt.Sprintf("%d of %d kinds", n, kinds)] = random(n, kinds)
		}
	}
	for n := range 300 { // matches of every length
		line := random(n+4, 256)
		cases[fmt.Sprintf("match of %d", n)] = slices.Concat(line, []byte{'x'}, line, []byte{'y'}, line)
	}
	return cases
}

func TestSmall(t *testing.T) {
	for name, data := range smallCases() {
		t.Run(name, func(t *testing.T) { checkSmall(t, data) })
	}
	for i := range 300 {
		checkSmall(t, source(i))
	}
}

func FuzzSmall(f *testing.F) {
	for _, data := range smallCases() {
		if len(data) < 1000 {
			f.Add(data)
		}
	}
	f.Fuzz(func(t *testing.T, data []byte) { checkSmall(t, data[:min(len(data), smallMax)]) })
}

// Whatever was built wins by being as long as zlib's own level 1 at most, by a
// few percent, over real files.
func TestSmallIsAsLongAsLevel1(t *testing.T) {
	ours, zlibs, files := 0, 0, 0
	err := filepath.WalkDir("../..", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() && (d.Name() == "node_modules" || d.Name() == ".git" || d.Name() == "bin") {
			return fs.SkipDir
		}
		if ext := filepath.Ext(name); d.IsDir() || ext != ".go" && ext != ".md" && ext != ".yaml" && ext != ".ts" {
			return nil
		}
		data, err := os.ReadFile(name)
		if err != nil || len(data) < 64 || len(data) > smallMax {
			return err
		}
		checkSmall(t, data)
		var b bytes.Buffer
		z, err := zlib.NewWriterLevel(&b, zlib.BestSpeed)
		if err != nil {
			return err
		}
		z.Write(data)
		z.Close()
		ours, zlibs, files = ours+len(deflated(t, data)), zlibs+b.Len(), files+1
		return nil
	})
	if err != nil || files < 100 {
		t.Fatal(err, files)
	}
	t.Logf("%d files: %d bytes, level 1 of the standard library makes %d", files, ours, zlibs)
	if float64(ours) > 1.03*float64(zlibs) {
		t.Errorf("%d bytes, level 1 makes %d", ours, zlibs)
	}
}

// git takes what is made of every case.
func TestGitReadsSmall(t *testing.T) {
	dir, _ := bare(t)
	cases := smallCases()
	byID := make(map[object.ID][]byte)
	for _, data := range cases {
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
