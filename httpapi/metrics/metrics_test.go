package metrics

import (
	"encoding/json"
	"errors"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	dto "github.com/prometheus/client_model/go"
	"go.yaml.in/yaml/v3"

	"umbra/internal/need"
	"umbra/internal/telemetry"
	"umbra/internal/workspace"
	"umbra/watcher"
)

// full is a dialect all of whose sources have values.
func full(t *testing.T) *Dialect {
	t.Helper()
	s := Sources{Version: "v1", Requests: telemetry.NewRequests(), Meter: workspace.NewMeter(), Sandboxes: []*telemetry.Sandbox{telemetry.NewSandbox("js")},
		Workspaces: func() workspace.Figures {
			return workspace.Figures{Known: 3, Open: 2, RefLag: 4, Unseen: time.Second, OldestScan: time.Minute, PackBytes: 5}
		},
		Watches: func() watcher.Stats { return watcher.Stats{Watches: 7} }, WatchLimit: func() int { return 8 },
		Room:  func() (int64, int64, error) { return 9, 10, nil },
		Blobs: telemetry.NewOps(telemetry.NewTimes(.1, 1), "put", "get"),
		Cluster: &Cluster{
			Forward: func() (uint64, uint64, uint64, *telemetry.Histogram) {
				return 1, 2, 3, telemetry.NewTimes(.001)
			},
			Node: func() telemetry.ClusterFigures {
				return telemetry.ClusterFigures{Owned: 11, Lease: 2 * time.Second, Standbys: 1, Nodes: 3, Reason: "standby",
					Append: telemetry.NewTimes(.1), Seal: telemetry.NewTimes(.1), Open: telemetry.NewTimes(.1), Unknown: 1, Fenced: 2,
					Claims: func(each func(string, uint64)) { each("dead", 4) }, Unsealed: 5, OldestUnsealed: time.Second, Garbage: 6, Shared: true}
			}}}
	s.Blobs.Done("get", 200*time.Millisecond, true)
	s.Requests.Route("GET", "/tasks/{id}").Answered(200, time.Now().Add(-20*time.Millisecond), false)
	s.Meter.Store.Commits.Add(2)
	s.Meter.Store.Groups.Observe(2)
	s.Meter.Materialise.Observe(int64(3 * time.Millisecond))
	s.Sandboxes[0].Begin()
	s.Sandboxes[0].End(time.Second, true, nil)
	d, err := New(s)
	need.NoError(t, err)
	return d
}

func families(t *testing.T, d *Dialect) map[string]*dto.MetricFamily {
	t.Helper()
	list, err := d.registry.Gather()
	need.NoError(t, err)
	out := map[string]*dto.MetricFamily{}
	for _, f := range list {
		out[f.GetName()] = f
	}
	return out
}

func TestWhatIsTold(t *testing.T) {
	all := families(t, full(t))
	gauges := map[string]float64{"umbra_workspaces_known": 3, "umbra_workspaces_open": 2, "umbra_ref_lag_commits": 4, "umbra_ref_lag_seconds": 1, "umbra_scan_age_seconds": 60, "umbra_cluster_owned_workspaces": 11, "umbra_cluster_lease_seconds": 2, "umbra_cluster_engine_up": 0,
		"umbra_pack_bytes": 5, "umbra_watches": 7, "umbra_watches_limit": 8, "umbra_data_free_bytes": 9, "umbra_data_size_bytes": 10, "umbra_build_info": 1}
	for name, want := range gauges {
		f := all[name]
		if f == nil || len(f.Metric) != 1 || f.Metric[0].GetGauge().GetValue() != want {
			t.Errorf("%s is %v, want %v", name, f, want)
		}
	}
	if f := all["umbra_commits_total"]; f.Metric[0].GetCounter().GetValue() != 2 {
		t.Error(f)
	}
	h := all["umbra_materialise_seconds"].Metric[0].GetHistogram()
	if h.GetSampleCount() != 1 || h.GetSampleSum() != .003 {
		t.Error(h)
	}
	for _, b := range h.Bucket {
		if want := uint64(0); b.GetUpperBound() >= .003 {
			if want = 1; b.GetCumulativeCount() != want {
				t.Error(b)
			}
		} else if b.GetCumulativeCount() != want {
			t.Error(b)
		}
	}
	runs := map[string]float64{}
	for _, m := range all["umbra_sandbox_runs_total"].Metric {
		runs[m.Label[0].GetValue()+m.Label[1].GetValue()] = m.GetCounter().GetValue()
	}
	for _, m := range all["umbra_blob_errors_total"].Metric {
		want := 0.0
		if m.Label[0].GetValue() == "get" {
			want = 1
		}
		if m.GetCounter().GetValue() != want {
			t.Error(m)
		}
	}
	if n := len(all["umbra_blob_seconds"].Metric); n != 2 {
		t.Errorf("times of %d operations", n)
	}
	if runs["jsfailed"] != 1 || runs["jsdone"] != 0 || len(runs) != 3 {
		t.Error(runs)
	}
}

