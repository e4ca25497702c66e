package workspaces

import (
	"umbra/internal/vfs"
	"umbra/internal/workspace"
)

// Rest is what is listed of a workspace that was unloaded, so that listing it does
// not open it. It is in the record from then until it is opened.
type Rest struct {
	Head      string   `json:"head,omitempty"` // the newest commit; empty: there is none
	DiskBytes int64    `json:"disk_bytes"`
	Warnings  []string `json:"warnings,omitempty"`
}

// Resting returns what is known of a workspace that is unloaded, and its state as
// far as that is seen without a scan; false for one that has to be opened for it:
// it is open, was not unloaded cleanly, or was restored. Of one whose directory is
// another server's and of which nothing is recorded, only the state is known.
func (m *Manager) Resting(id string) (Rest, workspace.State, bool) {
	r, ok := m.Record(id)
	m.mu.Lock()
	open := m.open[id] != nil
	m.mu.Unlock()
	if ok && !open && r.Rest == nil && m.elsewhere(r) {
		// Another server has it open, or died.
		return Rest{}, workspace.Clean, true
	}
	if !ok || open || r.Rest == nil || r.Restored {
		return Rest{}, "", false
	}
	state := workspace.Clean
	if r.Kind != VirtualKind && !m.elsewhere(r) {
		if there, err := m.inPlace(r); err != nil && !vfs.IsAbsent(err) {
			return Rest{}, "", false // opening it reports why
		} else if !there {
			state = workspace.Missing
		}
	}
	return *r.Rest, state, true
}

// awake drops what is recorded of a workspace while it is unloaded, before it is
// opened: a record that a kill leaves must not name an older head. That of a fork
// without a repository cannot, until makeFork writes it.
func (m *Manager) awake(id string) {
	m.changeRecord(id, func(r *Record) bool {
		if r.Fork != nil && r.Fork.Unmade && !m.shares(*r) {
			return false
		}
		was := r.Rest != nil
		r.Rest = nil
		return was
	})
}
