package cluster

import (
	"context"
	"errors"
	"time"

	"umbra/gitstore/sink"
	"umbra/internal/blob"
	"umbra/internal/cluster/engine"
)

const (
	// replicaPatience bounds the time for which the replica is waited for: the primary
	// answers as well.
	replicaPatience = 500 * time.Millisecond
	// replicaPause is for how long it is left alone after it did not answer.
	replicaPause = 2 * time.Second
)

// viewReplica is viewSince by the replica; false where it does not answer, or has nothing
// that is as new as the last purge.
func (n *Node) viewReplica(ctx context.Context, store blob.Store, ws string, known Point) (sink.Sink, Point, bool) {
	n.mu.Lock()
	floor, pause := n.floors[ws], n.opts.boot() < n.replicaFrom
	n.mu.Unlock()
	if pause {
		return nil, known, false
	}
	ctx, cancel := context.WithTimeout(ctx, replicaPatience)
	defer cancel()
	to, now, err := n.viewSince(ctx, n.replica, store, ws, known)
	switch now.Exact = false; {
	case err == nil && now.Version >= floor:
		return to, now, true
	case err != nil && !errors.Is(err, ErrNotFound):
		n.opts.Log.Warn("the replica was not read", "workspace", ws, "cause", engine.Cause(err))
		n.mu.Lock()
		n.replicaFrom = n.opts.boot() + replicaPause
		n.mu.Unlock()
	}
	return nil, known, false
}

// Purged says that the history of a workspace was purged: older states of its log, which
// the replica may have, are not read from now on.
func (n *Node) Purged(ctx context.Context, ws string) error {
	if n.replica == nil {
		return nil
	}
	now, err := n.point(ctx, n.e, ws)
	if err != nil {
		return n.mapped(err)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.floors == nil {
		n.floors = make(map[string]int64)
	}
	n.floors[ws] = now.Version
	return nil
}
