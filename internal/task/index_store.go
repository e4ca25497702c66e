package task

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"umbra/internal/state"
)

// The buckets of the index in the state database. tasks has the records; the
// others lead to them, are changed in the same transaction, and are made again
// from tasks where indexMade does not say that they are complete.
const (
	bucket      = "tasks"              // id: Record
	byTime      = "tasks_by_time"      // time, id: workspace; deleted ones left out
	byStatus    = "tasks_by_status"    // status, NUL, time, id: workspace; deleted ones left out
	byWorkspace = "tasks_by_workspace" // workspace, NUL, time, id: whether it is deleted
	byParent    = "tasks_by_parent"    // parent, NUL, id: true
	byKey       = "tasks_by_key"       // KeyHash: id
	liveTasks   = "tasks_live"         // id: true; executing, paused, or to be settled. Not in a shared database
	liveOn      = "tasks_live_on"      // workspace, NUL, id: true; the same, in a shared database
	counts      = "tasks_count"        // workspace: how many are not deleted
	indexMade   = "tasks_indexed"      // "version": indexVersion
)

// indexVersion changes with what the buckets hold.
const indexVersion = 1

// timeKey orders instants bytewise, as int64 nanoseconds since 1970 with the sign
// bit flipped.
func timeKey(t time.Time) string {
	var b [8]byte
	binary.BigEndian.PutUint64(b[:], uint64(t.UnixNano())^1<<63)
	return string(b[:])
}

// timeBytes is the length of a timeKey.
const timeBytes = 8

func place(r Record) string { return timeKey(r.Created) + r.ID }

func statusKey(r Record) string    { return string(r.Status) + "\x00" + place(r) }
func workspaceKey(r Record) string { return r.Workspace + "\x00" + place(r) }
func parentKey(r Record) string    { return r.Parent + "\x00" + r.ID }

// live reports whether a record is kept in memory: what is asked for at every
// change, and what a start has to settle.
func (r Record) live() bool { return !r.Deleted && (!r.Status.Ended() || r.Pending) }

// putRecord writes a record and the keys that lead to it. Records that were kept of a
// task whose refs were removed stay until the task is deleted.
func (x *index) putRecord(tx *state.Tx, r Record) error {
	var old Record
	had, err := tx.Get(bucket, r.ID, &old)
	if err != nil {
		return err
	}
	switch {
	case r.Deleted:
		r.Dropped = nil
	case r.isDropped && r.Dropped == nil:
		r.Dropped = old.Dropped
	}
	if had {
		if err := x.unlink(tx, old); err != nil {
			return err
		}
	}
	if err := tx.Put(bucket, r.ID, r); err != nil {
		return err
	}
	return x.link(tx, r)
}

// Kept returns the records of a database that no service has open.
func Kept(db *state.DB) ([]Record, error) { return state.All[Record](db, bucket) }

// AddTo adds a record to a shared database, and reports whether that did not have it.
func AddTo(tx *state.Tx, r Record) (added bool, err error) {
	if found, err := tx.Get(bucket, r.ID, &Record{}); found || err != nil {
		return false, err
	}
	return true, (&index{shared: true}).putRecord(tx, r)
}

// deleteRecord removes a record and what leads to it.
func (x *index) deleteRecord(tx *state.Tx, id string) error {
	var old Record
	if had, err := tx.Get(bucket, id, &old); err != nil || !had {
		return err
	}
	if err := x.unlink(tx, old); err != nil {
		return err
	}
	return tx.Delete(bucket, id)
}

// lead is one key of a bucket that leads to a record, with its value.
type lead struct {
	in, key string
	value   any
}

// leads returns what leads to a record.
func (x *index) leads(r Record) []lead {
	out := []lead{{byWorkspace, workspaceKey(r), r.Deleted}}
	if !r.Deleted {
		out = append(out, lead{byTime, place(r), r.Workspace}, lead{byStatus, statusKey(r), r.Workspace})
	}
	switch {
	case !r.live():
	case x.shared:
		out = append(out, lead{liveOn, r.Workspace + "\x00" + r.ID, true})
	default:
		out = append(out, lead{liveTasks, r.ID, true})
	}
	if r.Parent != "" {
		out = append(out, lead{byParent, parentKey(r), true})
	}
	if r.KeyHash != "" {
		out = append(out, lead{byKey, r.KeyHash, r.ID})
	}
	return out
}

// link adds what leads to a record.
func (x *index) link(tx *state.Tx, r Record) error {
	for _, l := range x.leads(r) {
		if err := tx.Put(l.in, l.key, l.value); err != nil {
			return err
		}
	}
	if r.KeyHash != "" && !r.Pending {
		if err := tx.Mark(r.KeyHash); err != nil {
			return err
		}
	}
	if r.Deleted {
		return nil
	}
	return count(tx, r.Workspace, 1)
}

