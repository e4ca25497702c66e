package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"

	"umbra/gitstore/sink"
	"umbra/internal/blob"
	"umbra/internal/cluster/engine"
)

// errView is the error of a change by a sink that only reads.
var errView = sink.Unavailable("read_only", errors.New("cluster: this sink only reads"))

// view is the history of a workspace as it was at one moment, for reading without a
// claim.
type view struct {
	objects *Sink
	tail    sink.Tail
}

var _ sink.Sink = (*view)(nil)

func (v *view) Tail(context.Context) (*sink.Tail, error) {
	t := v.tail
	return &t, nil
}

func (v *view) Append(*sink.Group) error { return errView }

func (v *view) Put(context.Context, io.ReaderAt, int64) (string, error) { return "", errView }

func (v *view) Swap(context.Context, *sink.Switch) error { return errView }

func (v *view) Fetch(ctx context.Context, name string, off, n int64) (io.ReadCloser, error) {
	return v.objects.Fetch(ctx, name, off, n)
}

// View returns the history of a workspace as it is now, to be read without owning it;
// ErrNotFound. Its sink takes no changes.
func (a *Admin) View(ctx context.Context, store blob.Store, ws string) (sink.Sink, error) {
	to, _, err := a.n.view(ctx, a.n.e, store, ws)
	return to, err
}

// Point is a state of a workspace's log. Exact says that every commit that was
// acknowledged before it was read is in it.
type Point struct {
	Version, Pos int64
	Exact        bool
}

// before reports whether p is an older state than other.
func (p Point) before(other Point) bool { return p.Version < other.Version || p.Pos < other.Pos }

func (n *Node) view(ctx context.Context, e *engine.Engine, store blob.Store, ws string) (*view, Point, error) {
	c := &Claim{Workspace: ws}
	err := e.Do(ctx, func(ctx context.Context, conn *engine.Conn) error {
		var pos []int64
		var data [][]byte
		err := conn.QueryRow(ctx, `SELECT w.epoch, w.manifest, `+manifestKey+`, w.manifest_ver, w.base_pos,
				(SELECT array_agg(pos ORDER BY pos) FROM journal WHERE ws = w.id AND pos > w.base_pos),
				(SELECT array_agg(data ORDER BY pos) FROM journal WHERE ws = w.id AND pos > w.base_pos)
			FROM workspace w WHERE w.id = $1`, ws).Scan(&c.Epoch, &c.manifest, &c.manifestKey, &c.version, &c.base, &pos, &data)
		if errors.Is(err, pgx.ErrNoRows) {
			return fmt.Errorf("%w: %s", ErrNotFound, ws)
		}
		c.tail = nil
		for i := range pos {
			c.tail = append(c.tail, row{pos[i], data[i]})
		}
		return err
	})
	if err != nil {
		return nil, Point{}, err
	}
	p := Point{Version: c.version, Pos: c.base + int64(len(c.tail))}
	objects := n.Sink(c, store, 0)
	tail, err := objects.Tail(ctx)
	if err != nil {
		return nil, Point{}, err
	}
	return &view{objects, *tail}, p, nil
}

// View returns the history of a workspace, to be read without owning it, and which state
// that is; nil where that is still known. All of it is replicated. With known.Exact every
// commit that was acknowledged before the call is in it; without, it may be what a replica
// has, which is no older than known. Errors: ErrNotFound, or of package sink.
func (n *Node) View(ctx context.Context, store blob.Store, ws string, known Point) (sink.Sink, Point, error) {
	ctx, cancel := context.WithTimeout(ctx, n.patience())
	defer cancel()
	life, err := n.held(ctx)
	if err != nil {
		return nil, known, err
	}
	var to sink.Sink
	now, read := known, false
	if n.replica != nil && !known.Exact {
		to, now, read = n.viewReplica(ctx, store, ws, known)
	}
	if !read {
		if to, now, err = n.viewSince(ctx, n.e, store, ws, known); err != nil {
			return nil, known, n.mapped(err)
		}
		now.Exact = true
	}
	// What was visible may be on the primary, or the replica, alone: a later commit waits for
	// the standby.
	err = n.write(ctx, func(ctx context.Context, c *engine.Conn) error {
		_, err := c.Exec(ctx, `UPDATE node SET beaten = beaten WHERE life = $1`, life.ID)
		return err
	})
	return to, now, err
}

// viewSince returns the history as an engine has it, nil where it is no newer than known.
func (n *Node) viewSince(ctx context.Context, e *engine.Engine, store blob.Store, ws string, known Point) (sink.Sink, Point, error) {
	now, err := n.point(ctx, e, ws)
	if err != nil || !known.before(now) {
		return nil, known, err
	}
	to, now, err := n.view(ctx, e, store, ws)
	if err != nil {
		return nil, known, err
	}
	return to, now, nil
}

// point returns which state of a workspace's log an engine has.
func (n *Node) point(ctx context.Context, e *engine.Engine, ws string) (Point, error) {
	result := make(chan Point, 1)
	err := e.Do(ctx, func(ctx context.Context, c *engine.Conn) error {
		var now Point
		err := c.QueryRow(ctx, `SELECT manifest_ver, greatest(base_pos, (SELECT max(pos) FROM journal WHERE ws = id)) FROM workspace WHERE id = $1 AND EXISTS (SELECT FROM cluster c WHERE c.id = $2::uuid)`, ws, n.Cluster.ID).Scan(&now.Version, &now.Pos)
		if errors.Is(err, pgx.ErrNoRows) {
			return ErrNotFound
		}
		if err == nil { // else it may run again
			result <- now
		}
		return err
	})
	if err != nil {
		return Point{}, err
	}
	return <-result, nil
}

