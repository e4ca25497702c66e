package telemetry

import (
	"slices"
	"sync"
	"testing"
	"time"
)

func TestHistogram(t *testing.T) {
	h := NewHistogram(1, 5, 10)
	for _, v := range []int64{-1, 0, 1, 2, 5, 6, 10, 11, 1 << 60} {
		h.Observe(v)
	}
	got := h.Load()
	if !slices.Equal(got.Upto, []uint64{3, 5, 7}) || got.Count != 9 || got.Sum != 34+1<<60 {
		t.Errorf("%+v", got)
	}
	times := NewTimes(.001, 1)
	times.Observe(int64(time.Millisecond))
	times.Observe(int64(2 * time.Second))
	if got := times.Load(); !slices.Equal(got.Upto, []uint64{1, 1}) || got.Count != 2 || got.Sum != int64(2001*time.Millisecond) {
		t.Errorf("%+v", got)
	}
}

// Nobody has to ask whether somebody counts.
func TestNilCountsNothing(t *testing.T) {
	var h *Histogram
	var c *Counter
	var g *Gauge
	var r *Requests
	h.Observe(1)
	h.Since(time.Now())
	c.Add(1)
	g.Add(1)
	r.Route("GET", "/").Answered(200, time.Now(), false)
	r.Other().Answered(404, time.Now(), false)
	if h.Load().Count != 0 || c.Load() != 0 || g.Load() != 0 {
		t.Error("it counts")
	}
}

func TestRequests(t *testing.T) {
	r := NewRequests()
	a := r.Route("GET", "/a")
	a.Answered(200, time.Now(), false)
	a.Answered(200, time.Now(), true)
	a.Answered(10_000, time.Now(), false)
	r.Other().Answered(404, time.Now(), false)
	got := map[int]uint64{}
	a.Statuses(func(status int, n uint64) { got[status] = n })
	if len(got) != 2 || got[200] != 2 || got[500] != 1 || a.Took.Load().Count != 2 {
		t.Errorf("%v, %d timed", got, a.Took.Load().Count)
	}
	if list := r.Routes(); len(list) != 2 || list[0] != r.Other() || list[0].Pattern != "other" {
		t.Errorf("%v", list)
	}
}

// What is counted takes no memory, and nothing is lost among many.
func TestCountingIsCheap(t *testing.T) {
	h, r := NewTimes(.001, 1), NewRequests()
	route, began := r.Route("GET", "/a"), time.Now()
	if n := testing.AllocsPerRun(100, func() { h.Since(began); route.Answered(200, began, false) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
	h = NewHistogram(1)
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range 1000 {
				h.Observe(1)
			}
		})
	}
	all.Wait()
	if got := h.Load(); got.Count != 8000 || got.Sum != 8000 {
		t.Errorf("%+v", got)
	}
}
