package node

import (
	"context"

	"umbra/internal/adopt"
	"umbra/internal/workspaces"
)

// Former is workspaces.Shared's.
func (n *Node) Former(ctx context.Context, id string) (uint64, bool, error) {
	a, err := adopt.Of(ctx, n.c, id)
	if err != nil || a == nil || a.From != n.Name() {
		return 0, false, err
	}
	return a.Seq, true, nil
}

// Orphaned is workspaces.Shared's.
func (n *Node) Orphaned(ctx context.Context, id string, dirs []string) error {
	return adopt.Back(ctx, n.c, id, n.Name(), dirs)
}

// AdoptInto lets a workspace whose node is gone go on in a directory of this one, at a
// canonical path. Errors: node_alive, not_physical, cluster.ErrNotFound.
func (n *Node) AdoptInto(ctx context.Context, records workspaces.Records, id, root string) (*adopt.Result, error) {
	res, err := adopt.Into(ctx, n.c, n.opt.Store, records, id, n.Name(), root)
	n.Forget(id)
	return res, err
}

// AdoptedAt returns the directory of this node in which an adopted workspace goes on;
// empty: there is none.
func (n *Node) AdoptedAt(ctx context.Context, id string) (string, error) {
	a, err := adopt.Of(ctx, n.c, id)
	if err != nil || a == nil || a.Server != n.Name() {
		return "", err
	}
	return a.Root, nil
}

// SettleAdopted ends what a cut-off adoption left of the records. It is called at the
// start, before the manager reads them.
func (n *Node) SettleAdopted(ctx context.Context, records workspaces.Records) error {
	all, err := adopt.All(ctx, n.c)
	if err != nil {
		return err
	}
	for ws, a := range all {
		if err := adopt.Settle(records, ws, a); err != nil {
			return err
		}
		if a.From == n.Name() && !a.Back {
			n.former = append(n.former, ws)
		}
	}
	return nil
}

// PutAside keeps what this node has of workspaces that went on without it.
func (n *Node) PutAside(ctx context.Context) {
	for _, ws := range n.former {
		if err := n.local.PutAside(ctx, ws); err != nil {
			n.opt.Log.Error("the commits of a workspace that was adopted were not put aside", "workspace", ws, "error", err)
		}
	}
}
