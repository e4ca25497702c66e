package cluster

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"umbra/gitstore/sink"
	"umbra/internal/blob"
	"umbra/internal/cluster/engine"
	"umbra/internal/cluster/recordrow"
)

// sweepKey is the object that says which database swept the store last. The
// database and the object change together: a copy of the database, which thinks
// that the store is its own, finds a number in the object that it does not know.
const sweepKey = "umbra-sweep"

// sweepMark is the object's content.
type sweepMark struct {
	Sweep int64 `json:"sweep,string"`
}

// ErrShared is returned when another database sweeps the object store: nothing is
// deleted any more.
var ErrShared = errors.New("cluster: another database uses this object store")

// Swept says what a sweep deleted.
type Swept struct {
	Garbage int // objects that were dropped, after their grace
	Orphans int // objects that nothing ever named
}

// sweepBatch is how many dropped objects are deleted between two reads of the mark.
const sweepBatch = 500

// Sweep deletes the objects that were dropped and whose grace is over, and, if
// orphans is set, those that nothing names and that are older than a day. One node
// sweeps at a time; another that tries returns at once. Errors: ErrShared, those of
// package sink, and of the store.
func (n *Node) Sweep(ctx context.Context, store blob.Store, orphans bool) (swept Swept, err error) {
	mark, err := n.beginSweep(ctx, store)
	if err != nil {
		return swept, err
	}
	for {
		keys, err := n.due(ctx)
		if err != nil || len(keys) == 0 {
			if err == nil && orphans {
				swept.Orphans, err = n.sweepOrphans(ctx, store, mark)
			}
			return swept, err
		}
		if err := n.stillOurs(ctx, store, mark); err != nil {
			return swept, err
		}
		n.opts.at("sweep")
		for _, key := range keys {
			if err := store.Delete(ctx, key); err != nil {
				return swept, blobError(key, err)
			}
		}
		err = n.write(ctx, func(ctx context.Context, c *engine.Conn) error {
			_, err := c.Exec(ctx, `DELETE FROM garbage WHERE key = ANY ($1)`, keys)
			return err
		})
		if err != nil {
			return swept, err
		}
		swept.Garbage += len(keys)
	}
}

