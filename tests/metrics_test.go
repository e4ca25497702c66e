package tests

import (
	"bufio"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"umbra/internal/need"
	"umbra/tests/harness"
)

// scrape gives all samples of /metrics, by name and labels as they stand there.
func scrape(t *testing.T, s *harness.Server, header ...string) map[string]float64 {
	t.Helper()
	out := map[string]float64{}
	for _, s := range s.Each() {
		r := s.Do("GET", "/metrics", nil, header...).Expect(200)
		if got := r.Header.Get("Content-Type"); !strings.HasPrefix(got, "text/plain") {
			t.Errorf("Content-Type is %s", got)
		}
		for lines := bufio.NewScanner(strings.NewReader(string(r.Body))); lines.Scan(); {
			line := lines.Text()
			if line == "" || line[0] == '#' {
				continue
			}
			cut := strings.LastIndexByte(line, ' ')
			v, err := strconv.ParseFloat(line[cut+1:], 64)
			if err != nil {
				t.Fatalf("%q: %v", line, err)
			}
			out[line[:cut]] += v
		}
	}
	return out
}

// What the server does is counted, under names that no client can make more of.
func TestMetrics(t *testing.T) {
	p := newProject(t, map[string]string{"a": "1\n"})
	before := scrape(t, p.Server)
	k := p.task(t)
	for _, name := range []string{"x", "y", "z"} {
		k.put(t, name, name).want(t, 201)
	}
	k.sync(t)
	p.post(t, "/execute", map[string]any{"code": "console.log(1)"}).want(t, 200)
	p.post(t, "/scripts/execute", map[string]any{"script": "error('no')"}).want(t, 422)
	for range 3 {
		p.call(t, "GET", "/no/such/route/"+k.ID, nil).want(t, 404)
	}
	p.Do("GET", "/tasks/"+k.ID, nil, "Host: elsewhere.example").Expect(403)
	got := scrape(t, p.Server)
	grown := func(name string, least float64) {
		t.Helper()
		if got[name]-before[name] < least {
			t.Errorf("%s grew from %v to %v, want %v more", name, before[name], got[name], least)
		}
	}
	grown(`umbra_http_requests_total{code="201",method="PUT",route="/tasks/{id}/content"}`, 3)
	grown(`umbra_http_requests_total{code="404",method="other",route="other"}`, 3)
	grown(`umbra_http_request_duration_seconds_count{method="PUT",route="/tasks/{id}/content"}`, 3)
	grown(`umbra_http_request_duration_seconds_bucket{method="PUT",route="/tasks/{id}/content",le="+Inf"}`, 3)
	grown("umbra_http_denied_total", 1)
	grown("umbra_commits_total", 4)
	grown("umbra_commit_group_size_count", 4)
	grown("umbra_commit_sync_seconds_count", 4)
	grown("umbra_materialise_seconds_count", 3)
	grown("umbra_publish_seconds_count", 1)
	grown("umbra_journal_written_bytes_total", 500)
	grown("umbra_scan_seconds_count", 1)
	grown("umbra_watches", 1)
	grown("umbra_pack_bytes", 100)
	grown("umbra_workspaces_open", 1)
	grown(`umbra_sandbox_runs_total{engine="js",outcome="done"}`, 1)
	grown(`umbra_sandbox_runs_total{engine="luau",outcome="failed"}`, 1)
	for name, want := range map[string]float64{"umbra_ref_lag_commits": 0, "umbra_disk_lag_commits": 0, "umbra_workspaces_missing": 0, "umbra_http_requests_running": float64(max(1, harness.Nodes()))} {
		if got[name] != want {
			t.Errorf("%s is %v, want %v", name, got[name], want)
		}
	}
	for _, name := range []string{"umbra_scan_age_seconds", "umbra_journal_bytes", "umbra_checkpoint_lag_commits", "umbra_ref_lag_seconds", "umbra_data_free_bytes", "umbra_data_size_bytes", "go_goroutines", "process_resident_memory_bytes", "process_open_fds"} {
		if _, ok := got[name]; !ok {
			t.Errorf("%s is missing", name)
		}
	}
	for name := range got {
		if strings.Contains(name, k.ID) || strings.Contains(name, p.dir) {
			t.Errorf("a client's own words are a label: %s", name)
		}
	}
}

func TestMetricsNeedAToken(t *testing.T) {
	s := harness.Start(t, harness.Options{})
	secret := mustToken(t, s.DataDir, "add", "prometheus", "--scope", "read")
	s.AwaitToken(secret, true)
	s.Do("GET", "/metrics", nil).Expect(401)
	if got := scrape(t, s, "Authorization: Bearer "+secret); got[`umbra_http_requests_total{code="401",method="GET",route="/metrics"}`] != 1 {
		t.Error("the refused one is not counted")
	}
	// The figures are the whole server's, and no business of who sees a part of it.
	rooted := mustToken(t, s.DataDir, "add", "rooted", "--scope", "write", "--root", t.TempDir())
	s.AwaitToken(rooted, true)
	s.Do("GET", "/metrics", nil, "Authorization: Bearer "+rooted).ExpectError(403, "forbidden")
	if h := s.Do("GET", "/health", nil, "Authorization: Bearer "+rooted).Expect(200); h.Field("memoryUsage") != nil || h.Field("activeProcesses") != nil {
		t.Errorf("%s", h.Body)
	}
	s.Do("GET", "/healthz", nil).Expect(200)
	s.Do("GET", "/readyz", nil).Expect(200)
}

// A task whose folder cannot be written makes the server unready, as long as it
// executes.
func TestReadyz(t *testing.T) {
	p := newProject(t, nil)
	k := p.task(t)
	p.Do("GET", "/readyz", nil).Expect(200)
	away := p.dir + "-away"
	need.NoError(t, os.Rename(p.dir, away))
	ready := func(want int) {
		t.Helper()
		deadline := time.Now().Add(within)
		for {
			r := p.Do("GET", "/readyz", nil)
			if r.Status == want {
				if want == 503 && !strings.Contains(string(r.Body), "workspace_not_writable") {
					t.Errorf("readyz says %q", r.Body)
				}
				return
			}
			if time.Now().After(deadline) {
				t.Fatalf("readyz is %d, want %d: %s", r.Status, want, r.Body)
			}
		}
	}
	ready(503)
	if got := scrape(t, p.Server)["umbra_workspaces_missing"]; got != 1 {
		t.Errorf("umbra_workspaces_missing is %v", got)
	}
	need.NoError(t, os.Rename(away, p.dir))
	ready(200)
	if os.Geteuid() != 0 {
		need.NoError(t, os.Chmod(p.dir, 0o555))
		ready(503)
		p.call(t, "PATCH", "/tasks/"+k.ID, map[string]any{"status": "paused"}).want(t, 200)
		ready(200)
		need.NoError(t, os.Chmod(p.dir, 0o755))
	}
}

func TestReadyzBelowTheFloor(t *testing.T) {
	var st syscall.Statfs_t
	dir := t.TempDir()
	need.NoError(t, syscall.Statfs(dir, &st))
	floor := st.Blocks * uint64(st.Bsize) // the whole disk
	s := harness.Start(t, harness.Options{DataDir: filepath.Join(dir, "data"), Config: "limits: {free_bytes: " + strconv.FormatUint(floor, 10) + "}\n"})
	if r := s.Do("GET", "/readyz", nil); r.Status != 503 || !strings.Contains(string(r.Body), "insufficient_storage") {
		t.Errorf("%d %s", r.Status, r.Body)
	}
	s.Do("GET", "/healthz", nil).Expect(200)
}
