package cluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"umbra/gitstore/sink"
	"umbra/internal/blob"
	"umbra/internal/cluster/engine"
)

// Admin is the owner's access to a cluster, without a life in it.
type Admin struct {
	n *Node
}

// Init makes the cluster in an empty database, or upgrades its schema. Errors are
// *Refusal where an owner can do something about them.
func Init(ctx context.Context, opts Options) (*Admin, error) {
	n, err := connect(ctx, opts)
	if err != nil {
		return nil, err
	}
	return &Admin{n}, nil
}

// Look connects to a cluster that exists, and changes nothing. The engine may be
// one to which no node would connect.
func Look(ctx context.Context, opts Options) (*Admin, error) {
	opts.look = true
	return Init(ctx, opts)
}

// Cluster returns what the cluster's row says.
func (a *Admin) Cluster() *Cluster { return a.n.Cluster }

// Close ends the connections.
func (a *Admin) Close() { a.n.abandon() }

// CheckStore reports whether the cluster can use an object store, and marks it as
// the cluster's where that was never done. Errors are those of blob.Check.
func (a *Admin) CheckStore(ctx context.Context, store blob.Store, place string, patience time.Duration) error {
	return a.n.CheckStore(ctx, store, place, patience)
}

// CheckStore is Admin.CheckStore.
func (n *Node) CheckStore(ctx context.Context, store blob.Store, place string, patience time.Duration) error {
	if err := blob.Check(ctx, store, place, n.Cluster.ID, !n.Cluster.Marked, patience); err != nil {
		return err
	}
	if n.Cluster.Marked {
		return nil
	}
	err := n.write(ctx, func(ctx context.Context, c *engine.Conn) error {
		_, err := c.Exec(ctx, `UPDATE cluster SET marked = true`)
		return err
	})
	if err == nil {
		n.Cluster.Marked = true
	}
	return err
}

// Status is the state of a cluster. Names and units are those of its JSON.
type Status struct {
	Cluster    string          `json:"cluster"`
	Schema     int             `json:"schema"`
	LeaseMS    int64           `json:"lease_ms"`
	Engine     EngineStatus    `json:"engine"`
	Blobs      StoreStatus     `json:"blobs"`
	Nodes      []NodeStatus    `json:"nodes"`
	Workspaces WorkspaceTotals `json:"workspaces"`
	Garbage    GarbageTotals   `json:"garbage"`
}

// EngineStatus is PostgreSQL's: State is ok, unreachable, standby or
// replication_off.
type EngineStatus struct {
	State     string `json:"state"`
	Version   string `json:"version"`
	Standbys  int    `json:"standbys"`
	LatencyMS int64  `json:"latency_ms"`
}

// StoreStatus is the object store's: State is ok, slow, unreachable or shared.
type StoreStatus struct {
	State     string `json:"state"`
	LatencyMS int64  `json:"latency_ms"`
}

// NodeStatus is a node's: State is live, draining or dead.
type NodeStatus struct {
	Node      string `json:"node"`
	Address   string `json:"address"`
	Version   string `json:"version"`
	State     string `json:"state"`
	BeatAgeMS int64  `json:"beat_age_ms"`
	Owned     int64  `json:"owned"`
	Pinned    int64  `json:"pinned"`
}

// WorkspaceTotals sums up the workspaces.
type WorkspaceTotals struct {
	Total           int64 `json:"total"`
	Owned           int64 `json:"owned"`
	Pinned          int64 `json:"pinned"`
	UnsealedBytes   int64 `json:"unsealed_bytes"`
	OldestUnsealedS int64 `json:"oldest_unsealed_s"`
}

// GarbageTotals are the objects that wait for the sweeper.
type GarbageTotals struct {
	Objects int64 `json:"objects"`
	Bytes   int64 `json:"bytes"`
}

