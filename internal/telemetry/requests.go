package telemetry

import (
	"net/http"
	"sync/atomic"
	"time"
)

// Requests counts an HTTP server's requests by route and status. Routes are added
// before the first request; all else may be called from any goroutine.
type Requests struct {
	// Connections and event streams that are open, and connections that were
	// refused since too many were.
	Connections, Streams Gauge
	RefusedConnections   Counter

	running Gauge
	denied  Counter
	routes  []*Route
	others  *Route // what no route took
}

// Route counts the requests of one route.
type Route struct {
	Method, Pattern string
	Took            *Histogram
	statuses        [6]atomic.Pointer[hundred] // nil: no such status yet
}

// hundred counts the statuses that begin with one digit: there are more than a
// hundred routes, and most answer with a few statuses.
type hundred [100]atomic.Uint64

// NewRequests makes it, with the route of what no route took: its method and
// pattern are "other", so that strangers make no new names.
func NewRequests() *Requests {
	r := &Requests{}
	r.others = r.Route("other", "other")
	return r
}

// Begin and End are around a request.
func (r *Requests) Begin() {
	if r != nil {
		r.running.Add(1)
	}
}

// End is Begin's.
func (r *Requests) End() {
	if r != nil {
		r.running.Add(-1)
	}
}

// Refused counts a caller that was refused.
func (r *Requests) Refused() {
	if r != nil {
		r.denied.Add(1)
	}
}

// Running gives how many requests are being answered.
func (r *Requests) Running() int64 { return r.running.Load() }

// Denied gives how many callers were refused.
func (r *Requests) Denied() uint64 { return r.denied.Load() }

// Route adds a route.
func (r *Requests) Route(method, pattern string) *Route {
	if r == nil {
		return nil
	}
	route := &Route{Method: method, Pattern: pattern,
		Took: NewTimes(.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30)}
	r.routes = append(r.routes, route)
	return route
}

// Other gives the route of what no route took.
func (r *Requests) Other() *Route {
	if r == nil {
		return nil
	}
	return r.others
}

// Routes gives all routes.
func (r *Requests) Routes() []*Route { return r.routes }

// Answered counts a request. A stream's time is how long the client listened: it is
// not counted.
func (r *Route) Answered(status int, began time.Time, stream bool) {
	if r == nil {
		return
	}
	if status < 0 || status/100 >= len(r.statuses) {
		status = http.StatusInternalServerError
	}
	p := &r.statuses[status/100]
	if p.Load() == nil {
		p.CompareAndSwap(nil, new(hundred))
	}
	p.Load()[status%100].Add(1)
	if !stream {
		r.Took.Since(began)
	}
}

// Statuses gives how often each status was answered that ever was.
func (r *Route) Statuses(each func(status int, n uint64)) {
	for i := range r.statuses {
		h := r.statuses[i].Load()
		if h == nil {
			continue
		}
		for k := range h {
			if n := h[k].Load(); n > 0 {
				each(100*i+k, n)
			}
		}
	}
}
