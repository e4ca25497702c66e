package cluster

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"umbra/gitstore/sink"
	"umbra/internal/cluster/engine"
	"umbra/internal/cluster/recordrow"
	"umbra/internal/state"
)

// How many transactions of records a node has at most.
const (
	recordReads  = 8
	recordWrites = 4
)

// Records is the cluster's records as a state.Backend: what one node wrote, each
// other one reads. It is safe for concurrent use.
//
// An Update is serializable with all other Updates. It reads in one transaction and
// keeps its changes in memory; they go with the commit in one round trip. So an
// Update that reads nothing is one round trip, and so is a View or Get of one record.
// Connection errors, serialization failures and deadlocks before the commit repeat fn.
//
// Outcomes. Each transaction that writes changes the row of its writer from one
// nonce to the next, or does nothing. Where the commit was not answered, the writer's
// fence is changed by a statement which waits for the standby and for a transaction
// on its way: the nonce that it finds says whether that one was done, and one that
// arrives later does nothing.
//
// Update and View return errors of package sink where the engine does not answer
// within Options.Wait. A View at a primary that was replaced may be as old as the
// last answered beat: who answers a client compares the lease after it.
type Records struct {
	n    *Node
	cfg  *pgx.ConnConfig
	pool *engine.Pool

	reads, writes chan struct{}
	running       sync.WaitGroup

	packable  func(bucket string) bool // may records of a bucket be in packs
	packLeast int                      // how many rows make a pack of their own

	mu          sync.Mutex
	closed      bool
	packedSince int64 // the transaction at which Pack was called last; 0: it was not
	writers     []*writer
}

// writer is a row that is used by one transaction at a time.
type writer struct{ id, nonce, fence int64 }

var _ state.Backend = (*Records)(nil)

// Records returns the cluster's records. They are closed before the node.
func (n *Node) Records() *Records {
	cfg := n.e.Config()
	// A scan of a whole table would conflict with each change to it.
	cfg.RuntimeParams["enable_seqscan"] = "off"
	cfg.RuntimeParams["enable_bitmapscan"] = "off"
	return &Records{n: n, cfg: cfg, pool: n.e.NewPool(cfg, recordReads+recordWrites), packable: recordrow.Packable, packLeast: recordrow.PackLeast, reads: make(chan struct{}, recordReads), writes: make(chan struct{}, recordWrites)}
}

// Records returns the records of a cluster in which this process has no life.
func (a *Admin) Records() *Records { return a.n.Records() }

// Shared is state.DB.Shared.
func (r *Records) Shared() bool { return true }

// enter begins a transaction in one of the slots; leave ends it.
func (r *Records) enter(slots chan struct{}, deadline time.Time) (leave func(), err error) {
	r.mu.Lock()
	closed := r.closed
	if !closed {
		r.running.Add(1)
	}
	r.mu.Unlock()
	if closed {
		return nil, ErrClosed
	}
	t := time.NewTimer(time.Until(deadline))
	defer t.Stop()
	select {
	case slots <- struct{}{}:
		return func() { <-slots; r.running.Done() }, nil
	case <-t.C:
		r.running.Done()
		return nil, r.n.refusal()
	}
}

// Close implements state.Backend.
func (r *Records) Close() error {
	r.mu.Lock()
	r.closed = true
	r.mu.Unlock()
	r.running.Wait()
	r.mu.Lock()
	writers := r.writers
	r.writers = nil
	r.mu.Unlock()
	idle := r.pool.Close()
	if len(idle) > 0 && len(writers) > 0 {
		ids := make([]int64, len(writers))
		for i, w := range writers {
			ids[i] = w.id
		}
		// Rows that stay are removed by a sweep.
		release := r.guard(idle[0], time.Now().Add(time.Second))
		_, _ = idle[0].Exec(context.Background(), `DELETE FROM writer WHERE id = ANY ($1) AND `+unwaited, ids)
		release()
	}
	for _, c := range idle {
		r.n.e.Drop(c)
	}
	return nil
}

// take returns a connection.
func (r *Records) take(deadline time.Time) (*engine.Conn, error) {
	ctx, cancel := context.WithDeadline(r.n.ctx, deadline)
	defer cancel()
	return r.pool.Take(ctx)
}

// guard closes a connection when its statement takes longer than until a deadline:
// the server goes on with it, and its outcome is unknown.
func (r *Records) guard(c *engine.Conn, deadline time.Time) (release func()) {
	t := time.AfterFunc(time.Until(deadline), func() { c.Abort() })
	return func() { t.Stop() }
}

