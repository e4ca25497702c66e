package cluster

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"umbra/internal/cluster/engine"
	"umbra/internal/cluster/recordrow"
)

// migrations lead from one schema to the next; the first makes that of an empty
// database. A migration must leave the program before it running, so it adds; where it
// cannot, min keeps that program out, as recordrow.ShortKeys did before the first release.
var migrations = []migration{{min: 1, statements: first}, {min: 1, statements: writers}, {min: 1, statements: adoptions}, {min: 4, statements: append(recordrow.ShortKeys, packs...)}}

type migration struct {
	min        int // the oldest program, by its newest schema, that works with it
	statements []string
}

// partitions of the journal: each has a lock, an index and a vacuum of its own.
const partitions = 16

var first = append([]string{
	// dead is final, and so is a missing row.
	`CREATE TABLE node (
		life bigint PRIMARY KEY,
		name text NOT NULL,
		address text NOT NULL,
		url text NOT NULL DEFAULT '',
		version text NOT NULL,
		beat bigint NOT NULL DEFAULT 0,
		beaten timestamptz NOT NULL DEFAULT now(),
		state text NOT NULL DEFAULT 'live' CHECK (state IN ('live', 'draining', 'dead')),
		ended timestamptz
	) WITH (fillfactor = 70)`,
	`CREATE UNIQUE INDEX node_name ON node (name) WHERE state <> 'dead'`,
	// Appends lock the row (FOR SHARE), which writes to it.
	`CREATE TABLE workspace (
		id text PRIMARY KEY,
		kind text NOT NULL,
		namespace text UNIQUE,
		epoch bigint NOT NULL DEFAULT 0,
		owner bigint,
		pinned text,
		base_pos bigint NOT NULL DEFAULT 0,
		manifest_ver bigint NOT NULL DEFAULT 0,
		manifest bytea,
		manifest_key text,
		last_used timestamptz NOT NULL DEFAULT now(),
		bytes bigint NOT NULL DEFAULT 0
	) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.02, vacuum_truncate = off)`,
	`CREATE INDEX workspace_owner ON workspace (owner) WHERE owner IS NOT NULL`,
	`CREATE TABLE journal (
		ws text NOT NULL,
		pos bigint NOT NULL,
		epoch bigint NOT NULL,
		nonce bigint NOT NULL,
		data bytea NOT NULL,
		at timestamptz NOT NULL DEFAULT now(),
		PRIMARY KEY (ws, pos)
	) PARTITION BY HASH (ws)`,
	`CREATE TABLE record (
		bucket text NOT NULL,
		key bytea NOT NULL,
		ver bigint NOT NULL DEFAULT 1,
		value bytea NOT NULL,
		PRIMARY KEY (bucket, key)
	) WITH (autovacuum_vacuum_scale_factor = 0.02)`,
	`CREATE TABLE garbage (
		key text PRIMARY KEY,
		not_before timestamptz NOT NULL,
		bytes bigint NOT NULL DEFAULT 0
	)`,
	`CREATE INDEX garbage_due ON garbage (not_before)`,
}, journalPartitions()...)

// writers are for transactions of records: their outcomes are found by it.
var writers = []string{
	`CREATE TABLE writer (
		id bigint PRIMARY KEY,
		nonce bigint NOT NULL DEFAULT 0,
		fence bigint NOT NULL DEFAULT 0,
		used timestamptz NOT NULL DEFAULT now()
	) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.02)`,
}

// adoptions are for workspaces with directories: since when the manifest is there, and
// what became of one whose node is gone (Adoption).
var adoptions = []string{`ALTER TABLE workspace ADD COLUMN sealed_at timestamptz, ADD COLUMN adopted jsonb`,
	`CREATE INDEX workspace_adopted ON workspace (id) WHERE adopted IS NOT NULL`}

