// Package adopt lets a workspace go on whose directory was at a node that does not come
// back: from the copy that the cluster's log has of its history (umbra cluster adopt).
//
// # Order
//
// First the workspace's epoch is raised, so that its former node appends no more; then
// the copy is read; then, in one statement that the epoch guards, the cluster's row says
// how it goes on (cluster.Adoption), and its directory is no node's any more; at last the
// workspace's record follows that. A run that was cut off before the row was changed has
// done nothing; after it, Settle ends it, at the next run or the start of a node.
package adopt

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"umbra/internal/blob"
	"umbra/internal/cluster"
	"umbra/internal/errs"
	"umbra/internal/workspaces"
)

// Cluster is a *cluster.Node or a *cluster.Admin.
type Cluster interface {
	Write(ctx context.Context, f func(context.Context, *cluster.Conn) error) error
	CopiedSeq(ctx context.Context, store blob.Store, ws string) (uint64, error)
}

// Result is the answer of umbra cluster adopt.
type Result struct {
	ID       string    `json:"id"`
	Kind     string    `json:"kind"`
	Owner    *string   `json:"owner"` // the node that has its directory; nil: any may own it
	Seq      uint64    `json:"seq"`   // the last commit that goes on
	CopiedAt time.Time `json:"copied_at"`
}

// Copy is the copy of the history of a workspace whose node is gone.
type Copy struct {
	ws, kind, from string
	epoch          int64
	Seq            uint64 // of its newest commit
	at             time.Time
}

// row is what the cluster says about a workspace.
type row struct {
	kind, pinned string
	at           time.Time // when its log got its newest part
	adopted      *cluster.Adoption
}

// ask runs statements that may run twice, and returns what the last run of them found.
func ask[T any](ctx context.Context, e Cluster, f func(context.Context, *cluster.Conn) (T, error)) (found T, err error) {
	last := make(chan T, 1)
	err = e.Write(ctx, func(ctx context.Context, c *cluster.Conn) error {
		v, err := f(ctx, c)
		if err == nil {
			select {
			case <-last:
			default:
			}
			last <- v
		}
		return err
	})
	if err != nil {
		return found, err
	}
	return <-last, nil
}

// find returns the row of a workspace: cluster.ErrNotFound.
func find(ctx context.Context, e Cluster, ws string) (*row, error) {
	found, err := ask(ctx, e, func(ctx context.Context, c *cluster.Conn) (*row, error) {
		r := &row{}
		var at *time.Time
		err := c.QueryRow(ctx, `SELECT coalesce(w.kind, 'virtual'), coalesce(w.pinned, ''), w.adopted,
				coalesce((SELECT max(at) FROM journal WHERE ws = w.id AND octet_length(data) > 0), w.sealed_at)
			FROM workspace w WHERE w.id = $1`, ws).Scan(&r.kind, &r.pinned, &r.adopted, &at)
		if errors.Is(err, sql.ErrNoRows) {
			return nil, nil
		}
		if at != nil {
			r.at = at.UTC()
		}
		return r, err
	})
	if err == nil && found == nil {
		err = fmt.Errorf("%w: %s", cluster.ErrNotFound, ws)
	}
	return found, err
}

// alive is the error for a workspace whose node lives.
func alive(node string) error {
	return errs.New(errs.Conflict, "node_alive", "The workspace's directory is at node %s, which is live.", node)
}

// notPhysical is the error for a workspace that any node may own.
func notPhysical(ws string) error {
	return errs.New(errs.Conflict, "not_physical", "The workspace %s has no directory: any node may own it.", ws)
}

// lost is the error of a run that could not change a workspace's row: its node lives again, or
// another run was first.
func lost(ctx context.Context, e Cluster, ws, node string) error {
	r, err := find(ctx, e, ws)
	if err != nil {
		return err
	}
	if r.pinned == "" {
		return notPhysical(ws)
	}
	live, err := ask(ctx, e, func(ctx context.Context, c *cluster.Conn) (live bool, err error) {
		err = c.QueryRow(ctx, `SELECT EXISTS (SELECT FROM node WHERE name = $1 AND state <> 'dead')`, r.pinned).Scan(&live)
		return live, err
	})
	if err == nil && (live || r.pinned != node) {
		err = alive(r.pinned)
	}
	if err == nil {
		err = errs.New(errs.Conflict, "adopt_running", "Another run of umbra cluster adopt is at work on the workspace; run this one again where that one fails.")
	}
	return err
}

