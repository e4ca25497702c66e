package cluster

import (
	"context"
	"errors"
	"time"
)

// ErrAdopted is returned for a workspace whose directory was this node's: the cluster
// goes on with it elsewhere.
var ErrAdopted = errors.New("cluster: the workspace was adopted, and goes on elsewhere")

// Adoption is what the cluster keeps of a workspace that goes on without the node that
// had its directory.
type Adoption struct {
	From string    `json:"from"` // that node
	Seq  uint64    `json:"seq"`  // the last commit that went on
	At   time.Time `json:"at"`
	// Back is set once that node was back, and put its later commits aside.
	Back bool `json:"back"`
	// Orphaned are the files with those commits, on that node.
	Orphaned []string `json:"orphaned,omitempty"`
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
