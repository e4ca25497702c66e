package metrics

import (
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"umbra/gitstore"
	"umbra/internal/telemetry"
	"umbra/internal/workspace"
	"umbra/watcher"
)

// metric is one name, with how its values are read.
type metric struct {
	desc *prometheus.Desc
	read func(v *view, to emit)
}

// emit sends a value with its labels' values.
type emit struct {
	desc *prometheus.Desc
	ch   chan<- prometheus.Metric
}

func (e emit) counter(v float64, labels ...string) { e.send(prometheus.CounterValue, v, labels) }
func (e emit) gauge(v float64, labels ...string)   { e.send(prometheus.GaugeValue, v, labels) }

func (e emit) send(kind prometheus.ValueType, v float64, labels []string) {
	m, err := prometheus.NewConstMetric(e.desc, kind, v, labels...)
	e.pass(m, err)
}

// histogram sends one whose values are divided by unit.
func (e emit) histogram(h *telemetry.Histogram, unit float64, labels ...string) {
	c := h.Load()
	buckets := make(map[float64]uint64, len(c.Bounds))
	for i, b := range c.Bounds {
		buckets[float64(b)/unit] = c.Upto[i]
	}
	m, err := prometheus.NewConstHistogram(e.desc, c.Count, float64(c.Sum)/unit, buckets, labels...)
	e.pass(m, err)
}

func (e emit) pass(m prometheus.Metric, err error) {
	if err != nil {
		m = prometheus.NewInvalidMetric(e.desc, err)
	}
	e.ch <- m
}

// Units of histograms.
const (
	pieces  = 1
	seconds = float64(time.Second)
)

// view is what is read once for a scrape.
type view struct {
	Sources
	store *gitstore.Meter
	works workspace.Figures
	watch watcher.Stats
}

// collector collects the server's own metrics.
type collector struct {
	sources Sources
	metrics []metric
}

func newCollector(s Sources) *collector {
	c := &collector{sources: s}
	c.add("build_info", "The program's version; always 1.", func(v *view, to emit) { to.gauge(1, v.Version) }, "version")
	c.addRequests()
	c.addHistory()
	c.addFolders()
	c.addSandboxes()
	c.addBlobs()
	if s.Cluster != nil {
		c.addCluster()
	}
	return c
}

func (c *collector) add(name, help string, read func(v *view, to emit), labels ...string) {
	c.metrics = append(c.metrics, metric{prometheus.NewDesc("umbra_"+name, help, labels, nil), read})
}

// addRequests adds what the frame counts.
func (c *collector) addRequests() {
	c.add("http_requests_total", "Requests that were answered, by route and status; route is \"other\" where no route took them.", func(v *view, to emit) {
		for _, r := range v.Requests.Routes() {
			r.Statuses(func(status int, n uint64) { to.counter(float64(n), r.Method, r.Pattern, strconv.Itoa(status)) })
		}
	}, "method", "route", "code")
	c.add("http_request_duration_seconds", "How long requests took, streams left out.", func(v *view, to emit) {
		for _, r := range v.Requests.Routes() {
			if r.Took.Load().Count > 0 {
				to.histogram(r.Took, seconds, r.Method, r.Pattern)
			}
		}
	}, "method", "route")
	c.add("http_requests_running", "Requests that are being answered, streams among them.", func(v *view, to emit) { to.gauge(float64(v.Requests.Running())) })
	c.add("http_connections", "Connections that are open.", func(v *view, to emit) { to.gauge(float64(v.Requests.Connections.Load())) })
	c.add("http_connections_refused_total", "Connections that were refused because limits.connections were open.", func(v *view, to emit) { to.counter(float64(v.Requests.RefusedConnections.Load())) })
	c.add("http_streams", "Event streams that are open.", func(v *view, to emit) { to.gauge(float64(v.Requests.Streams.Load())) })
	c.add("http_denied_total", "Calls that were refused for who called; each is a line of the log with audit=true.", func(v *view, to emit) { to.counter(float64(v.Requests.Denied())) })
}