// Begin takes the log from the node that had the directory. Errors: node_alive,
// not_physical, adopt_running, cluster.ErrNotFound, or of package sink.
func Begin(ctx context.Context, e Cluster, store blob.Store, ws string) (*Copy, error) {
	r, err := find(ctx, e, ws)
	switch {
	case err != nil:
		return nil, err
	case r.pinned == "":
		return nil, notPhysical(ws)
	}
	if err := awaitDeath(ctx, e, r.pinned); err != nil {
		return nil, err
	}
	epoch, err := ask(ctx, e, func(ctx context.Context, c *cluster.Conn) (epoch int64, err error) {
		err = c.QueryRow(ctx, `UPDATE workspace SET epoch = epoch + 1, owner = NULL
			WHERE id = $1 AND pinned = $2 AND NOT EXISTS (SELECT FROM node WHERE name = $2 AND state <> 'dead') RETURNING epoch`, ws, r.pinned).Scan(&epoch)
		if errors.Is(err, sql.ErrNoRows) {
			err = nil
		}
		return epoch, err
	})
	if err == nil && epoch == 0 {
		err = lost(ctx, e, ws, r.pinned)
	}
	if err != nil {
		return nil, err
	}
	found := &Copy{ws: ws, kind: r.kind, from: r.pinned, epoch: epoch}
	if r, err = find(ctx, e, ws); err != nil {
		return nil, err
	}
	found.at = r.at
	found.Seq, err = e.CopiedSeq(ctx, store, ws)
	return found, err
}

// Finish makes the workspace go on from the copy: in a directory of a node, or, with
// neither, as a virtual one. Errors as of Begin.
func (f *Copy) Finish(ctx context.Context, e Cluster, records workspaces.Records, server, root string) (*Result, error) {
	a := &cluster.Adoption{From: f.from, Seq: f.Seq, CopiedAt: f.at, Server: server, Root: root}
	kind := workspaces.VirtualKind
	if server != "" {
		kind = f.kind
	}
	raw, err := json.Marshal(a)
	if err != nil {
		return nil, err
	}
	done, err := ask(ctx, e, func(ctx context.Context, c *cluster.Conn) (bool, error) {
		_, err := c.Exec(ctx, `UPDATE workspace SET kind = $4, pinned = NULLIF($5, ''), owner = NULL, epoch = epoch + 1, adopted = $6
			WHERE id = $1 AND epoch = $2 AND pinned = $3 AND NOT EXISTS (SELECT FROM node WHERE name = $3 AND state <> 'dead')`,
			f.ws, f.epoch, f.from, kind, server, string(raw))
		if err != nil {
			return false, err
		}
		// It may have been done by an attempt before. This writes, so that the answer waits
		// for the standby.
		tag, err := c.Exec(ctx, `UPDATE workspace SET epoch = epoch WHERE id = $1 AND adopted = $2::jsonb`, f.ws, string(raw))
		return tag.RowsAffected() > 0, err
	})
	if err == nil && !done {
		err = lost(ctx, e, f.ws, f.from)
	}
	if err != nil {
		return nil, err
	}
	if err := Settle(records, f.ws, a); err != nil {
		return nil, err
	}
	return f.result(a), nil
}

func (f *Copy) result(a *cluster.Adoption) *Result {
	r := &Result{ID: f.ws, Kind: workspaces.VirtualKind, Seq: a.Seq, CopiedAt: a.CopiedAt}
	if a.Server != "" {
		r.Kind, r.Owner = workspaces.PhysicalKind, &a.Server
	}
	return r
}