// packs are for records that nothing changes; a removed one may have a row without a
// value. And a workspace's row has no column that nothing reads, numbers before texts,
// which so need no padding, and 16 bytes of its namespace's hash. Claims, seals and releases
// change no column of an index: in a page with some room they write to none.
var packs = []string{
	`ALTER TABLE record ALTER COLUMN value DROP NOT NULL`,
	`CREATE TABLE packed (first bytea PRIMARY KEY, last bytea NOT NULL, data bytea NOT NULL) WITH (autovacuum_vacuum_scale_factor = 0.02)`,
	`ALTER TABLE packed ALTER COLUMN data SET STORAGE EXTERNAL`,
	`LOCK TABLE workspace IN ACCESS EXCLUSIVE MODE`,
	`CREATE TABLE workspace_former AS SELECT * FROM workspace`,
	`DROP TABLE workspace`,
	`CREATE TABLE workspace (
		base_pos bigint NOT NULL DEFAULT 0, owner bigint, sealed_at timestamptz, -- of one that is pinned
		epoch integer NOT NULL DEFAULT 0, manifest_ver integer NOT NULL DEFAULT 0, namespace uuid UNIQUE,
		id text PRIMARY KEY, kind text, manifest_key text, manifest bytea, pinned text, adopted jsonb -- kind: of one that is not virtual
	) WITH (fillfactor = 90, autovacuum_vacuum_scale_factor = 0.02, vacuum_truncate = off)`,
	`INSERT INTO workspace (base_pos, owner, sealed_at, epoch, manifest_ver, namespace, id, kind, manifest_key, manifest, pinned, adopted)
		SELECT base_pos, owner, CASE WHEN pinned IS NOT NULL THEN sealed_at END, epoch, manifest_ver, ` + fmt.Sprintf(namespaceHash, "namespace") + `,
		id, NULLIF(kind, 'virtual'), left(substr(manifest_key, length(id) + 2), -9), manifest, pinned, adopted FROM workspace_former`,
	`DROP TABLE workspace_former`,
	`CREATE INDEX workspace_adopted ON workspace (id) WHERE adopted IS NOT NULL`,
}

// namespaceHash is how a row names a namespace: by 128 bits of its SHA-256; NULL for an empty one.
const namespaceHash = `encode(substr(sha256(convert_to(NULLIF(%s, ''), 'UTF8')), 1, 16), 'hex')::uuid`

// manifestKey is the name of the object that has the manifest of a workspace w; empty:
// none has. The row has it without the workspace's ID and without the ending.
const manifestKey = `coalesce(w.id || '/' || w.manifest_key || '.manifest', '')`

func journalPartitions() []string {
	var list []string
	for i := range partitions {
		// Groups are compressed already.
		list = append(list,
			fmt.Sprintf(`CREATE TABLE journal_%d PARTITION OF journal FOR VALUES WITH (MODULUS %d, REMAINDER %d)
				WITH (autovacuum_vacuum_scale_factor = 0.02, vacuum_truncate = off)`, i, partitions, i),
			fmt.Sprintf(`ALTER TABLE journal_%d ALTER COLUMN data SET STORAGE EXTERNAL`, i))
	}
	return list
}

// Cluster is what the cluster's row says.
type Cluster struct {
	ID     string // a UUID
	Schema int
	Lease  time.Duration
	Key    []byte // signs requests among nodes
	// Marked says that the object store was seen with the cluster's marker: from
	// then on a missing one is an error.
	Marked  bool
	Created bool // by this process
}

// Bounds of a lease, and its default.
const (
	MinLease     = time.Second
	MaxLease     = 30 * time.Second
	DefaultLease = 3 * time.Second
)

// newest is the schema that this program makes.
func newest() int { return len(migrations) }

// prepare makes the schema in an empty database, or upgrades it, under the lock
// of the cluster's row. lease is that of a new cluster.
func prepare(ctx context.Context, e *engine.Engine, lease time.Duration) (*Cluster, error) {
	for {
		var found *Cluster
		err := e.Retry(ctx, func(ctx context.Context, c *engine.Conn) error {
			var err error
			if found, err = clusterOf(ctx, c); err != nil || found != nil {
				return err
			}
			found, err = upgrade(ctx, c, lease)
			return err
		})
		// Two servers that make a table at once: one of them fails on the catalog's
		// own index, and finds the table the next time.
		if pg, ok := errors.AsType[*pgconn.PgError](err); ok && (pg.Code == "23505" || pg.Code == "42P07") && ctx.Err() == nil {
			continue
		}
		return found, err
	}
}

