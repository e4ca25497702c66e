package node

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"umbra/internal/cluster"
)

const (
	// leavers is how many workspaces are released at the same time.
	leavers = 64
	// drainPatience bounds a drain that the cluster's owner asked for.
	drainPatience = 30 * time.Second
	// sweepEvery is how often the object store is swept, orphansEvery how often also
	// for objects that nothing ever named, which lists all.
	sweepEvery   = 10 * time.Minute
	orphansEvery = 24 * time.Hour
	// countEvery is how often the objects that wait for the sweeper are counted.
	countEvery = time.Minute
)

// Start starts the node's own work: it drains when the cluster's owner asks for it,
// and sweeps the object store.
func (n *Node) Start() {
	n.wg.Go(n.followDrain)
	n.wg.Go(n.sweep)
	n.wg.Go(n.countGarbage)
}

// Close ends the node's own work. It releases nothing.
func (n *Node) Close() {
	n.stop()
	n.wg.Wait()
}

// Leave stops claiming, and releases all workspaces: their logs are sealed, and the
// requests that use them end first, as far as both is possible until ctx ends. It
// returns those that are left.
func (n *Node) Leave(ctx context.Context) (left []string) {
	n.c.Hurry()
	n.setLeaving(true)
	var draining sync.WaitGroup
	draining.Go(func() {
		if err := n.c.Drain(ctx); err != nil {
			n.opt.Log.Warn("other nodes do not know that this one leaves", "error", err)
		}
	})
	defer draining.Wait()
	n.releaseAll(ctx)
	return n.local.Held()
}

// releaseAll releases all workspaces. Those that hang when ctx ends go on by themselves.
func (n *Node) releaseAll(ctx context.Context) {
	slots := make(chan struct{}, leavers)
	list := n.local.Held()
	released := make(chan struct{}, len(list))
	for _, ws := range list {
		go func() {
			defer func() { released <- struct{}{} }()
			select {
			case slots <- struct{}{}:
			case <-ctx.Done():
				return
			}
			defer func() { <-slots }()
			if err := n.local.Yield(ctx, ws, true); err != nil {
				n.opt.Log.Warn("a workspace was not released", "workspace", ws, "error", err)
			}
		}()
	}
	for range list {
		select {
		case <-released:
		case <-ctx.Done():
			return
		}
	}
}

func (n *Node) setLeaving(leaving bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.leaving == leaving {
		return
	}
	if n.leaving = leaving; leaving {
		close(n.left)
	} else {
		n.left = make(chan struct{})
	}
}

// whenLeft returns a channel that is closed when the node leaves.
func (n *Node) whenLeft() <-chan struct{} {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.left
}

// followDrain does what the cluster's owner asks for by its row.
func (n *Node) followDrain() {
	asked := false
	for {
		beaten := n.c.Beaten()
		if now := n.c.Draining(); now != asked {
			asked = now
			n.opt.Log.Info("draining", "on", asked)
			n.setLeaving(asked)
		}
		if asked && !n.c.Hurried() && len(n.local.Held()) > 0 { // else Leave does it
			ctx, cancel := context.WithTimeout(n.ctx, drainPatience)
			n.releaseAll(ctx)
			cancel()
		}
		select {
		case <-beaten:
		case <-n.ctx.Done():
			return
		}
	}
}

// sweep sweeps the object store, and packs the records that nothing changes, as long as
// this node is the first of the live ones.
func (n *Node) sweep() {
	records := n.c.Records()
	defer func() { _ = records.Close() }() // it returns no error
	// Not at once: servers that start together would all list the store.
	t := time.NewTimer(sweepEvery/2 + rand.N(sweepEvery/2))
	defer t.Stop()
	orphans := time.Now()
	for {
		select {
		case <-t.C:
		case <-n.ctx.Done():
			return
		}
		t.Reset(sweepEvery)
		names := []string{n.Name()}
		for _, p := range n.Peers() {
			names = append(names, p.Name)
		}
		if slices.Min(names) != n.Name() || n.Leaving() {
			continue
		}
		all := time.Since(orphans) >= orphansEvery
		swept, err := n.c.Sweep(n.ctx, n.opt.Store, all)
		switch {
		case errors.Is(err, cluster.ErrShared):
			n.meter.shared.Store(true)
			n.opt.Log.Error("another database uses this object store: nothing is deleted from it")
		case err != nil && n.ctx.Err() == nil:
			n.opt.Log.Warn("the object store was not swept", "error", err)
		case err == nil:
			n.meter.shared.Store(false)
			if all {
				orphans = time.Now()
			}
		}
		if swept != (cluster.Swept{}) {
			n.opt.Log.Info("the object store was swept", "dropped", swept.Garbage, "orphans", swept.Orphans)
		}
		moved, err := records.Pack(n.ctx)
		if err != nil && n.ctx.Err() == nil {
			n.opt.Log.Warn("records were not packed", "error", err)
		}
		if moved > 0 {
			n.opt.Log.Info("records were packed", "rows", moved)
		}
	}
}

// countGarbage counts what waits for the sweeper, for the metrics.
func (n *Node) countGarbage() {
	t := time.NewTicker(countEvery)
	defer t.Stop()
	for {
		if err := n.c.CountGarbage(n.ctx, n.meter.garbage.Store); err != nil && n.ctx.Err() == nil {
			n.opt.Log.Debug("the dropped objects were not counted", "error", err)
		}
		select {
		case <-t.C:
		case <-n.ctx.Done():
			return
		}
	}
}
