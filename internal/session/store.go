package session

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"time"

	"umbra/internal/errs"
	"umbra/internal/state"
)

// The buckets in the state database. sessions has the records; the others lead to
// them and are changed in the same transaction.
const (
	bucket    = "sessions"           // id: Record
	byKey     = "sessions_by_key"    // KeyHash: id
	byUse     = "sessions_by_use"    // the last use as it is kept, id: true; of those that are whole
	unsettled = "sessions_unsettled" // id: true; pending or ended
	indexMade = "sessions_indexed"   // "version": indexVersion
)

const indexVersion = 1

// useKey orders sessions by their last use, as int64 nanoseconds since 1970 with the
// sign bit flipped.
func useKey(t time.Time) string {
	var b [8]byte
	binary.BigEndian.PutUint64(b[:], uint64(t.UnixNano())^1<<63)
	return string(b[:])
}

const timeBytes = 8

// leads returns what leads to a record: bucket, key, value.
func leads(r Record) map[[2]string]any {
	out := map[[2]string]any{}
	if r.KeyHash != "" {
		out[[2]string{byKey, r.KeyHash}] = r.ID
	}
	if r.Pending || r.Ended {
		out[[2]string{unsettled, r.ID}] = true
	} else {
		out[[2]string{byUse, useKey(r.LastUsed) + r.ID}] = true
	}
	return out
}

// replace writes a record in the place of another one with its id; nil is none.
func replace(tx *state.Tx, old, now *Record) error {
	before, after := map[[2]string]any{}, map[[2]string]any{}
	if old != nil {
		before = leads(*old)
	}
	if now != nil {
		after = leads(*now)
	}
	for at := range before {
		if _, stays := after[at]; stays {
			continue
		}
		if at[0] == byKey {
			var id string
			if _, err := tx.Get(byKey, at[1], &id); err != nil {
				return err
			}
			if id != old.ID {
				continue // a later session has the key
			}
		}
		if err := tx.Delete(at[0], at[1]); err != nil {
			return err
		}
	}
	for at, value := range after {
		if was, has := before[at]; has && was == value {
			continue
		}
		if err := tx.Put(at[0], at[1], value); err != nil {
			return err
		}
	}
	if now == nil {
		return tx.Delete(bucket, old.ID)
	}
	if now.KeyHash != "" && !now.Pending && (old == nil || old.Pending) {
		if err := tx.Mark(now.KeyHash); err != nil {
			return err
		}
	}
	return tx.Put(bucket, now.ID, now)
}

// makeIndex makes what leads to the records, where a program of before has left them
// without.
func makeIndex(db *state.DB) error {
	var have int
	if _, err := db.Get(indexMade, "version", &have); err != nil || have == indexVersion {
		return err
	}
	return db.Update(func(tx *state.Tx) error {
		if _, err := tx.Get(indexMade, "version", &have); err != nil || have == indexVersion {
			return err
		}
		var all []Record
		err := tx.ForEach(bucket, "", func(key string, raw []byte) (bool, error) {
			var r Record
			if err := json.Unmarshal(raw, &r); err != nil {
				return false, fmt.Errorf("session: record %q: %w", key, err)
			}
			all = append(all, r)
			return true, nil
		})
		if err != nil {
			return err
		}
		for i := range all {
			if err := replace(tx, nil, &all[i]); err != nil {
				return err
			}
		}
		return tx.Put(indexMade, "version", indexVersion)
	})
}

// insert keeps a new record. If a request with its idempotency key made another one,
// which is remembered, that is returned, and nothing is kept.
func (s *Service) insert(r Record) (made *Record, err error) {
	err = s.o.State.Update(func(tx *state.Tx) error {
		made = nil
		if r.KeyHash != "" {
			other, found, err := withKey(tx, r.KeyHash)
			if err != nil {
				return err
			}
			if found && s.remembers(other) {
				made = &other
				return nil
			}
		}
		return replace(tx, nil, &r)
	})
	return made, errs.Wrap(err, "")
}

// withKey finds the session that a request with an idempotency key made.
func withKey(tx *state.Tx, hash string) (r Record, found bool, err error) {
	var id string
	if _, err := tx.Get(byKey, hash, &id); err != nil || id == "" {
		return Record{}, false, err
	}
	found, err = tx.Get(bucket, id, &r)
	return r, found, err
}

// update changes a record, which is returned as it is then; fn may be called again, and
// false leaves it. NotFound "session_not_found".
func (s *Service) update(id string, fn func(r *Record) bool) (now Record, changed bool, err error) {
	err = s.o.State.Update(func(tx *state.Tx) error {
		var old Record
		if found, err := tx.Get(bucket, id, &old); err != nil || !found {
			if !found && err == nil {
				err = notFound()
			}
			return err
		}
		now = old
		if changed = fn(&now); !changed {
			return nil
		}
		return replace(tx, &old, &now)
	})
	return now, changed, errs.Wrap(err, "")
}

func (s *Service) remove(id string) error {
	err := s.o.State.Update(func(tx *state.Tx) error {
		var old Record
		if found, err := tx.Get(bucket, id, &old); err != nil || !found {
			return err
		}
		return replace(tx, &old, nil)
	})
	if err != nil {
		return errs.Wrap(err, "")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.uses, id)
	return nil
}

// get reads a record, with the last use that this server knows.
func (s *Service) get(id string) (r Record, found bool, err error) {
	found, err = s.o.State.Get(bucket, id, &r)
	if err != nil || !found {
		return Record{}, false, errs.Wrap(err, "")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.latest(&r)
	return r, true, nil
}

// latest sets the last use that this server knows; mu is held.
func (s *Service) latest(r *Record) {
	if u := s.uses[r.ID]; u != nil && u.last.After(r.LastUsed) {
		r.LastUsed = u.last
	}
}

// ids returns up to n ids to which the keys of a bucket lead, the key's part before
// them being skipped, below a bound.
func (s *Service) ids(in string, skip, n int, below string) (out []string, err error) {
	err = s.o.State.View(func(tx *state.Tx) error {
		return tx.ForEach(in, "", func(key string, _ []byte) (bool, error) {
			if below != "" && key >= below {
				return false, nil
			}
			out = append(out, key[skip:])
			return len(out) < n, nil
		})
	})
	return out, errs.Wrap(err, "")
}