// Settle makes the record of a workspace what its adoption says. It may be called again.
func Settle(records workspaces.Records, ws string, a *cluster.Adoption) error {
	r, found, err := records.Get(ws)
	if err != nil || !found || r.Kind == workspaces.VirtualKind || r.Server != a.From {
		return err
	}
	r.Server, r.Root, r.Dev, r.Ino, r.Born, r.Watched, r.Rest = a.Server, a.Root, 0, 0, 0, false, nil
	kind := workspaces.CopyKind // a layer has nothing below it there
	if r.Restored = a.Server != ""; !r.Restored {
		r.Kind, kind = workspaces.VirtualKind, workspaces.VirtualKind
	}
	if r.Fork != nil {
		f := *r.Fork
		f.Kind, f.Dir, f.Ino, f.Whole, r.Fork = kind, "", 0, false, &f
	}
	return records.Put(r)
}

// Virtual lets a workspace go on as a virtual one. Where that was done before, it says so.
func Virtual(ctx context.Context, e Cluster, store blob.Store, records workspaces.Records, ws string) (*Result, error) {
	r, err := find(ctx, e, ws)
	if err != nil {
		return nil, err
	}
	if a := r.adopted; a != nil && a.Server == "" && r.pinned == "" {
		return (&Copy{ws: ws}).result(a), Settle(records, ws, a)
	}
	f, err := Begin(ctx, e, store, ws)
	if err != nil {
		return nil, err
	}
	return f.Finish(ctx, e, records, "", "")
}

// Into lets a workspace go on in a directory of a node, at a canonical path; it has no
// files there yet. Where that was done before, it says so.
func Into(ctx context.Context, e Cluster, store blob.Store, records workspaces.Records, ws, server, root string) (*Result, error) {
	r, err := find(ctx, e, ws)
	if err != nil {
		return nil, err
	}
	if a := r.adopted; a != nil && a.Server == server && a.Root == root && r.pinned == server {
		return (&Copy{ws: ws}).result(a), Settle(records, ws, a)
	}
	f, err := Begin(ctx, e, store, ws)
	if err != nil {
		return nil, err
	}
	return f.Finish(ctx, e, records, server, root)
}

// awaitDeath returns nil once no node of a name lives. Where no other node is there to
// declare it dead, this does: it saw one beat for longer than a lease, in which the engine
// answered.
func awaitDeath(ctx context.Context, e Cluster, node string) error {
	const looks = 8 // in a lease
	type state struct {
		life, beat int64
		lease      time.Duration
		found      bool
	}
	look := func() (state, error) {
		return ask(ctx, e, func(ctx context.Context, c *cluster.Conn) (s state, err error) {
			var ms int64
			err = c.QueryRow(ctx, `SELECT life, beat, (SELECT lease_ms FROM cluster) FROM node WHERE name = $1 AND state <> 'dead'`, node).Scan(&s.life, &s.beat, &ms)
			if errors.Is(err, sql.ErrNoRows) {
				return s, nil
			}
			s.found, s.lease = true, time.Duration(ms)*time.Millisecond
			return s, err
		})
	}
	first, err := look()
	if err != nil || !first.found {
		return err
	}
	every := first.lease / looks
	t := time.NewTicker(every)
	defer t.Stop()
	for n, last := 0, time.Now(); n <= looks+1; n++ {
		select {
		case <-t.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		s, err := look()
		switch {
		case err != nil:
			return err
		case !s.found:
			return nil
		case s.life != first.life || s.beat != first.beat:
			return alive(node)
		}
		if time.Since(last) > 2*every { // the engine was away
			n = 0
		}
		last = time.Now()
	}
	live, err := ask(ctx, e, func(ctx context.Context, c *cluster.Conn) (live bool, err error) {
		if _, err := c.Exec(ctx, `UPDATE node SET state = 'dead', ended = now() WHERE life = $1 AND beat = $2 AND state <> 'dead'`, first.life, first.beat); err != nil {
			return false, err
		}
		err = c.QueryRow(ctx, `SELECT EXISTS (SELECT FROM node WHERE name = $1 AND state <> 'dead')`, node).Scan(&live)
		return live, err
	})
	if err == nil && live {
		err = alive(node)
	}
	return err
}
