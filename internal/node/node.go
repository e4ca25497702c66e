// Package node is one server's part in a cluster: which workspaces it owns, how it
// gets one that another server owns, and how it gives them up.
//
// A Node implements workspaces.Shared for the manager, which has the workspaces open,
// and says to the HTTP side who owns a workspace. internal/cluster has the leases and
// claims below it.
//
// # Invariants
//
//   - A workspace is claimed once at a time in a process: a second claim would raise
//     the epoch below a store that is open.
//   - What is owned is known from memory only while the life that claimed it is not
//     over; what others own is remembered for a moment, and their answers decide.
//   - A node that leaves claims nothing.
//
// It imports gitstore/remote, gitstore/sink, internal/adopt, internal/blob, internal/cluster,
// internal/errs, internal/telemetry, internal/witness and internal/workspaces.
package node

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"umbra/gitstore/sink"
	"umbra/internal/blob"
	"umbra/internal/cluster"
	"umbra/internal/errs"
	"umbra/internal/telemetry"
)

// Options of a node. Cluster and Store are required.
type Options struct {
	Cluster *cluster.Node
	Store   blob.Store
	// StoreMeter counts the operations on Store; it may be nil.
	StoreMeter *telemetry.Ops
	// Grace is how long an object that was dropped stays (cluster.garbage_grace).
	Grace time.Duration
	// Wait is how long a request waits while ownership moves (cluster.wait).
	Wait time.Duration
	Log  *slog.Logger
}

// Local is the manager of this server's workspaces.
type Local interface {
	// Yield closes a workspace with its family and releases them.
	Yield(ctx context.Context, id string, seal bool) error
	// Family returns the workspace by which the owner of a workspace is found.
	Family(id string) string
	// Pinned reports whether a workspace's directory is this server's.
	Pinned(id string) bool
	// Held returns the workspaces that are claimed, by family.
	Held() []string
	// PutAside keeps the commits of a workspace that goes on without this server's.
	PutAside(ctx context.Context, id string) error
	// Cached returns the bytes of workspaces on this server's disk that are the cluster's.
	Cached() int64
	// HasFolder reports whether a workspace is open whose directory this server has.
	HasFolder(id string) bool
	// FollowerLag returns how old the states are by which it answers for workspaces of
	// other nodes.
	FollowerLag() time.Duration
}

// Node is this server in the cluster. Its methods may be called from any goroutine.
type Node struct {
	opt   Options
	c     *cluster.Node
	local Local
	meter *meter

	mu     sync.Mutex
	owned  map[string]*metered
	others map[string]remembered
	// promised are workspaces that were released for another node, until when it has
	// them to itself.
	promised map[string]time.Time
	// moving counts the claims and releases under way, by workspace.
	moving  map[string]int
	ask     func(ctx context.Context, owner Owner, ws string) error
	former  []string // adopted workspaces whose commits this node has to put aside, as of the start
	leaving bool
	left    chan struct{} // closed with leaving

	ctx  context.Context
	stop context.CancelFunc
	wg   sync.WaitGroup
}

// remembered is an owner, until it has to be asked for again.
type remembered struct {
	Owner
	until time.Time
}

const (
	// rememberFor is how long the owner of a workspace is remembered. One that is not
	// the owner any more says so.
	rememberFor = 2 * time.Second
	// maxRemembered bounds what is remembered.
	maxRemembered = 10_000
	// promiseFor is how long a node that was asked for a workspace has it to itself.
	promiseFor = 2 * time.Second
	// handoverPatience is how long the requests that use a workspace have to end.
	handoverPatience = 2 * time.Second
	// again is how often a claim is repeated that another owner refuses.
	again = 30 * time.Millisecond
)

// Owner is who owns a workspace.
type Owner struct {
	Node, Address, URL string
	Life               int64 // of its process; 0: not known
	Epoch              int64 // 0: it does not own it yet, and is the one to claim it
	Pinned             bool  // it has the workspace's directory: no node claims it
	Self               bool
}

// ErrResting is returned for a workspace that no node owns: the next that needs it
// claims it.
var ErrResting = errors.New("node: no node owns the workspace")

