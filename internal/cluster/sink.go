package cluster

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"umbra/gitstore/sink"
	"umbra/internal/blob"
	"umbra/internal/cluster/engine"
)

const (
	// stale is after how long an object that nothing names yet is put again, by the
	// boot clock. The sweeper removes such objects when they are older than orphan,
	// by the store's clock.
	stale  = time.Hour
	orphan = 24 * time.Hour
	// inlineManifest is up to how many bytes a manifest is in the workspace's row: a
	// larger one is an object, so that an idle workspace costs the database little.
	inlineManifest = 192
	// purgeGrace is how long a purged object stays for those who are reading it.
	purgeGrace = 60 * time.Second
)

// Sink is a claimed workspace's log and objects.
type Sink struct {
	n     *Node
	store blob.Store
	claim *Claim
	grace time.Duration // how long a dropped object stays

	mu   sync.Mutex
	puts map[string]time.Duration // objects that nothing names yet, also on their way: since when
	// swap is the version of the manifest that the last Swap which ended made.
	version     int64
	manifestKey string // the object of the present manifest; empty: it is inline, or there is none
	// sent is the manifest of the last attempt to swap, and sentKey its object: it is put
	// once. After a refusal another manifest may have the same version.
	sent    []byte
	sentKey string
	// last makes the switch that was left to Release; nil: none is.
	last func(ctx context.Context, c *engine.Conn) (bool, error)
}

var _ sink.Sink = (*Sink)(nil)

// Sink returns the log of a claimed workspace over an object store. grace is how
// long a dropped object stays (cluster.garbage_grace).
func (n *Node) Sink(c *Claim, store blob.Store, grace time.Duration) *Sink {
	return &Sink{n: n, store: store, claim: c, grace: grace, puts: map[string]time.Duration{}, version: c.version, manifestKey: c.manifestKey}
}

// Claim returns the claim that the sink is for.
func (s *Sink) Claim() *Claim { return s.claim }

// over returns ErrFenced once the claim's life is over. It is not yet certain then
// that another node owns the workspace, but one may at any time.
func (s *Sink) over() error {
	select {
	case <-s.claim.Life.over:
		return sink.Fenced(true, nil)
	default:
		return nil
	}
}

// Tail returns what the claim read: it was replicated when the claim was answered.
func (s *Sink) Tail(ctx context.Context) (*sink.Tail, error) {
	c := s.claim
	t := &sink.Tail{}
	manifest := c.manifest
	if c.manifestKey != "" {
		r, err := s.Fetch(ctx, c.manifestKey, 0, -1)
		if err != nil {
			return nil, err
		}
		manifest, err = io.ReadAll(r)
		if err = errors.Join(err, r.Close()); err != nil {
			return nil, sink.BlobsUnavailable(err)
		}
	}
	if manifest != nil {
		var err error
		if t.Manifest, err = sink.DecodeManifest(manifest); err != nil {
			return nil, fmt.Errorf("workspace %s: %w", c.Workspace, err)
		}
		if int64(t.Manifest.Base) != c.base || int64(t.Manifest.Version) != c.version {
			return nil, fmt.Errorf("workspace %s: its manifest is version %d up to %d, its row says version %d up to %d: %w",
				c.Workspace, t.Manifest.Version, t.Manifest.Base, c.version, c.base, sink.ErrDamaged)
		}
	}
	for i, r := range c.tail {
		if r.pos != c.base+int64(i)+1 {
			return nil, fmt.Errorf("workspace %s: position %d of its log is missing: %w", c.Workspace, c.base+int64(i)+1, sink.ErrDamaged)
		}
		g, err := sink.DecodeGroup(uint64(r.pos), r.data)
		if err != nil {
			return nil, fmt.Errorf("workspace %s: %w", c.Workspace, err)
		}
		t.Groups = append(t.Groups, g)
	}
	c.tail, c.manifest = nil, nil
	return t, nil
}

// Append is sink.Sink's.
func (s *Sink) Append(g *sink.Group) error {
	if err := s.over(); err != nil {
		return err
	}
	var named []string
	for _, p := range g.Packs {
		named = append(named, p.Name)
	}
	if err := s.fresh(named); err != nil {
		return err
	}
	err := s.n.lanes.append(&group{ws: s.claim.Workspace, epoch: s.claim.Epoch, pos: int64(g.Pos), nonce: random63(),
		data: orEmpty(g.AppendTo(nil)), records: cloneRecords(g.Records)}, s.n.opts.Wait)
	if err == nil {
		s.named(named)
	}
	return err
}

// orEmpty keeps pgx from sending NULL.
func orEmpty(b []byte) []byte {
	if b == nil {
		return []byte{}
	}
	return b
}

