package remote

import (
	"bytes"
	"context"
	"crypto/sha1"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"

	"umbra/gitstore/object"
	"umbra/gitstore/pack"
	"umbra/gitstore/sink"
	"umbra/internal/need"
	"umbra/internal/vfs"
)

// slowFirst is a store whose first answer is late, and of other bytes.
type slowFirst struct {
	data           []byte
	calls          atomic.Int32
	asked, release chan struct{}
}

func (s *slowFirst) Fetch(_ context.Context, _ string, off, n int64) (io.ReadCloser, error) {
	data := s.data[off : off+n]
	if s.calls.Add(1) == 1 {
		close(s.asked)
		<-s.release
		data = make([]byte, n)
	}
	return io.NopCloser(bytes.NewReader(data)), nil
}

// threeBlocks makes a pack of random bytes, and a place for it in a directory.
func threeBlocks(t *testing.T) (dir string, to *Place, p *sink.Pack, data []byte) {
	t.Helper()
	data = make([]byte, 3*blockSize)
	for i := range data {
		data[i] = byte(rand.Uint32())
	}
	sum := sha1.Sum(data[:len(data)-pack.TrailerSize])
	copy(data[len(data)-pack.TrailerSize:], sum[:])
	dir = t.TempDir()
	need.NoError(t, os.MkdirAll(filepath.Join(dir, lazyDir), 0o700))
	fsys, err := vfs.OS(dir)
	need.NoError(t, err)
	t.Cleanup(func() { fsys.Close() })
	p = &sink.Pack{Name: "p", Sum: object.ID(sum), Size: int64(len(data)), Idx: 1}
	to = &Place{FS: fsys, Repo: "repo.git", Keep: func(uint64) string { return "" }}
	need.NoError(t, os.MkdirAll(filepath.Dir(filepath.Join(dir, to.file(p))), 0o700))
	return dir, to, p, data
}

// lazy opens it, with nothing of it here but its index.
func (to *Place) lazy(t *testing.T, k Fetcher, p *sink.Pack) *lazyPack {
	t.Helper()
	f, err := to.openLazy(t.Context(), k, p, 0, true)
	need.NoError(t, err)
	t.Cleanup(f.closeFiles)
	close(f.indexed)
	return f
}

// second begins to read of the second block.
func (f *lazyPack) second() (got <-chan []byte) {
	read := make(chan []byte, 1)
	go func() {
		b := make([]byte, 100)
		n, _ := f.ReadAt(b, blockSize) // the bytes are compared
		read <- b[:n]
	}()
	return read
}

// A pack that was verified while a reader waits for a range of it stays as it is.
func TestLateRange(t *testing.T) {
	dir, to, p, data := threeBlocks(t)
	k := &slowFirst{data: data, asked: make(chan struct{}), release: make(chan struct{})}
	f := to.lazy(t, k, p)
	read := f.second()
	<-k.asked
	need.NoError(t, f.finish(t.Context()))
	close(k.release)
	got := <-read
	whole, err := os.ReadFile(filepath.Join(dir, to.file(p)+".pack"))
	if err != nil || !bytes.Equal(whole, data) || !bytes.Equal(got, data[blockSize:][:100]) {
		t.Errorf("the verified pack was changed, %v", err)
	}
}

// gate is a point of a body: it says that it was reached, and goes on when it is opened.
type gate struct{ reached, open chan struct{} }

func newGate() gate { return gate{make(chan struct{}), make(chan struct{})} }

func (g gate) Read([]byte) (int, error) {
	close(g.reached)
	<-g.open
	return 0, io.EOF
}

// slowAndWrong is a store whose first answer has two gates, and whose second is of other bytes.
type slowAndWrong struct {
	data          []byte
	calls         atomic.Int32
	start, middle gate
}

func (s *slowAndWrong) Fetch(_ context.Context, _ string, off, n int64) (io.ReadCloser, error) {
	data := s.data[off : off+n]
	switch s.calls.Add(1) {
	case 1:
		half := blockSize / 2
		return io.NopCloser(io.MultiReader(s.start, bytes.NewReader(data[:half]), s.middle, bytes.NewReader(data[half:]))), nil
	case 2:
		data = make([]byte, n)
	}
	return io.NopCloser(bytes.NewReader(data)), nil
}

// A block that was found damaged is not here, also where a reader was in the middle of it.
func TestDamagedWhileRead(t *testing.T) {
	_, to, p, data := threeBlocks(t)
	k := &slowAndWrong{data: data, start: newGate(), middle: newGate()}
	f := to.lazy(t, k, p)
	read := f.second()
	<-k.start.reached
	need.NoError(t, f.fetch(t.Context(), &f.finishing, 0, p.Size))
	close(k.start.open)
	<-k.middle.reached
	if err := f.finish(t.Context()); err == nil {
		t.Fatal("it was verified")
	}
	close(k.middle.open)
	if got := <-read; !bytes.Equal(got, data[blockSize:][:100]) {
		t.Error("the reader has other bytes than the store returned")
	}
	need.NoError(t, f.finish(t.Context()))
}
