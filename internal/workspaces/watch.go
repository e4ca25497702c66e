package workspaces

import (
	"cmp"
	"slices"
	"time"

	"umbra/internal/errs"
)

// SetBusy sets fn, which reports whether a task of a workspace is executing or
// paused (busy), and whether one is executing. To be called before Resume.
func (m *Manager) SetBusy(fn func(workspaceID string) (busy, executing bool)) { m.busy = fn }

// Resume opens, one after the other and next to requests, the workspaces that
// were watched when the server stopped, those with executing tasks first: what
// changed meanwhile is recorded, of no task. To be called once, before the
// first request.
func (m *Manager) Resume() {
	if m.opt.Watcher == nil || m.opt.Foreground {
		return
	}
	type due struct {
		id        string
		executing bool
	}
	var queue []due
	for _, r := range m.Physical() {
		busy, executing := m.busy(r.ID)
		if !r.Restored && (r.Watched || busy || r.Mounted()) {
			queue = append(queue, due{r.ID, executing})
		}
	}
	slices.SortStableFunc(queue, func(a, b due) int {
		rank := func(d due) int {
			if d.executing {
				return 0
			}
			return 1
		}
		return cmp.Compare(rank(a), rank(b))
	})
	m.background.Go(func() {
		for _, d := range queue {
			if m.ctx.Err() != nil {
				return
			}
			if err := m.revisit(d.id); err != nil && m.ctx.Err() == nil {
				m.opt.Log.Warn("a workspace that was watched could not be opened", "workspace", d.id, "error", err)
			}
		}
	})
}

// revisit opens a workspace, which is no use of it.
func (m *Manager) revisit(id string) error {
	w, err := m.Get(m.ctx, id)
	if err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if h := m.open[id]; h != nil && h.w == w {
		h.dropRef()
		if h.used.IsZero() {
			h.used = m.records[id].LastUsed
		}
	}
	return nil
}

// reopen opens a workspace again whose directory was missing when it was opened
// and is back.
func (m *Manager) reopen(id string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.stopped {
		return
	}
	m.background.Go(func() {
		if err := m.revisit(id); err != nil && m.ctx.Err() == nil {
			m.opt.Log.Warn("a workspace whose directory is back could not be opened", "workspace", id, "error", err)
		}
	})
}

// stays reports whether an unused workspace is watched on.
func (m *Manager) stays(id string, h *handle) bool {
	if r, ok := m.records[id]; ok && r.Mounted() {
		return true // other processes see it
	}
	if m.opt.Watcher == nil || h.w.Virtual() {
		return false
	}
	if h.used.After(m.opt.Now().Add(-m.opt.WatchIdle)) {
		return true
	}
	busy, _ := m.busy(id)
	return busy
}

// changeRecord changes what is kept of a workspace, if it is still known and
// there is something to change.
func (m *Manager) changeRecord(id string, change func(*Record) bool) {
	defer m.putting.Lock(id)()
	r, ok := m.Record(id)
	if !ok || !change(&r) || m.changedElsewhere(r) {
		return
	}
	if err := m.opt.Records.Put(r); err != nil {
		m.opt.Log.Warn("workspace's record not written", "workspace", id, "error", err)
	}
	m.holdRecord(r)
}

// alterRecord is like changeRecord; where the record cannot be written it stays as it is.
func (m *Manager) alterRecord(id string, change func(*Record) bool) error {
	defer m.putting.Lock(id)()
	r, ok := m.Record(id)
	if !ok || !change(&r) || m.changedElsewhere(r) {
		return nil
	}
	if err := m.opt.Records.Put(r); err != nil {
		return errs.Wrap(err, "")
	}
	m.holdRecord(r)
	return nil
}

// holdRecord keeps a record that was changed. The caller holds its key of putting.
func (m *Manager) holdRecord(r Record) {
	m.mu.Lock()
	defer m.mu.Unlock()
	_, held := m.records[r.ID]
	if held || r.resident() {
		m.records[r.ID] = r
	}
	if m.open[r.ID] == nil {
		m.letGoLocked(r.ID) // it was resident
	}
}

// noteUses keeps when open workspaces were used last, lest a kill lose it.
func (m *Manager) noteUses() {
	used := make(map[string]time.Time)
	m.mu.Lock()
	for id, h := range m.open {
		if r, ok := m.records[id]; ok && h.used.Sub(r.LastUsed) > usesEvery {
			used[id] = h.used.UTC()
		}
	}
	m.mu.Unlock()
	for id, at := range used {
		m.changeRecord(id, func(r *Record) bool {
			r.LastUsed = at
			return true
		})
	}
}

// usesEvery is how exactly the time of the last use survives a kill.
const usesEvery = 5 * time.Minute
