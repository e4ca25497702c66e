package workspaces

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync/atomic"
	"time"

	"umbra/internal/audit"
	"umbra/internal/errs"
	"umbra/internal/workspace"
	"umbra/internal/workspace/host"
	"umbra/internal/workspaces/place"
)

// unfinishedFor is how long a baseline that was cut off is kept, so that the
// next attempt goes on with it.
const unfinishedFor = 7 * 24 * time.Hour

// making is an attempt to make a workspace: others of the same folder wait for it, those of
// other folders do not.
type making struct {
	place place.Place
	fork  *Fork // what it is a fork of; nil: none
	done  chan struct{}
	files atomic.Int64 // that the baseline has met
}

// Open finds the workspace of a folder, or makes one, whose baseline is durable
// when this returns. The warnings are for the caller's answer. The caller calls
// Release.
func (m *Manager) Open(ctx context.Context, root string, o OpenOptions) (*workspace.Workspace, []string, error) {
	p, err := m.look(root, o)
	if err != nil {
		return nil, nil, err
	}
	w, err := m.openPlace(ctx, p, o)
	if err != nil {
		return nil, nil, err
	}
	w.ReadOnly()
	return w, w.Warnings(), nil
}

func (m *Manager) openPlace(ctx context.Context, p place.Place, o OpenOptions) (*workspace.Workspace, error) {
	var mine *making
	for mine == nil {
		r, known, err := m.enlist(ctx, p, o.fork, &mine)
		if err != nil {
			return nil, err
		}
		if known && o.fork != nil {
			return nil, errs.New(errs.Conflict, "workspace_exists", "The directory is a workspace already.")
		}
		if known {
			w, err := m.Get(ctx, r.ID)
			if _, still := m.Record(r.ID); err == nil || still {
				return w, err
			} // forgotten in this instant
		}
	}
	defer func() {
		m.noteEnded(mine)
		m.making.Lock()
		m.made = slices.DeleteFunc(m.made, func(x *making) bool { return x == mine })
		m.making.Unlock()
		close(mine.done)
	}()
	return witnessed(ctx)(m.make(ctx, mine, o))
}

// enlist gives the workspace of a folder, or makes the caller the one who makes
// it.
func (m *Manager) enlist(ctx context.Context, p place.Place, fork *Fork, mine **making) (r Record, known bool, err error) {
	m.making.Lock()
	defer m.making.Unlock()
	if err := m.awaitOthers(ctx, p); err != nil {
		return r, false, err
	}
	if r, known = m.find(p); known {
		return r, true, nil
	}
	if err := m.overlaps(p, ""); err != nil {
		return r, false, err
	}
	*mine = &making{place: p, fork: fork, done: make(chan struct{})}
	m.made = append(m.made, *mine)
	return r, false, nil
}

// awaitOthers waits until no workspace is being made whose folder is this one,
// lies in it or around it. Called with the making lock, which is given up
// meanwhile.
func (m *Manager) awaitOthers(ctx context.Context, p place.Place) error {
	for {
		i := slices.IndexFunc(m.made, func(x *making) bool {
			q := x.place
			return p.Root == q.Root || p.Dev == q.Dev && p.Ino == q.Ino || host.Within(p.Root, q.Root) || host.Within(q.Root, p.Root)
		})
		if i < 0 {
			return nil
		}
		done := m.made[i].done
		m.making.Unlock()
		var err error
		select {
		case <-done:
		case <-ctx.Done():
			err = errs.Wrap(context.Cause(ctx), "")
		}
		m.making.Lock()
		if err != nil {
			return err
		}
	}
}

