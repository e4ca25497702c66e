package cluster

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"slices"
	"sort"
	"time"

	"github.com/jackc/pgx/v5"

	"umbra/gitstore/sink"
	"umbra/internal/cluster/engine"
	"umbra/internal/cluster/recordrow"
	"umbra/internal/state"
)

// recordTx is one transaction of records. It is used by one goroutine.
type recordTx struct {
	r        *Records
	deadline time.Time
	writable bool
	single   bool    // one statement, in no transaction
	w        *writer // of a writable one; nil: it must not be used again

	c      *engine.Conn
	failed error // of the engine: the transaction is over

	// What the transaction has changed so far.
	dropped map[string]bool              // buckets
	changed map[string]map[string][]byte // a nil value is a deleted record
}

// How many records a walk reads at a time: most end soon.
const (
	firstPage = 64
	laterPage = 256
)

func (t *recordTx) begin() string {
	switch {
	case mutant == packUnguarded && t.writable && t.w == nil:
		return `BEGIN ISOLATION LEVEL READ COMMITTED`
	case t.writable:
		return `BEGIN ISOLATION LEVEL SERIALIZABLE`
	}
	return `BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY`
}

// query runs a statement that reads. The first one begins the transaction, and is
// repeated on another connection while the engine does not answer.
func (t *recordTx) query(read func(pgx.Rows) error, sql string, args ...any) error {
	if t.failed != nil {
		return t.failed
	}
	for attempt := 0; ; attempt++ {
		began := t.c != nil
		err := t.send(read, sql, args...)
		if err == nil {
			return nil
		}
		if t.c != nil {
			t.r.n.e.Drop(t.c)
			t.c = nil
		}
		if began || final(err) || errors.Is(err, ErrClosed) || !t.r.pause(attempt+3, t.deadline) {
			t.failed = err
			return t.r.failure(err)
		}
	}
}

func (t *recordTx) send(read func(pgx.Rows) error, sql string, args ...any) error {
	began := t.c != nil
	if !began {
		var err error
		if t.c, err = t.r.take(t.deadline); err != nil {
			return err
		}
	}
	defer t.r.guard(t.c, t.deadline)()
	b := &pgx.Batch{}
	if !began && !t.single {
		b.Queue(t.begin())
	}
	b.Queue(sql, args...).Query(func(rows pgx.Rows) error {
		if err := read(rows); err != nil {
			return err
		}
		return rows.Err()
	})
	return t.c.SendBatch(context.Background(), b).Close()
}

// end gives the connection back. No caller waits for the end of a transaction that
// changes nothing.
func (t *recordTx) end() {
	c := t.c
	if c == nil {
		return
	}
	t.c = nil
	if c.Gone() || c.PgConn().TxStatus() == 'I' {
		t.r.pool.Put(c)
		return
	}
	t.r.running.Add(1)
	go func() {
		defer t.r.running.Done()
		release := t.r.guard(c, time.Now().Add(time.Second))
		_, err := c.Exec(context.Background(), `ROLLBACK`)
		release()
		if err != nil {
			t.r.n.e.Drop(c)
			return
		}
		t.r.pool.Put(c)
	}()
}

// own returns what the transaction itself made of a record.
func (t *recordTx) own(bucket, key string) (value []byte, known bool) {
	if value, known = t.changed[bucket][key]; known {
		return value, true
	}
	return nil, t.dropped[bucket]
}

// Get implements state.BackendTx.
func (t *recordTx) Get(bucket, key string) (value []byte, found bool, err error) {
	if value, known := t.own(bucket, key); known {
		return value, value != nil, nil
	}
	row := recordrow.Key(bucket, key)
	statement := `SELECT key, value, NULL::bytea FROM record WHERE key = $1`
	if t.r.packable(bucket) {
		statement = recordrow.GetPacked
	}
	rows, packs, err := t.stored(statement, row)
	if err != nil {
		return nil, false, err
	}
	for _, p := range recordrow.Overridden(rows, packs) {
		if p.Key == string(row) {
			return p.Value, true, nil
		}
	}
	return nil, false, nil
}