// CopiedSeq returns the number of the newest commit in a workspace's log.
func (n *Node) CopiedSeq(ctx context.Context, store blob.Store, ws string) (seq uint64, err error) {
	v, _, err := n.view(ctx, n.e, store, ws)
	if err != nil {
		return 0, n.mapped(err)
	}
	if m := v.tail.Manifest; m != nil {
		seq = m.Seq
	}
	for i := range v.tail.Groups {
		seq = max(seq, v.tail.Groups[i].Seq)
	}
	return seq, nil
}

// draftEpoch is the epoch in which an imported workspace begins.
const draftEpoch = 1

// draftPatience is for how long what a draft has put may wait to be named: the sweeper
// removes what nothing names for a day.
const draftPatience = orphan / 2

// Draft is a workspace that the cluster does not have yet: a sink that takes objects and
// one manifest. It is not visible until Publish. It is used by one goroutine at a time,
// but for Put.
type Draft struct {
	view
	n     *Node
	w     Workspace
	begun time.Duration
	sent  atomic.Int64

	manifest *sink.Manifest
}

var _ sink.Sink = (*Draft)(nil)

// Draft begins a workspace. The sweeper removes the objects of one that is never
// published.
func (a *Admin) Draft(w Workspace, store blob.Store) *Draft {
	w.Epoch = draftEpoch
	return &Draft{view: view{objects: &Sink{n: a.n, store: store}}, n: a.n, w: w, begun: a.n.opts.boot()}
}

// Put is sink.Sink's.
func (d *Draft) Put(ctx context.Context, r io.ReaderAt, size int64) (string, error) {
	return d.put(ctx, r, size, "pack")
}

func (d *Draft) put(ctx context.Context, r io.ReaderAt, size int64, sort string) (string, error) {
	key := objectKey(d.w.ID, draftEpoch, sort)
	if err := d.objects.store.Put(ctx, key, r, size); err != nil {
		return "", blobError(key, err)
	}
	d.sent.Add(size)
	return key, nil
}

// Sent returns how many bytes were put.
func (d *Draft) Sent() int64 { return d.sent.Load() }

// Swap is sink.Sink's: it keeps the manifest for Publish.
func (d *Draft) Swap(_ context.Context, s *sink.Switch) error {
	if d.manifest != nil {
		return errView
	}
	d.manifest = s.Manifest
	return nil
}

// View returns what the draft has, for reading.
func (d *Draft) View() sink.Sink {
	v := d.view
	v.tail.Manifest = d.manifest
	return &v
}

// ErrExists is returned where the cluster has the workspace, or another one of its
// namespace.
var ErrExists = errors.New("cluster: the workspace exists")

// Publish adds the workspace to the cluster, whole, in one transaction. Errors: ErrExists,
// or of package sink; after one that is no sink.ErrRefused it may have been done.
func (d *Draft) Publish(ctx context.Context) error {
	m := d.manifest
	if m == nil || m.Version != 1 || m.Base != 0 {
		return fmt.Errorf("cluster: workspace %s: no first manifest", d.w.ID)
	}
	var key *string
	inline := m.Encode()
	if len(inline) > inlineManifest {
		name, err := d.put(ctx, strings.NewReader(string(inline)), int64(len(inline)), "manifest")
		if err != nil {
			return err
		}
		inline, key = nil, &name
	}
	if d.n.opts.boot()-d.begun > draftPatience {
		return sink.Stale(d.w.ID)
	}
	d.n.opts.at("publish")
	ours := make(chan bool, 8)
	err := d.n.write(ctx, func(ctx context.Context, c *engine.Conn) error {
		_, err := c.Exec(ctx, `INSERT INTO workspace (id, kind, namespace, epoch, manifest, manifest_key, manifest_ver, pinned)
			VALUES ($1, NULLIF($2, 'virtual'), `+fmt.Sprintf(namespaceHash, "$3::text")+`, $4, $5, left(substr($6::text, length($1::text) + 2), -9), $7, NULLIF($8, '')) ON CONFLICT DO NOTHING`,
			d.w.ID, d.w.Kind, d.w.Namespace, draftEpoch, inline, key, int64(m.Version), d.w.Pinned)
		if err != nil {
			return err
		}
		// It is looked for, since an attempt before may have added it; and that writes, so
		// that the answer waits for the standby.
		var names string
		err = c.QueryRow(ctx, `UPDATE workspace SET epoch = epoch WHERE id = $1 AND (manifest = $2 OR manifest_key = left(substr($3::text, length(id) + 2), -9))
			RETURNING current_setting('synchronous_standby_names')`, d.w.ID, inline, key).Scan(&names)
		switch {
		case errors.Is(err, pgx.ErrNoRows):
			ours <- false
			return nil
		case err != nil:
			return err
		case d.n.unsafe(names):
			return engine.ErrSent
		}
		ours <- true
		return nil
	})
	if err == nil && !<-ours {
		return ErrExists
	}
	return err
}

// HasNamespace reports whether a workspace has a namespace.
func (a *Admin) HasNamespace(ctx context.Context, namespace []string) (bool, error) {
	raw, err := json.Marshal(namespace)
	if err != nil {
		return false, err
	}
	_, err = a.n.Named(ctx, string(raw))
	if errors.Is(err, ErrNotFound) {
		return false, nil
	}
	return err == nil, err
}
