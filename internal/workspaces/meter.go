package workspaces

import (
	"context"
	"errors"
	"sync"

	"umbra/internal/errs"
	"umbra/internal/workspace"
)

// Figures gives them, without opening a workspace and without waiting for one.
func (m *Manager) Figures() workspace.Figures {
	f := workspace.Figures{CacheBytes: m.kept.Used()}
	known, err := m.opt.Records.Count()
	if err != nil {
		m.opt.Log.Error("the workspaces' records cannot be counted", "error", err)
	}
	f.Known = known
	m.mu.Lock()
	open := m.inUseLocked()
	m.mu.Unlock()
	f.Open = len(open)
	for _, w := range open {
		w.AddTo(&f)
	}
	return f
}

// inUseLocked gives the workspaces that are open and stay so; mu is held.
func (m *Manager) inUseLocked() []*workspace.Workspace {
	open := make([]*workspace.Workspace, 0, len(m.open))
	for _, h := range m.open {
		if h.w != nil && h.closing == nil {
			open = append(open, h.w)
		}
	}
	return open
}

// Writable fails unless the workspaces that a task executes on can be written, by
// trying: their directory exists and takes a few bytes. It tries the open ones,
// concurrently.
//
// errs.Unavailable workspace_not_writable, naming no folder.
func (m *Manager) Writable(ctx context.Context) error {
	m.mu.Lock()
	open := m.inUseLocked()
	m.mu.Unlock()
	results := make([]error, len(open))
	var all sync.WaitGroup
	for i, w := range open {
		if _, executing := m.busy(w.ID()); executing && !w.Virtual() {
			all.Go(func() { results[i] = w.TryWrite() })
		}
	}
	done := make(chan struct{})
	go func() { all.Wait(); close(done) }()
	if err := await(ctx, done); err != nil {
		// A disk that does not answer cannot be written.
		return errs.New(errs.Unavailable, "workspace_not_writable", "A workspace's disk does not answer.")
	}
	return errors.Join(results...)
}