// GetMany implements state.ManyGetter.
func (t *recordTx) GetMany(bucket string, keys []string) (map[string][]byte, error) {
	all := make(map[string][]byte, len(keys))
	asked, prefix := make([][]byte, 0, len(keys)), recordrow.Prefix(bucket)
	wanted := make(map[string]bool, len(keys))
	for _, key := range keys {
		if value, known := t.own(bucket, key); !known {
			asked = append(asked, recordrow.Key(bucket, key))
			wanted[prefix+key] = true
		} else if value != nil {
			all[key] = value
		}
	}
	for part := range slices.Chunk(asked, laterPage) {
		statement := `SELECT key, value, NULL::bytea FROM record WHERE key = ANY ($1)`
		if t.r.packable(bucket) {
			statement = recordrow.GetManyPacked
		}
		rows, packs, err := t.stored(statement, part)
		if err != nil {
			return nil, err
		}
		for _, p := range recordrow.Overridden(rows, packs) {
			if wanted[p.Key] {
				all[p.Key[len(prefix):]] = p.Value
			}
		}
	}
	return all, nil
}

// Put implements state.BackendTx.
func (t *recordTx) Put(bucket, key string, value []byte) error {
	return t.change(bucket, key, append([]byte{}, value...))
}

// Delete implements state.BackendTx.
func (t *recordTx) Delete(bucket, key string) error { return t.change(bucket, key, nil) }

func (t *recordTx) change(bucket, key string, value []byte) error {
	if !t.writable {
		return state.ErrReadOnly
	}
	if t.changed[bucket] == nil {
		if t.changed == nil {
			t.changed = map[string]map[string][]byte{}
		}
		t.changed[bucket] = map[string][]byte{}
	}
	t.changed[bucket][key] = value
	return nil
}

// DeleteBucket implements state.BackendTx.
func (t *recordTx) DeleteBucket(bucket string) error {
	if !t.writable {
		return state.ErrReadOnly
	}
	if t.dropped == nil {
		t.dropped = map[string]bool{}
	}
	t.dropped[bucket] = true
	delete(t.changed, bucket)
	return nil
}

// Ascend implements state.BackendTx.
func (t *recordTx) Ascend(bucket, from string, fn func(key string, value []byte) (bool, error)) error {
	own := t.ownSorted(bucket)
	own = own[sort.Search(len(own), func(i int) bool { return own[i].Key >= from }):]
	return t.walk(bucket, from, recordrow.Ascending, own, fn)
}

// Descend implements state.BackendTx.
func (t *recordTx) Descend(bucket, before string, fn func(key string, value []byte) (bool, error)) error {
	own := t.ownSorted(bucket)
	own = own[:sort.Search(len(own), func(i int) bool { return own[i].Key >= before })]
	slices.Reverse(own)
	return t.walk(bucket, before, recordrow.Descending, own, fn)
}

// ownSorted returns what the transaction has changed in a bucket.
func (t *recordTx) ownSorted(bucket string) []recordrow.Pair {
	list := make([]recordrow.Pair, 0, len(t.changed[bucket]))
	for key, value := range t.changed[bucket] {
		list = append(list, recordrow.Pair{Key: key, Value: value})
	}
	slices.SortFunc(list, func(a, b recordrow.Pair) int { return cmp.Compare(a.Key, b.Key) })
	return list
}

// walk merges the records of the database, a page at a time, with own, which are
// newer.
func (t *recordTx) walk(bucket, bound string, d *recordrow.Direction, own []recordrow.Pair, fn func(string, []byte) (bool, error)) error {
	var rows []recordrow.Pair
	more, size := !t.dropped[bucket], firstPage
	for {
		for len(rows) == 0 && more {
			var err error
			if rows, bound, more, err = t.page(d, bucket, bound, size); err != nil {
				return err
			}
			size = laterPage
		}
		var p recordrow.Pair
		switch {
		case len(rows) == 0 && len(own) == 0:
			return nil
		case len(own) == 0 || len(rows) > 0 && cmp.Compare(rows[0].Key, own[0].Key) == -d.Sign:
			p, rows = rows[0], rows[1:]
		default:
			if len(rows) > 0 && rows[0].Key == own[0].Key {
				rows = rows[1:]
			}
			p, own = own[0], own[1:]
			if p.Value == nil {
				continue
			}
		}
		if again, err := fn(p.Key, p.Value); err != nil || !again {
			return err
		}
	}
}

// page reads a page of a bucket, and the bound of the one after it if there may be more.
func (t *recordTx) page(d *recordrow.Direction, bucket, bound string, size int) (list []recordrow.Pair, next string, more bool, err error) {
	w := d.From(bucket, bound)
	statement, args := d.Rows, []any{w.Start, w.End, size}
	if t.r.packable(bucket) {
		statement, args = d.Packed, append(args, recordrow.PacksOf(size))
	}
	rows, packs, err := t.stored(statement, args...)
	if err != nil {
		return nil, "", false, err
	}
	list, next, more = w.Page(rows, packs, size)
	return list, next, more, nil
}