// addHistory adds what the engine and the workspaces count.
func (c *collector) addHistory() {
	c.add("commits_total", "Commits made durable.", func(v *view, to emit) { to.counter(float64(v.store.Commits.Load())) })
	c.add("journal_written_bytes_total", "Bytes appended to journals.", func(v *view, to emit) { to.counter(float64(v.store.Bytes.Load())) })
	c.add("commit_group_size", "Writers that one write and one fdatasync made durable together.", func(v *view, to emit) { to.histogram(v.store.Groups, pieces) })
	c.add("commit_sync_seconds", "How long the write and fdatasync of a group took.", func(v *view, to emit) { to.histogram(v.store.Sync, seconds) })
	c.add("publish_seconds", "How long it took to let stock git see what was durable.", func(v *view, to emit) { to.histogram(v.store.Publish, seconds) })
	c.add("materialise_seconds", "How long it took to put a commit onto the disk.", func(v *view, to emit) { to.histogram(v.Meter.Materialise, seconds) })
	c.add("scan_seconds", "How long it took to look at a whole directory.", func(v *view, to emit) { to.histogram(v.Meter.Scan, seconds) })

	lag := func(name, help string, get func(f *workspace.Figures) float64) {
		c.add(name, help, func(v *view, to emit) { to.gauge(get(&v.works)) })
	}
	lag("ref_lag_commits", "Durable commits that stock git does not see yet, of the workspace with the most.", func(f *workspace.Figures) float64 { return float64(f.RefLag) })
	lag("ref_lag_seconds", "How long the oldest durable commit has waited to be seen by stock git.", func(f *workspace.Figures) float64 { return f.Unseen.Seconds() })
	lag("disk_lag_commits", "Durable commits that are not on disk yet, of the workspace with the most.", func(f *workspace.Figures) float64 { return float64(f.DiskLag) })
	lag("checkpoint_lag_commits", "Commits after the last checkpoint, of the workspace with the most: what a start after a power failure checks.", func(f *workspace.Figures) float64 { return float64(f.CheckpointLag) })
	lag("scan_age_seconds", "Time since the last scan of a whole directory, of the open workspace with the oldest.", func(f *workspace.Figures) float64 { return f.OldestScan.Seconds() })
	lag("journal_bytes", "Bytes of the journals of the open workspaces.", func(f *workspace.Figures) float64 { return float64(f.JournalBytes) })
	lag("pack_bytes", "Bytes of the packs of the open workspaces.", func(f *workspace.Figures) float64 { return float64(f.PackBytes) })
	lag("cache_bytes", "Bytes kept in memory of histories, of limits.cache_bytes.", func(f *workspace.Figures) float64 { return float64(f.CacheBytes) })
	lag("workspaces_known", "Workspaces that the server knows.", func(f *workspace.Figures) float64 { return float64(f.Known) })
	lag("workspaces_open", "Workspaces that are open.", func(f *workspace.Figures) float64 { return float64(f.Open) })
	lag("workspaces_missing", "Open workspaces whose directory is gone.", func(f *workspace.Figures) float64 { return float64(f.Missing) })
	lag("workspaces_reconciling", "Open workspaces whose directory is being compared with history, or that wait for room.", func(f *workspace.Figures) float64 { return float64(f.Reconciling) })
	c.add("data_free_bytes", "Free room on the data directory's file system.", func(v *view, to emit) {
		if free, _, ok := v.room(); ok {
			to.gauge(float64(free))
		}
	})
	c.add("data_size_bytes", "Size of the data directory's file system.", func(v *view, to emit) {
		if _, size, ok := v.room(); ok {
			to.gauge(float64(size))
		}
	})
}

func (v *view) room() (free, size int64, ok bool) {
	if v.Room == nil {
		return 0, 0, false
	}
	free, size, err := v.Room()
	return free, size, err == nil
}

