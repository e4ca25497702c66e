package calls

import (
	"encoding/json"
	"slices"

	"umbra/internal/state"
	"umbra/internal/vfs"
)

// logName is the log's, in the directory of calls.
const logName = "calls.log"

// Settle gives the database of a single server that does not run what its log of calls,
// in a directory, still has.
func Settle(db *state.DB, files vfs.FS) error {
	var failed error
	k, err := openKeeper(db, files, logName, func(err error) { failed = err })
	if err != nil {
		return err
	}
	if err := k.close(); err != nil {
		return err
	}
	return failed
}

// copyBatch is how many calls one transaction writes.
const copyBatch = 200

// Copy copies the calls of a workspace, with what is known of the sessions that made them,
// from the database of a single server to that of several. Those that are there stay as
// they are, so it may be called again.
func Copy(from, to *state.DB, workspace string) error {
	var list []Record
	sessions := map[string]session{}
	seen := map[string]sighting{}
	err := from.View(func(tx *state.Tx) error {
		err := tx.Prefixed(bucketBy, byWorkspace(workspace), "", func(_ string, raw []byte) (bool, error) {
			var id string
			if err := json.Unmarshal(raw, &id); err != nil {
				return false, err
			}
			var r Record
			found, err := tx.Get(bucket, id, &r)
			if found {
				list = append(list, r)
			}
			return err == nil, err
		})
		if err != nil {
			return err
		}
		err = tx.Prefixed(bucketSessions, workspace+"\x00", "", func(key string, raw []byte) (bool, error) {
			var s session
			err := json.Unmarshal(raw, &s)
			sessions[key] = s
			return err == nil, err
		})
		if err != nil {
			return err
		}
		var at sighting
		found, err := tx.Get(bucketSeen, workspace, &at)
		if found {
			seen[workspace] = at
		}
		return err
	})
	if err != nil {
		return err
	}
	shared := &keeper{db: to}
	for part := range slices.Chunk(list, copyBatch) {
		err := to.Update(func(tx *state.Tx) error {
			fresh := map[string]Record{}
			for _, r := range part {
				found, err := tx.Get(bucket, r.ID, &Record{})
				if err != nil {
					return err
				}
				if !found {
					fresh[r.ID] = r
				}
			}
			return shared.write(tx, batch{calls: fresh})
		})
		if err != nil {
			return err
		}
	}
	return to.Update(func(tx *state.Tx) error {
		missing := map[string]session{}
		for key, s := range sessions {
			found, err := tx.Get(bucketSessions, key, &session{})
			if err != nil {
				return err
			}
			if !found {
				missing[key] = s
			}
		}
		if found, err := tx.Get(bucketSeen, workspace, &sighting{}); found || err != nil {
			clear(seen)
			if err != nil {
				return err
			}
		}
		return shared.write(tx, batch{sessions: missing, seen: seen})
	})
}
