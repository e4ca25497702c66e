package workspaces

import (
	"umbra/internal/claims"
	"umbra/internal/workspace"
)

// SetOwners sets fn, which returns the owners of external changes. To be called
// before the first request.
func (m *Manager) SetOwners(fn func(workspaceID string) workspace.Owners) { m.owners.Store(&fn) }

// lateOwners asks whom SetOwners has set, which may be after the workspace was
// opened.
type lateOwners struct {
	m  *Manager
	id string
}

func (l lateOwners) now() workspace.Owners {
	if fn := l.m.owners.Load(); fn != nil {
		return (*fn)(l.id)
	}
	return workspace.NoOwners{}
}

func (l lateOwners) Judge(f claims.Found) (*workspace.Owner, claims.Certainty) {
	return l.now().Judge(f)
}
func (l lateOwners) Called() bool        { return l.now().Called() }
func (l lateOwners) Scanning() uint64    { return l.now().Scanning() }
func (l lateOwners) Scanned(mark uint64) { l.now().Scanned(mark) }