// due returns dropped objects whose grace is over, by the engine's clock.
func (n *Node) due(ctx context.Context) ([]string, error) {
	result := make(chan []string, 8)
	err := n.write(ctx, func(ctx context.Context, c *engine.Conn) error {
		var keys []string
		err := c.QueryRow(ctx, `SELECT coalesce(array_agg(key), '{}') FROM (SELECT key FROM garbage WHERE not_before < now() ORDER BY not_before LIMIT $1) g`, sweepBatch).Scan(&keys)
		if err == nil { // else it may run again
			result <- keys
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return <-result, nil
}

// sweeps reads the numbers of this database's last sweeps, the newest first.
func (n *Node) sweeps(ctx context.Context) ([]int64, error) {
	result := make(chan []int64, 8)
	err := n.write(ctx, func(ctx context.Context, c *engine.Conn) error {
		var numbers []int64
		err := c.QueryRow(ctx, `SELECT sweeps FROM cluster`).Scan(&numbers)
		if err == nil { // else it may run again
			result <- numbers
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return <-result, nil
}

// shared reports whether another database has swept the store.
func (n *Node) shared(ctx context.Context, store blob.Store) (bool, error) {
	// The object is read first: a sweep that begins in between changes the
	// database before it.
	mark, found, err := readMark(ctx, store)
	if err != nil {
		return false, err
	}
	known, err := n.sweeps(ctx)
	if err != nil {
		return false, err
	}
	return found && !slices.Contains(known, mark), nil
}

func readMark(ctx context.Context, store blob.Store) (mark int64, found bool, err error) {
	raw, err := readObject(ctx, store, sweepKey)
	if errors.Is(err, sink.ErrMissing) {
		return 0, false, nil
	}
	if err != nil {
		return 0, false, err
	}
	var m sweepMark
	if err := json.Unmarshal(raw, &m); err != nil {
		return 0, true, nil // another program's, which no database's number is
	}
	return m.Sweep, true, nil
}

// beginSweep gives the sweep a number, in the database and then in the store.
func (n *Node) beginSweep(ctx context.Context, store blob.Store) (int64, error) {
	shared, err := n.shared(ctx, store)
	if err != nil {
		return 0, err
	}
	if shared {
		return 0, ErrShared
	}
	next := random63()
	err = n.write(ctx, func(ctx context.Context, c *engine.Conn) error {
		// Older numbers stay known: this sweep may end before it has written the
		// object, and one that was paused may write it late.
		if _, err := c.Exec(ctx, `UPDATE cluster SET sweeps = (ARRAY[$1::bigint] || sweeps)[1:100]`, next); err != nil {
			return err
		}
		// Nodes that were killed left them behind.
		_, err := c.Exec(ctx, `DELETE FROM writer WHERE used < now() - interval '1 day'`)
		return err
	})
	if err != nil {
		return 0, err
	}
	n.opts.at("sweep-mark")
	raw, err := json.Marshal(sweepMark{next})
	if err != nil {
		return 0, err
	}
	if err := store.Put(ctx, sweepKey, bytes.NewReader(raw), int64(len(raw))); err != nil {
		return 0, blobError(sweepKey, err)
	}
	return next, nil
}

// errOtherSweep ends a sweep when another node of the cluster has begun one.
var errOtherSweep = errors.New("cluster: another node sweeps")

// stillOurs reports whether this sweep is the newest in database and store.
func (n *Node) stillOurs(ctx context.Context, store blob.Store, mark int64) error {
	found, ok, err := readMark(ctx, store)
	if err != nil {
		return err
	}
	known, err := n.sweeps(ctx)
	if err != nil {
		return err
	}
	switch {
	case ok && !slices.Contains(known, found):
		return ErrShared
	case !ok || found != mark || known[0] != mark:
		return errOtherSweep
	}
	return nil
}

// sweepOrphans deletes objects that nothing names: of a store that ended between
// putting and naming them.
func (n *Node) sweepOrphans(ctx context.Context, store blob.Store, mark int64) (int, error) {
	// The store's own clock says how old its objects are.
	now := time.Time{}
	for o, err := range store.List(ctx, sweepKey, "") {
		if err != nil {
			return 0, blobError(sweepKey, err)
		}
		if o.Key == sweepKey {
			now = o.Modified
		}
	}
	if now.IsZero() {
		return 0, ErrShared
	}
	deleted := 0
	var old []string
	ws := ""
	flush := func() error {
		if len(old) == 0 {
			return nil
		}
		named, err := n.named(ctx, store, ws)
		if err != nil {
			return err
		}
		if err := n.stillOurs(ctx, store, mark); err != nil {
			return err
		}
		for _, key := range old {
			if named[key] {
				continue
			}
			if err := store.Delete(ctx, key); err != nil {
				return blobError(key, err)
			}
			deleted++
		}
		old = nil
		return nil
	}
	for o, err := range store.List(ctx, "", "") {
		if err != nil {
			return deleted, blobError("", err)
		}
		dir, _, ok := strings.Cut(o.Key, "/")
		if !ok || strings.HasPrefix(o.Key, "umbra-") || now.Sub(o.Modified) < orphan {
			continue
		}
		if dir != ws {
			if err := flush(); err != nil {
				return deleted, err
			}
			ws = dir
		}
		old = append(old, o.Key)
	}
	return deleted, flush()
}

// named returns the objects of a workspace that its row, its manifest, a group, a
// record or the garbage names. An object that is put now is younger than these.
func (n *Node) named(ctx context.Context, store blob.Store, ws string) (map[string]bool, error) {
	type rows struct {
		manifest []byte
		key      string
		groups   [][]byte
		garbage  []string
		kept     []string
	}
	for try := 0; ; try++ {
		result := make(chan rows, 8)
		err := n.write(ctx, func(ctx context.Context, c *engine.Conn) error {
			var r rows
			err := c.QueryRow(ctx, `SELECT w.manifest, `+manifestKey+`,
				(SELECT array_agg(data) FROM journal WHERE ws = $1 AND octet_length(data) > 0),
				(SELECT array_agg(key) FROM garbage WHERE starts_with(key, $1 || '/')),
				(SELECT array_agg(convert_from(substr(key, $2), 'UTF8')) FROM record WHERE key >= $3 AND key < $4)
				FROM (SELECT) one LEFT JOIN workspace w ON w.id = $1`, ws, len(recordrow.Prefix(keptObjects))+1, recordrow.Key(keptObjects, ws+"/"), recordrow.Key(keptObjects, ws+"0")).Scan(&r.manifest, &r.key, &r.groups, &r.garbage, &r.kept)
			if errors.Is(err, pgx.ErrNoRows) {
				err = nil
			}
			if err == nil { // else it may run again
				result <- r
			}
			return err
		})
		if err != nil {
			return nil, err
		}
		r := <-result
		out := map[string]bool{}
		for _, key := range append(r.garbage, r.kept...) {
			out[key] = true
		}
		if r.key != "" {
			out[r.key] = true
			if r.manifest, err = readObject(ctx, store, r.key); errors.Is(err, sink.ErrMissing) && try < 3 {
				continue // it was replaced meanwhile
			} else if err != nil {
				return nil, err
			}
		}
		if r.manifest != nil {
			m, err := sink.DecodeManifest(r.manifest)
			if err != nil {
				return nil, fmt.Errorf("workspace %s: %w", ws, err)
			}
			for _, name := range m.Objects() {
				out[name] = true
			}
		}
		for _, data := range r.groups {
			g, err := sink.DecodeGroup(1, data)
			if err != nil {
				return nil, fmt.Errorf("workspace %s: %w", ws, err)
			}
			for _, p := range g.Packs {
				out[p.Name] = true
			}
		}
		return out, nil
	}
}

// CountGarbage calls found with how many objects wait for the sweeper.
func (n *Node) CountGarbage(ctx context.Context, found func(count int64)) error {
	return n.write(ctx, func(ctx context.Context, c *engine.Conn) error {
		var count int64
		err := c.QueryRow(ctx, `SELECT count(*) FROM garbage`).Scan(&count)
		found(count)
		return err
	})
}
