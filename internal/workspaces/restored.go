package workspaces

import (
	"context"
	"errors"

	"umbra/gitstore"
	"umbra/internal/errs"
	"umbra/internal/vfs"
	"umbra/internal/workspace"
)

// inPlaceRestored reports whether a restored workspace's directory is at its
// path: the one that was there when the backup was made, or any that holds
// something. An empty one may be where a disk is to be mounted.
func (m *Manager) inPlaceRestored(r Record, info vfs.Info) (bool, error) {
	if !info.IsDir() {
		return false, nil
	}
	if info.Dev == r.Dev && info.Ino == r.Ino {
		return true, nil
	}
	f, err := m.opt.Host.Open(r.Root)
	if err != nil {
		return false, err
	}
	defer f.Close()
	list, err := f.ReadDir(".")
	return len(list) > 0, err
}

// settleRestored takes the directory that is at a restored workspace's path.
// From then on it is like any other: differences are external changes of no task.
// Where there is none, the record is left.
func (m *Manager) settleRestored(r Record) Record {
	if r.Kind != VirtualKind {
		if there, err := m.inPlace(r); !there || err != nil {
			return r
		}
	}
	m.changeRecord(r.ID, func(k *Record) bool {
		if k.Kind != VirtualKind {
			if info, err := m.opt.Host.Stat(k.Root); err == nil {
				k.Dev, k.Ino, k.Born = info.Dev, info.Ino, m.places.Born(k.Root)
			}
		}
		k.Restored = false
		r = *k
		return true
	})
	return r
}

// Inspect is Get, but a workspace that was restored, and not used since, is only
// opened: nothing is recovered, scanned or recorded, so that what differs in its
// directory can be reported. Until Release the caller alone has it.
func (m *Manager) Inspect(ctx context.Context, id string) (*workspace.Workspace, error) {
	return m.inspect(ctx, id, func(r Record) bool { return r.Restored })
}

// Examine is Inspect for every workspace that is not open: what changed in its
// directory stays unrecorded. Until Release the caller alone has it.
func (m *Manager) Examine(ctx context.Context, id string) (*workspace.Workspace, error) {
	return m.inspect(ctx, id, func(Record) bool {
		m.mu.Lock()
		defer m.mu.Unlock()
		return m.open[id] == nil
	})
}

func (m *Manager) inspect(ctx context.Context, id string, quietly func(Record) bool) (*workspace.Workspace, error) {
	for {
		rec, ok, err := m.Lookup(id)
		if err != nil {
			return nil, err
		}
		if !ok || !quietly(rec) || rec.Fork != nil && rec.Fork.Unmade { // which has no repository to open
			return m.Get(ctx, id)
		}
		done, err := m.claim(ctx, id)
		if err != nil {
			return nil, err
		}
		if done == nil {
			continue // it is open, or was: no longer as it was restored
		}
		w, err := m.loadQuietly(ctx, rec)
		if err != nil {
			done()
			return nil, err
		}
		w.OnRelease(func() {
			if err := w.Abandon(context.WithoutCancel(ctx)); err != nil {
				m.opt.Log.Warn("workspace not closed cleanly", "workspace", id, "error", err)
			}
			done()
		})
		return w, nil
	}
}

// loadQuietly opens a workspace and leaves everything as it is.
func (m *Manager) loadQuietly(ctx context.Context, r Record) (*workspace.Workspace, error) {
	if r.Kind != VirtualKind {
		if there, err := m.inPlace(r); err == nil && there {
			if info, err := m.opt.Host.Stat(r.Root); err == nil {
				r.Dev, r.Ino = info.Dev, info.Ino
			}
		}
	}
	w, err := m.load(ctx, r)
	if err == nil {
		w.Quiet()
	}
	return w, err
}

// claim keeps all others from opening a workspace that is not open, until
// done is called; others wait. done is nil where it is open.
func (m *Manager) claim(ctx context.Context, id string) (done func(), err error) {
	m.mu.Lock()
	if m.stopped {
		m.mu.Unlock()
		return nil, errs.New(errs.Unavailable, "stopping", "The server is stopping.")
	}
	if h := m.open[id]; h != nil {
		m.mu.Unlock()
		if h.closing != nil {
			return nil, await(ctx, h.closing)
		}
		return nil, await(ctx, h.ready)
	}
	h := newHandle()
	h.closing = make(chan struct{})
	close(h.ready)
	m.open[id] = h
	m.mu.Unlock()
	opened := func() {}
	done = func() {
		m.leave(id, false, nil)
		m.mu.Lock()
		delete(m.open, id)
		m.mu.Unlock()
		close(h.closing)
		opened()
	}
	if m.opt.Shared != nil {
		let, err := m.takeOver(ctx, id)
		if err != nil {
			done()
			return nil, err
		}
		opened = let
	}
	return done, nil
}

// Freeze gives a moment of a workspace's history, for a copy of it. One that is
// open stays in use by others; one that is not is opened as far as that needs.
//
// errs.NotFound workspace_not_found; errs.Conflict workspace_unfinished while its
// baseline is being taken, or was cut off.
func (m *Manager) Freeze(ctx context.Context, id string) (*gitstore.Frozen, error) {
	for {
		if _, ok, err := m.Lookup(id); err != nil {
			return nil, err
		} else if !ok {
			if m.isUnfinished(id) {
				return nil, errs.New(errs.Conflict, "workspace_unfinished", "The workspace's baseline is not whole.")
			}
			return nil, errUnknown()
		}
		if store, release := m.store(id); store != nil {
			defer release()
			return store.Freeze(ctx)
		}
		done, err := m.claim(ctx, id)
		if err != nil {
			return nil, err
		}
		if done == nil {
			continue
		}
		defer done()
		rec, err := m.record(id)
		if err != nil {
			return nil, err
		}
		so, release, err := m.storeOptions(ctx, rec)
		if err != nil {
			return nil, err
		}
		defer release()
		so.Foreground, so.Meter = true, nil
		store, err := gitstore.Open(ctx, so)
		if err != nil {
			return nil, err
		}
		f, err := store.Freeze(ctx)
		return f, errors.Join(err, store.Close(context.WithoutCancel(ctx)))
	}
}

// isUnfinished reports whether a baseline of this id is being taken, or waits to
// be gone on with.
func (m *Manager) isUnfinished(id string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	_, begun := m.begun[id]
	_, left := m.unfinished[id]
	return begun || left
}

// store gives the history of a workspace that is open, which is no use of the
// workspace; nil where it is not.
func (m *Manager) store(id string) (*gitstore.Store, func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	h := m.open[id]
	if h == nil || h.closing != nil || h.w == nil {
		return nil, nil
	}
	h.refs++
	return h.w.Store(), func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		h.dropRef()
	}
}

// ResumeRestored opens the workspaces that were restored, as Resume does those
// that were watched: what differs in their folders is recorded. For a server; a
// verb that only looks leaves them as they are.
func (m *Manager) ResumeRestored() {
	if m.opt.Foreground {
		return
	}
	restored := m.Restored()
	m.background.Go(func() {
		for _, r := range restored {
			if m.ctx.Err() != nil {
				return
			}
			if err := m.revisit(r.ID); err != nil && m.ctx.Err() == nil {
				m.opt.Log.Warn("a workspace that was restored could not be opened", "workspace", r.ID, "error", err)
			}
		}
	})
}
