// Package state keeps the records that are not history: workspaces, sessions,
// toolsets, the index of tasks, answers to idempotency keys. A record is JSON in a
// named bucket, found by its key. Records are in one bbolt file,
// <data-dir>/state.db, or in another Backend. The data directory itself, its lock
// and its format version are here too.
//
// Invariants: what Update returned nil for is durable. What a bucket holds is
// JSON of one Go type, whose changes must be able to read the old text.
package state

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
)

// DB is the store. It is safe for concurrent use.
type DB struct {
	b    Backend
	keys keysAtWork
}

// Backend holds the records of a DB, as bytes. It is safe for concurrent use;
// statetest.Conform is the suite that each passes.
type Backend interface {
	// Update runs fn in a transaction that sees no other one's changes and is seen
	// whole or not at all. nil makes it durable, an error undoes it. fn may be called
	// again where the backend has to repeat it.
	Update(fn func(BackendTx) error) error
	// View runs fn on one consistent state, concurrently with one Update.
	View(fn func(BackendTx) error) error
	// Close waits for running transactions.
	Close() error
}

// BackendTx is a transaction of a backend. Keys are strings of at most 1,024 bytes
// and are not empty. Values that it returns are valid until the transaction ends, and
// must not be changed. In a View, Put, Delete and DeleteBucket fail.
type BackendTx interface {
	Get(bucket, key string) (value []byte, found bool, err error)
	Put(bucket, key string, value []byte) error
	Delete(bucket, key string) error // a missing record is no error
	DeleteBucket(bucket string) error
	// Ascend calls fn with each record whose key is not below from, in bytewise order
	// of the keys, until fn returns false. fn must not change the bucket.
	Ascend(bucket, from string, fn func(key string, value []byte) (more bool, err error)) error
	// Descend is like Ascend from the last record whose key is below before.
	Descend(bucket, before string, fn func(key string, value []byte) (more bool, err error)) error
}

// ErrReadOnly is the error of a change in a View.
var ErrReadOnly = errors.New("state: this transaction is read-only")

// New returns a DB on a backend.
func New(b Backend) *DB { return &DB{b: b} }

// Backend returns what the DB is on.
func (db *DB) Backend() Backend { return db.b }

// Shared reports whether other processes change the records as well: what is read of
// them is then kept in memory only by who alone may change it.
func (db *DB) Shared() bool {
	s, ok := db.b.(interface{ Shared() bool })
	return ok && s.Shared()
}

// Close waits for running transactions and closes the store.
func (db *DB) Close() error { return db.b.Close() }

// Update runs fn in a write transaction; nil makes all of it durable,
// an error undoes all of it.
func (db *DB) Update(fn func(tx *Tx) error) error {
	return db.b.Update(func(tx BackendTx) error { return fn(&Tx{tx, db}) })
}

// View runs fn on one consistent state.
func (db *DB) View(fn func(tx *Tx) error) error {
	return db.b.View(func(tx BackendTx) error { return fn(&Tx{tx, db}) })
}

// Snapshot writes the whole store, as it is at one moment, and runs fn on the same
// state first. Writers go on; the file grows until it ends. A backend that is not a
// file returns errors.ErrUnsupported.
func (db *DB) Snapshot(w io.Writer, fn func(tx *Tx) error) error {
	s, ok := db.b.(interface {
		Snapshot(w io.Writer, fn func(BackendTx) error) error
	})
	if !ok {
		return fmt.Errorf("state: a copy of the store: %w", errors.ErrUnsupported)
	}
	return s.Snapshot(w, func(tx BackendTx) error { return fn(&Tx{tx, db}) })
}

// Getter is a backend that reads one record in less time than a View takes. The
// value is the caller's.
type Getter interface {
	Get(bucket, key string) (value []byte, found bool, err error)
}

// ManyGetter is a BackendTx that reads several records in less time than Gets take.
type ManyGetter interface {
	GetMany(bucket string, keys []string) (map[string][]byte, error)
}

// Get reads one record into v and reports whether it is there.
func (db *DB) Get(bucket, key string, v any) (found bool, err error) {
	if g, ok := db.b.(Getter); ok {
		raw, found, err := g.Get(bucket, key)
		if err != nil || !found {
			return false, err
		}
		return true, decode(bucket, key, raw, v)
	}
	err = db.View(func(tx *Tx) error {
		found, err = tx.Get(bucket, key, v)
		return err
	})
	return found, err
}

// Raw reads one record as the JSON that it is kept as.
func (db *DB) Raw(bucket, key string) (raw []byte, found bool, err error) {
	if g, ok := db.b.(Getter); ok {
		return g.Get(bucket, key)
	}
	err = db.b.View(func(tx BackendTx) error {
		value, ok, err := tx.Get(bucket, key)
		raw, found = bytes.Clone(value), ok
		return err
	})
	return raw, found, err
}

// All reads every record of a bucket. One that is no T is an error that names
// its key.
func All[T any](db *DB, bucket string) ([]T, error) {
	var all []T
	err := db.View(func(tx *Tx) error {
		return tx.ForEach(bucket, "", func(key string, raw []byte) (bool, error) {
			var r T
			if err := json.Unmarshal(raw, &r); err != nil {
				return false, fmt.Errorf("%s: record %q: %w", bucket, key, err)
			}
			all = append(all, r)
			return true, nil
		})
	})
	return all, err
}

