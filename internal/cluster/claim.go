package cluster

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"umbra/gitstore/sink"
	"umbra/internal/cluster/engine"
)

// Workspace is what the cluster's table says about one.
type Workspace struct {
	ID, Kind  string
	Namespace string // empty: none, or, of one that was read, not known
	Epoch     int64
	Owner     *Peer  // nil: resting, or its owner is dead
	Pinned    string // node's name; empty: any node may own it
}

// Claim is the right to change a workspace, until another node claims it.
type Claim struct {
	Workspace string
	Epoch     int64
	Life      *Life
	Former    int64  // the life that owned it before; 0: none
	Pinned    string // as of the claim: the node that has the directory

	manifest    []byte // inline, or
	manifestKey string // the object that has it
	version     int64
	base        int64
	tail        []row
}

// row is one of the journal.
type row struct {
	pos  int64
	data []byte
}

// Create adds a workspace without an owner. One that exists stays as it is; two
// of one namespace are an error.
func (n *Node) Create(ctx context.Context, w Workspace) (created bool, err error) {
	made := make(chan bool, 1)
	err = n.write(ctx, func(ctx context.Context, c *engine.Conn) error {
		tag, err := c.Exec(ctx, `INSERT INTO workspace (id, kind, namespace, pinned) VALUES ($1, NULLIF($2, 'virtual'), `+fmt.Sprintf(namespaceHash, "$3::text")+`, NULLIF($4, '')) ON CONFLICT (id) DO NOTHING`,
			w.ID, w.Kind, w.Namespace, w.Pinned)
		if err == nil { // else it may run again
			made <- tag.RowsAffected() == 1
		}
		return err
	})
	if err != nil {
		return false, err
	}
	return <-made, nil
}

// write runs statements that may be run twice, and maps the engine's errors to
// those of package sink.
func (n *Node) write(ctx context.Context, f func(context.Context, *engine.Conn) error) error {
	ctx, cancel := context.WithTimeout(ctx, n.patience())
	defer cancel()
	err := n.e.Retry(ctx, func(ctx context.Context, c *engine.Conn) error {
		c.Noticed.Store(false)
		err := f(ctx, c)
		if err == nil && c.Noticed.Load() {
			return engine.ErrSent
		}
		return err
	})
	return n.mapped(err)
}

// mapped maps an error of the engine to one of package sink.
func (n *Node) mapped(err error) error {
	switch {
	case err == nil, engine.Refused(err):
		return err
	case errors.Is(err, engine.ErrBusy), errors.Is(err, ErrClosed):
		return n.refusal()
	}
	var own *OwnedError
	if errors.As(err, &own) || errors.Is(err, ErrNotFound) || errors.Is(err, sink.ErrFenced) || errors.Is(err, sink.ErrRefused) {
		return err
	}
	return sink.Unknown(err)
}

// The statements of a claim are one transaction in one round trip.
//
// The first takes the row's lock, and so waits for the appends in flight. Those
// after it have snapshots of their own, that begin under the lock: they see all
// that was acknowledged, and whether the owner is alive now. Were the update the
// first, it would judge the owner by the nodes of when it began to wait, and take
// a workspace from one that began to live in between.
const (
	claimLock   = `SELECT coalesce(owner, 0) FROM workspace WHERE id = $1 FOR UPDATE`
	claimUpdate = `UPDATE workspace SET epoch = epoch + 1, owner = $2
		WHERE id = $1
		AND (owner IS NULL OR owner = $2 OR NOT EXISTS (SELECT FROM node WHERE life = owner AND state <> 'dead'))
		AND EXISTS (SELECT FROM node WHERE life = $2 AND state <> 'dead')
		AND (pinned IS NULL OR pinned = $3)`
	// The row at the next position stops a former owner by the key as well.
	claimTakeover = `INSERT INTO journal (ws, pos, epoch, nonce, data)
		SELECT id, greatest(base_pos, (SELECT max(pos) FROM journal WHERE ws = id)) + 1, epoch, $3, ''
		FROM workspace WHERE id = $1 AND owner = $2`
	claimRead = `SELECT w.epoch, w.manifest, ` + manifestKey + `, w.manifest_ver, w.base_pos, w.owner = $2, coalesce(w.pinned, ''), current_setting('synchronous_standby_names'),
		n.life, n.name, n.address, n.url, n.version, n.state = 'draining'
		FROM workspace w LEFT JOIN node n ON n.life = w.owner AND n.state <> 'dead' WHERE w.id = $1`
	claimTail = `SELECT pos, data FROM journal
		WHERE ws = $1 AND pos > (SELECT base_pos FROM workspace WHERE id = $1) AND EXISTS (SELECT FROM workspace WHERE id = $1 AND owner = $2)
		ORDER BY pos`
)

