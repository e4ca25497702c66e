package state

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"sync"
	"time"
)

// A request with an idempotency key has a mark once it has done something: an Answer
// without a status, which is written in the transaction of what was done. From then on
// the key is this request's, and the answer can be made from what was done, also where
// the server ended before it kept the answer.

// keysAtWork are the requests with a key that run now, by their hash (what history and
// records have of key and request).
type keysAtWork struct {
	mu     sync.Mutex
	byHash map[string]keyAtWork
}

type keyAtWork struct {
	key, fingerprint [sha256.Size]byte
	at               time.Time
	runs             int // a request that another node sent, and sent again, runs twice
}

// Row is a record as a backend has it. A nil value removes it.
type Row struct {
	Bucket, Key string
	Value       []byte
}

// BeginKey says that a request with an idempotency key runs until end, and under which
// hash history and records know it.
func (db *DB) BeginKey(hash string, key, fingerprint [sha256.Size]byte, at time.Time) (end func()) {
	k := &db.keys
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.byHash == nil {
		k.byHash = map[string]keyAtWork{}
	}
	k.byHash[hash] = keyAtWork{key, fingerprint, at, k.byHash[hash].runs + 1}
	return func() {
		k.mu.Lock()
		defer k.mu.Unlock()
		now := k.byHash[hash]
		if now.runs--; now.runs > 0 {
			k.byHash[hash] = now
			return
		}
		delete(k.byHash, hash)
	}
}

// Mark returns the rows that mark a running request's key, nil where none has the hash.
// They are written in the transaction of what the request does.
func (db *DB) Mark(hash string) ([]Row, error) {
	db.keys.mu.Lock()
	k, ok := db.keys.byHash[hash]
	db.keys.mu.Unlock()
	if !ok {
		return nil, nil
	}
	raw, err := json.Marshal(Answer{Fingerprint: k.fingerprint, At: k.at})
	if err != nil {
		return nil, fmt.Errorf("state: %w", err)
	}
	return []Row{{answersByTime, timeOf(k.at, k.key), []byte{}}, {answersBucket, string(k.key[:]), raw}}, nil
}

// Unmark returns the rows that take a running request's mark back.
func (db *DB) Unmark(hash string) ([]Row, error) {
	rows, err := db.Mark(hash)
	for i := range rows {
		rows[i].Value = nil
	}
	return rows, err
}

// Mark marks the key of a running request in its transaction. A hash that no running
// request has is none.
func (tx *Tx) Mark(hash string) error {
	rows, err := tx.db.Mark(hash)
	if err != nil {
		return err
	}
	for _, r := range rows {
		if err := tx.b.Put(r.Bucket, r.Key, r.Value); err != nil {
			return err
		}
	}
	return nil
}

// timeOf is an answer's key in the order of time.
func timeOf(at time.Time, key [sha256.Size]byte) string {
	var stamp [8]byte
	binary.BigEndian.PutUint64(stamp[:], uint64(at.UnixNano()))
	return string(append(stamp[:], key[:]...))
}