// clusterOf reads the row. It returns nil where the schema has to be made or
// upgraded.
func clusterOf(ctx context.Context, c *engine.Conn) (*Cluster, error) {
	var exists bool
	if err := c.QueryRow(ctx, `SELECT to_regclass('cluster') IS NOT NULL`).Scan(&exists); err != nil || !exists {
		return nil, err
	}
	found, err := readCluster(c.QueryRow(ctx, clusterRow))
	if errors.Is(err, pgx.ErrNoRows) || err == nil && found.Schema < newest() {
		return nil, nil
	}
	return found, err
}

const clusterRow = `SELECT id::text, schema, min_schema, lease_ms, key, marked FROM cluster`

func readCluster(row pgx.Row) (*Cluster, error) {
	found, needs, ms := &Cluster{}, 0, 0
	if err := row.Scan(&found.ID, &found.Schema, &needs, &ms, &found.Key, &found.Marked); err != nil {
		return nil, err
	}
	found.Lease = time.Duration(ms) * time.Millisecond
	if needs > newest() {
		return nil, engine.Refuse("schema_newer", nil, "The cluster's schema is %d; this program knows up to %d.", found.Schema, newest())
	}
	return found, nil
}

func upgrade(ctx context.Context, c *engine.Conn, lease time.Duration) (*Cluster, error) {
	key := make([]byte, 32)
	if _, err := rand.Read(key); err != nil {
		return nil, err
	}
	tx, err := c.Begin(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { _ = tx.Rollback(ctx) }() // after a commit it does nothing
	if _, err := tx.Exec(ctx, `CREATE TABLE IF NOT EXISTS cluster (
		one boolean PRIMARY KEY DEFAULT true CHECK (one),
		id uuid NOT NULL,
		schema integer NOT NULL,
		min_schema integer NOT NULL,
		lease_ms integer NOT NULL,
		key bytea NOT NULL,
		marked boolean NOT NULL DEFAULT false,
		sweeps bigint[] NOT NULL DEFAULT '{}'
	)`); err != nil {
		return nil, rights(ctx, c, tx, err)
	}
	made, err := tx.Exec(ctx, `INSERT INTO cluster (id, schema, min_schema, lease_ms, key) VALUES ($1, 0, 0, $2, $3) ON CONFLICT DO NOTHING`,
		newUUID(), lease.Milliseconds(), key)
	if err != nil {
		return nil, err
	}
	found, err := readCluster(tx.QueryRow(ctx, clusterRow+` FOR UPDATE`))
	if err != nil {
		return nil, err
	}
	for _, m := range migrations[min(found.Schema, newest()):] {
		found.Schema++
		for _, statement := range m.statements {
			if _, err := tx.Exec(ctx, statement); err != nil {
				return nil, rights(ctx, c, tx, err)
			}
		}
		if _, err := tx.Exec(ctx, `UPDATE cluster SET schema = $1, min_schema = $2`, found.Schema, m.min); err != nil {
			return nil, err
		}
	}
	if err := tx.Commit(ctx); err != nil {
		return nil, err
	}
	found.Created = made.RowsAffected() == 1
	return found, nil
}

// rights puts a missing right into words.
func rights(ctx context.Context, c *engine.Conn, tx pgx.Tx, err error) error {
	pg, ok := errors.AsType[*pgconn.PgError](err)
	// 3F000: no schema of the search path exists, or none may be used.
	if !ok || pg.Code != "42501" && pg.Code != "3F000" && pg.Code != "25006" {
		return err
	}
	_ = tx.Rollback(ctx)
	var role, schema string
	if failed := c.QueryRow(ctx, `SELECT current_user::text, coalesce(current_schema()::text, current_setting('search_path'))`).Scan(&role, &schema); failed != nil {
		return errors.Join(err, failed)
	}
	return engine.Refuse("engine_rights", err, "Role %s may not create tables in schema %s.", role, schema)
}

func newUUID() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails (crypto/rand)
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	h := hex.EncodeToString(b[:])
	return h[:8] + "-" + h[8:12] + "-" + h[12:16] + "-" + h[16:20] + "-" + h[20:]
}
