package state

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"slices"
	"time"
)

// copyBatch is how many answers one transaction writes.
const copyBatch = 100

// CopyAnswers copies the answers that are kept for idempotency keys, those of logPath too,
// into another store, and returns how many it copied and how many were left: those that
// are too old are neither. What the other store has stays. from is changed.
func CopyAnswers(from, to *DB, logPath string, leave func(*Answer) bool) (copied, left int, err error) {
	a, err := OpenAnswers(from, logPath)
	if err != nil {
		return 0, 0, err
	}
	if err := a.Close(); err != nil {
		return 0, 0, err
	}
	type kept struct {
		key [sha256.Size]byte
		Answer
	}
	var all []kept
	oldest := time.Now().Add(-answerLife)
	err = from.View(func(tx *Tx) error {
		return tx.ForEach(answersBucket, "", func(key string, raw []byte) (bool, error) {
			if len(key) != sha256.Size {
				return true, nil
			}
			k := kept{key: [sha256.Size]byte([]byte(key))}
			if err := json.Unmarshal(raw, &k.Answer); err != nil {
				return false, fmt.Errorf("state: an answer: %w", err)
			}
			switch {
			case !k.At.After(oldest):
			case leave(&k.Answer):
				left++
			default:
				all = append(all, k)
			}
			return true, nil
		})
	})
	if err != nil {
		return 0, left, err
	}
	for batch := range slices.Chunk(all, copyBatch) {
		n := 0
		err := to.Update(func(tx *Tx) error {
			n = 0
			for _, k := range batch {
				_, found, err := tx.b.Get(answersBucket, string(k.key[:]))
				if err == nil && !found {
					n++
					err = tx.putAnswer(k.key, k.Answer)
				}
				if err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			return copied, left, err
		}
		copied += n
	}
	return copied, left, nil
}
