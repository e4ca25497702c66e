package tests

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"umbra/internal/need"
	"umbra/tests/harness"
)

// Writes over HTTP while somebody makes and replaces files beside them as fast
// as one process can, in turns with the bare work of one write (a file made and
// exchanged, a record appended and synced) in the same storm; and both without.
func BenchmarkWritesInAStorm(b *testing.B) {
	s := harness.Start(b, harness.Options{})
	dir := b.TempDir()
	need.NoError(b, os.WriteFile(filepath.Join(dir, "f"), []byte("0"), 0o644))
	task := s.Do("POST", "/tasks", map[string]any{"goal": "bench", "workspace": dir}).Expect(201).Text("task_id")
	put := func(i int) error {
		req, err := http.NewRequest("PUT", s.URL+"/tasks/"+task+"/content?path=f", strings.NewReader(fmt.Sprint("api ", i)))
		if err != nil {
			return err
		}
		res, err := s.Client.Do(req)
		if err == nil {
			err = res.Body.Close()
			if res.StatusCode != http.StatusOK {
				err = fmt.Errorf("status %d", res.StatusCode)
			}
		}
		return err
	}
	record, err := os.OpenFile(filepath.Join(s.DataDir, "bench"), os.O_RDWR|os.O_CREATE, 0o600)
	need.NoError(b, err)
	defer record.Close()
	bareDir := b.TempDir()
	need.NoError(b, os.WriteFile(filepath.Join(bareDir, "f"), []byte("0"), 0o644))
	bare := func(i int) error {
		temp := filepath.Join(bareDir, "temp")
		if err := os.WriteFile(temp, fmt.Append(nil, "bare ", i), 0o644); err != nil {
			return err
		}
		if err := exchange(temp, filepath.Join(bareDir, "f")); err != nil {
			return err
		}
		if err := os.Remove(temp); err != nil {
			return err
		}
		if _, err := record.WriteAt(make([]byte, 600), int64(i%1000)*600); err != nil {
			return err
		}
		return record.Sync()
	}
	measure := func(what string) {
		var api, raw []float64
		for i := range max(b.N, 200) {
			for _, m := range []struct {
				do   func(int) error
				took *[]float64
			}{{put, &api}, {bare, &raw}} {
				start := time.Now()
				need.NoError(b, m.do(i))
				*m.took = append(*m.took, time.Since(start).Seconds()*1e3)
			}
		}
		slices.Sort(api)
		slices.Sort(raw)
		b.ReportMetric(api[len(api)/2], "ms-api/"+what)
		b.ReportMetric(raw[len(raw)/2], "ms-bare/"+what)
		b.ReportMetric(api[len(api)*99/100], "ms-api-p99/"+what)
	}
	measure("calm")
	stop := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
			}
			name := filepath.Join(dir, "storm", fmt.Sprint(i%40), fmt.Sprint("file", i%4000))
			if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
				b.Error(err)
				return
			}
			if err := os.WriteFile(name, fmt.Append(nil, "storm ", i), 0o644); err != nil {
				b.Error(err)
				return
			}
		}
	})
	measure("storm")
	close(stop)
	wg.Wait()
}