// cloneRecords copies records: a lane may send them when their caller has gone.
func cloneRecords(records []sink.Record) []sink.Record {
	out := make([]sink.Record, len(records))
	for i, r := range records {
		out[i] = sink.Record{Bucket: r.Bucket, Key: append([]byte{}, r.Key...)}
		if r.Value != nil {
			out[i].Value = append([]byte{}, r.Value...)
		}
	}
	return out
}

// fresh reports an object that was put too long ago to be named now.
func (s *Sink) fresh(names []string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, name := range names {
		if since, ok := s.puts[name]; ok && s.n.opts.boot()-since > stale {
			delete(s.puts, name)
			return sink.Stale(name)
		}
	}
	return nil
}

func (s *Sink) named(names []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, name := range names {
		delete(s.puts, name)
	}
}

// Put is sink.Sink's.
func (s *Sink) Put(ctx context.Context, r io.ReaderAt, size int64) (string, error) {
	return s.put(ctx, r, size, "pack")
}

func (s *Sink) put(ctx context.Context, r io.ReaderAt, size int64, sort string) (string, error) {
	if err := s.over(); err != nil {
		return "", err
	}
	key := objectKey(s.claim.Workspace, s.claim.Epoch, sort)
	s.mu.Lock()
	s.puts[key] = s.n.opts.boot()
	s.mu.Unlock()
	s.n.opts.at("put")
	if err := s.store.Put(ctx, key, r, size); err != nil {
		s.named([]string{key}) // it never is
		return "", blobError(key, err)
	}
	return key, nil
}

// objectKey returns a name that is never used twice. A manifest's, which is in the row of
// its workspace, has 80 random bits, others have 130.
func objectKey(ws string, epoch int64, sort string) string {
	text := strings.ToLower(rand.Text())
	if sort == "manifest" {
		text = text[:16]
	}
	return fmt.Sprintf("%s/%d-%s.%s", ws, epoch, text, sort)
}

// blobError maps an error of the object store to one of package sink.
func blobError(key string, err error) error {
	switch {
	case blob.Is(err, blob.NotFound):
		return sink.Missing(key)
	case blob.Is(err, blob.Canceled):
		return err
	}
	return sink.BlobsUnavailable(err)
}

// Fetch is sink.Sink's.
func (s *Sink) Fetch(ctx context.Context, name string, off, n int64) (io.ReadCloser, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if n == 0 {
		return io.NopCloser(strings.NewReader("")), nil
	}
	r, err := blob.Open(ctx, s.store, name, off, n)
	if err != nil {
		return nil, blobError(name, err)
	}
	return sink.Body(r), nil
}

// The switch to another manifest: one statement, so that a reader sees the groups
// in the log or in the packs. An epoch that is over changes nothing.
const swapManifest = `WITH w AS (
		UPDATE workspace w SET manifest = $5, manifest_key = left(substr(NULLIF($6::text, ''), length(w.id) + 2), -9), manifest_ver = $4, base_pos = $7, owner = CASE WHEN $10 THEN NULL ELSE w.owner END, sealed_at = CASE WHEN w.pinned IS NOT NULL THEN now() END
		FROM (SELECT $1::text AS ws, $2::bigint AS epoch) i
		WHERE w.id = i.ws AND w.epoch = i.epoch AND w.manifest_ver = $3 AND w.base_pos <= $7 AND (NOT $10 OR ` + unwaited + `)
		RETURNING w.id),
	trimmed AS (DELETE FROM journal j USING w WHERE j.ws = w.id AND j.pos <= $7),
	dropped AS (
		INSERT INTO garbage (key, not_before) SELECT key, now() + make_interval(secs => $9) FROM unnest($8::text[]) AS d (key), w
		ON CONFLICT (key) DO UPDATE SET not_before = least(garbage.not_before, excluded.not_before))
	SELECT current_setting('synchronous_standby_names') FROM w`

// resolveSwap writes, as resolveGroups does.
const resolveSwap = `UPDATE workspace w SET epoch = w.epoch
	FROM (SELECT $1::text AS ws, $2::bigint AS epoch) i WHERE w.id = i.ws AND w.epoch = i.epoch
	RETURNING w.manifest_ver, current_setting('synchronous_standby_names')`

