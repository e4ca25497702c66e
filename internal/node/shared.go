package node

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"umbra/gitstore/remote"
	"umbra/gitstore/sink"
	"umbra/internal/cluster"
	"umbra/internal/errs"
	"umbra/internal/witness"
	"umbra/internal/workspaces"
)

var _ workspaces.Shared = (*Node)(nil)

// Create is workspaces.Shared's.
func (n *Node) Create(ctx context.Context, r workspaces.Record) (string, error) {
	w := cluster.Workspace{ID: r.ID, Kind: r.Kind, Pinned: r.Server}
	if r.Namespace != nil {
		raw, err := json.Marshal(r.Namespace)
		if err != nil {
			return "", err
		}
		w.Namespace = string(raw)
		if id, err := n.c.Named(ctx, w.Namespace); err == nil || !errors.Is(err, cluster.ErrNotFound) {
			return id, err
		}
	}
	_, err := n.c.Create(ctx, w)
	if err == nil && w.Pinned == n.Name() {
		n.remember(w.ID, n.self(0, true))
	}
	if err != nil && w.Namespace != "" {
		if id, err := n.c.Named(ctx, w.Namespace); err == nil {
			return id, nil
		}
	}
	return r.ID, err
}

// Claim is workspaces.Shared's.
func (n *Node) Claim(ctx context.Context, r workspaces.Record) (*workspaces.Held, error) {
	defer n.move(r.ID)()
	began := time.Now()
	deadline := began.Add(n.opt.Wait)
	ctx, cancel := context.WithDeadline(ctx, deadline)
	defer cancel()
	var last error
	for {
		if n.Leaving() {
			return nil, errMoving(last)
		}
		if !n.isPromised(ctx, r.ID) {
			c, err := n.claim(ctx, r)
			var owned *cluster.OwnedError
			switch {
			case err == nil:
				return n.hold(ctx, c, began)
			case errors.Is(err, cluster.ErrNotFound):
				return nil, errs.New(errs.NotFound, "workspace_not_found", "The workspace does not exist.")
			case !errors.As(err, &owned):
				return nil, err
			case n.isForwardable(ctx, r.ID) && n.answers(owned.Owner):
				return nil, errMoving(workspaces.ErrOwnedElsewhere)
			case n.takenFrom(ctx, owned):
				continue
			}
			last = err
		}
		t := time.NewTimer(again)
		select {
		case <-t.C:
		case <-n.whenLeft():
			t.Stop()
		case <-ctx.Done():
			t.Stop()
			return nil, errMoving(last)
		}
	}
}

// Copy is workspaces.Shared's.
func (n *Node) Copy(ctx context.Context, id string) (sink.Sink, error) {
	c, err := n.c.ClaimPinned(ctx, id)
	switch {
	case errors.Is(err, cluster.ErrNotFound):
		return nil, errors.Join(remote.ErrNoCopy, err)
	case errors.Is(err, cluster.ErrAdopted):
		return nil, errors.Join(remote.ErrNoCopy, workspaces.ErrAdopted)
	case err != nil:
		return nil, err
	}
	s := n.sinkOf(c)
	n.mu.Lock()
	defer n.mu.Unlock()
	n.owned[id] = s
	return s, nil
}

// View is workspaces.Shared's.
func (n *Node) View(ctx context.Context, id string, known workspaces.Point) (sink.Sink, workspaces.Point, error) {
	to, now, err := n.c.View(ctx, n.opt.Store, id, cluster.Point(known))
	if errors.Is(err, cluster.ErrNotFound) {
		err = errMoving(err)
	}
	return to, workspaces.Point(now), err
}

// Elsewhere is workspaces.Shared's.
func (n *Node) Elsewhere(server string) error {
	if _, live := n.peer(server); live {
		return errs.New(errs.Forbidden, "physical_off", "The workspace's directory is at node %s.", server)
	}
	return errDown(server)
}

// errDown is for requests of a workspace whose directory's node does not live.
func errDown(name string) *errs.Error {
	return errs.New(errs.Unavailable, "node_down", "The workspace's directory is at node %s, which is down.", name).With("node", name)
}

// down is errDown for a workspace, with how far the log has a copy.
func (n *Node) down(ctx context.Context, ws, name string) error {
	err := errDown(name)
	if seq, failed := n.c.CopiedSeq(ctx, n.opt.Store, ws); failed == nil {
		err = err.With("copied_seq", seq)
	}
	return err
}

