package cluster

import (
	"context"
	"slices"
	"strconv"
	"strings"

	"umbra/internal/blob"
	"umbra/internal/cluster/engine"
)

// dropped selects what was dropped of the history of workspace $1. A purge does not
// reach the objects of tasks' directories.
const dropped = `starts_with(key, $1 || '/') AND NOT starts_with(key, $1 || '/area-')`

// Erase deletes every object of a workspace's history that was dropped, whatever its
// grace, and returns how many there are still: another node sweeps. The caller knows that
// no node reads them. Errors as of Sweep.
func (n *Node) Erase(ctx context.Context, store blob.Store, ws string) (left int, err error) {
	if err := n.hasten(ctx, ws, 0); err != nil {
		return 0, err
	}
	_, err = n.Sweep(ctx, store, false)
	count := make(chan int, 8)
	failed := n.write(ctx, func(ctx context.Context, c *engine.Conn) error {
		var n int
		err := c.QueryRow(ctx, `SELECT count(*) FROM garbage WHERE `+dropped, ws).Scan(&n)
		if err == nil { // else it may run again
			count <- n
		}
		return err
	})
	if failed != nil {
		return 0, failed
	}
	if left = <-count; left == 0 {
		err = nil
	}
	return left, err
}

// hasten has what was dropped of a workspace's history deleted after this grace, if it
// has a longer one.
func (n *Node) hasten(ctx context.Context, ws string, grace float64) error {
	return n.write(ctx, func(ctx context.Context, c *engine.Conn) error {
		_, err := c.Exec(ctx, `UPDATE garbage SET not_before = least(not_before, now() + make_interval(secs => $2)) WHERE `+dropped, ws, grace)
		return err
	})
}

// DropUnnamed gives the sweeper the objects of the workspace's history that nothing names
// and nothing can name any more: owners of earlier epochs put them, or this one before
// its last purge.
func (s *Sink) DropUnnamed(ctx context.Context) error {
	ws := s.claim.Workspace
	var keys []string
	for o, err := range s.store.List(ctx, ws+"/", "") {
		if err != nil {
			return blobError(ws, err)
		}
		// In this order: an object is in puts before it exists, and until it is named.
		if !s.mayBeNamed(o.Key) {
			keys = append(keys, o.Key)
		}
	}
	named, err := s.n.named(ctx, s.store, ws)
	if err != nil {
		return err
	}
	keys = slices.DeleteFunc(keys, func(key string) bool { return named[key] })
	if len(keys) == 0 {
		return nil
	}
	return s.n.write(ctx, func(ctx context.Context, c *engine.Conn) error {
		_, err := c.Exec(ctx, `INSERT INTO garbage (key, not_before) SELECT key, now() FROM unnest($1::text[]) AS d (key) ON CONFLICT (key) DO NOTHING`, keys)
		return err
	})
}

// mayBeNamed reports whether an object of the workspace is not one of its history, or may
// still get a name.
func (s *Sink) mayBeNamed(key string) bool {
	text, _, _ := strings.Cut(strings.TrimPrefix(key, s.claim.Workspace+"/"), "-")
	epoch, err := strconv.ParseInt(text, 10, 64)
	if err != nil || epoch > s.claim.Epoch {
		return true
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	since, put := s.puts[key]
	return epoch == s.claim.Epoch && put && s.n.opts.boot()-since <= stale
}

// age makes every object that nothing names yet too old to be named: a purge does not
// know what is in it. It is put again.
func (s *Sink) age() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for key := range s.puts {
		s.puts[key] = s.n.opts.boot() - 2*stale
	}
}
