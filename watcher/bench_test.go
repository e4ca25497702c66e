package watcher

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"umbra/internal/need"
)

// BenchmarkAdd watches 10,000 directories, and reports the time and memory of one.
func BenchmarkAdd(b *testing.B) {
	const folders = 10000
	root := b.TempDir()
	for i := range folders {
		need.NoError(b, os.MkdirAll(filepath.Join(root, fmt.Sprintf("packages/p%d/src/d%d", i%100, i)), 0o777))
	}
	w, err := New(Options{Log: quiet(), CookieDir: b.TempDir()})
	need.NoError(b, err)
	defer w.Close()
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	for b.Loop() {
		w.Remove("ws")
		need.NoError(b, w.Add(b.Context(), "ws", root, Space{}))
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	n := float64(w.Stats().Watches)
	b.ReportMetric(float64(after.HeapAlloc-before.HeapAlloc)/n, "B/folder")
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/n, "ns/folder")
}

// BenchmarkSync is the way of one cookie.
func BenchmarkSync(b *testing.B) {
	w, err := New(Options{Log: quiet(), CookieDir: b.TempDir()})
	need.NoError(b, err)
	defer w.Close()
	need.NoError(b, w.Add(b.Context(), "ws", b.TempDir(), Space{}))
	for b.Loop() {
		need.NoError(b, w.Sync(b.Context(), "ws"))
	}
}
