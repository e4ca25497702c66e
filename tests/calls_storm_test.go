package tests

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"umbra/internal/need"
)

// TestCallsInAStorm: the shells of one agent, while the tools of another write as fast as
// they can. Each change is that of who made it, nothing is shared, and a begin and an end
// take no longer than some writes of the API do in the same storm.
func TestCallsInAStorm(t *testing.T) {
	const dirs, calls = 40, 60
	files := map[string]string{}
	for i := range 2000 {
		files[fmt.Sprintf("d%d/f%d", i%dirs, i)] = "0\n"
	}
	p := newProject(t, files)
	k := p.task(t)
	ws := p.workspace(t)
	quantile := func(list []time.Duration, q float64) time.Duration {
		slices.Sort(list)
		return list[int(float64(len(list)-1)*q)]
	}
	type times struct{ begin, end, put []time.Duration }
	work := func(phase string) (x times) {
		for n := range calls {
			at := time.Now()
			c := p.begin(t, "shells", map[string]any{"agent": "a"})
			x.begin = append(x.begin, time.Since(at))
			name := fmt.Sprintf("a/%s%d", phase, n)
			need.NoError(t, os.MkdirAll(filepath.Join(p.dir, "a"), 0o755))
			need.NoError(t, os.WriteFile(filepath.Join(p.dir, name), []byte(name), 0o644))
			at = time.Now()
			e := p.end(t, c, nil)
			x.end = append(x.end, time.Since(at))
			// The watcher may have seen the file before it was written.
			if got := strings.TrimSuffix(e.text(), ", "+name+" modify window"); got != name+" create window" {
				t.Errorf("%s: %s", name, e.text())
			}
			at = time.Now()
			if res := p.Do("PUT", k.url("/content?path=api/"+phase), []byte(name)); res.Status != 200 && res.Status != 201 {
				t.Fatalf("PUT: %d %s", res.Status, res.Body)
			}
			x.put = append(x.put, time.Since(at))
		}
		return x
	}
	calm := work("calm")
	stop := make(chan struct{})
	var group sync.WaitGroup
	var mu sync.Mutex
	written := 0
	for w := range 2 {
		group.Go(func() {
			for n := 0; ; n++ {
				// An editing tool that writes twenty files.
				var paths []string
				for i := range 20 {
					paths = append(paths, fmt.Sprintf("d%d/f%d", (w*20+i)%dirs, (w*20+i)%dirs+dirs*(n%20)))
				}
				c := p.begin(t, fmt.Sprint("tools", w), map[string]any{"agent": "b", "only_paths": true, "paths": paths})
				for _, name := range paths {
					if err := os.WriteFile(filepath.Join(p.dir, name), fmt.Append(nil, w, n, name), 0o644); err != nil {
						t.Error(err)
					}
				}
				p.end(t, c, nil)
				mu.Lock()
				written += len(paths)
				mu.Unlock()
				select {
				case <-stop:
					return
				default:
				}
			}
		})
	}
	began := time.Now()
	storm := work("storm")
	took := time.Since(began)
	close(stop)
	group.Wait()
	for _, x := range []struct {
		name string
		t    times
	}{{"calm", calm}, {"storm", storm}} {
		begin, end, put := quantile(x.t.begin, 0.5), quantile(x.t.end, 0.5), quantile(x.t.put, 0.5)
		t.Logf("%s: begin p50 %s p95 %s, end p50 %s p95 %s, PUT p50 %s", x.name, begin, quantile(x.t.begin, 0.95), end, quantile(x.t.end, 0.95), put)
		if limit := 15 * max(put, 2*time.Millisecond); begin > limit || end > limit {
			t.Errorf("%s: a begin takes %s, an end %s, a write of the API %s", x.name, begin, end, put)
		}
	}
	t.Logf("storm: %d files written in %s", written, took)
	for _, e := range p.log(t, ws) {
		task, want := "", ""
		if e.TaskID != nil {
			task = *e.TaskID
		}
		switch {
		case e.Source == "baseline":
			continue
		case strings.HasPrefix(e.Path, "a/"):
			want = "a-"
		case strings.HasPrefix(e.Path, "d"):
			want = "b-"
		case strings.HasPrefix(e.Path, "api/"):
			want = k.ID
		}
		if want == "" || !strings.HasPrefix(task, want) || e.Source == "shared" {
			t.Errorf("%s is of task %q, source %s, want %s", e.Path, task, e.Source, want)
		}
	}
}
