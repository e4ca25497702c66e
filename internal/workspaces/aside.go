package workspaces

import (
	"context"

	"umbra/gitstore"
	"umbra/internal/errs"
	"umbra/internal/workspaces/local"
)

func (m *Manager) localDir(id string) local.Dir {
	return local.Dir{On: m.opt.Host, Path: m.dirOf(id), Log: m.opt.Log.With("workspace", id)}
}

// PutAside keeps what this server has of a workspace that goes on without it: a history of
// its own, with later commits, becomes a directory journal/orphaned-FIRST-LAST of the
// workspace's, named by their numbers, which git reads. What other servers share of the
// workspace is in the log, and never in such a history. It does nothing for all others,
// and may be called again. Nothing has the workspace open.
func (m *Manager) PutAside(ctx context.Context, id string) error {
	m.shared.aside.Lock()
	defer m.shared.aside.Unlock()
	dir := m.localDir(id)
	if !dir.Leftover() {
		return nil
	}
	seq, was, err := m.opt.Shared.Former(ctx, id)
	if err != nil || !was {
		return err
	}
	at, err := dir.PutAside(ctx, seq)
	if err != nil {
		return err
	}
	var dirs []string
	if at != "" {
		dirs = []string{at}
		m.opt.Log.Warn("the workspace goes on without commits of this server", "workspace", id, "last", seq, "orphaned", at)
	}
	return m.opt.Shared.Orphaned(ctx, id, dirs)
}

// fetchHistory gives this server the history of a workspace with a directory that became
// its own by a record which another process wrote, or of which its data directory was
// lost: the one that the log has.
func (m *Manager) fetchHistory(ctx context.Context, r Record, base *gitstore.Base) error {
	if dir := m.localDir(r.ID); m.pinned(r) && !r.Unfinished && !dir.Has() {
		from, _, err := m.opt.Shared.View(ctx, r.ID, Point{Exact: true})
		if err != nil {
			return err
		}
		m.opt.Log.Warn("the history of a workspace is not here: it is fetched from the log", "workspace", r.ID)
		return dir.Fetch(ctx, from, base)
	}
	return nil
}

// Arrive takes a workspace with a directory that became this server's by a record which
// another process wrote, and opens it.
func (m *Manager) Arrive(ctx context.Context, id string) error {
	r, found, err := m.opt.Records.Get(id)
	switch {
	case err != nil:
		return errs.Wrap(err, "")
	case !found || !m.pinned(r) || r.Unfinished:
		return errUnknown()
	}
	m.mu.Lock()
	if _, known := m.records[id]; !known {
		m.records[id] = r
	}
	m.mu.Unlock()
	w, err := m.Get(ctx, id)
	if err == nil {
		w.Release()
	}
	return err
}

// CheckRoot returns the canonical path of a directory that Open would make a workspace.
// Errors are those of Open.
func (m *Manager) CheckRoot(root string) (string, error) {
	p, err := m.look(root, OpenOptions{})
	if err == nil {
		err = m.overlaps(p, "")
	}
	return p.Root, err
}
