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

// A pack that was verified while a reader waits for a range of it stays as it is.
func TestLateRange(t *testing.T) {
	data := make([]byte, 3*blockSize)
	for i := range data {
		data[i] = byte(rand.Uint32())
	}
	sum := sha1.Sum(data[:len(data)-pack.TrailerSize])
	copy(data[len(data)-pack.TrailerSize:], sum[:])
	dir := t.TempDir()
	need.NoError(t, os.MkdirAll(filepath.Join(dir, lazyDir), 0o700))
	fsys, err := vfs.OS(dir)
	need.NoError(t, err)
	defer fsys.Close()
	p := sink.Pack{Name: "p", Sum: object.ID(sum), Size: int64(len(data)), Idx: 1}
	to := &Place{FS: fsys, Repo: "repo.git", Keep: func(uint64) string { return "" }}
	need.NoError(t, os.MkdirAll(filepath.Dir(filepath.Join(dir, to.file(&p))), 0o700))
	k := &slowFirst{data: data, asked: make(chan struct{}), release: make(chan struct{})}
	f, err := to.openLazy(t.Context(), k, &p, 0, true)
	need.NoError(t, err)
	defer f.closeFiles()
	close(f.indexed)
	read := make(chan error, 1)
	got := make([]byte, 100)
	go func() {
		_, err := f.ReadAt(got, blockSize)
		read <- err
	}()
	<-k.asked
	need.NoError(t, f.finish(t.Context()))
	close(k.release)
	need.NoError(t, <-read)
	whole, err := os.ReadFile(filepath.Join(dir, to.file(&p)+".pack"))
	if err != nil || !bytes.Equal(whole, data) || !bytes.Equal(got, data[blockSize:][:100]) {
		t.Errorf("the verified pack was changed, %v", err)
	}
}
