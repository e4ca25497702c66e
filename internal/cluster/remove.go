package cluster

import (
	"context"
	"errors"
	"fmt"

	"umbra/gitstore/sink"
	"umbra/internal/blob"
	"umbra/internal/cluster/engine"
)

// Remove removes the workspace of a claim that no store uses, so that it is not found
// any more. With history its log is removed too, and its objects are given to the
// sweeper; else both stay, without a name. It may be called again.
func (s *Sink) Remove(ctx context.Context, history bool) error {
	if err := s.over(); err != nil {
		return err
	}
	id, epoch := s.claim.Workspace, s.claim.Epoch
	if !history {
		return s.n.write(ctx, func(ctx context.Context, c *engine.Conn) error {
			_, err := c.Exec(ctx, `UPDATE workspace SET namespace = NULL WHERE id = $1 AND epoch = $2`, id, epoch)
			return err
		})
	}
	var objects []string
	if s.claim.manifestKey != "" {
		objects = append(objects, s.claim.manifestKey)
	}
	t, err := s.Tail(ctx)
	if err != nil {
		return err
	}
	if t.Manifest != nil {
		objects = append(objects, t.Manifest.Objects()...)
	}
	for i := range t.Groups {
		for _, p := range t.Groups[i].Packs {
			objects = append(objects, p.Name)
		}
	}
	done := make(chan bool, 8)
	err = s.n.write(ctx, func(ctx context.Context, c *engine.Conn) error {
		var n int
		err := c.QueryRow(ctx, `WITH w AS (DELETE FROM workspace WHERE id = $1 AND epoch = $2 RETURNING id),
			log AS (DELETE FROM journal j USING w WHERE j.ws = w.id),
			dropped AS (
				INSERT INTO garbage (key, not_before) SELECT key, now() + make_interval(secs => $4) FROM unnest($3::text[]) AS d (key), w
				ON CONFLICT (key) DO UPDATE SET not_before = least(garbage.not_before, excluded.not_before))
			SELECT (SELECT count(*) FROM w) + (SELECT count(*) FROM (SELECT 1) one WHERE NOT EXISTS (SELECT FROM workspace WHERE id = $1))`,
			id, epoch, objects, purgeGrace.Seconds()).Scan(&n)
		if err == nil { // else it may run again
			done <- n > 0
		}
		return err
	})
	if err == nil && !<-done {
		return sink.Fenced(true, nil)
	}
	return err
}

// Named returns the ID of the workspace that has a namespace; ErrNotFound.
func (n *Node) Named(ctx context.Context, namespace string) (string, error) {
	result := make(chan string, 8)
	err := n.write(ctx, func(ctx context.Context, c *engine.Conn) error {
		var id string
		err := c.QueryRow(ctx, `SELECT coalesce((SELECT id FROM workspace WHERE namespace = `+fmt.Sprintf(namespaceHash, "$1::text")+`), '')`, namespace).Scan(&id)
		if err == nil { // else it may run again
			result <- id
		}
		return err
	})
	if err != nil {
		return "", err
	}
	if id := <-result; id != "" {
		return id, nil
	}
	return "", ErrNotFound
}

// Unpin removes a workspace whose directory is this node's, with its copy.
func (n *Node) Unpin(ctx context.Context, store blob.Store, ws string) error {
	c, err := n.ClaimPinned(ctx, ws)
	if errors.Is(err, ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	return n.Sink(c, store, 0).Remove(ctx, true)
}
