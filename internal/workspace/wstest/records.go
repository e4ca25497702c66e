package wstest

import (
	"maps"
	"slices"
	"sync"

	"umbra/internal/workspace"
)

// Records keeps a manager's records over its reopening. The zero value is
// empty. Safe for concurrent use.
type Records struct {
	mu  sync.Mutex
	all map[string]workspace.Record
}

var _ workspace.Records = (*Records)(nil)

// All is workspace.Records'.
func (r *Records) All() ([]workspace.Record, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Collect(maps.Values(r.all)), nil
}

// Put is workspace.Records'.
func (r *Records) Put(recs ...workspace.Record) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.all == nil {
		r.all = make(map[string]workspace.Record)
	}
	for _, rec := range recs {
		r.all[rec.ID] = rec
	}
	return nil
}

// Delete is workspace.Records'.
func (r *Records) Delete(id string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.all, id)
	return nil
}
