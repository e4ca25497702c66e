package workspaces

import (
	"context"
	"path/filepath"

	"umbra/internal/workspace"
	"umbra/internal/workspace/host"
)

// Around finds the deepest workspace that a host path lies in, of those that the
// caller sees. Where there is none, top is what to open for it: the top of the
// git work tree around the path, else the path itself.
func (m *Manager) Around(path string, sees func(root string) bool) (rec Record, top string, ok bool) {
	on := m.opt.Host
	at, gone := m.places.Canonical(path)
	for _, r := range m.Physical() {
		if host.Within(at, r.Root) && len(r.Root) > len(rec.Root) && (sees == nil || sees(r.Root)) {
			rec, ok = r, true
		}
	}
	if ok {
		return rec, rec.Root, true
	}
	if gone {
		return Record{}, path, false
	}
	for dir := at; ; dir = filepath.Dir(dir) {
		if _, err := on.Stat(filepath.Join(dir, ".git")); err == nil {
			return Record{}, dir, false
		}
		if dir == filepath.Dir(dir) {
			return Record{}, at, false
		}
	}
}

// IsOpen reports whether a workspace is open now; Get would not have to recover
// and scan it.
func (m *Manager) IsOpen(id string) bool {
	return m.inUse(id) != nil
}

func (m *Manager) inUse(id string) *workspace.Workspace {
	m.mu.Lock()
	defer m.mu.Unlock()
	if h := m.open[id]; h != nil && h.closing == nil {
		return h.w
	}
	return nil
}

// HasFolder reports whether a workspace is open now whose directory this server has.
func (m *Manager) HasFolder(id string) bool {
	w := m.inUse(id)
	return w != nil && !w.Virtual()
}

// TipOf returns the number of the newest commit of a workspace that is open now, from
// memory.
func (m *Manager) TipOf(id string) (seq uint64, open bool) {
	store, release := m.store(id)
	if store == nil {
		return 0, false
	}
	defer release()
	return store.Tip().Seq, true
}

// Keeper brings the caches of a workspace up to date. It is called when one has
// been written to and is quiet since, when it has been written to very much, and
// when it is unloaded.
type Keeper func(ctx context.Context, w *workspace.Workspace, quiet bool)

// SetKeeper must be called before the first workspace opens.
func (m *Manager) SetKeeper(fn Keeper) { m.keeper = fn }
