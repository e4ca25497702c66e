package wstest

import (
	"maps"
	"slices"
	"sync"

	"umbra/internal/workspaces"
)

// Records keeps a manager's records over its reopening. The zero value is
// empty. Safe for concurrent use.
type Records struct {
	mu  sync.Mutex
	all map[string]workspaces.Record
}

var _ workspaces.Records = (*Records)(nil)

// All is workspaces.Records'.
func (r *Records) All() ([]workspaces.Record, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Collect(maps.Values(r.all)), nil
}

// Put is workspaces.Records'.
func (r *Records) Put(recs ...workspaces.Record) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.all == nil {
		r.all = make(map[string]workspaces.Record)
	}
	for _, rec := range recs {
		r.all[rec.ID] = rec
	}
	return nil
}

// Delete is workspaces.Records'.
func (r *Records) Delete(id string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.all, id)
	return nil
}
