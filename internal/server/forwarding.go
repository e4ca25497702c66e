package server

import (
	"context"
	"errors"
	"log/slog"

	"umbra/config"
	"umbra/httpapi/forward"
	"umbra/internal/cluster"
	"umbra/internal/forklayer"
	"umbra/internal/node"
	"umbra/internal/workspaces"
)

// placed is a node as requests see it.
type placed struct{ *node.Node }

// Peers is forward.Node's.
func (p placed) Peers() []forward.Peer { return peersOf(p.Node.Peers()) }

func peersOf(all []cluster.Peer) []forward.Peer {
	out := make([]forward.Peer, len(all))
	for i, x := range all {
		out[i] = forward.Peer{Life: x.Life, Name: x.Name, Address: x.Address, URL: x.URL, Draining: x.Draining}
	}
	return out
}

// Owner is forward.Node's.
func (p placed) Owner(ctx context.Context, workspace string) (forward.Owner, error) {
	o, err := p.Node.Owner(ctx, workspace)
	if errors.Is(err, node.ErrResting) {
		err = forward.ErrResting
	}
	return forward.Owner(o), err
}

// Owners is forward.Node's.
func (p placed) Owners(ctx context.Context, workspaces []string) (map[string]forward.Owner, error) {
	owners, err := p.Node.Owners(ctx, workspaces)
	out := make(map[string]forward.Owner, len(owners))
	for ws, o := range owners {
		out[ws] = forward.Owner(o)
	}
	return out, err
}

// openForwarder lets the requests of a cluster's node go to the owners of their
// workspaces; nil without a cluster.
func openForwarder(cfg config.Config, n *node.Node, m *workspaces.Manager, records workspaces.Records, log *slog.Logger, d *deps) *forward.Forwarder {
	if n == nil {
		return nil
	}
	into := &adopter{node: n, spaces: m, records: records}
	f := forward.New(forward.Options{Node: placed{n}, Adopt: into.adopt, Arrive: m.Arrive, Wait: cfg.Cluster.Wait, StaleReads: cfg.Cluster.StaleReads, Known: n.Known, Live: func(ctx context.Context) ([]forward.Peer, error) {
		list, err := n.Live(ctx)
		return peersOf(list), err
	}, Tip: m.TipOf, ServerOf: func(workspace string) string {
		r, _, err := records.Get(workspace)
		if err != nil {
			return "" // as where none is known
		}
		return r.Server
	}, Begins: func(workspace string) bool {
		_, begins := m.BegunOf(workspace)
		return begins
	}, Log: log, Meter: d.meters.forward,
		Place: func(workspace string) (string, bool) {
			r, ok, err := m.Lookup(workspace)
			return r.Place(), ok && err == nil
		},
		Held: func(workspace string, blobs []string) (out []forward.HeldFile, err error) {
			list, err := m.HeldFiles(workspace, blobs)
			for _, x := range list {
				out = append(out, forward.HeldFile(x))
			}
			return out, err
		},
		Drop: func(ctx context.Context, workspace string, blobs []string, ignored bool) error {
			if err := n.Purged(ctx, workspace); err != nil {
				return err
			}
			return m.DropCopies(ctx, workspace, workspaces.Purged{Blobs: blobs, Ignored: ignored})
		},
		Enter: func(ctx context.Context, workspace string) error {
			w, err := m.Get(ctx, workspace)
			if err == nil {
				w.Release()
			}
			return err
		},
		Reach: func(ctx context.Context, workspace string, seq uint64) error {
			w, err := m.Get(ctx, workspace)
			if err != nil {
				return err
			}
			defer w.Release()
			return w.Store().Wait(ctx, max(seq, 1)-1)
		}})
	m.SetHeldElsewhere(func(id string, blobs []string) (out []forklayer.HeldFile, err error) {
		list, err := f.Held(id, blobs)
		for _, x := range list {
			out = append(out, forklayer.HeldFile(x))
		}
		return out, err
	})
	n.SetHandover(func(ctx context.Context, o node.Owner, workspace string) error {
		return f.Handover(ctx, forward.Owner(o), workspace)
	})
	d.closers = append(d.closers, func(context.Context) error { f.Close(); return nil })
	return f
}

// nameOf returns a node's name, "" without a cluster.
func nameOf(n *node.Node) string {
	if n == nil {
		return ""
	}
	return n.Name()
}
