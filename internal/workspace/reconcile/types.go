package reconcile

import (
	"time"

	"umbra/gitstore/object"
	"umbra/internal/workspace/op"
)

// SyncOptions steer a full scan.
type SyncOptions struct {
	// Adopt takes a folder that is in place of the one that was opened.
	Adopt bool
	// Allow judges the folder that is adopted by its canonical path; nil: any.
	Allow func(root string) error
	// Attribute lets what is found belong to the one executing task; it is
	// false for what is found at a start or at a first use.
	Attribute bool

	since  time.Duration // a scan that began then or later will do, by clock.Boot; 0: none will
	gentle bool          // on one processor, concurrently with requests
	// unreported is set for a scan next to what the watcher reports: what it finds and this
	// watcher has not reported may be as old as the scan before.
	unreported *watch
}

// SyncResult reports what a scan found.
type SyncResult struct {
	Commit  object.ID // the tip, if something was recorded
	Changed int       // entries recorded
	Skipped []op.Skip // all that is left out now
}

// Coverage counts what is recorded and what is not.
type Coverage struct {
	Skipped          []op.Skip
	Tracked, Ignored int64
}
