package workspace

import "context"

func newHandle() *handle { return &handle{ready: make(chan struct{}), read: make(chan struct{})} }

// Read is Get for who asks for nothing but what tasks did. Where the workspace
// has to be opened it waits until what a stop left is settled, and not for the
// look at its whole folder: what people changed there while it was closed is of
// no task, and is recorded meanwhile. The caller calls Release.
//
// Should that look fail (the disk does), the workspace is closed, and reading
// on gives errors.
func (m *Manager) Read(ctx context.Context, id string) (*Workspace, error) {
	// With nothing in the background there is nobody to open it beside the caller.
	return m.get(ctx, id, !m.opt.Foreground)
}

// early awaits that history can be read.
func (m *Manager) early(ctx context.Context, h *handle) (*Workspace, error) {
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
func (m *Manager) readable(w *Workspace, h *handle) {
	m.own(w, h)
	h.atOnce = w
	close(h.read)
}