// addFolders adds what the watcher counts.
func (c *collector) addFolders() {
	gauge := func(name, help string, get func(s *watcher.Stats) int) {
		c.add(name, help, func(v *view, to emit) { to.gauge(float64(get(&v.watch))) })
	}
	counter := func(name, help string, get func(s *watcher.Stats) int64) {
		c.add(name, help, func(v *view, to emit) { to.counter(float64(get(&v.watch))) })
	}
	gauge("watches", "Directories that are watched: inotify watches in use.", func(s *watcher.Stats) int { return s.Watches })
	c.add("watches_limit", "Watches that the system allows one user, where it reports them.", func(v *view, to emit) {
		if v.WatchLimit != nil {
			if n := v.WatchLimit(); n > 0 {
				to.gauge(float64(n))
			}
		}
	})
	gauge("watched_workspaces", "Workspaces that are watched, or should be.", func(s *watcher.Stats) int { return s.Workspaces })
	gauge("scanned_workspaces", "Of them those whose watching cannot be relied on: they are scanned every minute.", func(s *watcher.Stats) int { return s.Scanning })
	counter("watch_events_total", "Events taken from the system.", func(s *watcher.Stats) int64 { return s.Events })
	counter("watch_overflows_total", "Times that the system's queue of events overflowed.", func(s *watcher.Stats) int64 { return s.Overflows })
	counter("watch_lost_total", "Times that a workspace had to be scanned because events were lost.", func(s *watcher.Stats) int64 { return s.Lost })
}

// addSandboxes adds what the engines count.
func (c *collector) addSandboxes() {
	each := func(name, help string, read func(s *telemetry.Sandbox, to emit), labels ...string) {
		c.add(name, help, func(v *view, to emit) {
			for _, s := range v.Sandboxes {
				read(s, to)
			}
		}, append([]string{"engine"}, labels...)...)
	}
	each("sandbox_running", "Programs or scripts that run, or wait to.", func(s *telemetry.Sandbox, to emit) {
		running, _, _, _ := s.Load()
		to.gauge(float64(running), s.Engine)
	})
	each("sandbox_runs_total", "Runs that ended: done, failed (the program's own doing), refused (not run, or stopped).", func(s *telemetry.Sandbox, to emit) {
		_, done, failed, refused := s.Load()
		to.counter(float64(done), s.Engine, "done")
		to.counter(float64(failed), s.Engine, "failed")
		to.counter(float64(refused), s.Engine, "refused")
	}, "outcome")
	each("sandbox_run_seconds", "How long runs took that ended by themselves or at their limits.", func(s *telemetry.Sandbox, to emit) { to.histogram(s.Took, seconds, s.Engine) })
}

// addBlobs adds what the object store's users count.
func (c *collector) addBlobs() {
	c.add("blob_seconds", "How long operations on the object store took, retries included.", func(v *view, to emit) {
		v.Blobs.Load(func(op string, took *telemetry.Histogram, _ uint64) { to.histogram(took, seconds, op) })
	}, "op")
	c.add("blob_errors_total", "Operations on the object store that failed after their retries; a missing object is no failure.", func(v *view, to emit) {
		v.Blobs.Load(func(op string, _ *telemetry.Histogram, failed uint64) { to.counter(float64(failed), op) })
	}, "op")
}