// Insert calls put in a transaction if a bucket has no record with a key, and reports
// whether it did. put writes the record and what belongs to it.
func Insert(db *DB, bucket, key string, put func(*Tx) error) (inserted bool, err error) {
	err = db.Update(func(tx *Tx) error {
		_, found, err := tx.b.Get(bucket, key)
		if inserted = err == nil && !found; !inserted {
			return err
		}
		return put(tx)
	})
	return inserted && err == nil, err
}

// Map reads every record of a bucket, by its key. One that is not a T is an error
// that names its key, and is left out.
func Map[T any](db *DB, bucket string) (map[string]T, error) {
	all := map[string]T{}
	var failed error
	err := db.View(func(tx *Tx) error {
		return tx.ForEach(bucket, "", func(key string, raw []byte) (bool, error) {
			var r T
			if err := json.Unmarshal(raw, &r); err != nil {
				failed = errors.Join(failed, fmt.Errorf("%s: record %q: %w", bucket, key, err))
			} else {
				all[key] = r
			}
			return true, nil
		})
	})
	return all, errors.Join(failed, err)
}

// Put writes one record.
func (db *DB) Put(bucket, key string, v any) error {
	return db.Update(func(tx *Tx) error { return tx.Put(bucket, key, v) })
}

// Delete removes one record; one that is not there is no error.
func (db *DB) Delete(bucket, key string) error {
	return db.Update(func(tx *Tx) error { return tx.Delete(bucket, key) })
}

// Tx is a transaction; it ends with the function that it was given to.
type Tx struct {
	b  BackendTx
	db *DB
}

// Get reads one record into v and reports whether it is there.
func (tx *Tx) Get(bucket, key string, v any) (found bool, err error) {
	raw, found, err := tx.b.Get(bucket, key)
	if err != nil || !found {
		return false, err
	}
	return true, decode(bucket, key, raw, v)
}

func decode(bucket, key string, raw []byte, v any) error {
	if err := json.Unmarshal(raw, v); err != nil {
		return fmt.Errorf("state: record %q in %s: %w", key, bucket, err)
	}
	return nil
}

// GetMany gives those of a bucket's records that exist, in the order of keys. It takes
// fewer round trips than Gets do. raw is as in ForEach.
func (tx *Tx) GetMany(bucket string, keys []string, fn func(key string, raw []byte) error) error {
	if m, ok := tx.b.(ManyGetter); ok && len(keys) > 1 {
		all, err := m.GetMany(bucket, keys)
		if err != nil {
			return err
		}
		for _, key := range keys {
			if raw, found := all[key]; found {
				if err := fn(key, raw); err != nil {
					return err
				}
			}
		}
		return nil
	}
	for _, key := range keys {
		raw, found, err := tx.b.Get(bucket, key)
		if err == nil && found {
			err = fn(key, raw)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// Put writes one record.
func (tx *Tx) Put(bucket, key string, v any) error {
	raw, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("state: record %q in %s: %w", key, bucket, err)
	}
	return tx.b.Put(bucket, key, raw)
}

// Delete removes one record; one that is not there is no error.
func (tx *Tx) Delete(bucket, key string) error { return tx.b.Delete(bucket, key) }

// DeleteBucket removes all records of a bucket.
func (tx *Tx) DeleteBucket(bucket string) error { return tx.b.DeleteBucket(bucket) }

// ForEach gives each record of a bucket whose key is above after, in the order
// of the keys, until fn returns false. raw is JSON and is valid inside fn only;
// fn must not change the bucket.
func (tx *Tx) ForEach(bucket, after string, fn func(key string, raw []byte) (more bool, err error)) error {
	from := ""
	if after != "" {
		from = after + "\x00" // the first key above it
	}
	return tx.b.Ascend(bucket, from, fn)
}

// Prefixed gives each record whose key begins with prefix and is above after ("":
// all), in the order of the keys, until fn returns false. raw is as in ForEach.
func (tx *Tx) Prefixed(bucket, prefix, after string, fn func(key string, raw []byte) (more bool, err error)) error {
	from := prefix
	if after >= prefix {
		from = after + "\x00"
	}
	return tx.b.Ascend(bucket, from, func(key string, raw []byte) (bool, error) {
		if !strings.HasPrefix(key, prefix) {
			return false, nil
		}
		return fn(key, raw)
	})
}

// Descend gives each record of a bucket whose key begins with prefix and is below
// before ("": all), from the last to the first, until fn returns false. raw is as
// in ForEach.
func (tx *Tx) Descend(bucket, prefix, before string, fn func(key string, raw []byte) (more bool, err error)) error {
	if before == "" {
		before = prefix + "\xff\xff\xff\xff\xff\xff\xff\xff\xff" // above every key with the prefix
	}
	return tx.b.Descend(bucket, before, func(key string, raw []byte) (bool, error) {
		if !strings.HasPrefix(key, prefix) {
			return false, nil
		}
		return fn(key, raw)
	})
}

// Empty reports whether a bucket has no record.
func (tx *Tx) Empty(bucket string) bool {
	empty := true
	err := tx.b.Ascend(bucket, "", func(string, []byte) (bool, error) {
		empty = false
		return false, nil
	})
	return empty && err == nil
}
