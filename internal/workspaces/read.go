package workspaces

import (
	"context"

	"umbra/internal/workspace"
)

func newHandle() *handle { return &handle{ready: make(chan struct{}), read: make(chan struct{})} }

// Read is Get for a caller that needs only what tasks did. Where the workspace has
// to be opened it waits until what a stop left is settled, and not for the scan of
// its whole directory: changes made there while it was closed are of no task, and
// are recorded meanwhile. The caller calls Release.
//
// Should that scan fail, the workspace is closed, and later reads return errors.
func (m *Manager) Read(ctx context.Context, id string) (*workspace.Workspace, error) {
	// Without background work only the caller can open it.
	return witnessed(ctx)(m.get(ctx, id, !m.opt.Foreground))
}

// early awaits that history can be read.
func (m *Manager) early(ctx context.Context, h *handle) (*workspace.Workspace, error) {
	if err := await(ctx, h.read); err != nil {
		m.releaseHandle(h)
		return nil, err
	}
	if h.atOnce != nil {
		return h.atOnce, nil
	}
	return h.w, h.err
}

// readable lets those in who only read.
func (m *Manager) readable(w *workspace.Workspace, h *handle) {
	m.own(w, h)
	h.atOnce = w
	close(h.read)
}
