package gitstore

import (
	"context"
	"fmt"
	"os"
	"strings"
	"sync/atomic"
	"testing"

	"umbra/gitstore/message"
	"umbra/gitstore/object"
	"umbra/internal/need"
	"umbra/internal/wspath"
)

// benchDir is on a real disk, where fdatasync costs what it costs.
func benchDir(b *testing.B) string {
	b.Helper()
	dir, err := os.MkdirTemp(os.Getenv("UMBRA_BENCH_DIR"), "gitstore-")
	need.NoError(b, err)
	b.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

func benchStore(b *testing.B, files int) *Store {
	b.Helper()
	s := openAt(b, benchDir(b), Options{})
	if _, err := s.Baseline(context.Background(), message.Message{Source: message.Baseline}, func(add AddFile) error {
		for i := range files {
			data := fmt.Sprintf("file %d\n", i)
			if _, err := add(wspath.Path(fmt.Sprintf("d%02d/e%02d/f%d", i%37, i/37%53, i)), object.Regular, strings.NewReader(data), int64(len(data))); err != nil {
				return err
			}
		}
		return nil
	}); err != nil {
		b.Fatal(err)
	}
	return s
}

func BenchmarkCommit(b *testing.B) {
	for _, files := range []int{1000, 10_000, 100_000} {
		b.Run(fmt.Sprintf("files=%d", files), func(b *testing.B) {
			s := benchStore(b, files)
			defer s.Close(context.Background())
			b.ResetTimer()
			for i := range b.N {
				n := i % files
				if _, err := put(b.Context(), s, "", fmt.Sprintf("d%02d/e%02d/f%d", n%37, n/37%53, n), fmt.Sprintf("edit %d\n", i)); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkCommit64Writers(b *testing.B) {
	s := benchStore(b, 10_000)
	defer s.Close(context.Background())
	var n atomic.Int64
	b.SetParallelism(32)
	b.ResetTimer()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			i := int(n.Add(1))
			k := i % 10_000
			if _, err := put(context.Background(), s, "", fmt.Sprintf("d%02d/e%02d/f%d", k%37, k/37%53, k), fmt.Sprintf("edit %d\n", i)); err != nil {
				b.Error(err)
			}
		}
	})
}