// unlink removes what leads to a record.
func (x *index) unlink(tx *state.Tx, r Record) error {
	for _, l := range x.leads(r) {
		if l.in == byKey {
			var id string
			if _, err := tx.Get(byKey, l.key, &id); err != nil {
				return err
			}
			if id != r.ID {
				continue // a later task has the key
			}
		}
		if err := tx.Delete(l.in, l.key); err != nil {
			return err
		}
	}
	if r.Deleted {
		return nil
	}
	return count(tx, r.Workspace, -1)
}

// count adds n to the number of a workspace's tasks.
func count(tx *state.Tx, workspace string, n int) error {
	var have int
	if _, err := tx.Get(counts, workspace, &have); err != nil {
		return err
	}
	if have += n; have == 0 {
		return tx.Delete(counts, workspace)
	}
	return tx.Put(counts, workspace, have)
}

// makeIndex makes what leads to the records, unless it is complete and the records
// are there. A program that ends meanwhile begins again at its next start. In a
// shared database no record is older than what leads to it.
func (x *index) makeIndex() error {
	db := x.db
	if x.shared {
		return nil
	}
	made := false
	err := db.View(func(tx *state.Tx) error {
		var have int
		_, err := tx.Get(indexMade, "version", &have)
		made = have == indexVersion && !tx.Empty(bucket)
		return err
	})
	if err != nil || made {
		return err
	}
	buckets := []string{byTime, byStatus, byWorkspace, byParent, byKey, liveTasks}
	err = db.Update(func(tx *state.Tx) error {
		for _, b := range append(buckets, counts, indexMade) {
			if err := tx.DeleteBucket(b); err != nil {
				return err
			}
		}
		return nil
	})
	for _, b := range buckets {
		if err == nil {
			err = x.fillBucket(b)
		}
	}
	if err != nil {
		return err
	}
	all := map[string]int{}
	return db.Update(func(tx *state.Tx) error {
		err := eachRecord(tx, func(r Record) {
			if !r.Deleted {
				all[r.Workspace]++
			}
		})
		if err != nil {
			return err
		}
		for workspace, n := range all {
			if err := tx.Put(counts, workspace, n); err != nil {
				return err
			}
		}
		return tx.Put(indexMade, "version", indexVersion)
	})
}

// fillCount is how many keys one transaction of fillBucket puts.
const fillCount = 100_000

// fillBucket puts all keys of one bucket, in their order: in the order of the
// records each transaction would write nearly every page of it.
func (x *index) fillBucket(in string) error {
	var all []lead
	err := x.db.View(func(tx *state.Tx) error {
		return eachRecord(tx, func(r Record) {
			for _, l := range x.leads(r) {
				if l.in == in {
					all = append(all, l)
				}
			}
		})
	})
	if err != nil {
		return err
	}
	slices.SortFunc(all, func(a, b lead) int { return strings.Compare(a.key, b.key) })
	for chunk := range slices.Chunk(all, fillCount) {
		err := x.db.Update(func(tx *state.Tx) error {
			for _, l := range chunk {
				if err := tx.Put(l.in, l.key, l.value); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func eachRecord(tx *state.Tx, fn func(Record)) error {
	return tx.ForEach(bucket, "", func(key string, raw []byte) (bool, error) {
		r, err := parseRecord(key, raw)
		if err == nil {
			fn(r)
		}
		return true, err
	})
}

func parseRecord(key string, raw []byte) (r Record, err error) {
	if err = json.Unmarshal(raw, &r); err != nil {
		err = fmt.Errorf("task: record %q: %w", key, err)
	}
	return r, err
}

// stored reads a record as memory has it.
func stored(tx *state.Tx, id string) (Record, bool, error) {
	var r Record
	found, err := tx.Get(bucket, id, &r)
	return r.short(), found, err
}

// eachOf calls fn with those of several records that exist, as memory has them.
func eachOf(tx *state.Tx, ids []string, fn func(Record)) error {
	return tx.GetMany(bucket, ids, func(key string, raw []byte) error {
		r, err := parseRecord(key, raw)
		if err == nil {
			fn(r.short())
		}
		return err
	})
}

// within calls fn with the rest of each key of a bucket that begins with prefix.
func within(tx *state.Tx, in, prefix string, fn func(rest string, raw []byte) error) error {
	return tx.ForEach(in, prefix, func(key string, raw []byte) (bool, error) {
		rest, ok := strings.CutPrefix(key, prefix)
		if !ok {
			return false, nil
		}
		return true, fn(rest, raw)
	})
}
