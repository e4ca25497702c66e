package cluster

import (
	"context"
	"errors"
	"io"
	"time"

	"umbra/gitstore/sink"
	"umbra/internal/blob"
	"umbra/internal/cluster/engine"
)

// keptObjects is the bucket of records whose keys are those of objects that records
// name. An object is put before it is named there, and is named nowhere else.
const keptObjects = "area_objects"

// Objects are what nodes share and is too large for a record: a key begins with a workspace and
// a slash, and is used once. It is safe for concurrent use.
type Objects struct {
	n     *Node
	store blob.Store
	grace time.Duration
}

// Objects returns the objects in a store; grace is how long a dropped one stays.
func (n *Node) Objects(store blob.Store, grace time.Duration) *Objects {
	return &Objects{n: n, store: store, grace: grace}
}

// Objects is Node.Objects, for one that drops none.
func (a *Admin) Objects(store blob.Store) *Objects { return a.n.Objects(store, orphan) }

// Put stores an object. The sweeper leaves it alone for a day, and later if a record
// names it.
func (o *Objects) Put(ctx context.Context, key string, body io.ReaderAt, size int64) error {
	if err := o.store.Put(ctx, key, body, size); err != nil {
		return blobError(key, err)
	}
	return nil
}

// Get returns an object's content. The caller closes it.
func (o *Objects) Get(ctx context.Context, key string) (io.ReadCloser, error) {
	body, _, err := o.store.Get(ctx, key)
	if err != nil {
		err = blobError(key, err)
		if errors.Is(err, sink.ErrMissing) {
			err = sink.BlobsUnavailable(err)
		}
		return nil, err
	}
	return body, nil
}

// Drop has objects removed after the grace. No record names them any more.
func (o *Objects) Drop(ctx context.Context, keys []string) error {
	return o.n.write(ctx, func(ctx context.Context, c *engine.Conn) error {
		_, err := c.Exec(ctx, `INSERT INTO garbage (key, not_before) SELECT key, now() + make_interval(secs => $2) FROM unnest($1::text[]) AS d (key) ON CONFLICT (key) DO NOTHING`,
			keys, o.grace.Seconds())
		return err
	})
}