// pause waits a little before another attempt, longer the more there were, and
// reports whether there is time for one.
func (r *Records) pause(attempt int, deadline time.Time) bool {
	if r.n.hurried.Load() && attempt > hurriedAttempts {
		return false
	}
	d := time.Duration(rand.Int64N(int64(time.Millisecond) << min(attempt, 5)))
	return time.Until(deadline) > d && r.n.pause(d)
}

// ready waits until the engine takes writes. A process without a life does not know.
func (r *Records) ready(deadline time.Time) error {
	if r.n.lanes == nil {
		return nil
	}
	for attempt := 3; ; attempt++ {
		switch r.n.Engine().Reason {
		case "":
			return nil
		case "replication_off":
			return sink.ReplicationOff(nil)
		}
		if !r.pause(attempt, deadline) {
			return r.n.refusal()
		}
	}
}

// Get reads one record, in one round trip. The value is the caller's.
func (r *Records) Get(bucket, key string) (value []byte, found bool, err error) {
	deadline := time.Now().Add(r.n.patience())
	leave, err := r.enter(r.reads, deadline)
	if err != nil {
		return nil, false, err
	}
	defer leave()
	tx := &recordTx{r: r, deadline: deadline, single: true}
	defer tx.end()
	return tx.Get(bucket, key)
}

// Each calls fn with every record as they are at one moment, each bucket's by key; value
// is valid until it returns. All that was acknowledged before the call is among them, and
// nothing that the primary may still lose. It takes as long as ctx lasts.
func (r *Records) Each(ctx context.Context, fn func(bucket, key string, value []byte) error) error {
	c, err := r.n.e.DialAt(ctx, r.cfg)
	if err != nil {
		return r.failure(err)
	}
	defer r.n.e.Drop(c)
	rows, err := c.Query(ctx, recordrow.EachPacked)
	if err != nil {
		return r.failure(err)
	}
	var row, value, last []byte
	e := recordrow.Merged{Fn: fn}
	var failed error
	_, err = pgx.ForEachRow(rows, []any{&row, &value, &last}, func() error {
		if last != nil {
			failed = e.Pack(row, value)
		} else {
			failed = e.Row(row, value)
		}
		return failed
	})
	if err == nil {
		failed = e.Rest()
	}
	switch {
	case failed != nil:
		return failed
	case err != nil:
		return r.failure(err)
	}
	// What was visible may be on the primary alone: a later commit waits for the standby.
	return r.n.write(ctx, func(ctx context.Context, c *engine.Conn) error {
		_, err := c.Exec(ctx, `UPDATE cluster SET marked = marked`)
		return err
	})
}

// View implements state.Backend.
func (r *Records) View(fn func(state.BackendTx) error) error {
	deadline := time.Now().Add(r.n.patience())
	leave, err := r.enter(r.reads, deadline)
	if err != nil {
		return err
	}
	defer leave()
	tx := &recordTx{r: r, deadline: deadline}
	defer tx.end()
	err = fn(tx)
	if tx.failed != nil {
		return r.failure(tx.failed)
	}
	return err
}

// Update implements state.Backend.
func (r *Records) Update(fn func(state.BackendTx) error) error {
	deadline := time.Now().Add(r.n.patience())
	leave, err := r.enter(r.writes, deadline)
	if err != nil {
		return err
	}
	defer leave()
	var w *writer
	defer func() { r.keep(w) }()
	for attempt := 0; ; attempt++ {
		err := r.ready(deadline)
		if err != nil {
			return err
		}
		// Before the transaction begins, which else does not see its row.
		if w == nil {
			w, err = r.writer(deadline)
		}
		if err == nil {
			tx := &recordTx{r: r, deadline: deadline, writable: true, w: w}
			var done bool
			done, err = tx.run(fn)
			w = tx.w
			if done {
				return err
			}
		}
		if errors.Is(err, ErrClosed) || !r.pause(attempt, deadline) {
			return r.failure(err)
		}
	}
}

// final reports whether the engine refused a statement for what it is: another
// attempt would meet the same.
func final(err error) bool {
	if engine.Again(err) || !engine.Refused(err) {
		return false
	}
	pg, _ := errors.AsType[*pgconn.PgError](err)
	switch pg.Code[:2] {
	case "22", "23", "42", "54": // data, constraints, names and rights, limits
		return true
	}
	return false
}

// failure returns the error for a client of a transaction that did nothing.
func (r *Records) failure(err error) error {
	if errors.Is(err, ErrClosed) || final(err) {
		return prefixed(fmt.Errorf("records: %w", err))
	}
	if errors.Is(err, sink.ErrRefused) || errors.Is(err, sink.ErrUnknown) {
		return err
	}
	reason := r.n.Engine().Reason
	if reason == "replication_off" {
		return sink.ReplicationOff(err)
	}
	if reason == "" {
		reason = "unreachable"
	}
	return sink.Unavailable(reason, err)
}