// New returns a node; Close ends it. Attach is called before anything is claimed.
func New(o Options) *Node {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	o.Wait = cmp.Or(o.Wait, 8*time.Second)
	o.Grace = cmp.Or(o.Grace, 24*time.Hour)
	n := &Node{opt: o, c: o.Cluster, meter: newMeter(), owned: make(map[string]*metered), others: make(map[string]remembered), promised: make(map[string]time.Time), moving: make(map[string]int), left: make(chan struct{})}
	n.ctx, n.stop = context.WithCancel(context.Background())
	return n
}

// Attach sets the manager of this server's workspaces.
func (n *Node) Attach(l Local) { n.local = l }

// Name returns the node's name.
func (n *Node) Name() string { return n.c.Name() }

// Key returns the cluster's key, which signs requests among nodes.
func (n *Node) Key() []byte { return n.c.Cluster.Key }

// Records returns the cluster's records. They are closed before the node.
func (n *Node) Records() *cluster.Records { return n.c.Records() }

// Objects returns the objects that the records of nodes name.
func (n *Node) Objects() *cluster.Objects { return n.c.Objects(n.opt.Store, n.opt.Grace) }

// StoreMeter returns what counts the operations on the object store; nil: nothing does.
func (n *Node) StoreMeter() *telemetry.Ops { return n.opt.StoreMeter }

// Peers returns the live nodes, this one among them.
func (n *Node) Peers() []cluster.Peer { return n.c.Peers() }

// Live lists the live nodes as the engine has them now. Errors of package sink.
func (n *Node) Live(ctx context.Context) ([]cluster.Peer, error) {
	list, err := n.c.Live(ctx)
	if err != nil {
		err = sink.Unavailable("unreachable", err)
	}
	return list, err
}

// Known reports whether a node of a name ever was one of the cluster's. Errors of
// package sink.
func (n *Node) Known(ctx context.Context, name string) (bool, error) { return n.c.Known(ctx, name) }

// Lease reports whether this node holds its lease now, and for how long no beat has
// confirmed it. State that was read before held is returned true may be answered.
func (n *Node) Lease() (held bool, unconfirmed time.Duration) {
	life, _ := n.c.Life()
	left := life.Left()
	return life.Held(), max(0, n.c.Cluster.Lease-left)
}

// Ready returns why this node cannot answer reads, and why it takes no writes; nil
// where it does.
func (n *Node) Ready() (reads, writes error) {
	if n.Leaving() {
		err := errs.New(errs.Unavailable, "draining", "The node hands its workspaces over.")
		return err, err
	}
	switch reason := n.c.Engine().Reason; reason {
	case "":
	case "replication_off":
		return nil, sink.ReplicationOff(nil)
	default:
		return nil, sink.Unavailable(reason, nil)
	}
	if held, _ := n.Lease(); !held {
		return nil, sink.Unavailable("unreachable", nil)
	}
	return nil, nil
}

// Figures returns the node's metrics.
func (n *Node) Figures() telemetry.ClusterFigures {
	life, _ := n.c.Life()
	engine := n.c.Engine()
	f := telemetry.ClusterFigures{Nodes: len(n.Peers()), Lease: life.Left(), Standbys: engine.Standbys, Reason: engine.Reason}
	if n.local != nil {
		f.Owned, f.FollowerLag, f.Cached = len(n.local.Held()), n.local.FollowerLag(), n.local.Cached()
	}
	m := n.meter
	f.Append, f.Seal, f.Open, f.Claims = m.appends, m.seals, m.opens, m.claims
	f.Unknown, f.Fenced, f.Garbage, f.Shared = m.unknown.Load(), m.fenced.Load(), m.garbage.Load(), m.shared.Load()
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, s := range n.owned {
		bytes, oldest := s.unsealed()
		f.Unsealed, f.OldestUnsealed = f.Unsealed+bytes, max(f.OldestUnsealed, oldest)
	}
	return f
}

