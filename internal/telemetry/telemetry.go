// Package telemetry has the numbers that every layer counts: counters, and
// histograms with fixed bounds. It knows nothing of their readers. Package
// httpapi/metrics serves them.
//
// Invariants: to count is a few atomic additions, without a lock and without
// memory. A nil meter counts nothing, so that no layer has to ask whether there
// is one. Nothing here is ever reset.
package telemetry

import (
	"sync/atomic"
	"time"
)

// Counter only grows.
type Counter struct{ n atomic.Uint64 }

// Add counts n more.
func (c *Counter) Add(n uint64) {
	if c != nil {
		c.n.Add(n)
	}
}

// Load gives the count.
func (c *Counter) Load() uint64 {
	if c == nil {
		return 0
	}
	return c.n.Load()
}

// Gauge goes up and down.
type Gauge struct{ n atomic.Int64 }

// Add changes it by n and returns what it is then.
func (g *Gauge) Add(n int64) int64 {
	if g == nil {
		return 0
	}
	return g.n.Add(n)
}

// Load gives its value.
func (g *Gauge) Load() int64 {
	if g == nil {
		return 0
	}
	return g.n.Load()
}

// Histogram counts values by their size. Durations are nanoseconds.
type Histogram struct {
	bounds []int64 // upper, inclusive, growing
	counts []atomic.Uint64
	sum    atomic.Int64
}

// NewHistogram makes one with upper bounds, which grow.
func NewHistogram(bounds ...int64) *Histogram {
	return &Histogram{bounds: bounds, counts: make([]atomic.Uint64, len(bounds)+1)}
}

// NewTimes makes one for durations, with bounds in seconds.
func NewTimes(seconds ...float64) *Histogram {
	bounds := make([]int64, len(seconds))
	for i, s := range seconds {
		bounds[i] = int64(s * float64(time.Second))
	}
	return NewHistogram(bounds...)
}

// Observe counts a value.
func (h *Histogram) Observe(v int64) {
	if h == nil {
		return
	}
	i := 0
	for i < len(h.bounds) && v > h.bounds[i] {
		i++
	}
	h.counts[i].Add(1)
	h.sum.Add(v)
}

// Since counts the time since began.
func (h *Histogram) Since(began time.Time) {
	if h != nil {
		h.Observe(int64(time.Since(began)))
	}
}

// Counted is what a histogram has counted: how many values there were, their
// sum, and how many were not above each bound.
type Counted struct {
	Count  uint64
	Sum    int64
	Bounds []int64
	Upto   []uint64
}

// Load returns what was counted. Concurrently with Observe the sum may be ahead of
// the count by the value that is being added.
func (h *Histogram) Load() Counted {
	if h == nil {
		return Counted{}
	}
	c := Counted{Bounds: h.bounds, Upto: make([]uint64, len(h.bounds)), Sum: h.sum.Load()}
	for i := range h.bounds {
		c.Count += h.counts[i].Load()
		c.Upto[i] = c.Count
	}
	c.Count += h.counts[len(h.bounds)].Load()
	return c
}
