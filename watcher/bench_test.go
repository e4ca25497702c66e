package watcher

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"testing"
)

// BenchmarkAdd watches 10,000 directories, and reports the time and memory of one.
func BenchmarkAdd(b *testing.B) {
	const folders = 10000
	root := b.TempDir()
	for i := range folders {
		if err := os.MkdirAll(filepath.Join(root, fmt.Sprintf("packages/p%d/src/d%d", i%100, i)), 0o777); err != nil {
			b.Fatal(err)
		}
	}
	w, err := New(Options{Log: quiet(), CookieDir: b.TempDir()})
	if err != nil {
		b.Fatal(err)
	}
	defer w.Close()
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	for b.Loop() {
		w.Remove("ws")
		if err := w.Add(b.Context(), "ws", root, Space{}); err != nil {
			b.Fatal(err)
		}
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
	if err != nil {
		b.Fatal(err)
	}
	defer w.Close()
	if err := w.Add(b.Context(), "ws", b.TempDir(), Space{}); err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		if err := w.Sync(b.Context(), "ws"); err != nil {
			b.Fatal(err)
		}
	}
}
