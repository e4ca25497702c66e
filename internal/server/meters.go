package server

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"umbra/config"
	"umbra/httpapi"
	"umbra/httpapi/forward"
	"umbra/httpapi/metrics"
	"umbra/httpapi/tracing"
	"umbra/internal/buildinfo"
	"umbra/internal/node"
	"umbra/internal/room"
	"umbra/internal/state"
	"umbra/internal/telemetry"
	"umbra/internal/workspace"
	"umbra/internal/workspaces"
	"umbra/watcher"
)

// meters are what the layers count with.
type meters struct {
	requests  *telemetry.Requests
	workspace *workspace.Meter
	programs  *telemetry.Sandbox
	scripts   *telemetry.Sandbox
	forward   *forward.Meter
}

// openMeters makes them, and turns traces on where the settings or the environment
// ask for them.
func openMeters(cfg config.Config, opts *httpapi.Options, log *slog.Logger, d *deps) (*meters, error) {
	m := &meters{requests: telemetry.NewRequests(), workspace: workspace.NewMeter(),
		programs: telemetry.NewSandbox("js"), scripts: telemetry.NewSandbox("luau"), forward: forward.NewMeter()}
	opts.Requests = m.requests
	if cfg.Trace.Endpoint == "" && !tracing.Wanted() {
		return m, nil
	}
	t, err := tracing.New(context.Background(), tracing.Options{Endpoint: cfg.Trace.Endpoint, Version: buildinfo.Version(), Log: log})
	if err != nil {
		return nil, fmt.Errorf("trace.endpoint: %w", err)
	}
	d.closers = append(d.closers, t.Close)
	opts.Trace, m.workspace.Trace = t.Request, t.Step
	return m, nil
}

// openMetrics makes GET /metrics of all that is counted.
func openMetrics(s *services, dir *state.Dir, n *node.Node) (*metrics.Dialect, error) {
	m := s.meters
	sources := metrics.Sources{
		Version: buildinfo.Version(), Requests: m.requests, Meter: m.workspace, Workspaces: s.workspaces.Figures,
		Sandboxes: []*telemetry.Sandbox{m.programs, m.scripts}, WatchLimit: watchLimit,
		Room: func() (free, total int64, err error) { return room.Free(dir.Path) },
	}
	if n != nil {
		sources.Blobs = n.StoreMeter()
		sources.Cluster = &metrics.Cluster{Forward: m.forward.Figures, Node: n.Figures}
	}
	if w, ok := s.watcher.(interface{ Stats() watcher.Stats }); ok {
		sources.Watches = w.Stats
	}
	return metrics.New(sources)
}

// watchLimit is how many watches the system allows one user (inotify(7)); 0:
// unknown.
func watchLimit() int { return systemNumber("/proc/sys/fs/inotify/max_user_watches") }

// systemNumber reads a file of /proc that holds a number; 0: there is none.
func systemNumber(file string) int {
	raw, err := os.ReadFile(file)
	if err != nil {
		return 0
	}
	n, err := strconv.Atoi(strings.TrimSpace(string(raw)))
	if err != nil {
		return 0
	}
	return n
}

// readiness reports whether the server can do its work: there is room, and the
// workspaces that tasks execute on can be written. It is asked by probes of any
// number and from anywhere: what was found holds for a second.
type readiness struct {
	floor      *room.Floor
	workspaces *workspaces.Manager

	mu     sync.Mutex
	at     time.Time
	err    error
	behind int // refs of which git sees older values
}

const (
	readyHolds    = time.Second
	readyPatience = 5 * time.Second // for a disk that does not answer
)

func newReadiness(cfg config.Config, dir *state.Dir, m *workspaces.Manager) *readiness {
	return &readiness{floor: room.New(dir.Path, int64(cfg.Limits.FreeBytes)), workspaces: m}
}

// ready gives nil, or why not.
func (r *readiness) ready() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if time.Since(r.at) < readyHolds {
		return r.err
	}
	if r.err = r.floor.Check(); r.err == nil {
		ctx, cancel := context.WithTimeout(context.Background(), readyPatience)
		r.err = r.workspaces.Writable(ctx)
		cancel()
	}
	r.behind = r.workspaces.Figures().RefsBehind
	r.at = time.Now()
	return r.err
}

// refsBehind counts the refs of which git sees older values, as of the last ready.
func (r *readiness) refsBehind() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.behind
}
