package workspace

import (
	"context"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"sort"
	"strconv"
	"sync"
	"testing"
	"time"

	"umbra/internal/vfs"
	"umbra/internal/workspace/reconcile"
	"umbra/internal/wspath"
)

// bareWalk lists and looks at every file below a folder, on as many goroutines
// as a scan, and does nothing with what it learns.
func bareWalk(b testing.TB, f vfs.FS) (files int) {
	var mu sync.Mutex
	wake := sync.NewCond(&mu)
	pending, busy := []wspath.Path{wspath.Root}, 0
	var wg sync.WaitGroup
	for range 2 * runtime.GOMAXPROCS(0) {
		wg.Go(func() {
			mu.Lock()
			defer mu.Unlock()
			for {
				for len(pending) == 0 && busy > 0 {
					wake.Wait()
				}
				if len(pending) == 0 {
					return
				}
				dir := pending[len(pending)-1]
				pending = pending[:len(pending)-1]
				busy++
				mu.Unlock()
				var below []wspath.Path
				n := 0
				err := vfs.ListDir(f, string(dir), func(entries []vfs.DirEntry, lstat func(string) (vfs.Info, error)) error {
					for _, e := range entries {
						if e.Type.IsDir() {
							below = append(below, dir.Join(e.Name))
							continue
						}
						if _, err := lstat(e.Name); err != nil {
							return err
						}
						n++
					}
					return nil
				})
				if err != nil {
					b.Error(err)
				}
				mu.Lock()
				pending = append(pending, below...)
				files += n
				busy--
				wake.Broadcast()
			}
		})
	}
	wg.Wait()
	return files
}

// A scan that finds nothing, beside the bare walk, in turns; and what a start
// costs with and without what the last run knew. UMBRA_FILES says how many files.
func BenchmarkUnchanged(b *testing.B) {
	n, err := strconv.Atoi(os.Getenv("UMBRA_FILES"))
	if err != nil {
		n = 10_000
	}
	dir := b.TempDir()
	ws := filepath.Join(dir, "ws")
	benchTree(b, ws, n)
	recs := &memRecords{}
	m := &opener{DataDir: filepath.Join(dir, "data"), Records: recs, Foreground: true, Log: slog.New(slog.NewTextHandler(io.Discard, nil))}
	w, err := m.Open(context.Background(), ws)
	must(b, err)
	var scans, walks []float64
	for range max(b.N, 9) {
		start := time.Now()
		if got := bareWalk(b, w.disk.FS); got != n {
			b.Fatalf("%d files", got)
		}
		walks = append(walks, time.Since(start).Seconds())
		start = time.Now()
		res, err := w.Sync(context.Background(), reconcile.SyncOptions{})
		must(b, err)
		if res.Changed != 0 {
			b.Fatal(res)
		}
		scans = append(scans, time.Since(start).Seconds())
	}
	sort.Float64s(scans)
	sort.Float64s(walks)
	b.ReportMetric(scans[len(scans)/2], "s/scan")
	b.ReportMetric(walks[len(walks)/2], "s/walk")
	b.ReportMetric(scans[len(scans)/2]/walks[len(walks)/2], "ratio")
	id := w.ID()
	w.Release()
	must(b, m.Close(context.Background()))
	for _, what := range []string{"s/warm-start", "s/cold-start"} {
		if what == "s/cold-start" {
			must(b, os.Remove(filepath.Join(dir, "data", "workspaces", id, "stat")))
		}
		start := time.Now()
		w, err := m.Open(context.Background(), ws)
		must(b, err)
		b.ReportMetric(time.Since(start).Seconds(), what)
		w.Release()
		must(b, m.Close(context.Background()))
	}
}