// Swap is sink.Sink's.
func (s *Sink) Swap(ctx context.Context, sw *sink.Switch) error {
	if err := s.over(); err != nil {
		return err
	}
	encoded := sw.Manifest.Encode()
	s.mu.Lock()
	version, key, oldKey := s.version, s.sentKey, s.manifestKey
	if !bytes.Equal(s.sent, encoded) {
		key = ""
	}
	s.mu.Unlock()
	next := int64(sw.Manifest.Version)
	if next == version {
		return nil
	}
	if next != version+1 {
		return sink.Unavailable("unreachable", fmt.Errorf("version %d of the manifest after version %d", next, version))
	}
	if err := s.fresh(sw.Manifest.Objects()); err != nil {
		return err
	}
	inline := encoded
	if len(encoded) > inlineManifest {
		if key == "" {
			var err error
			if key, err = s.put(ctx, bytes.NewReader(encoded), int64(len(encoded)), "manifest"); err != nil {
				return err
			}
		}
		inline = nil
	}
	s.mu.Lock()
	s.sent, s.sentKey = encoded, key
	s.mu.Unlock()
	drop := sw.Drop
	if oldKey != "" {
		drop = append(drop[:len(drop):len(drop)], oldKey)
	}
	grace := s.grace
	if sw.Purge {
		grace = purgeGrace
		// Packs that were dropped before may hold what is purged.
		if err := s.n.hasten(ctx, s.claim.Workspace, grace.Seconds()); err != nil { // Erase does it again
			s.n.opts.Log.Warn("dropped objects stay for their grace", "workspace", s.claim.Workspace, "error", err)
		}
	}
	if mutant == deleteNow {
		for _, name := range drop {
			_ = s.store.Delete(ctx, name)
		}
	}
	s.n.opts.at("swap")
	swap := func(ctx context.Context, c *engine.Conn, release bool) (bool, error) {
		c.Noticed.Store(false)
		return s.n.switched(c.QueryRow(ctx, unfence(swapManifest), s.claim.Workspace, s.claim.Epoch, version, next, inline, key,
			int64(sw.Manifest.Base), drop, grace.Seconds(), release), c)
	}
	if sw.Last {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.last = func(ctx context.Context, c *engine.Conn) (bool, error) { return swap(ctx, c, true) }
		return nil
	}
	done := make(chan bool, 1)
	attempted := false
	ctx, cancel := context.WithTimeout(ctx, s.n.opts.Wait)
	defer cancel()
	err := s.n.e.Do(ctx, func(ctx context.Context, c *engine.Conn) error {
		for {
			ok, err := swap(ctx, c, false)
			if engine.Again(err) {
				continue
			}
			if err != nil {
				return err
			}
			done <- ok
			return nil
		}
	})
	switch {
	case err == nil && <-done:
		return s.swapped(sw, key)
	case err == nil: // an earlier attempt, or another owner
	case errors.Is(err, engine.ErrBusy):
		return s.n.refusal()
	case engine.Refused(err):
		return sink.Unavailable("unreachable", err)
	default:
		attempted = true
	}
	// What was done is asked by a statement that waits for the first, if that is on
	// its way.
	found := make(chan *int64, 1)
	resolveErr := s.n.e.Do(ctx, func(ctx context.Context, c *engine.Conn) error {
		c.Noticed.Store(false)
		var ver int64
		var names string
		err := c.QueryRow(ctx, unfence(resolveSwap), s.claim.Workspace, s.claim.Epoch).Scan(&ver, &names)
		switch {
		case errors.Is(err, pgx.ErrNoRows):
			found <- nil
			return nil
		case err != nil:
			return err
		case c.Noticed.Load() || s.n.unsafe(names):
			return engine.ErrSent
		}
		found <- &ver
		return nil
	})
	if resolveErr != nil {
		return sink.Unknown(errors.Join(err, resolveErr))
	}
	switch ver := <-found; {
	case ver == nil:
		return sink.Fenced(!attempted, nil)
	case *ver == next:
		return s.swapped(sw, key)
	case attempted:
		// The first attempt may be on its way still.
		return sink.Unknown(err)
	default:
		return sink.Unavailable("unreachable", fmt.Errorf("the log's manifest has version %d, not %d", *ver, version))
	}
}

// Release is Node.Release, with the switch that Swap left to it, in one statement. Where
// that is not made the log has what it would have sealed.
func (s *Sink) Release(ctx context.Context) error {
	s.mu.Lock()
	last := s.last
	s.mu.Unlock()
	if last != nil {
		made := make(chan bool, 8)
		err := s.n.write(ctx, func(ctx context.Context, c *engine.Conn) error {
			ok, err := last(ctx, c)
			if err == nil { // else it may run again
				made <- ok
			}
			return err
		})
		if err == nil && <-made {
			return nil
		}
		s.n.opts.Log.Info("the log may not be sealed; its next owner does it", "workspace", s.claim.Workspace, "error", err)
	}
	return s.n.Release(ctx, s.claim)
}

// switched reads what a statement that swaps answered.
func (n *Node) switched(row pgx.Row, c *engine.Conn) (bool, error) {
	var names string
	err := row.Scan(&names)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return false, nil
	case err != nil:
		return false, err
	case c.Noticed.Load() || n.unsafe(names):
		return false, engine.ErrSent
	}
	return true, nil
}

func (s *Sink) swapped(sw *sink.Switch, key string) error {
	s.mu.Lock()
	s.version, s.manifestKey = int64(sw.Manifest.Version), key
	s.sent, s.sentKey = nil, ""
	delete(s.puts, key)
	s.mu.Unlock()
	s.named(sw.Manifest.Objects())
	if sw.Purge {
		s.age()
	}
	return nil
}