// Status asks the engine and the store. A dead node is listed while something is
// pinned to it, or for an hour after its end.
func (a *Admin) Status(ctx context.Context, store blob.Store) (*Status, error) {
	n := a.n
	s := &Status{Cluster: n.Cluster.ID, Schema: n.Cluster.Schema, LeaseMS: n.Cluster.Lease.Milliseconds(), Nodes: []NodeStatus{}}
	s.Engine = EngineStatus{State: "ok", Version: versionText(n.state.Version), Standbys: n.state.Standbys}
	if n.state.Reason != "" {
		s.Engine.State = n.state.Reason
	}
	err := n.e.Do(ctx, func(ctx context.Context, c *engine.Conn) error {
		begun := time.Now()
		if err := c.Ping(ctx); err != nil {
			return err
		}
		s.Engine.LatencyMS = time.Since(begun).Milliseconds()
		rows, err := c.Query(ctx, `SELECT name, address, version, state, (extract(epoch FROM now() - beaten) * 1000)::bigint,
				coalesce(owned, 0), (SELECT count(*) FROM workspace WHERE pinned = name)
			FROM node n LEFT JOIN (SELECT owner, count(*) AS owned FROM workspace WHERE owner IS NOT NULL AND pinned IS NULL GROUP BY owner) o ON o.owner = n.life
			WHERE state <> 'dead' OR ended > now() - interval '1 hour'
				OR EXISTS (SELECT FROM workspace WHERE pinned = n.name) AND NOT EXISTS (SELECT FROM node m WHERE m.name = n.name AND m.ended > n.ended)
			ORDER BY name, state <> 'dead' DESC, ended DESC`)
		if err != nil {
			return err
		}
		if s.Nodes, err = pgx.CollectRows(rows, pgx.RowToStructByPos[NodeStatus]); err != nil {
			return err
		}
		// Of several lives of a name the newest counts.
		s.Nodes = slices.CompactFunc(s.Nodes, func(x, y NodeStatus) bool { return x.Node == y.Node })
		w := &s.Workspaces
		if err := c.QueryRow(ctx, `SELECT count(*), count(owner) FILTER (WHERE pinned IS NULL), count(pinned) FROM workspace`).Scan(&w.Total, &w.Owned, &w.Pinned); err != nil {
			return err
		}
		if err := c.QueryRow(ctx, `SELECT coalesce(sum(octet_length(data)), 0), coalesce(extract(epoch FROM now() - min(at) FILTER (WHERE octet_length(data) > 0)), 0)::bigint FROM journal`).
			Scan(&w.UnsealedBytes, &w.OldestUnsealedS); err != nil {
			return err
		}
		return c.QueryRow(ctx, `SELECT count(*), coalesce(sum(bytes), 0) FROM garbage`).Scan(&s.Garbage.Objects, &s.Garbage.Bytes)
	})
	if err != nil {
		return nil, prefixed(err)
	}
	s.Blobs = a.storeStatus(ctx, store)
	return s, nil
}

// slowStore is from which time of a small request on a store counts as slow.
const slowStore = time.Second

func (a *Admin) storeStatus(ctx context.Context, store blob.Store) StoreStatus {
	return storeStatus(ctx, func(ctx context.Context) (bool, error) { return a.n.shared(ctx, store) })
}

// StoreAlone returns the store's state while the engine does not answer.
func StoreAlone(ctx context.Context, store blob.Store) StoreStatus {
	return storeStatus(ctx, func(ctx context.Context) (bool, error) {
		_, _, err := readMark(ctx, store)
		return false, err
	})
}

func storeStatus(ctx context.Context, ask func(context.Context) (shared bool, err error)) StoreStatus {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	begun := time.Now()
	shared, err := ask(ctx)
	took := time.Since(begun)
	s := StoreStatus{State: "ok", LatencyMS: took.Milliseconds()}
	switch {
	case err != nil:
		s.State = "unreachable"
	case shared:
		s.State = "shared"
	case took > slowStore:
		s.State = "slow"
	}
	return s
}

// OK reports whether nothing has to be done: engine and store are well, and no
// pinned workspace is without its node.
func (s *Status) OK() bool {
	return s.Engine.State == "ok" && s.Blobs.State == "ok" &&
		!slices.ContainsFunc(s.Nodes, func(n NodeStatus) bool { return n.State == "dead" && n.Pinned > 0 })
}

func versionText(v int) string {
	if v == 0 {
		return ""
	}
	return fmt.Sprintf("%d.%d", v/10000, v%10000)
}

// WorkspaceStatus is one workspace's: State is resting, owned, pinned, node_down
// or adopted.
type WorkspaceStatus struct {
	ID            string  `json:"id"`
	Kind          string  `json:"kind"`
	Owner         *string `json:"owner"`
	Epoch         int64   `json:"epoch"`
	Seq           uint64  `json:"seq"`
	State         string  `json:"state"`
	UnsealedBytes int64   `json:"unsealed_bytes"`
	Packs         int     `json:"packs"`
	// Orphaned are the directories, at the former node of an adopted one, with the
	// commits that did not go on.
	Orphaned []string `json:"orphaned,omitempty"`
}