// The statements of a commit that changes something. Each does nothing unless the
// writer's row is as it was left.
const (
	dropBucket  = `DELETE FROM record r USING writer w WHERE r.key >= $1 AND r.key < $2 AND w.id = $3 AND w.nonce = $4 AND w.fence = $5`
	dropPacks   = `DELETE FROM packed p USING writer w WHERE p.first >= $1 AND p.first < $2 AND w.id = $3 AND w.nonce = $4 AND w.fence = $5`
	writeRecord = `WITH me AS (UPDATE writer SET nonce = $1, used = now() WHERE id = $2 AND nonce = $3 AND fence = $4 RETURNING id),
		put AS (
			INSERT INTO record (key, value)
			SELECT p.Key, p.Value FROM unnest($5::bytea[], $6::bytea[]) AS p (key, value), me
			ON CONFLICT (key) DO UPDATE SET value = excluded.value` + recordrow.UnlessUsed + `),
		hidden AS (
			INSERT INTO record (key, value)
			SELECT g.key, NULL FROM unnest($7::bytea[]) AS g (key), me WHERE ` + recordrow.Covers + `
			ON CONFLICT (key) DO UPDATE SET value = NULL),
		gone AS (
			DELETE FROM record r USING unnest($7::bytea[]) AS g (key), me
			WHERE r.key = g.key AND NOT ` + recordrow.Covers + `)
		SELECT current_setting('synchronous_standby_names') FROM me`
	// It waits for a transaction of the writer that is on its way, and for the
	// standby: what it finds is for ever.
	fenceWriter = `UPDATE writer SET fence = $2, used = now() WHERE id = $1 RETURNING nonce, current_setting('synchronous_standby_names')`
)

// run runs an Update once. done says that err is its result; else nothing was done,
// and another attempt may do it.
func (t *recordTx) run(fn func(state.BackendTx) error) (done bool, err error) {
	defer t.end()
	err = fn(t)
	switch {
	case t.failed != nil:
		return final(t.failed), t.r.failure(t.failed)
	case err != nil:
		return true, err
	case len(t.changed) == 0 && len(t.dropped) == 0:
		return t.commitRead()
	}
	if t.c == nil {
		if t.c, err = t.r.take(t.deadline); err != nil {
			return false, err
		}
	}
	nonce := random63()
	t.r.n.opts.at("record")
	stands, err := t.write(nonce)
	t.r.n.opts.at("recorded")
	switch {
	case err == nil && stands:
		t.w.nonce = nonce
		return true, nil
	case err == nil:
		t.w = nil
		return false, errLost
	case engine.Again(err):
		t.drop()
		return false, err
	case engine.Refused(err):
		t.drop()
		return final(err), t.r.failure(err)
	}
	t.drop()
	return t.resolve(nonce)
}

// errLost says that a writer's row does not exist any more.
var errLost = errors.New("the row of the writer is gone")

func (t *recordTx) drop() {
	t.r.n.e.Drop(t.c)
	t.c = nil
}

// commitRead commits what only read: the commit says whether all of it was of one
// state.
func (t *recordTx) commitRead() (done bool, err error) {
	if t.c == nil {
		return true, nil
	}
	release := t.r.guard(t.c, t.deadline)
	_, err = t.c.Exec(context.Background(), `COMMIT`)
	release()
	if err != nil {
		t.drop()
		return false, err
	}
	return true, nil
}

