package task

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
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
	liveTasks   = "tasks_live"         // id: true; executing, paused, or to be settled
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

// putRecord writes a record and what leads to it. What is kept of a task whose
// refs went stays, until the task is deleted.
func putRecord(tx *state.Tx, r Record) error {
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
		if err := unlink(tx, old); err != nil {
			return err
		}
	}
	if err := tx.Put(bucket, r.ID, r); err != nil {
		return err
	}
	return link(tx, r)
}

// deleteRecord removes a record and what leads to it.
func deleteRecord(tx *state.Tx, id string) error {
	var old Record
	if had, err := tx.Get(bucket, id, &old); err != nil || !had {
		return err
	}
	if err := unlink(tx, old); err != nil {
		return err
	}
	return tx.Delete(bucket, id)
}

// link adds what leads to a record.
func link(tx *state.Tx, r Record) error {
	put := func(in, key string, v any) error { return tx.Put(in, key, v) }
	if err := put(byWorkspace, workspaceKey(r), r.Deleted); err != nil {
		return err
	}
	if !r.Deleted {
		if err := put(byTime, place(r), r.Workspace); err != nil {
			return err
		}
		if err := put(byStatus, statusKey(r), r.Workspace); err != nil {
			return err
		}
		if err := count(tx, r.Workspace, 1); err != nil {
			return err
		}
	}
	if r.live() {
		if err := put(liveTasks, r.ID, true); err != nil {
			return err
		}
	}
	if r.Parent != "" {
		if err := put(byParent, parentKey(r), true); err != nil {
			return err
		}
	}
	if r.KeyHash != "" {
		return put(byKey, r.KeyHash, r.ID)
	}
	return nil
}

// unlink removes what leads to a record.
func unlink(tx *state.Tx, r Record) error {
	for _, k := range [][2]string{
		{byWorkspace, workspaceKey(r)}, {byTime, place(r)}, {byStatus, statusKey(r)}, {liveTasks, r.ID}, {byParent, parentKey(r)},
	} {
		if err := tx.Delete(k[0], k[1]); err != nil {
			return err
		}
	}
	if !r.Deleted {
		if err := count(tx, r.Workspace, -1); err != nil {
			return err
		}
	}
	if r.KeyHash == "" {
		return nil
	}
	var id string
	if _, err := tx.Get(byKey, r.KeyHash, &id); err != nil || id != r.ID {
		return err // a later task has the key
	}
	return tx.Delete(byKey, r.KeyHash)
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

// linkRecords is how many records one transaction of makeIndex links.
const linkRecords = 20_000

// makeIndex makes what leads to the records, unless it is complete and the records
// are there. A program that ends meanwhile begins again at its next start.
func makeIndex(db *state.DB) error {
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
	err = db.Update(func(tx *state.Tx) error {
		for _, b := range []string{byTime, byStatus, byWorkspace, byParent, byKey, liveTasks, counts, indexMade} {
			if err := tx.DeleteBucket(b); err != nil {
				return err
			}
		}
		return nil
	})
	after, more := "", true
	for err == nil && more {
		err = db.Update(func(tx *state.Tx) error {
			var recs []Record
			more = false
			err := tx.ForEach(bucket, after, func(key string, raw []byte) (bool, error) {
				if len(recs) == linkRecords {
					more = true
					return false, nil
				}
				r, err := parseRecord(key, raw)
				recs = append(recs, r)
				return true, err
			})
			if err != nil {
				return err
			}
			for _, r := range recs {
				if err := link(tx, r); err != nil {
					return err
				}
				after = r.ID
			}
			if more {
				return nil
			}
			return tx.Put(indexMade, "version", indexVersion)
		})
	}
	return err
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
