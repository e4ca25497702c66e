package workspace

// Rest is what is told of a workspace that was put away, so that listing it does
// not open it. It is in the record from then until it is opened.
type Rest struct {
	Head      string   `json:"head,omitempty"` // the newest commit; empty: there is none
	DiskBytes int64    `json:"disk_bytes"`
	Warnings  []string `json:"warnings,omitempty"`
}

// Resting gives what is known of a workspace that is put away, and how it stands to
// its folder as far as that is seen without a scan; false for one that has to be
// opened for it: it is open, was not put away in peace, or was restored.
func (m *Manager) Resting(id string) (Rest, State, bool) {
	m.mu.Lock()
	r, ok := m.records[id]
	ok = ok && m.open[id] == nil && r.Rest != nil && !r.Restored
	m.mu.Unlock()
	if !ok {
		return Rest{}, "", false
	}
	state := Clean
	if r.Kind != VirtualKind {
		if there, err := m.stands(r); err != nil && !isAbsent(err) {
			return Rest{}, "", false // opening it tells why
		} else if !there {
			state = Missing
		}
	}
	return *r.Rest, state, true
}

// awake forgets what was told of a workspace while it was put away, before it is
// opened: what a kill leaves must not tell an older head.
func (m *Manager) awake(id string) {
	m.changeRecord(id, func(r *Record) bool {
		was := r.Rest != nil
		r.Rest = nil
		return was
	})
}