// addCluster adds what a node of a cluster counts.
func (c *collector) addCluster() {
	c.add("cluster_forwarded_total", "Requests that were sent to the owner of their workspace: answered, repeated (sent again, or refused by one that was not the owner), unknown (writes whose answer did not come).", func(v *view, to emit) {
		answered, repeated, unknown, _ := v.Cluster.Forward()
		to.counter(float64(answered), "answered")
		to.counter(float64(repeated), "repeated")
		to.counter(float64(unknown), "unknown")
	}, "outcome")
	c.add("cluster_forward_seconds", "How long the answer of another node took to begin.", func(v *view, to emit) {
		_, _, _, took := v.Cluster.Forward()
		to.histogram(took, seconds)
	})
	gauge := func(name, help string, get func(f *telemetry.ClusterFigures) float64) {
		c.add("cluster_"+name, help, func(v *view, to emit) {
			f := v.Cluster.Node()
			to.gauge(get(&f))
		})
	}
	gauge("owned_workspaces", "Workspaces that this node has claimed, forks apart.", func(f *telemetry.ClusterFigures) float64 { return float64(f.Owned) })
	gauge("lease_seconds", "What is left of this node's lease; below zero without one.", func(f *telemetry.ClusterFigures) float64 { return f.Lease.Seconds() })
	gauge("sync_standbys", "Standbys that PostgreSQL has, as far as its role may see.", func(f *telemetry.ClusterFigures) float64 { return float64(f.Standbys) })
	gauge("nodes", "Live nodes, this one among them.", func(f *telemetry.ClusterFigures) float64 { return float64(f.Nodes) })
	gauge("unsealed_bytes", "Bytes of the logs of this node's workspaces that are in no pack yet.", func(f *telemetry.ClusterFigures) float64 { return float64(f.Unsealed) })
	gauge("unsealed_oldest_seconds", "For how long some of them have been there.", func(f *telemetry.ClusterFigures) float64 { return f.OldestUnsealed.Seconds() })
	gauge("garbage_objects", "Objects that wait for the sweeper.", func(f *telemetry.ClusterFigures) float64 { return float64(f.Garbage) })
	gauge("cache_bytes", "Bytes of the cluster's workspaces on this node's disk, of cluster.cache_bytes, as they were counted last.", func(f *telemetry.ClusterFigures) float64 { return float64(f.Cached) })
	gauge("follower_lag_seconds", "Age, at its last request, of the oldest state by which this node answers for workspaces of others.", func(f *telemetry.ClusterFigures) float64 { return f.FollowerLag.Seconds() })
	gauge("shared", "1 while another database sweeps the object store: nothing is deleted from it.", func(f *telemetry.ClusterFigures) float64 {
		if f.Shared {
			return 1
		}
		return 0
	})
	took := func(name, help string, get func(f *telemetry.ClusterFigures) *telemetry.Histogram) {
		c.add("cluster_"+name, help, func(v *view, to emit) {
			f := v.Cluster.Node()
			if h := get(&f); h != nil {
				to.histogram(h, seconds)
			}
		})
	}
	took("append_seconds", "How long groups of commits took until they were durable.", func(f *telemetry.ClusterFigures) *telemetry.Histogram { return f.Append })
	took("seal_seconds", "How long changes of a workspace's manifest took.", func(f *telemetry.ClusterFigures) *telemetry.Histogram { return f.Seal })
	took("open_seconds", "How long workspaces took from the claim to their first request.", func(f *telemetry.ClusterFigures) *telemetry.Histogram { return f.Open })
	c.add("cluster_unknown_total", "Groups of commits that were not confirmed in time.", func(v *view, to emit) {
		to.counter(float64(v.Cluster.Node().Unknown))
	})
	c.add("cluster_fenced_total", "Appends and seals of this node after another had its workspace.", func(v *view, to emit) {
		to.counter(float64(v.Cluster.Node().Fenced))
	})
	c.add("cluster_claims_total", "Workspaces that this node claimed: resting (no node owned it), own (this one did), dead (its owner was).", func(v *view, to emit) {
		if each := v.Cluster.Node().Claims; each != nil {
			each(func(reason string, n uint64) { to.counter(float64(n), reason) })
		}
	}, "reason")
	c.add("cluster_engine_up", "1 while PostgreSQL takes writes; else 0, with the reason.", func(v *view, to emit) {
		f := v.Cluster.Node()
		up := 0.0
		if f.Reason == "" {
			up = 1
		}
		to.gauge(up, f.Reason)
	}, "reason")
}

// Describe implements prometheus.Collector.
func (c *collector) Describe(ch chan<- *prometheus.Desc) {
	for _, m := range c.metrics {
		ch <- m.desc
	}
}

// Collect implements prometheus.Collector.
func (c *collector) Collect(ch chan<- prometheus.Metric) {
	v := &view{Sources: c.sources, store: c.sources.Meter.Store}
	if v.store == nil {
		v.store = &gitstore.Meter{}
	}
	if v.Workspaces != nil {
		v.works = v.Workspaces()
	}
	if v.Watches != nil {
		v.watch = v.Watches()
	}
	for _, m := range c.metrics {
		m.read(v, emit{m.desc, ch})
	}
}
