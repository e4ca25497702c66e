package telemetry

import (
	"sync/atomic"
	"time"
)

// Ops counts operations of a few sorts: how long each took, and how many failed.
type Ops struct {
	names  []string
	took   []*Histogram
	failed []atomic.Uint64
}

// NewOps makes one for operations of these names, each with the bounds of like.
func NewOps(like *Histogram, names ...string) *Ops {
	o := &Ops{names: names, failed: make([]atomic.Uint64, len(names))}
	for range names {
		o.took = append(o.took, NewHistogram(like.bounds...))
	}
	return o
}

// Done counts an operation; one of another name is not counted.
func (o *Ops) Done(name string, took time.Duration, failed bool) {
	if o == nil {
		return
	}
	for i, n := range o.names {
		if n == name {
			o.took[i].Observe(int64(took))
			if failed {
				o.failed[i].Add(1)
			}
		}
	}
}

// Load calls each with every operation.
func (o *Ops) Load(each func(name string, took *Histogram, failed uint64)) {
	if o == nil {
		return
	}
	for i, n := range o.names {
		each(n, o.took[i], o.failed[i].Load())
	}
}
