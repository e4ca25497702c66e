package gitstore

import "umbra/gitstore/repo"

// The nouns of a history, from gitstore/repo.
type (
	Commit     = repo.Commit
	Boundary   = repo.Boundary
	Record     = repo.Record
	Entry      = repo.Entry
	Snapshot   = repo.Snapshot
	TreeChange = repo.TreeChange
	Task       = repo.Task
	Tip        = repo.Tip
	Caches     = repo.Caches
	Blobs      = repo.Blobs
)

// The functions of gitstore/repo that clients call.
var (
	NewCaches  = repo.NewCaches
	ErrDropped = repo.ErrDropped
	PurgedBlob = repo.PurgedBlob
	Diff       = repo.Diff
)
