// Package metrics exports the server's metrics to Prometheus: GET /metrics. The
// layers count themselves, in internal/telemetry; only this package knows
// Prometheus.
//
// Invariants: the names and labels here are what dashboards and alerts rely upon
// (docs/grafana.json, docs/alerts.yml). The values of labels come from the
// program, never from a client, so that their number is bounded. A scrape opens
// no workspace and waits for no disk.
package metrics

import (
	_ "embed"
	"net/http"

	"github.com/gin-gonic/gin"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"umbra/httpapi"
	"umbra/internal/errs"
	"umbra/internal/telemetry"
	"umbra/internal/workspace"
	"umbra/watcher"
)

//go:embed openapi.yaml
var document []byte

// Sources are where the numbers come from. All but Requests may be missing.
type Sources struct {
	Version    string
	Requests   *telemetry.Requests
	Meter      *workspace.Meter
	Workspaces func() workspace.Figures
	Watches    func() watcher.Stats
	WatchLimit func() int // watches that the system allows; 0: unknown
	Sandboxes  []*telemetry.Sandbox
	Room       func() (free, total int64, err error) // bytes of the data directory's file system
	Blobs      *telemetry.Ops                        // operations on the cluster's object store; nil: none
	Cluster    *Cluster                              // nil: the server is no node of one
}

// Cluster is what a node of a cluster counts.
type Cluster struct {
	Forward func() (answered, repeated, unknown uint64, took *telemetry.Histogram)
	Node    func() telemetry.ClusterFigures
}

// Dialect is the one route.
type Dialect struct {
	registry *prometheus.Registry
	handler  http.Handler
}

// New makes the dialect.
func New(s Sources) (*Dialect, error) {
	if s.Meter == nil {
		s.Meter = &workspace.Meter{}
	}
	d := &Dialect{registry: prometheus.NewRegistry()}
	for _, c := range []prometheus.Collector{
		collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		newCollector(s),
	} {
		if err := d.registry.Register(c); err != nil {
			return nil, err
		}
	}
	// One part that fails does not hide the others.
	d.handler = promhttp.HandlerFor(d.registry, promhttp.HandlerOpts{ErrorHandling: promhttp.ContinueOnError, MaxRequestsInFlight: 4})
	return d, nil
}

// OpenAPI gives the dialect's part of the document.
func (d *Dialect) OpenAPI() []byte { return document }

// unrooted keeps out tokens with roots: the figures are the whole server's.
func unrooted(c *gin.Context) error {
	caller := httpapi.CallerOf(c)
	if len(caller.Roots) == 0 {
		return nil
	}
	caller.Refused("rooted_token")
	return errs.New(errs.Forbidden, "forbidden", "The token is for its own directories alone; these figures are the whole server's.")
}

// Register adds the route. It needs a token where tokens are on: it names routes
// and shows the load.
func (d *Dialect) Register(r *httpapi.Router) {
	r.Handle(httpapi.Route{Method: http.MethodGet, Pattern: "/metrics", AnyQuery: true, Authorize: unrooted, About: httpapi.AboutNone, Handler: func(c *gin.Context) error {
		c.Header("Cache-Control", "no-store")
		d.handler.ServeHTTP(c.Writer, c.Request)
		return nil
	}})
}
