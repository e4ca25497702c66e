package cluster

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"umbra/internal/cluster/engine"
	"umbra/internal/cluster/recordrow"
)

const (
	packRows     = 2 * recordrow.PackSize // how many rows one transaction of Pack moves at most
	packAttempts = 5                      // of one transaction, before a bucket is left to the next call
)

// Pack moves records that were not changed since the call before into packs, and
// returns how many rows it removed. The first call only notes the time. It may run on
// several nodes at once, and changes no record: its outcome needs no resolving. A write
// is one row, however much is packed, and nothing else changes packs. Errors of package
// sink.
func (r *Records) Pack(ctx context.Context) (moved int, err error) {
	var now int64
	if err := r.n.write(ctx, func(ctx context.Context, c *engine.Conn) error {
		return c.QueryRow(ctx, `SELECT pg_snapshot_xmax(pg_current_snapshot())::text::bigint`).Scan(&now)
	}); err != nil {
		return 0, err
	}
	r.mu.Lock()
	since := r.packedSince
	r.packedSince = now
	r.mu.Unlock()
	if since == 0 {
		return 0, nil
	}
	for _, bucket := range slices.Sorted(maps.Keys(recordrow.Codes)) {
		if !r.packable(bucket) {
			continue
		}
		n, err := r.packBucket(ctx, bucket, since)
		moved += n
		if err != nil {
			return moved, err
		}
	}
	return moved, nil
}

// packBucket packs the rows of one bucket that no transaction from since on wrote.
func (r *Records) packBucket(ctx context.Context, bucket string, since int64) (moved int, err error) {
	from := []byte(recordrow.Prefix(bucket))
	for attempt := 0; from != nil; {
		if ctx.Err() != nil {
			return moved, ctx.Err()
		}
		n, next, err := r.packRun(bucket, from, since)
		attempt++
		switch {
		case err == nil:
			moved, from, attempt = moved+n, next, 0
		case !engine.Again(err):
			return moved, r.failure(err)
		case attempt == packAttempts || !r.pause(attempt, time.Now().Add(time.Minute)):
			return moved, nil
		}
	}
	return moved, nil
}

// packRun packs a run of rows from a key on that belong into one pack, or between two,
// in one transaction. It returns where the next run begins, nil at the bucket's end.
func (r *Records) packRun(bucket string, from []byte, since int64) (moved int, next []byte, err error) {
	deadline := time.Now().Add(r.n.patience())
	leave, err := r.enter(r.writes, deadline)
	if err != nil {
		return 0, nil, err
	}
	defer leave()
	tx := &recordTx{r: r, deadline: deadline, writable: true}
	defer func() {
		if tx.failed != nil {
			err = tx.failed
		}
		tx.end()
	}()
	prefix, end := []byte(recordrow.Prefix(bucket)), recordrow.End(bucket)
	// Another transaction's row that is older than the snapshot has a smaller xmin.
	rows, _, err := tx.stored(`SELECT key, value, NULL::bytea FROM record WHERE key >= $1 AND key < $2 AND (value IS NULL OR octet_length(value) <= $4)
		AND age(xmin) > pg_snapshot_xmax(pg_current_snapshot())::text::bigint - $5 ORDER BY key LIMIT $3`, from, end, packRows, recordrow.MaxValue, since)
	if err != nil || len(rows) == 0 {
		return 0, nil, err
	}
	more := len(rows) == packRows
	_, near, err := tx.stored(`(SELECT first, data, last FROM packed WHERE first <= $1 AND first >= $2 ORDER BY first DESC LIMIT 1) UNION ALL
		(SELECT first, data, last FROM packed WHERE first > $1 AND first < $3 ORDER BY first LIMIT 1)`, []byte(rows[0].Key), prefix, end)
	if err != nil {
		return 0, nil, err
	}
	var replaced []recordrow.Pack
	var before [][]byte
	for _, p := range near {
		if string(p.First) > rows[0].Key {
			n, _ := slices.BinarySearchFunc(rows, string(p.First), func(a recordrow.Pair, key string) int { return cmp.Compare(a.Key, key) })
			more, rows = more || n < len(rows), rows[:n]
		} else if string(p.Last) >= rows[0].Key || len(p.Records) < recordrow.PackSize {
			replaced, before = []recordrow.Pack{p}, [][]byte{p.First}
		}
	}
	if more {
		next = append([]byte(rows[len(rows)-1].Key), 0)
	}
	// A pack is written again for as many rows as make one: for each row on its own all
	// packs would be written again in each call, where the keys are random.
	few := len(rows) < r.packLeast
	if few && len(replaced) > 0 {
		return 0, next, nil
	}
	packs, gone := recordrow.NewPacks(recordrow.Overridden(rows, replaced)), make([][]byte, 0, len(rows))
	if few {
		packs = nil
	}
	for _, p := range rows {
		if !few || p.Value == nil {
			gone = append(gone, []byte(p.Key))
		}
	}
	if len(gone) == 0 {
		return 0, next, nil
	}
	var firsts, lasts, data [][]byte
	for _, p := range packs {
		raw, err := p.Encode()
		if err != nil {
			return 0, nil, err
		}
		firsts, lasts, data = append(firsts, p.First), append(lasts, p.Last), append(data, raw)
	}
	b := &pgx.Batch{}
	b.Queue(`DELETE FROM record WHERE key = ANY ($1)`, gone)
	b.Queue(`DELETE FROM packed WHERE first = ANY ($1)`, before)
	b.Queue(`INSERT INTO packed (first, last, data) SELECT * FROM unnest($1::bytea[], $2::bytea[], $3::bytea[])`, firsts, lasts, data)
	b.Queue(`COMMIT`)
	r.n.opts.at("pack")
	release := r.guard(tx.c, deadline)
	err = tx.c.SendBatch(context.Background(), b).Close()
	release()
	if err != nil {
		tx.drop()
		return 0, nil, err
	}
	return len(gone), next, nil
}

// stored runs a statement that reads rows and packs.
func (t *recordTx) stored(sql string, args ...any) (rows []recordrow.Pair, packs []recordrow.Pack, err error) {
	err = t.query(func(answer pgx.Rows) error {
		rows, packs = nil, nil
		for answer.Next() {
			var key, value, last []byte
			if err := answer.Scan(&key, &value, &last); err != nil {
				return err
			}
			if last != nil {
				list, err := recordrow.DecodePack(key, value)
				if err != nil {
					return err
				}
				packs = append(packs, recordrow.Pack{First: key, Last: last, Records: list})
				continue
			}
			if value != nil {
				_, name, err := recordrow.RecordOf(key)
				if err != nil {
					return err
				}
				if value, err = recordrow.UnpackValue(name, value); err != nil {
					return err
				}
			}
			rows = append(rows, recordrow.Pair{Key: string(key), Value: value})
		}
		return nil
	}, sql, args...)
	return rows, packs, err
}