// claim claims a workspace once. A fork that was never opened has no row yet.
func (n *Node) claim(ctx context.Context, r workspaces.Record) (*cluster.Claim, error) {
	c, err := n.c.Claim(ctx, r.ID)
	if errors.Is(err, cluster.ErrNotFound) && r.Fork != nil && r.Fork.Unmade {
		if _, err := n.c.Create(ctx, cluster.Workspace{ID: r.ID, Kind: r.Kind}); err != nil {
			return nil, err
		}
		c, err = n.c.Claim(ctx, r.ID)
	}
	return c, err
}

// isForwardable reports whether the request of a context can go to the node that has a workspace.
func (n *Node) isForwardable(ctx context.Context, ws string) bool {
	at, ok := witness.IsForwardable(ctx)
	return ok && n.local.Family(at) == n.local.Family(ws)
}

// answers reports whether an owner is another node that takes requests.
func (n *Node) answers(owner cluster.Peer) bool {
	_, live := n.peer(owner.Name)
	return live && owner.Name != n.Name() && !owner.Draining
}

// takenFrom asks the owner of a workspace to release it, and reports whether it did.
func (n *Node) takenFrom(ctx context.Context, owned *cluster.OwnedError) bool {
	n.mu.Lock()
	ask := n.ask
	n.mu.Unlock()
	o := Owner{Node: owned.Owner.Name, Address: owned.Owner.Address, URL: owned.Owner.URL, Life: owned.Owner.Life, Epoch: owned.Epoch}
	if ask == nil || owned.Owner.Life == 0 || o.Node == n.Name() {
		return false
	}
	n.Forget(owned.Workspace)
	if err := ask(ctx, o, owned.Workspace); err != nil {
		n.opt.Log.Debug("a workspace was not handed over", "workspace", owned.Workspace, "node", o.Node, "error", err)
		return false
	}
	return true
}

// isPromised reports whether a workspace was released for another node a moment ago,
// which has not claimed it yet.
func (n *Node) isPromised(ctx context.Context, ws string) bool {
	n.mu.Lock()
	until, ok := n.promised[ws]
	n.mu.Unlock()
	if !ok {
		return false
	}
	if time.Now().Before(until) {
		w, err := n.c.Find(ctx, ws)
		if err != nil || w.Owner == nil || w.Owner.Name == n.Name() {
			return true
		}
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.promised, ws)
	return false
}

// sinkOf returns the log of a claim.
func (n *Node) sinkOf(c *cluster.Claim) *metered {
	n.meter.claimed(c)
	return &metered{Sink: n.c.Sink(c, n.opt.Store, n.opt.Grace), meter: n.meter}
}

// hold makes a claim the manager's, unless the node has begun to leave meanwhile.
func (n *Node) hold(ctx context.Context, c *cluster.Claim, began time.Time) (*workspaces.Held, error) {
	s := n.sinkOf(c)
	n.mu.Lock()
	n.owned[c.Workspace] = s
	delete(n.others, c.Workspace)
	leaving := n.leaving
	n.mu.Unlock()
	if leaving {
		n.release(ctx, s)
		return nil, errMoving(nil)
	}
	return &workspaces.Held{Sink: s, Epoch: c.Epoch, Lost: c.Life.Over(), Opened: func() { n.meter.opens.Since(began) }, Release: func(ctx context.Context) { n.release(ctx, s) }}, nil
}

// release ends a claim. One whose release does not reach the engine, or is lost with it,
// stays this life's, and is released when it is asked for (giveBack).
func (n *Node) release(ctx context.Context, s *metered) {
	c := s.Claim()
	defer n.move(c.Workspace)()
	n.mu.Lock()
	if n.owned[c.Workspace] == s {
		delete(n.owned, c.Workspace)
	}
	n.mu.Unlock()
	select {
	case <-c.Life.Over():
		return
	default:
	}
	if err := s.Release(ctx); err != nil {
		n.opt.Log.Warn("a workspace was not released", "workspace", c.Workspace, "error", err)
	}
}

// Remove is workspaces.Shared's.
func (n *Node) Remove(ctx context.Context, id string, history bool) error {
	s := n.own(id)
	if s == nil {
		w, err := n.c.Find(ctx, id)
		switch {
		case errors.Is(err, cluster.ErrNotFound):
			return nil
		case err != nil:
			return err
		case w.Pinned != n.Name():
			return errMoving(nil)
		}
	}
	if s == nil || s.Claim().Pinned != "" {
		return n.c.Unpin(ctx, n.opt.Store, id)
	}
	return s.Remove(ctx, history)
}
