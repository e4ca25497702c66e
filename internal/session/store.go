package session

import (
	"umbra/internal/errs"
	"umbra/internal/state"
)

// The buckets in the state database.
const (
	bucket    = "sessions"           // id: Record
	byKey     = "sessions_by_key"    // KeyHash: id
	byUse     = "sessions_by_use"    // the last use as it is kept, id: true; of those that are whole
	unsettled = "sessions_unsettled" // id: true; pending or ended
	indexMade = "sessions_indexed"
)

var records = state.Table[Record]{
	Bucket: bucket, ByKey: byKey, Indexed: indexMade, Version: 1,
	Of: func(r *Record) (id, key string, done bool) { return r.ID, r.KeyHash, !r.Pending },
	Leads: func(r *Record) map[state.Lead]any {
		if r.Pending || r.Ended {
			return map[state.Lead]any{{Bucket: unsettled, Key: r.ID}: true}
		}
		return map[state.Lead]any{{Bucket: byUse, Key: state.TimeKey(r.LastUsed) + r.ID}: true}
	},
}

// insert keeps a new record. If a request with its idempotency key made another one,
// which is remembered, that is returned, and nothing is kept.
func (s *Service) insert(r Record) (made *Record, err error) {
	err = s.o.State.Update(func(tx *state.Tx) error {
		made = nil
		if r.KeyHash != "" {
			other, found, err := records.WithKey(tx, r.KeyHash)
			if err != nil {
				return err
			}
			if found && s.remembers(other) {
				made = &other
				return nil
			}
		}
		return records.Replace(tx, nil, &r)
	})
	return made, errs.Wrap(err, "")
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
		return records.Replace(tx, &old, &now)
	})
	return now, changed, errs.Wrap(err, "")
}

func (s *Service) remove(id string) error {
	if err := records.Remove(s.o.State, id); err != nil {
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
