package scan_test

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"umbra/internal/need"
	"umbra/internal/scan"
)

// bareWalk lists folders with a few goroutines and calls lstat for every entry
// that is no folder: what any walk costs at least, by package os.
func bareWalk(root string, workers int) int64 {
	var files atomic.Int64
	var mu sync.Mutex
	wake := sync.NewCond(&mu)
	pending, busy := []string{root}, 0
	var wg sync.WaitGroup
	for range workers {
		wg.Go(func() {
			for {
				mu.Lock()
				for len(pending) == 0 && busy > 0 {
					wake.Wait()
				}
				if len(pending) == 0 {
					mu.Unlock()
					return
				}
				dir := pending[len(pending)-1]
				pending = pending[:len(pending)-1]
				busy++
				mu.Unlock()
				var sub []string
				entries, err := os.ReadDir(dir)
				if err == nil {
					for _, e := range entries {
						path := filepath.Join(dir, e.Name())
						if e.Type() == fs.ModeDir {
							sub = append(sub, path)
						} else if _, err := os.Lstat(path); err == nil {
							files.Add(1)
						}
					}
				}
				mu.Lock()
				pending = append(pending, sub...)
				busy--
				wake.Broadcast()
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	return files.Load()
}

// BenchmarkWalk compares the walk, with and without rules, with a bare one over
// 20,000 files in 1,000 folders.
func BenchmarkWalk(b *testing.B) {
	const folders, each = 1000, 20
	var entries []string
	for i := range folders {
		for k := range each {
			entries = append(entries, fmt.Sprintf("d%d/e%d/s%d/file%d.go", i%7, i%50, i, k))
		}
	}
	var rules strings.Builder
	for i := range 30 {
		fmt.Fprintf(&rules, "*.ext%d\nname%d\n/build%d/\n**/out%d/*.tmp\n", i, i, i, i)
	}
	dir, f := makeTree(b, entries...)
	need.NoError(b, os.WriteFile(filepath.Join(dir, ".gitignore"), []byte(rules.String()), 0o644))
	const files = folders*each + 1
	b.Run("bare", func(b *testing.B) {
		for b.Loop() {
			if n := bareWalk(dir, 2*runtime.GOMAXPROCS(0)); n != files {
				b.Fatal(n)
			}
		}
	})
	run := func(opts scan.Options) func(*testing.B) {
		return func(b *testing.B) {
			for b.Loop() {
				stats, err := scan.Walk(b.Context(), f, opts, func(scan.Found) error { return nil })
				if err != nil || stats.Files != files {
					b.Fatal(stats, err)
				}
			}
		}
	}
	b.Run("walk", run(scan.Options{}))
	b.Run("walk with 120 rules", run(withRules(b, f, scan.Options{})))
}
