// Package datadir works on the files of a data directory: the workspaces' records,
// the owner's secret, repair and restore.
package datadir

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"umbra/gitstore"
	"umbra/gitstore/object"
	"umbra/internal/doctor"
	"umbra/internal/state"
	"umbra/internal/workspaces"
)

// KnownFolders reads the workspaces' folders from the records, while no process
// has them open; a finding where that cannot be.
func KnownFolders(dataDir string) ([]string, *doctor.Finding) {
	path := dataDir + "/state.db"
	if _, err := os.Stat(path); errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	fail := func(err error) ([]string, *doctor.Finding) {
		return nil, &doctor.Finding{Check: "data", Level: doctor.Hurts, About: path, Detail: "the records cannot be read: " + err.Error(),
			Do: "run this as the user that runs the server; if the file is damaged, restore a backup"}
	}
	db, err := state.Open(path)
	if err != nil {
		return fail(err)
	}
	defer db.Close()
	records, err := OpenRecords(db)
	if err != nil {
		return fail(err)
	}
	list, _, err := records.List(workspaces.Resident, "", 0)
	if err != nil {
		return fail(err)
	}
	var folders []string
	for _, r := range list {
		if r.Root != "" {
			folders = append(folders, r.Root)
		}
	}
	return folders, nil
}

// Resolved gives an absolute path whose folder has no links in it; what is not
// there any more stays as it is written.
func Resolved(p string) string {
	if dir, err := filepath.EvalSymlinks(filepath.Dir(p)); err == nil {
		return filepath.Join(dir, filepath.Base(p))
	}
	return filepath.Clean(p)
}

// ForkBase returns the history that a linked fork continues, in its parent's store.
func ForkBase(f *workspaces.Fork, parent *gitstore.Store) (*gitstore.Base, error) {
	at, err := object.ParseID(f.At)
	if err != nil {
		return nil, err
	}
	return &gitstore.Base{Store: parent, At: at, Alternate: path.Join("../../..", f.Of, "repo.git/objects")}, nil
}

// Records keeps a manager's records in the state database.
type Records struct{ db *state.DB }

// WorkspacesBucket is the bucket of the state database that holds the records.
const WorkspacesBucket = "workspaces"

// WorkspacesIndexBucket is the bucket that leads to the records by workspaces.IndexKeys.
// Under countKey is how many are in the index by age; it exists once the index is complete.
const (
	WorkspacesIndexBucket = "workspaces_index"
	countKey              = "count"
)

// byName is what the keys of the virtual workspaces of namespaces begin with. The SHA-256
// of the namespace follows in hexadecimal, nameHash characters.
const (
	byName   = "name/"
	nameHash = 64
)

// halved returns a key of the index, or what keys begin with, in the form of a database
// that servers share: there each byte of each workspace counts, so a key has half of a
// namespace's hash. List compares the other half.
func halved(key string) string {
	if hash, ok := strings.CutPrefix(key, byName); ok && len(hash) >= nameHash {
		return byName + hash[:nameHash/2] + hash[nameHash:]
	}
	return key
}

// keys returns the keys of a record in the index.
func (w Records) keys(r workspaces.Record) []string {
	list := workspaces.IndexKeys(r)
	for i := range list {
		if w.db.Shared() {
			list[i] = halved(list[i])
		}
	}
	return list
}

// OpenRecords returns the records of a database; those of a format without their
// index get it now.
func OpenRecords(db *state.DB) (Records, error) {
	var n int
	found, err := db.Get(WorkspacesIndexBucket, countKey, &n)
	if found || err != nil {
		return Records{db}, err
	}
	if db.Shared() { // where no record is older than its index
		return Records{db}, db.Update(func(tx *state.Tx) error {
			if found, err := tx.Get(WorkspacesIndexBucket, countKey, &n); found || err != nil {
				return err
			}
			return tx.Put(WorkspacesIndexBucket, countKey, 0)
		})
	}
	return Records{db}, buildIndex(db)
}

// ReadRecords returns the records of a database that has their index, to be read only.
func ReadRecords(db *state.DB) Records { return Records{db} }

// buildBatch is how many keys one transaction of buildIndex writes.
const buildBatch = 20_000

// buildIndex makes the index. Its keys are written in their order, which a B-tree takes
// many times faster than others, and the count last: where that is missing, the next
// start begins again.
func buildIndex(db *state.DB) error {
	var keys []string
	n := 0
	err := db.View(func(tx *state.Tx) error {
		return tx.ForEach(WorkspacesBucket, "", func(key string, raw []byte) (bool, error) {
			var r workspaces.Record
			if err := json.Unmarshal(raw, &r); err != nil {
				return false, fmt.Errorf("%s: record %q: %w", WorkspacesBucket, key, err)
			}
			if !r.Unfinished {
				n++
			}
			keys = append(keys, workspaces.IndexKeys(r)...)
			return true, nil
		})
	})
	if err == nil {
		err = db.Update(func(tx *state.Tx) error { return tx.DeleteBucket(WorkspacesIndexBucket) })
	}
	if err != nil {
		return err
	}
	slices.Sort(keys)
	for batch := range slices.Chunk(keys, buildBatch) {
		err := db.Update(func(tx *state.Tx) error {
			_, err := reindex(tx, nil, batch)
			return err
		})
		if err != nil {
			return err
		}
	}
	return db.Put(WorkspacesIndexBucket, countKey, n)
}