// Workspaces describes workspaces: ErrNotFound, with the id, for one that does not
// exist.
func (a *Admin) Workspaces(ctx context.Context, store blob.Store, ids []string) ([]WorkspaceStatus, error) {
	list := make([]WorkspaceStatus, 0, len(ids))
	for _, id := range ids {
		w := WorkspaceStatus{ID: id}
		var manifest []byte
		var key, owner, pinned string
		var live bool
		var adopted *Adoption
		var heads [][]byte
		err := a.n.e.Do(ctx, func(ctx context.Context, c *engine.Conn) error {
			err := c.QueryRow(ctx, `SELECT coalesce(w.kind, 'virtual'), w.epoch, w.manifest, `+manifestKey+`, coalesce(n.name, ''), coalesce(w.pinned, ''),
					EXISTS (SELECT FROM node WHERE name = w.pinned AND state <> 'dead'),
					(SELECT coalesce(sum(octet_length(data)), 0) FROM journal WHERE ws = w.id),
					(SELECT array_agg(substr(data, 1, 65536) ORDER BY pos) FROM journal WHERE ws = w.id AND octet_length(data) > 0), w.adopted
				FROM workspace w LEFT JOIN node n ON n.life = w.owner AND n.state <> 'dead' WHERE w.id = $1`, id).
				Scan(&w.Kind, &w.Epoch, &manifest, &key, &owner, &pinned, &live, &w.UnsealedBytes, &heads, &adopted)
			if errors.Is(err, pgx.ErrNoRows) {
				return fmt.Errorf("%w: %s", ErrNotFound, id)
			}
			return err
		})
		if err != nil {
			return nil, err
		}
		if key != "" {
			if manifest, err = readObject(ctx, store, key); err != nil {
				return nil, err
			}
		}
		if manifest != nil {
			m, err := sink.DecodeManifest(manifest)
			if err != nil {
				return nil, fmt.Errorf("workspace %s: %w", id, err)
			}
			w.Seq, w.Packs = m.Seq, len(m.Packs)
		}
		for _, head := range heads {
			// The head of a group is enough for its number and its packs.
			g, err := sink.DecodeGroup(1, head)
			if err != nil {
				return nil, fmt.Errorf("workspace %s: %w", id, err)
			}
			w.Seq, w.Packs = g.Seq, w.Packs+len(g.Packs)
		}
		switch {
		case pinned != "" && !live:
			w.State, w.Owner = "node_down", &pinned
		case pinned != "":
			w.State, w.Owner = "pinned", &pinned
		case owner != "":
			w.State, w.Owner = "owned", &owner
		default:
			w.State = "resting"
		}
		if adopted != nil {
			w.Orphaned = adopted.Orphaned
			if w.State != "node_down" {
				w.State = "adopted"
			}
		}
		list = append(list, w)
	}
	return list, nil
}

func readObject(ctx context.Context, store blob.Store, key string) ([]byte, error) {
	r, _, err := store.Get(ctx, key)
	if err != nil {
		return nil, blobError(key, err)
	}
	b, err := io.ReadAll(r)
	return b, errors.Join(err, r.Close())
}

// ErrNoNode is returned for a name that no live node has.
var ErrNoNode = errors.New("cluster: no live node has the name")

// Drained is what a drain did.
type Drained struct {
	Node     string   `json:"node"`
	Released int64    `json:"released"`
	Left     []string `json:"left"` // ids of the workspaces that the node still has
	TookMS   int64    `json:"took_ms"`
}

const (
	// noticePatience is how long a node that is to look at its row has to answer.
	noticePatience = time.Second
	// drainEvery is how often what a node still has is asked for.
	drainEvery = 20 * time.Millisecond
)

// Drain makes a node hand its workspaces over, and waits until it has, or the time
// is over. undo lets it take workspaces again. notify says to the node that its row
// has changed; where it cannot, the node sees that with its next beat.
func (a *Admin) Drain(ctx context.Context, name string, within time.Duration, undo bool, notify func(context.Context, Peer) error) (*Drained, error) {
	begun := time.Now()
	state := "draining"
	if undo {
		state = "live"
	}
	var owned int64
	of := Peer{Name: name}
	err := a.n.write(ctx, func(ctx context.Context, c *engine.Conn) error {
		err := c.QueryRow(ctx, `UPDATE node SET state = $2 WHERE name = $1 AND state <> 'dead' RETURNING life, address, (SELECT count(*) FROM workspace WHERE owner = life OR pinned = name)`, name, state).Scan(&of.Life, &of.Address, &owned)
		if errors.Is(err, pgx.ErrNoRows) {
			return ErrNotFound
		}
		return err
	})
	if errors.Is(err, ErrNotFound) {
		return nil, fmt.Errorf("%w: %s", ErrNoNode, name)
	}
	if err != nil {
		return nil, err
	}
	noticing, cancel := context.WithTimeout(ctx, noticePatience)
	err = notify(noticing, of)
	cancel()
	if err != nil {
		a.n.opts.Log.Debug("the node sees its drain with its next beat", "node", name, "error", err)
	}
	d := &Drained{Node: name, Left: []string{}}
	for !undo {
		err := a.n.e.Do(ctx, func(ctx context.Context, c *engine.Conn) error {
			return c.QueryRow(ctx, `SELECT coalesce(array_agg(id ORDER BY id), '{}') FROM workspace WHERE owner = $1 OR pinned = $2`, of.Life, name).Scan(&d.Left)
		})
		if err != nil {
			return nil, err
		}
		if len(d.Left) == 0 || time.Since(begun) >= within || !a.n.pause(drainEvery) {
			break
		}
	}
	d.Released, d.TookMS = max(0, owned-int64(len(d.Left))), time.Since(begun).Milliseconds()
	return d, nil
}
