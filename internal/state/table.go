package state

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"time"
)

// Table is a bucket of records with buckets that lead to them, which are changed in
// the same transaction. T is the record, as JSON.
type Table[T any] struct {
	Bucket  string // id: T
	ByKey   string // hash of the idempotency key that made a record: its id
	Indexed string // "version": Version, once what leads to the records is kept
	Version int

	// Of returns a record's id, the hash of its idempotency key or "", and whether the
	// request with that key is done: then the key is marked (Tx.Mark).
	Of func(*T) (id, key string, done bool)
	// Leads returns what else leads to a record.
	Leads func(*T) map[Lead]any
}

// Lead is an entry that leads to a record.
type Lead struct{ Bucket, Key string }

// TimeKey orders instants bytewise, as int64 nanoseconds since 1970 with the sign bit
// flipped. It has TimeBytes bytes.
func TimeKey(t time.Time) string {
	var b [TimeBytes]byte
	binary.BigEndian.PutUint64(b[:], uint64(t.UnixNano())^1<<63)
	return string(b[:])
}

// TimeBytes is the length of TimeKey.
const TimeBytes = 8

func (t *Table[T]) leads(r *T) map[Lead]any {
	if r == nil {
		return nil
	}
	out := t.Leads(r)
	if id, key, _ := t.Of(r); key != "" {
		out[Lead{t.ByKey, key}] = id
	}
	return out
}

// Replace writes a record in the place of another one with its id. A nil old makes
// it, a nil now removes it.
func (t *Table[T]) Replace(tx *Tx, old, now *T) error {
	before, after := t.leads(old), t.leads(now)
	var oldID string
	done := false
	if old != nil {
		oldID, _, done = t.Of(old)
	}
	for at := range before {
		if _, stays := after[at]; stays {
			continue
		}
		if at.Bucket == t.ByKey {
			var id string
			if _, err := tx.Get(t.ByKey, at.Key, &id); err != nil {
				return err
			}
			if id != oldID {
				continue // a later record has the key
			}
		}
		if err := tx.Delete(at.Bucket, at.Key); err != nil {
			return err
		}
	}
	for at, value := range after {
		if was, has := before[at]; has && was == value {
			continue
		}
		if err := tx.Put(at.Bucket, at.Key, value); err != nil {
			return err
		}
	}
	if now == nil {
		return tx.Delete(t.Bucket, oldID)
	}
	id, key, isDone := t.Of(now)
	if key != "" && isDone && !done {
		if err := tx.Mark(key); err != nil {
			return err
		}
	}
	return tx.Put(t.Bucket, id, now)
}

// WithKey returns the record that a request with an idempotency key made.
func (t *Table[T]) WithKey(tx *Tx, hash string) (r T, found bool, err error) {
	var id string
	if _, err := tx.Get(t.ByKey, hash, &id); err != nil || id == "" {
		return r, false, err
	}
	found, err = tx.Get(t.Bucket, id, &r)
	return r, found, err
}

// Remove removes a record, if it exists.
func (t *Table[T]) Remove(db *DB, id string) error {
	return db.Update(func(tx *Tx) error {
		var old T
		if found, err := tx.Get(t.Bucket, id, &old); err != nil || !found {
			return err
		}
		return t.Replace(tx, &old, nil)
	})
}

// IDs returns up to n ids (0: all) to which the keys of a bucket lead, in order. The
// first skip bytes of the keys are left out; keys from a bound on are, too, unless it
// is empty.
func (t *Table[T]) IDs(db *DB, bucket string, skip, n int, below string) (out []string, err error) {
	err = db.View(func(tx *Tx) error {
		return tx.ForEach(bucket, "", func(key string, _ []byte) (bool, error) {
			if below != "" && key >= below {
				return false, nil
			}
			out = append(out, key[skip:])
			return n == 0 || len(out) < n, nil
		})
	})
	return out, err
}

// Index makes what leads to the records, where an earlier version of the program did
// not keep it.
func (t *Table[T]) Index(db *DB) error {
	var have int
	if _, err := db.Get(t.Indexed, "version", &have); err != nil || have == t.Version {
		return err
	}
	return db.Update(func(tx *Tx) error {
		if _, err := tx.Get(t.Indexed, "version", &have); err != nil || have == t.Version {
			return err
		}
		var all []*T
		err := tx.ForEach(t.Bucket, "", func(key string, raw []byte) (bool, error) {
			r := new(T)
			if err := json.Unmarshal(raw, r); err != nil {
				return false, fmt.Errorf("%s: record %q: %w", t.Bucket, key, err)
			}
			all = append(all, r)
			return true, nil
		})
		if err != nil {
			return err
		}
		for _, r := range all {
			if err := t.Replace(tx, nil, r); err != nil {
				return err
			}
		}
		return tx.Put(t.Indexed, "version", t.Version)
	})
}