// make makes a workspace for a folder that is none yet, and leaves it open. One
// whose baseline was cut off is gone on with.
func (m *Manager) make(ctx context.Context, mine *making, o OpenOptions) (*workspace.Workspace, error) {
	p := mine.place
	r, resumed := m.takeUnfinished(p)
	now := m.opt.Now().UTC()
	if !resumed {
		id := o.id
		if id == "" {
			id = m.NewID(p.Root)
		}
		r = Record{ID: id, Root: p.Root, Kind: PhysicalKind, Created: now, Dev: p.Dev, Ino: p.Ino, Born: p.Born, Unfinished: true, Fork: o.fork, Server: m.opt.Server}
	}
	r.LastUsed = now
	defer m.comes(r.ID)()
	seq := uint64(0)
	if r.Mounted() {
		seq = m.belowSeq(ctx, r)
	}
	o.Progress = m.noteBegun(mine, r, o.Progress)
	err := m.putFirst(r) // what a kill leaves is found by it
	if err == nil {
		err = errs.Wrap(m.opt.Host.MkdirAll(m.dirOf(r.ID)), "")
	}
	var w *workspace.Workspace
	if err == nil {
		w, err = m.load(ctx, r)
	}
	if err == nil {
		r.Unfinished = false
		err = m.begin(ctx, w, r, o)
		if err != nil {
			err = errors.Join(err, w.Close(ctx, nil))
		}
	}
	if err != nil && (ctx.Err() != nil || errs.Is(err, errs.Canceled)) {
		r.Unfinished = true
		m.keepUnfinished(r)
		return nil, err
	}
	if err != nil {
		return nil, errors.Join(err, m.dropUnfinished(r))
	}
	w, err = m.adoptNew(ctx, w, r, seq)
	if err == nil {
		audit.Allowed(ctx, audit.Open, r.ID, slog.String("root", r.Root))
	}
	return w, err
}

// begin takes a new workspace's baseline and writes its record: from then on it
// is one.
func (m *Manager) begin(ctx context.Context, w *workspace.Workspace, r Record, o OpenOptions) error {
	if o.like != nil {
		w.Resembles(o.like)
	}
	if err := w.Baseline(ctx, o.Progress); err != nil {
		return err
	}
	if m.opt.Shared != nil {
		if _, err := m.opt.Shared.Create(ctx, r); err != nil {
			return errs.Wrap(err, "")
		}
	}
	return m.putRecord(r)
}

// keepUnfinished remembers a baseline that was cut off.
func (m *Manager) keepUnfinished(r Record) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.unfinished[r.ID] = r
}

// takeUnfinished gives the baseline of this folder that was cut off, for the
// caller alone.
func (m *Manager) takeUnfinished(p place.Place) (Record, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for id, r := range m.unfinished {
		if r.Root == p.Root && r.Dev == p.Dev && r.Ino == p.Ino && r.Born == p.Born {
			delete(m.unfinished, id)
			return r, true
		}
	}
	return Record{}, false
}

// dropUnfinished removes what was recorded of a folder that became no workspace.
func (m *Manager) dropUnfinished(r Record) error {
	defer m.putting.Lock(r.ID)()
	if r.Mounted() { // by its files a mount is known
		if err := m.layerOf(r).Unmount(true); err != nil {
			return errs.Wrap(err, "")
		}
	}
	if err := m.opt.Host.RemoveAll(m.dirOf(r.ID)); err != nil {
		return errs.Wrap(err, "")
	}
	return m.opt.Records.Delete(r.ID)
}

// dropStale removes baselines that were interrupted and not continued for long; those of
// virtual workspaces are never continued.
func (m *Manager) dropStale() {
	limit := m.opt.Now().Add(-unfinishedFor)
	m.mu.Lock()
	var stale []Record
	for id, r := range m.unfinished {
		if r.Kind == VirtualKind || r.LastUsed.Before(limit) {
			delete(m.unfinished, id)
			stale = append(stale, r)
		}
	}
	m.mu.Unlock()
	for _, r := range stale {
		if err := m.dropUnfinished(r); err != nil {
			m.opt.Log.Warn("an unfinished workspace could not be removed", "workspace", r.ID, "error", err)
		}
	}
}