// Purged says that the history of a workspace of another node was purged: the replica is
// not read as long as it has an older one. Errors of package sink.
func (n *Node) Purged(ctx context.Context, ws string) error { return n.c.Purged(ctx, ws) }

// Look has the node see at once that its row was changed.
func (n *Node) Look() { n.c.Look() }

// Leaving reports whether the node gives its workspaces up and claims none.
func (n *Node) Leaving() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.leaving
}

// SetHandover sets how another node is asked to release a workspace with its family.
func (n *Node) SetHandover(ask func(ctx context.Context, owner Owner, ws string) error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.ask = ask
}

// own returns this node's claim of a workspace while its life lasts.
func (n *Node) own(ws string) *metered {
	n.mu.Lock()
	defer n.mu.Unlock()
	s := n.owned[ws]
	if s == nil {
		return nil
	}
	select {
	case <-s.Claim().Life.Over():
		return nil
	default:
		return s
	}
}

// Owner returns the node at which a workspace with its family is: this one, from
// memory, or another. While this node leaves and no node owns it, it is one that can
// claim it. Errors: ErrResting, node_down, or of package sink.
func (n *Node) Owner(ctx context.Context, ws string) (Owner, error) {
	if s := n.own(ws); s != nil { // and its family
		return n.self(s.Claim().Epoch, s.Claim().Pinned != ""), nil
	}
	n.mu.Lock()
	known, ok := n.others[ws]
	n.mu.Unlock()
	if ok && time.Now().Before(known.until) {
		return known.Owner, nil
	}
	root := n.local.Family(ws)
	if s := n.own(root); s != nil {
		return n.self(s.Claim().Epoch, s.Claim().Pinned != ""), nil
	}
	if n.local.Pinned(root) {
		return n.self(0, true), nil
	}
	w, err := n.c.Find(ctx, root)
	switch {
	case errors.Is(err, cluster.ErrNotFound): // a fork that was never opened, or none
		return n.resting()
	case err != nil && n.local.HasFolder(ws):
		return n.self(0, true), nil
	case err != nil:
		return Owner{}, err
	case w.Pinned == n.Name():
		return n.remember(ws, n.self(w.Epoch, true)), nil
	case w.Pinned != "" && w.Owner == nil:
		return Owner{Node: w.Pinned, Epoch: w.Epoch}, n.down(ctx, root, w.Pinned)
	case w.Owner == nil:
		return n.resting()
	case w.Owner.Name == n.Name():
		if err := n.giveBack(ctx, w); err != nil {
			return Owner{}, err
		}
		return n.resting()
	}
	return n.remember(ws, ownerOf(w)), nil
}

// ownerOf is the live node that has a workspace.
func ownerOf(w *cluster.Workspace) Owner {
	return Owner{Node: w.Owner.Name, Address: w.Owner.Address, URL: w.Owner.URL, Life: w.Owner.Life, Epoch: w.Epoch, Pinned: w.Pinned != ""}
}

// self is this node as an owner.
func (n *Node) self(epoch int64, pinned bool) Owner {
	return Owner{Node: n.Name(), URL: n.c.PublicURL(), Epoch: epoch, Pinned: pinned, Self: true}
}

