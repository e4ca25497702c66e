package toolset

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"time"

	"umbra/internal/errs"
	"umbra/internal/state"
	"umbra/internal/toolset/mount"
	"umbra/internal/toolset/tool"
)

// The buckets in the state database. toolsets has the records; the others lead to
// them and are changed in the same transaction.
const (
	bucket    = "toolsets"           // id: Record
	byKey     = "toolsets_by_key"    // KeyHash: id
	unsettled = "toolsets_unsettled" // id: true; hidden, or with loose tasks
	leased    = "toolsets_leased"    // the lease's end, id: true
	serving   = "toolsets_serving"   // id: true; with clients
	indexMade = "toolsets_indexed"   // "version": indexVersion
)

const indexVersion = 1

// maxCached is how many toolsets are kept ready for their next call.
const maxCached = 1024

// leaseKey orders the leases by their ends.
func leaseKey(r Record) string { return timeKey(r.Until) + r.ID }

// timeKey orders instants bytewise, as int64 nanoseconds since 1970 with the sign bit
// flipped.
func timeKey(t time.Time) string {
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
	if r.Hidden || len(r.Loose) > 0 {
		out[[2]string{unsettled, r.ID}] = true
	}
	if r.Idle > 0 {
		out[[2]string{leased, leaseKey(r)}] = true
	}
	if len(r.Clients) > 0 {
		out[[2]string{serving, r.ID}] = true
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
				continue // a later toolset has the key
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
	if now.KeyHash != "" && !now.Hidden && (old == nil || old.Hidden) {
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
			r, err := parse(key, raw)
			all = append(all, r)
			return true, err
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

func parse(key string, raw []byte) (r Record, err error) {
	if err = json.Unmarshal(raw, &r); err != nil {
		err = fmt.Errorf("toolset: record %q: %w", key, err)
	}
	return r, err
}

// live is a toolset as it was when it was read; it is never changed.
type live struct {
	rec   Record
	raw   []byte // what rec was read from
	table *mount.Table
	tools []tool.Tool
}

func (s *Service) liveOf(r Record, raw []byte) *live {
	mounts := make([]mount.Mount, len(r.Mounts))
	for i, m := range r.Mounts {
		mounts[i] = mount.Mount{Prefix: m.Prefix, Scope: m.Scope, Kind: m.Kind}
	}
	table, _ := mount.NewTable(mounts) // it was checked when it was made
	return &live{rec: r, raw: raw, table: table, tools: tool.For(table, s.tools)}
}

// lookup reads a toolset; nil if there is none. The form that the call before
// made of its record is used as long as the record is the same.
func (s *Service) lookup(id string) (*live, error) {
	raw, found, err := s.o.State.Raw(bucket, id)
	if err != nil {
		return nil, errs.Wrap(err, "")
	}
	return s.cached(id, raw, found)
}

func (s *Service) cached(id string, raw []byte, found bool) (*live, error) {
	s.mu.RLock()
	was := s.ready[id]
	s.mu.RUnlock()
	if was != nil && found && bytes.Equal(was.raw, raw) {
		return was, nil
	}
	var l *live
	if found {
		r, err := parse(id, raw)
		if err != nil {
			return nil, errs.Wrap(err, "")
		}
		l = s.liveOf(r, raw)
	}
	s.mu.Lock()
	switch {
	case l == nil:
		delete(s.ready, id)
	default:
		if len(s.ready) >= maxCached {
			clear(s.ready)
		}
		s.ready[id] = l
	}
	s.mu.Unlock()
	// Another server may have changed it; here who changes it says so by itself.
	if s.o.State.Shared() && was != nil && (l == nil || l.rec.Hidden || !sameMounts(was.rec.Mounts, l.rec.Mounts)) {
		s.changed(id)
	}
	return l, nil
}

// update changes a toolset's record as fn says, in one transaction, and returns what
// it is then; fn may be called again. With fn's error nothing is changed. NotFound
// "toolset_not_found".
func (s *Service) update(id string, fn func(r *Record) error) (Record, error) {
	var now Record
	err := s.o.State.Update(func(tx *state.Tx) error {
		var old Record
		found, err := tx.Get(bucket, id, &old)
		if err != nil {
			return err
		}
		if !found {
			return notFound()
		}
		now = Record{}
		if _, err := tx.Get(bucket, id, &now); err != nil { // its maps are its own
			return err
		}
		if err := fn(&now); err != nil {
			return err
		}
		return replace(tx, &old, &now)
	})
	return now, errs.Wrap(err, "")
}

// errTaken says that an id, or an idempotency key, has a toolset already.
type errTaken struct{ id string }

func (e *errTaken) Error() string { return "toolset " + e.id + " exists" }

// insert keeps a new record. *errTaken: there is one of its id, or one that a request
// with its idempotency key made.
func (s *Service) insert(r Record) error {
	return s.o.State.Update(func(tx *state.Tx) error {
		if found, err := tx.Get(bucket, r.ID, &Record{}); err != nil || found {
			if found {
				err = &errTaken{r.ID}
			}
			return err
		}
		if r.KeyHash != "" {
			other, found, err := withKey(tx, r.KeyHash)
			if err != nil {
				return err
			}
			if found && s.remembers(other) {
				return &errTaken{other.ID}
			}
		}
		return replace(tx, nil, &r)
	})
}

// withKey finds the toolset that a request with an idempotency key made.
func withKey(tx *state.Tx, hash string) (r Record, found bool, err error) {
	var id string
	if _, err := tx.Get(byKey, hash, &id); err != nil || id == "" {
		return Record{}, false, err
	}
	found, err = tx.Get(bucket, id, &r)
	return r, found, err
}

// drop removes a record.
func (s *Service) drop(id string) error {
	err := s.o.State.Update(func(tx *state.Tx) error {
		var old Record
		found, err := tx.Get(bucket, id, &old)
		if err != nil || !found {
			return err
		}
		return replace(tx, &old, nil)
	})
	return errs.Wrap(err, "")
}

// ids returns the ids to which the keys of a bucket lead, the key's part before them
// being skipped, below a bound.
func (s *Service) ids(in string, skip int, below string) (out []string, err error) {
	err = s.o.State.View(func(tx *state.Tx) error {
		return tx.ForEach(in, "", func(key string, _ []byte) (bool, error) {
			if below != "" && key >= below {
				return false, nil
			}
			out = append(out, key[skip:])
			return true, nil
		})
	})
	return out, errs.Wrap(err, "")
}
