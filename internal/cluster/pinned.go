package cluster

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"

	"umbra/internal/blob"
	"umbra/internal/cluster/engine"
)

// ErrAdopted is returned for a workspace whose directory was this node's: the cluster
// goes on with it elsewhere.
var ErrAdopted = errors.New("cluster: the workspace was adopted, and goes on elsewhere")

// Adoption is what the cluster keeps of a workspace that goes on without the node that
// had its directory.
type Adoption struct {
	From     string    `json:"from"` // that node
	Seq      uint64    `json:"seq"`  // the last commit that went on
	CopiedAt time.Time `json:"copied_at"`
	Server   string    `json:"server,omitempty"` // the node at which it goes on in a directory; empty: it is virtual
	Root     string    `json:"root,omitempty"`   // that directory
	// Back is set once the node was back, and has put its later commits aside.
	Back     bool     `json:"back,omitempty"`
	Orphaned []string `json:"orphaned,omitempty"` // directories with those commits, on that node
}

// Conn is a connection for the statements of other packages.
type Conn = engine.Conn

// Write runs statements that may be run twice. Errors of package sink, and ErrNotFound.
func (n *Node) Write(ctx context.Context, f func(context.Context, *Conn) error) error {
	return n.write(ctx, f)
}

// Write is Node.Write.
func (a *Admin) Write(ctx context.Context, f func(context.Context, *Conn) error) error {
	return a.n.write(ctx, f)
}

// CopiedSeq is Node.CopiedSeq.
func (a *Admin) CopiedSeq(ctx context.Context, store blob.Store, ws string) (uint64, error) {
	return a.n.CopiedSeq(ctx, store, ws)
}

// Known is Node.Known.
func (a *Admin) Known(ctx context.Context, name string) (bool, error) { return a.n.Known(ctx, name) }

// Live is Node.Live.
func (a *Admin) Live(ctx context.Context) ([]Peer, error) { return a.n.Live(ctx) }

// Live returns the nodes that were not declared dead, by name, as the engine has them now.
func (n *Node) Live(ctx context.Context) ([]Peer, error) {
	result := make(chan []Peer, 1)
	err := n.e.Do(ctx, func(ctx context.Context, c *engine.Conn) error {
		rows, err := c.Query(ctx, `SELECT life, name, address, url, version, state = 'draining' FROM node WHERE state <> 'dead' ORDER BY name`)
		if err != nil {
			return err
		}
		list, err := pgx.CollectRows(rows, pgx.RowToStructByPos[Peer])
		if err == nil {
			result <- list
		}
		return err
	})
	if err != nil {
		return nil, prefixed(err)
	}
	return <-result, nil
}

// ClaimPinned claims a workspace whose directory is this node's, for its copy. Errors as
// of Claim, and ErrAdopted.
func (n *Node) ClaimPinned(ctx context.Context, ws string) (*Claim, error) {
	// A claim alone would take one that any node may own by now.
	w, err := n.Find(ctx, ws)
	if err != nil {
		return nil, err
	}
	if w.Pinned != n.opts.Name {
		return nil, ErrAdopted
	}
	c, err := n.Claim(ctx, ws)
	var owned *OwnedError
	switch {
	case errors.As(err, &owned) && owned.Owner.Name != n.opts.Name:
		return nil, ErrAdopted
	case err != nil:
		return nil, err
	case c.Pinned != n.opts.Name:
		return nil, errors.Join(ErrAdopted, n.Release(ctx, c))
	}
	return c, nil
}
