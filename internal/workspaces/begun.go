package workspaces

import (
	"context"
	"maps"
	"slices"
)

// Begun is a workspace whose baseline is being taken: it is none before Done is
// closed, and none after, where that failed.
type Begun struct {
	Record
	Done <-chan struct{}
	made *making
}

// Files is how many files the baseline has met by now.
func (b Begun) Files() int64 { return b.made.files.Load() }

// Begun gives the workspaces whose baselines are being taken, the oldest first.
// To list all workspaces call this first, and drop what List has too.
func (m *Manager) Begun() []Begun {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.SortedFunc(maps.Values(m.begun), func(a, b Begun) int { return byAge(a.Record, b.Record) })
}

// BegunOf is Begun for one id.
func (m *Manager) BegunOf(id string) (Begun, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	b, ok := m.begun[id]
	return b, ok
}

// Wait waits until the workspace is one, or its baseline failed.
func (b Begun) Wait(ctx context.Context) error { return await(ctx, b.Done) }

// noteBegun lets others know of a baseline, and gives what counts its files.
func (m *Manager) noteBegun(mine *making, r Record, told func(files int64)) func(files int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.begun[r.ID] = Begun{Record: r, Done: mine.done, made: mine}
	return func(files int64) {
		mine.files.Store(files)
		if told != nil {
			told(files)
		}
	}
}

// noteEnded is for a workspace that became one, or will be none.
func (m *Manager) noteEnded(mine *making) {
	m.mu.Lock()
	defer m.mu.Unlock()
	maps.DeleteFunc(m.begun, func(_ string, b Begun) bool { return b.made == mine })
}