// remember keeps an owner for a moment, unless it is to get its epoch yet, as the owner
// of a directory that was just opened is.
func (n *Node) remember(ws string, o Owner) Owner {
	if o.Epoch == 0 {
		return o
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(n.others) >= maxRemembered {
		clear(n.others)
	}
	n.others[ws] = remembered{o, time.Now().Add(rememberFor)}
	return o
}

// Owners returns the other live nodes that own some of several workspaces, by
// workspace. Errors of package sink.
func (n *Node) Owners(ctx context.Context, workspaces []string) (map[string]Owner, error) {
	owners, roots, ask := make(map[string]Owner), make(map[string]string), []string(nil)
	for _, ws := range workspaces {
		if _, done := roots[ws]; done || n.own(ws) != nil {
			continue
		}
		n.mu.Lock()
		known, ok := n.others[ws]
		n.mu.Unlock()
		if ok && time.Now().Before(known.until) {
			if !known.Self {
				owners[ws] = known.Owner
			}
			continue
		}
		root := n.local.Family(ws)
		if roots[ws] = root; n.own(root) == nil && !n.local.Pinned(root) {
			ask = append(ask, root)
		}
	}
	if len(ask) == 0 {
		return owners, nil
	}
	found, err := n.c.FindAll(ctx, ask)
	if err != nil {
		return nil, err
	}
	byRoot := make(map[string]Owner, len(found))
	for _, w := range found {
		if w.Owner != nil && w.Owner.Name != n.Name() {
			byRoot[w.ID] = ownerOf(&w)
		}
	}
	for ws, root := range roots {
		if o, ok := byRoot[root]; ok {
			owners[ws] = o
		}
	}
	return owners, nil
}

// peer returns the live node of a name.
func (n *Node) peer(name string) (cluster.Peer, bool) {
	for _, p := range n.Peers() {
		if p.Name == name {
			return p, true
		}
	}
	return cluster.Peer{}, false
}

// resting is Owner for a workspace that no node owns.
func (n *Node) resting() (Owner, error) {
	if !n.Leaving() {
		return Owner{}, ErrResting
	}
	peers := slices.DeleteFunc(n.Peers(), func(p cluster.Peer) bool { return p.Draining || p.Name == n.Name() })
	if len(peers) == 0 {
		return Owner{}, errMoving(nil)
	}
	p := slices.MinFunc(peers, func(a, b cluster.Peer) int { return cmp.Compare(a.Name, b.Name) })
	return Owner{Node: p.Name, Address: p.Address, URL: p.URL, Life: p.Life}, nil
}

// Forget makes the next Owner ask again.
func (n *Node) Forget(ws string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.others, ws)
}

// Handover releases a workspace with its family for another node, after the requests
// that use it have ended. One that this node does not have is released as well, where
// the cluster still says that it does.
func (n *Node) Handover(ctx context.Context, ws string) error {
	root := n.local.Family(ws)
	had := n.own(root) != nil
	n.mu.Lock()
	n.promised[root] = time.Now().Add(promiseFor)
	n.mu.Unlock()
	bounded, cancel := context.WithTimeout(ctx, handoverPatience)
	defer cancel()
	if err := n.local.Yield(bounded, root, false); err != nil {
		return err
	}
	if had {
		return nil
	}
	for _, id := range slices.Compact([]string{root, ws}) {
		w, err := n.c.Find(ctx, id)
		if err == nil && w.Owner != nil {
			err = n.giveBack(ctx, w)
		}
		if err != nil && !errors.Is(err, cluster.ErrNotFound) {
			return err
		}
	}
	return nil
}

// giveBack releases a workspace that is this node's life's as the engine said, and that this
// node does not have: its release failed, or was lost with the engine, or its claim was not
// answered. Another epoch than that which was read is left alone.
func (n *Node) giveBack(ctx context.Context, w *cluster.Workspace) error {
	life, _ := n.c.Life()
	n.mu.Lock()
	has := n.owned[w.ID] != nil || n.moving[w.ID] > 0
	n.mu.Unlock()
	if has || w.Pinned != "" || w.Owner.Life != life.ID {
		return nil
	}
	return n.c.Release(ctx, &cluster.Claim{Workspace: w.ID, Epoch: w.Epoch, Life: life})
}

// move notes that a claim or a release of a workspace is under way until end.
func (n *Node) move(ws string) (end func()) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.moving[ws]++
	return func() {
		n.mu.Lock()
		defer n.mu.Unlock()
		if n.moving[ws]--; n.moving[ws] == 0 {
			delete(n.moving, ws)
		}
	}
}

// ForgetNode is Forget of all workspaces of another node.
func (n *Node) ForgetNode(name string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	maps.DeleteFunc(n.others, func(_ string, o remembered) bool { return o.Node == name })
}

// errMoving is for a request whose workspace has no owner in time.
func errMoving(cause error) error {
	return &errs.Error{Kind: errs.Unavailable, Code: "owner_moving", Err: errors.Join(cause, sink.ErrRefused),
		Detail: "The workspace is moving to another server; retry."}
}
