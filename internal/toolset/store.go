package toolset

import (
	"bytes"
	"encoding/json"
	"fmt"

	"umbra/internal/errs"
	"umbra/internal/state"
	"umbra/internal/toolset/mount"
	"umbra/internal/toolset/tool"
)

// The buckets in the state database.
const (
	bucket    = "toolsets"           // id: Record
	byKey     = "toolsets_by_key"    // KeyHash: id
	unsettled = "toolsets_unsettled" // id: true; hidden, or with loose tasks
	leased    = "toolsets_leased"    // the lease's end, id: true
	serving   = "toolsets_serving"   // id: true; with clients
	indexMade = "toolsets_indexed"
)

var records = state.Table[Record]{
	Bucket: bucket, ByKey: byKey, Indexed: indexMade, Version: 1,
	Of: func(r *Record) (id, key string, done bool) { return r.ID, r.KeyHash, !r.Hidden },
	Leads: func(r *Record) map[state.Lead]any {
		out := map[state.Lead]any{}
		if r.Hidden || len(r.Loose) > 0 {
			out[state.Lead{Bucket: unsettled, Key: r.ID}] = true
		}
		if r.Idle > 0 {
			out[state.Lead{Bucket: leased, Key: leaseKey(r)}] = true
		}
		if len(r.Clients) > 0 {
			out[state.Lead{Bucket: serving, Key: r.ID}] = true
		}
		return out
	},
}

// maxCached is how many toolsets are kept ready for their next call.
const maxCached = 1024

// leaseKey orders the leases by their ends.
func leaseKey(r *Record) string { return state.TimeKey(r.Until) + r.ID }

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
		return records.Replace(tx, &old, &now)
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
			other, found, err := records.WithKey(tx, r.KeyHash)
			if err != nil {
				return err
			}
			if found && s.remembers(other) {
				return &errTaken{other.ID}
			}
		}
		return records.Replace(tx, nil, &r)
	})
}
