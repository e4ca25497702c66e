package workspaces

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"umbra/internal/errs"
)

// pageSize is how many records are read at a time.
const pageSize = 1000

// Record is Lookup for a caller to which a record that cannot be read is none: it shows
// something, or does what can be done later. The error is logged.
func (m *Manager) Record(id string) (Record, bool) {
	r, ok, err := m.Lookup(id)
	if err != nil {
		m.opt.Log.Error("a workspace's record cannot be read", "workspace", id, "error", err)
	}
	return r, ok
}

// Lookup returns what is known of a workspace, without opening it.
func (m *Manager) Lookup(id string) (r Record, known bool, err error) {
	m.mu.Lock()
	r, ok := m.records[id]
	m.mu.Unlock()
	if ok {
		return r, true, nil
	}
	r, ok, err = m.opt.Records.Get(id)
	if !ok || err != nil || r.Unfinished {
		return Record{}, false, errs.Wrap(err, "")
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if newer, held := m.records[id]; held {
		return newer, true, nil
	}
	return r, !m.coming[id], nil
}

// record returns the record of a workspace: errs.NotFound workspace_not_found.
func (m *Manager) record(id string) (Record, error) {
	r, ok, err := m.Lookup(id)
	if !ok && err == nil {
		err = errUnknown()
	}
	return r, err
}

// comes keeps others from opening a workspace that is being made, until done.
func (m *Manager) comes(id string) (done func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.coming[id] = true
	return func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		delete(m.coming, id)
	}
}

// hold returns a record for a workspace that is being opened, and keeps it in memory
// until letGoLocked. Forget waits for the opening, so the record is not removed
// meanwhile.
func (m *Manager) hold(id string) (Record, error) {
	defer m.putting.Lock(id)()
	r, err := m.record(id)
	if err == nil {
		m.mu.Lock()
		m.records[id] = r
		m.mu.Unlock()
	}
	return r, err
}

// letGoLocked ends the hold of a workspace that is not open any more; mu is held.
func (m *Manager) letGoLocked(id string) {
	if r, ok := m.records[id]; ok && !r.resident() {
		delete(m.records, id)
	}
}

// Each calls fn with every workspace, the oldest first, until it returns false. What
// is made or forgotten meanwhile may be missing or included.
func (m *Manager) Each(fn func(Record) bool) error { return m.each(ByAge, fn) }

func (m *Manager) each(x Index, fn func(Record) bool) error {
	for after := ""; ; {
		list, last, err := m.opt.Records.List(x, after, pageSize)
		if err != nil {
			return err
		}
		for _, r := range list {
			if !fn(r) {
				return nil
			}
		}
		if after = last; last == "" {
			return nil
		}
	}
}

// List returns all workspaces, the oldest first. It reads every record: a walk is
// done by Each, directories are found by Physical.
func (m *Manager) List() []Record { return m.collect(ByAge) }

// Expiring returns the forks that expire, the next first.
func (m *Manager) Expiring() []Record { return m.collect(Expiring) }

// Forks returns the forks of a workspace, the oldest first.
func (m *Manager) Forks(id string) []Record { return m.collect(forksOf(id)) }

func (m *Manager) collect(x Index) []Record {
	out := []Record{}
	if err := m.each(x, func(r Record) bool { out = append(out, r); return true }); err != nil {
		m.opt.Log.Error("the workspaces' records cannot be read", "error", err)
	}
	return out
}

// Physical returns the workspaces that have directories, the oldest first.
func (m *Manager) Physical() []Record {
	return m.inMemory(func(r Record) bool { return r.Root != "" })
}

// Restored returns the workspaces that were restored and not opened since, the
// oldest first.
func (m *Manager) Restored() []Record { return m.inMemory(func(r Record) bool { return r.Restored }) }

func (m *Manager) inMemory(want func(Record) bool) []Record {
	m.mu.Lock()
	out := slices.Collect(maps.Values(m.records))
	m.mu.Unlock()
	out = slices.DeleteFunc(out, func(r Record) bool { return !want(r) })
	slices.SortFunc(out, byAge)
	return out
}

// byAge orders the oldest first.
func byAge(a, b Record) int {
	return cmp.Or(a.Created.Compare(b.Created), strings.Compare(a.ID, b.ID))
}
