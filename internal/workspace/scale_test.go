package workspace

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"testing"
	"time"

	"umbra/internal/workspace/index"
	"umbra/internal/workspace/reconcile"
)

// The baseline of a whole tree, a scan of it once it is known, and what a file
// costs in memory. UMBRA_FILES says how many (10,000).
func BenchmarkBaseline(b *testing.B) {
	n, err := strconv.Atoi(os.Getenv("UMBRA_FILES"))
	if err != nil {
		n = 10_000
	}
	dir := b.TempDir()
	ws := filepath.Join(dir, "ws")
	benchTree(b, ws, n)
	b.ResetTimer()
	for i := range b.N {
		m := &opener{DataDir: filepath.Join(dir, fmt.Sprint("data", i)), Records: &memRecords{}, Foreground: true}
		start := time.Now()
		w, err := m.Open(context.Background(), ws)
		must(b, err)
		b.ReportMetric(time.Since(start).Seconds(), "s/open")
		runtime.GC()
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		start = time.Now()
		res, err := w.Sync(context.Background(), reconcile.SyncOptions{})
		must(b, err)
		if res.Changed != 0 {
			b.Fatal(res)
		}
		b.ReportMetric(time.Since(start).Seconds(), "s/scan")
		files := w.disk.Index.Len()
		w.disk.Index = index.New()
		runtime.GC()
		runtime.ReadMemStats(&after)
		if files != n {
			b.Fatalf("%d files in the index", files)
		}
		b.ReportMetric(float64(before.HeapAlloc-after.HeapAlloc)/float64(n), "B/file")
		w.Release()
		must(b, m.Close(context.Background()))
	}
}

// benchTree makes a tree of n small files.
func benchTree(b testing.TB, ws string, n int) {
	b.Helper()
	for i := range n {
		at := filepath.Join(ws, fmt.Sprintf("pkg%03d", i/200), fmt.Sprintf("file%04d.go", i))
		if i%200 == 0 {
			must(b, os.MkdirAll(filepath.Dir(at), 0o755))
		}
		must(b, os.WriteFile(at, fmt.Appendf(nil, "package p%d\n\nconst x = %d // %0*d\n", i, i, i%2000, i), 0o644))
	}
}