// The names keep Prometheus' own rules.
func TestNames(t *testing.T) {
	list, err := full(t).registry.Gather()
	need.NoError(t, err)
	problems, err := promlint.NewWithMetricFamilies(list).Lint()
	need.NoError(t, err)
	for _, p := range problems {
		if strings.HasPrefix(p.Metric, "umbra_") {
			t.Errorf("%s: %s", p.Metric, p.Text)
		}
	}
}

// A missing source has no metrics, and hides none.
func TestMissingSources(t *testing.T) {
	d, err := New(Sources{Requests: telemetry.NewRequests(), Room: func() (int64, int64, error) { return 0, 0, errors.New("no") }})
	need.NoError(t, err)
	all := families(t, d)
	if all["umbra_data_free_bytes"] != nil || all["umbra_commits_total"] == nil || all["go_goroutines"] == nil {
		t.Error("a metric without a source is exported, or one is hidden")
	}
}

var named = regexp.MustCompile(`\b(?:umbra|go|process)_[a-z0-9_]+\b`)

// known fails for names in an expression that the server does not export.
func known(t *testing.T, all map[string]*dto.MetricFamily, where, expr string) (found int) {
	t.Helper()
	for _, name := range named.FindAllString(expr, -1) {
		found++
		family := all[name]
		if family == nil {
			for _, part := range []string{"_bucket", "_sum", "_count"} {
				if base, ok := strings.CutSuffix(name, part); ok && all[base] != nil && all[base].GetType() == dto.MetricType_HISTOGRAM {
					family = all[base]
				}
			}
		}
		if family == nil {
			t.Errorf("%s: the server does not export %s", where, name)
		}
	}
	return found
}

// The dashboard names only what there is, and everything that there is.
func TestDashboard(t *testing.T) {
	raw, err := os.ReadFile("../../docs/grafana.json")
	need.NoError(t, err)
	var board struct {
		Panels []struct {
			ID      int
			Title   string
			Targets []struct{ Expr string }
		}
	}
	need.NoError(t, json.Unmarshal(raw, &board))
	all, ids := families(t, full(t)), map[int]bool{}
	found := 0
	for _, p := range board.Panels {
		if ids[p.ID] {
			t.Errorf("panel %d occurs twice", p.ID)
		}
		ids[p.ID] = true
		for _, target := range p.Targets {
			found += known(t, all, "panel "+p.Title, target.Expr)
		}
	}
	if found < 30 {
		t.Errorf("only %d metrics are shown", found)
	}
	for name := range all {
		if strings.HasPrefix(name, "umbra_") && !strings.Contains(string(raw), name) {
			t.Errorf("%s is on no panel", name)
		}
	}
}

// The alerts name only what there is, and OPERATIONS says what to do at each.
func TestAlerts(t *testing.T) {
	raw, err := os.ReadFile("../../docs/alerts.yml")
	need.NoError(t, err)
	manual, err := os.ReadFile("../../docs/OPERATIONS.md")
	need.NoError(t, err)
	var rules struct {
		Groups []struct {
			Rules []struct {
				Alert, Expr, For string
				Annotations      struct{ Summary string }
			}
		}
	}
	need.NoError(t, yaml.Unmarshal(raw, &rules))
	all, n := families(t, full(t)), 0
	for _, g := range rules.Groups {
		for _, r := range g.Rules {
			n++
			known(t, all, r.Alert, r.Expr)
			if _, err := time.ParseDuration(r.For); r.For != "" && err != nil {
				t.Errorf("%s: %v", r.Alert, err)
			}
			if r.Alert == "" || r.Annotations.Summary == "" || !strings.Contains(string(manual), "`"+r.Alert+"`") {
				t.Errorf("%s: OPERATIONS.md does not say what to do", r.Alert)
			}
		}
	}
	if n < 10 {
		t.Errorf("only %d alerts", n)
	}
}
