package revert

import (
	"umbra/gitstore/object"
	"umbra/internal/history"
	"umbra/internal/workspace"
)

// Scope says which entries of a task are to be undone. Exactly one of the
// fields is set; none means all of the task's work.
type Scope struct {
	Subtask string
	Path    string // a file, by its name now or one before, or a folder
	Change  uint64 // one entry, which may be a revert itself
}

// OnConflict says what happens where a file cannot be undone cleanly.
type OnConflict string

// The ways.
const (
	Fail  OnConflict = ""      // nothing is changed
	Force OnConflict = "force" // the state that the task found, whatever stands there
	Skip  OnConflict = "skip"  // that file is left out
)

// Request is a revert.
type Request struct {
	By              workspace.By
	Task            string
	Scope           Scope
	OnConflict      OnConflict
	ExcludeExternal bool   // leave external changes that belong to the task
	DryRun          bool   // tell, and do nothing
	Plan            string // a dry run's token: do just that, or nothing
}

// Action is what happens to a file.
type Action string

// The actions.
const (
	Restored  Action = "restored"
	Deleted   Action = "deleted"
	Renamed   Action = "renamed"
	Merged    Action = "merged"
	Unchanged Action = "unchanged"
)

// File is what a revert does to one file.
type File struct {
	Path   string // after the action
	Action Action
	Source string // of the undone entries: "api", …; the newest's
}

// Conflict is a file that cannot be undone cleanly.
type Conflict struct {
	Path   string
	Reason string // "modified", "deleted", "renamed", "occupied", "binary", "overlapping"
	Entry  uint64 // the newest entry that was to be undone
	By     ChangedBy
}

// ChangedBy is who changed the file since.
type ChangedBy struct {
	Commit               object.ID
	Task, Subtask, Actor string
}

// Result tells what a revert did, or would do.
type Result struct {
	Commit    object.ID // zero: nothing was changed
	Seq       uint64
	Reverted  int // entries undone
	Files     []File
	Conflicts []Conflict
	Plan      string // token of a dry run
	Replayed  bool
}

// target is what one chain is to become.
type target struct {
	chain    *history.Chain
	entries  []*history.Entry // those of the chain that are undone, oldest first
	now      history.State    // what stands at the chain's last path
	want     history.State    // Mode 0: nothing
	data     []byte           // merged bytes, if they are new
	merged   bool
	conflict *Conflict
	skipped  bool
	// permissions are the bits that somebody else's removal tells of, in octal.
	permissions string
}
