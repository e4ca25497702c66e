package state

import (
	"errors"
	"fmt"
	"io"
	"time"

	"go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"
)

// listAfter is how long there was no change when the list of free pages is written.
const listAfter = 3 * time.Second

// bolt is the backend of a data directory: one file of bbolt's.
//
// bbolt's list of free pages is not written with each commit, which would take
// several times as long where many pages are free (0.8 ms became 5 ms with 11,000
// of them). It is written when there were no changes for a while, and at Close. If
// the process is killed before that, the next Open reads every page to find the free
// ones: a second for a million tasks.
type bolt struct {
	db   *bbolt.DB
	list *time.Timer // runs writeList
}

// Open opens or makes the file. Another process that has it open is an error
// after a second; the data directory's lock keeps that from happening.
func Open(path string) (*DB, error) {
	b, err := bbolt.Open(path, 0o600, &bbolt.Options{Timeout: time.Second, FreelistType: bbolt.FreelistMapType, NoFreelistSync: true})
	if err != nil {
		return nil, fmt.Errorf("state: %w", err)
	}
	s := &bolt{db: b}
	s.list = time.AfterFunc(listAfter, func() { _ = s.writeList() }) // the list serves only to save time
	s.list.Stop()                                                    // until the first change
	return New(s), nil
}

// Close implements Backend. It writes the list of free pages.
func (b *bolt) Close() error {
	b.list.Stop()
	return errors.Join(b.writeList(), b.db.Close())
}

// writeList commits nothing but the list of free pages. Once the store is closed it
// does nothing.
func (b *bolt) writeList() error {
	err := b.db.Update(func(*bbolt.Tx) error {
		b.db.NoFreelistSync = false // read by the commit, under the same lock
		return nil
	})
	if errors.Is(err, bolterrors.ErrDatabaseNotOpen) {
		return nil
	}
	return err
}

// Update implements Backend.
func (b *bolt) Update(fn func(BackendTx) error) error {
	defer b.list.Reset(listAfter)
	return b.db.Update(func(tx *bbolt.Tx) error {
		b.db.NoFreelistSync = true
		return fn(boltTx{tx})
	})
}

// View implements Backend.
func (b *bolt) View(fn func(BackendTx) error) error {
	return b.db.View(func(tx *bbolt.Tx) error { return fn(boltTx{tx}) })
}

// Snapshot is DB.Snapshot.
func (b *bolt) Snapshot(w io.Writer, fn func(BackendTx) error) error {
	return b.db.View(func(tx *bbolt.Tx) error {
		if err := fn(boltTx{tx}); err != nil {
			return err
		}
		_, err := tx.WriteTo(w)
		return err
	})
}

type boltTx struct{ tx *bbolt.Tx }

// Get implements BackendTx.
func (t boltTx) Get(bucket, key string) ([]byte, bool, error) {
	b := t.tx.Bucket([]byte(bucket))
	if b == nil {
		return nil, false, nil
	}
	value := b.Get([]byte(key))
	return value, value != nil, nil
}

// Put implements BackendTx.
func (t boltTx) Put(bucket, key string, value []byte) error {
	if !t.tx.Writable() {
		return ErrReadOnly
	}
	b, err := t.tx.CreateBucketIfNotExists([]byte(bucket))
	if err != nil {
		return err
	}
	return b.Put([]byte(key), value)
}

// Delete implements BackendTx.
func (t boltTx) Delete(bucket, key string) error {
	if !t.tx.Writable() {
		return ErrReadOnly
	}
	b := t.tx.Bucket([]byte(bucket))
	if b == nil {
		return nil
	}
	return b.Delete([]byte(key))
}

// DeleteBucket implements BackendTx.
func (t boltTx) DeleteBucket(bucket string) error {
	if !t.tx.Writable() {
		return ErrReadOnly
	}
	if err := t.tx.DeleteBucket([]byte(bucket)); !errors.Is(err, bolterrors.ErrBucketNotFound) {
		return err
	}
	return nil
}

// Ascend implements BackendTx.
func (t boltTx) Ascend(bucket, from string, fn func(key string, value []byte) (bool, error)) error {
	b := t.tx.Bucket([]byte(bucket))
	if b == nil {
		return nil
	}
	cur := b.Cursor()
	for k, v := cur.Seek([]byte(from)); k != nil; k, v = cur.Next() {
		if more, err := fn(string(k), v); err != nil || !more {
			return err
		}
	}
	return nil
}

// Descend implements BackendTx.
func (t boltTx) Descend(bucket, before string, fn func(key string, value []byte) (bool, error)) error {
	b := t.tx.Bucket([]byte(bucket))
	if b == nil {
		return nil
	}
	cur := b.Cursor()
	var v []byte
	k, _ := cur.Seek([]byte(before))
	if k == nil {
		k, v = cur.Last()
	} else {
		k, v = cur.Prev()
	}
	for ; k != nil; k, v = cur.Prev() {
		if more, err := fn(string(k), v); err != nil || !more {
			return err
		}
	}
	return nil
}