// Claim makes this node's life the owner of a workspace that has none, or whose
// owner is dead, or is this life itself. Errors: *OwnedError, ErrNotFound, or of
// package sink.
func (n *Node) Claim(ctx context.Context, ws string) (*Claim, error) {
	ctx, cancel := context.WithTimeout(ctx, n.patience())
	defer cancel()
	life, err := n.held(ctx)
	if err != nil {
		return nil, err
	}
	n.opts.at("claim")
	result := make(chan *Claim, 8)
	err = n.e.Retry(ctx, func(ctx context.Context, c *engine.Conn) error {
		claim := &Claim{Workspace: ws, Life: life}
		mine, found, off := false, false, false
		var owner *Peer
		err := c.Pipeline(ctx, func(b *pgx.Batch) {
			// Without a transaction around it, a batch with no statement between is one.
			b.Queue(claimLock, ws).Query(func(rows pgx.Rows) error {
				_, err := pgx.ForEachRow(rows, []any{&claim.Former}, func() error { return nil })
				return err
			})
			b.Queue(claimUpdate, ws, life.ID, n.opts.Name)
			b.Queue(claimTakeover, ws, life.ID, random63())
			b.Queue(claimRead, ws, life.ID).QueryRow(func(row pgx.Row) error {
				var ownerID *int64
				var name, address, url, version *string
				var draining, is *bool
				var pinned, names string
				err := row.Scan(&claim.Epoch, &claim.manifest, &claim.manifestKey, &claim.version, &claim.base, &is, &pinned, &names,
					&ownerID, &name, &address, &url, &version, &draining)
				if errors.Is(err, pgx.ErrNoRows) {
					return nil
				}
				if err != nil {
					return err
				}
				found = true
				// Without a standby that is waited for, what the claim read may be
				// on one machine alone.
				off = n.unsafe(names)
				claim.Pinned = pinned
				mine = is != nil && *is && (pinned == "" || pinned == n.opts.Name)
				switch {
				case ownerID != nil:
					owner = &Peer{Life: *ownerID, Name: *name, Address: *address, URL: *url, Version: *version, Draining: *draining}
				case pinned != "":
					owner = &Peer{Name: pinned}
				}
				return nil
			})
			b.Queue(claimTail, ws, life.ID).Query(func(rows pgx.Rows) (err error) {
				claim.tail, err = pgx.CollectRows(rows, func(r pgx.CollectableRow) (t row, err error) {
					err = r.Scan(&t.pos, &t.data)
					return t, err
				})
				return err
			})
		})
		switch {
		case err != nil:
			return err
		case off:
			return sink.ReplicationOff(nil)
		case !found:
			return ErrNotFound
		case !mine && owner == nil:
			return errAgain // the owner died in between
		case !mine:
			return &OwnedError{Workspace: ws, Owner: *owner, Epoch: claim.Epoch}
		}
		result <- claim
		return nil
	})
	n.opts.at("claimed")
	if errors.Is(err, errAgain) && n.pause(20*time.Millisecond) {
		return n.Claim(ctx, ws)
	}
	if err != nil {
		return nil, n.mapped(err)
	}
	return <-result, nil
}

var errAgain = errors.New("cluster: the claim has to be repeated")

// Release gives a workspace up: the next node that is asked for it may claim it.
// The caller has finished its last append and takes no more. A failure of the engine may
// take a release back until a beat that was sent after it is answered.
func (n *Node) Release(ctx context.Context, c *Claim) error {
	return n.write(ctx, func(ctx context.Context, conn *engine.Conn) error {
		_, err := conn.Exec(ctx, `UPDATE workspace SET owner = NULL WHERE id = $1 AND epoch = $2 AND owner = $3 AND `+unwaited, c.Workspace, c.Epoch, c.Life.ID)
		return err
	})
}

// Find returns what the cluster says about a workspace: ErrNotFound.
func (n *Node) Find(ctx context.Context, ws string) (*Workspace, error) {
	found, err := n.FindAll(ctx, []string{ws})
	if err != nil {
		return nil, err
	}
	if len(found) == 0 {
		return nil, ErrNotFound
	}
	return &found[0], nil
}

// FindAll is Find for several, in one statement. Those that do not exist are left out.
func (n *Node) FindAll(ctx context.Context, ids []string) ([]Workspace, error) {
	result := make(chan []Workspace, 8)
	err := n.write(ctx, func(ctx context.Context, c *engine.Conn) error {
		rows, err := c.Query(ctx, `SELECT w.id, coalesce(w.kind, 'virtual'), w.epoch, coalesce(w.pinned, ''),
			n.life, n.name, n.address, n.url, n.version, n.state = 'draining'
			FROM workspace w LEFT JOIN node n ON (n.life = w.owner OR n.name = w.pinned) AND n.state <> 'dead' WHERE w.id = ANY ($1)`, ids)
		if err != nil {
			return err
		}
		found, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (w Workspace, err error) {
			var life *int64
			var name, address, url, version *string
			var draining *bool
			err = row.Scan(&w.ID, &w.Kind, &w.Epoch, &w.Pinned, &life, &name, &address, &url, &version, &draining)
			if life != nil {
				w.Owner = &Peer{Life: *life, Name: *name, Address: *address, URL: *url, Version: *version, Draining: *draining}
			}
			return w, err
		})
		if err != nil {
			return err
		}
		result <- found
		return nil
	})
	if err != nil {
		return nil, err
	}
	return <-result, nil
}

// Known reports whether a node of a name ever lived, or has workspaces of directories.
// Errors of package sink.
func (n *Node) Known(ctx context.Context, name string) (bool, error) {
	result := make(chan bool, 8)
	err := n.write(ctx, func(ctx context.Context, c *engine.Conn) error {
		var known bool
		err := c.QueryRow(ctx, `SELECT EXISTS (SELECT FROM node WHERE name = $1) OR EXISTS (SELECT FROM workspace WHERE pinned = $1)`, name).Scan(&known)
		if err == nil {
			result <- known
		}
		return err
	})
	if err != nil {
		return false, err
	}
	return <-result, nil
}
