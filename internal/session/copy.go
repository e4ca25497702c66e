package session

import "umbra/internal/state"

// Kept returns the records of a database that no server has open.
func Kept(db *state.DB) ([]Record, error) { return state.All[Record](db, bucket) }

// Add adds a record to a database, and reports whether it did: one of its id stays.
func Add(db *state.DB, r Record) (added bool, err error) {
	return state.Insert(db, bucket, r.ID, func(tx *state.Tx) error { return records.Replace(tx, nil, &r) })
}
