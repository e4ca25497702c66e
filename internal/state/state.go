// Package state keeps the records that are no history: workspace roots,
// sessions, caches, answers to idempotency keys. They stand in one bbolt file,
// <data-dir>/state.db, as JSON in named buckets; the data directory itself, its
// lock and its format version are here too.
//
// The package imports nothing of ours.
//
// Invariants: what Update returned nil for is durable. What a bucket holds is
// JSON of one Go type, whose changes must be able to read the old text.
package state

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"
)

// DB is the store. It is safe for concurrent use.
type DB struct {
	bolt *bbolt.DB
}

// Open opens or makes the file. Another process that has it open is an error
// after a second; the data directory's lock keeps that from happening.
func Open(path string) (*DB, error) {
	b, err := bbolt.Open(path, 0o600, &bbolt.Options{Timeout: time.Second, FreelistType: bbolt.FreelistMapType, NoFreelistSync: true})
	if err != nil {
		return nil, fmt.Errorf("state: %w", err)
	}
	return &DB{bolt: b}, nil
}

// Close waits for running transactions and closes the file. The list of free pages
// is written now and not with each commit, which it would make longer: only after
// a crash the next Open finds them by reading every page.
func (db *DB) Close() error {
	db.bolt.NoFreelistSync = false
	err := db.bolt.Update(func(*bbolt.Tx) error { return nil })
	if errors.Is(err, bolterrors.ErrDatabaseNotOpen) {
		err = nil // closed before
	}
	return errors.Join(err, db.bolt.Close())
}

// Update runs fn in the one write transaction; nil makes all of it durable,
// an error undoes all of it.
func (db *DB) Update(fn func(tx *Tx) error) error {
	return db.bolt.Update(func(tx *bbolt.Tx) error { return fn(&Tx{tx}) })
}

// View runs fn on one consistent state.
func (db *DB) View(fn func(tx *Tx) error) error {
	return db.bolt.View(func(tx *bbolt.Tx) error { return fn(&Tx{tx}) })
}

// Snapshot writes the whole store, as it is at one moment, and runs fn on the same
// state first. Writers go on; the file grows until it ends.
func (db *DB) Snapshot(w io.Writer, fn func(tx *Tx) error) error {
	return db.bolt.View(func(tx *bbolt.Tx) error {
		if err := fn(&Tx{tx}); err != nil {
			return err
		}
		_, err := tx.WriteTo(w)
		return err
	})
}

// Get reads one record into v and tells whether it is there.
func (db *DB) Get(bucket, key string, v any) (found bool, err error) {
	err = db.View(func(tx *Tx) error {
		found, err = tx.Get(bucket, key, v)
		return err
	})
	return found, err
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

// Put writes one record.
func (db *DB) Put(bucket, key string, v any) error {
	return db.Update(func(tx *Tx) error { return tx.Put(bucket, key, v) })
}

// PutAll writes records, all or none.
func PutAll[T any](db *DB, bucket string, list []T, key func(T) string) error {
	return db.Update(func(tx *Tx) error {
		for _, v := range list {
			if err := tx.Put(bucket, key(v), v); err != nil {
				return err
			}
		}
		return nil
	})
}

// Delete removes one record; one that is not there is no error.
func (db *DB) Delete(bucket, key string) error {
	return db.Update(func(tx *Tx) error { return tx.Delete(bucket, key) })
}

// Tx is a transaction; it ends with the function that it was given to.
type Tx struct {
	bolt *bbolt.Tx
}

// Get reads one record into v and tells whether it is there.
func (tx *Tx) Get(bucket, key string, v any) (found bool, err error) {
	b := tx.bolt.Bucket([]byte(bucket))
	if b == nil {
		return false, nil
	}
	raw := b.Get([]byte(key))
	if raw == nil {
		return false, nil
	}
	if err := json.Unmarshal(raw, v); err != nil {
		return false, fmt.Errorf("state: record %q in %s: %w", key, bucket, err)
	}
	return true, nil
}

// Put writes one record.
func (tx *Tx) Put(bucket, key string, v any) error {
	raw, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("state: record %q in %s: %w", key, bucket, err)
	}
	return tx.put(bucket, []byte(key), raw)
}

func (tx *Tx) put(bucket string, key, raw []byte) error {
	b, err := tx.bolt.CreateBucketIfNotExists([]byte(bucket))
	if err != nil {
		return err
	}
	return b.Put(key, raw)
}

// Delete removes one record; one that is not there is no error.
func (tx *Tx) Delete(bucket, key string) error {
	b := tx.bolt.Bucket([]byte(bucket))
	if b == nil {
		return nil
	}
	return b.Delete([]byte(key))
}

// DeleteBucket removes all records of a bucket.
func (tx *Tx) DeleteBucket(bucket string) error {
	if err := tx.bolt.DeleteBucket([]byte(bucket)); !errors.Is(err, bolterrors.ErrBucketNotFound) {
		return err
	}
	return nil
}

// ForEach gives each record of a bucket whose key is above after, in the order
// of the keys, until fn returns false. raw is JSON and is valid inside fn only;
// fn must not change the bucket.
func (tx *Tx) ForEach(bucket, after string, fn func(key string, raw []byte) (more bool, err error)) error {
	b := tx.bolt.Bucket([]byte(bucket))
	if b == nil {
		return nil
	}
	cur := b.Cursor()
	k, v := cur.First()
	if after != "" {
		if k, v = cur.Seek([]byte(after)); string(k) == after {
			k, v = cur.Next()
		}
	}
	for ; k != nil; k, v = cur.Next() {
		if more, err := fn(string(k), v); err != nil || !more {
			return err
		}
	}
	return nil
}

// Descend gives each record of a bucket whose key begins with prefix and is below
// before ("": all), from the last to the first, until fn returns false. raw is as
// in ForEach.
func (tx *Tx) Descend(bucket, prefix, before string, fn func(key string, raw []byte) (more bool, err error)) error {
	b := tx.bolt.Bucket([]byte(bucket))
	if b == nil {
		return nil
	}
	cur := b.Cursor()
	end := before
	if end == "" {
		end = prefix + "\xff\xff\xff\xff\xff\xff\xff\xff\xff" // above every key of ours with the prefix
	}
	var v []byte
	k, _ := cur.Seek([]byte(end))
	if k == nil {
		k, v = cur.Last()
	} else {
		k, v = cur.Prev()
	}
	for ; k != nil && strings.HasPrefix(string(k), prefix); k, v = cur.Prev() {
		if more, err := fn(string(k), v); err != nil || !more {
			return err
		}
	}
	return nil
}

// Empty reports whether a bucket has no record.
func (tx *Tx) Empty(bucket string) bool {
	b := tx.bolt.Bucket([]byte(bucket))
	if b == nil {
		return true
	}
	k, _ := b.Cursor().First()
	return k == nil
}