// write sends the changes and the commit. An error that is neither a refusal nor to
// be repeated leaves the outcome open.
func (t *recordTx) write(nonce int64) (stands bool, err error) {
	w, b := t.w, &pgx.Batch{}
	if t.c.PgConn().TxStatus() == 'I' {
		b.Queue(t.begin())
	}
	for bucket := range t.dropped {
		for _, drop := range []string{dropBucket, dropPacks} {
			b.Queue(drop, []byte(recordrow.Prefix(bucket)), recordrow.End(bucket), w.id, w.nonce, w.fence)
		}
	}
	keys, values, gone := [][]byte{}, [][]byte{}, [][]byte{}
	for bucket, records := range t.changed {
		for key, value := range records {
			if value != nil {
				keys, values = append(keys, recordrow.Key(bucket, key)), append(values, recordrow.PackValue(bucket, key, value))
			} else if !t.dropped[bucket] {
				gone = append(gone, recordrow.Key(bucket, key))
			}
		}
	}
	// In one order, so that two transactions wait for each other in one.
	sort.Sort(&inOrder{keys, values})
	slices.SortFunc(gone, bytes.Compare)
	names := ""
	b.Queue(writeRecord, nonce, w.id, w.nonce, w.fence, keys, values, gone).QueryRow(func(row pgx.Row) error {
		err := row.Scan(&names)
		if errors.Is(err, pgx.ErrNoRows) {
			return nil
		}
		stands = err == nil
		return err
	})
	b.Queue(`COMMIT`)
	defer t.r.guard(t.c, t.deadline)()
	t.c.Noticed.Store(false)
	if err := t.c.SendBatch(context.Background(), b).Close(); err != nil {
		return false, err
	}
	if stands && (t.c.Noticed.Load() || t.r.n.unsafe(names)) {
		return false, sink.ErrUnknown
	}
	return stands, nil
}

// inOrder sorts rows by key.
type inOrder struct{ keys, values [][]byte }

func (o *inOrder) Len() int { return len(o.keys) }

func (o *inOrder) Less(i, j int) bool { return bytes.Compare(o.keys[i], o.keys[j]) < 0 }

func (o *inOrder) Swap(i, j int) {
	o.keys[i], o.keys[j] = o.keys[j], o.keys[i]
	o.values[i], o.values[j] = o.values[j], o.values[i]
}

// writer takes one that is free. Where none is, it makes as many as are ever used at the
// same time: each one by itself would be one more commit that waits for the standby.
func (r *Records) writer(deadline time.Time) (*writer, error) {
	r.mu.Lock()
	if n := len(r.writers); n > 0 {
		w := r.writers[n-1]
		r.writers = r.writers[:n-1]
		r.mu.Unlock()
		return w, nil
	}
	r.mu.Unlock()
	c, err := r.take(deadline)
	if err != nil {
		return nil, err
	}
	var ids [recordWrites]int64
	for i := range ids {
		ids[i] = random63()
	}
	release := r.guard(c, deadline)
	c.Noticed.Store(false)
	_, err = c.Exec(context.Background(), `INSERT INTO writer (id) SELECT unnest($1::bigint[])`, ids[:])
	release()
	if err != nil || c.Noticed.Load() {
		r.n.e.Drop(c)
		return nil, errors.Join(err, engine.ErrSent)
	}
	r.pool.Put(c)
	for _, id := range ids[1:] {
		r.keep(&writer{id: id})
	}
	return &writer{id: ids[0]}, nil
}

// keep gives a writer back, if there is one.
func (r *Records) keep(w *writer) {
	if w == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.writers = append(r.writers, w)
}

// resolve finds out whether a transaction was done whose commit was not answered; what
// it returns is as run's. Where that cannot be known in time, the writer is not used
// again.
func (t *recordTx) resolve(nonce int64) (done bool, err error) {
	fence := random63()
	for attempt := 3; ; attempt++ {
		found, err := t.r.fence(t.w, fence, t.deadline)
		switch {
		case errors.Is(err, errLost):
			// The row is older than the transaction: where it is not, neither is that.
			t.w = nil
			return false, err
		case err == nil:
			t.w.nonce, t.w.fence = found, fence
			if found == nonce {
				return true, nil
			}
			return false, engine.ErrSent
		}
		if !t.r.pause(attempt, t.deadline) {
			t.w = nil
			return true, sink.Unknown(err)
		}
	}
}

func (r *Records) fence(w *writer, fence int64, deadline time.Time) (nonce int64, err error) {
	r.n.opts.at("resolve record")
	c, err := r.take(deadline)
	if err != nil {
		return 0, err
	}
	release := r.guard(c, deadline)
	c.Noticed.Store(false)
	var names string
	err = c.QueryRow(context.Background(), fenceWriter, w.id, fence).Scan(&nonce, &names)
	release()
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		r.pool.Put(c)
		return 0, errLost
	case err != nil:
		r.n.e.Drop(c)
		return 0, err
	case c.Noticed.Load() || r.n.unsafe(names):
		r.pool.Put(c)
		return 0, sink.ErrUnknown
	}
	r.pool.Put(c)
	return nonce, nil
}