// reindex replaces keys of the index, and returns by how many those by age grew.
func reindex(tx *state.Tx, from, to []string) (added int, err error) {
	for _, key := range from {
		if slices.Contains(to, key) {
			continue
		}
		if strings.HasPrefix(key, string(workspaces.ByAge)) {
			added--
		}
		if err := tx.Delete(WorkspacesIndexBucket, key); err != nil {
			return added, err
		}
	}
	for _, key := range to {
		if slices.Contains(from, key) {
			continue
		}
		if strings.HasPrefix(key, string(workspaces.ByAge)) {
			added++
		}
		if err := tx.Put(WorkspacesIndexBucket, key, 0); err != nil {
			return added, err
		}
	}
	return added, nil
}

// Get implements workspaces.Records.
func (w Records) Get(id string) (r workspaces.Record, found bool, err error) {
	found, err = w.db.Get(WorkspacesBucket, id, &r)
	return r, found, err
}

// List implements workspaces.Records.
func (w Records) List(x workspaces.Index, after string, n int) (list []workspaces.Record, last string, err error) {
	prefix, most := string(x), n
	isHalved := w.db.Shared() && halved(prefix) != prefix
	if isHalved {
		prefix, most = halved(prefix), 0
	}
	err = w.db.View(func(tx *state.Tx) error {
		list, last, err = listed(tx, prefix, after, most)
		return err
	})
	if isHalved { // one is left
		list = slices.DeleteFunc(list, func(r workspaces.Record) bool {
			return !slices.Contains(workspaces.IndexKeys(r), string(x)+r.ID)
		})
	}
	return list, last, err
}

func listed(tx *state.Tx, prefix, after string, n int) (list []workspaces.Record, last string, err error) {
	var ids []string
	err = tx.Prefixed(WorkspacesIndexBucket, prefix, after, func(key string, _ []byte) (bool, error) {
		if n > 0 && len(ids) == n {
			return false, nil
		}
		ids, last = append(ids, key[strings.LastIndexByte(key, '/')+1:]), key
		return true, nil
	})
	if err != nil {
		return nil, "", err
	}
	list = make([]workspaces.Record, 0, len(ids))
	err = tx.GetMany(WorkspacesBucket, ids, func(key string, raw []byte) error {
		var r workspaces.Record
		if err := json.Unmarshal(raw, &r); err != nil {
			return fmt.Errorf("%s: record %q: %w", WorkspacesBucket, key, err)
		}
		list = append(list, r)
		return nil
	})
	if err == nil && len(list) < len(ids) {
		err = fmt.Errorf("%s: a key below %q leads to no record", WorkspacesIndexBucket, prefix)
	}
	if n == 0 || len(list) < n {
		last = ""
	}
	return list, last, err
}

// All returns every record, the oldest first, those of unfinished workspaces last.
func (w Records) All() ([]workspaces.Record, error) {
	all, _, err := w.List(workspaces.ByAge, "", 0)
	if err != nil {
		return nil, err
	}
	here, _, err := w.List(workspaces.Resident, "", 0)
	for _, r := range here {
		if r.Unfinished {
			all = append(all, r)
		}
	}
	return all, err
}

// Count implements workspaces.Records.
func (w Records) Count() (n int, err error) {
	_, err = w.db.Get(WorkspacesIndexBucket, countKey, &n)
	return n, err
}

// Put implements workspaces.Records.
func (w Records) Put(list ...workspaces.Record) error {
	return w.db.Update(func(tx *state.Tx) error { return w.put(tx, list) })
}

// PutUnless implements workspaces.Records.
func (w Records) PutUnless(r workspaces.Record, clash func(other workspaces.Record) bool) error {
	return w.db.Update(func(tx *state.Tx) error {
		others, _, err := listed(tx, string(workspaces.Resident), "", 0)
		if err != nil {
			return err
		}
		if slices.ContainsFunc(others, clash) {
			return workspaces.ErrExists
		}
		return w.put(tx, []workspaces.Record{r})
	})
}

func (w Records) put(tx *state.Tx, list []workspaces.Record) error {
	added := 0
	for _, r := range list {
		var before workspaces.Record
		var from []string
		found, err := tx.Get(WorkspacesBucket, r.ID, &before)
		if err != nil {
			return err
		}
		if found {
			from = w.keys(before)
		}
		n, err := reindex(tx, from, w.keys(r))
		if err != nil {
			return err
		}
		added += n
		if err := tx.Put(WorkspacesBucket, r.ID, r); err != nil {
			return err
		}
	}
	return count(tx, added)
}

// count adds to the count of workspaces.
func count(tx *state.Tx, added int) error {
	if added == 0 {
		return nil
	}
	var n int
	if _, err := tx.Get(WorkspacesIndexBucket, countKey, &n); err != nil {
		return err
	}
	return tx.Put(WorkspacesIndexBucket, countKey, n+added)
}

// Delete implements workspaces.Records.
func (w Records) Delete(id string) error {
	return w.db.Update(func(tx *state.Tx) error {
		var r workspaces.Record
		found, err := tx.Get(WorkspacesBucket, id, &r)
		if err != nil || !found {
			return err
		}
		added, err := reindex(tx, w.keys(r), nil)
		if err != nil {
			return err
		}
		return errors.Join(tx.Delete(WorkspacesBucket, id), count(tx, added))
	})
}
