package revert

import (
	"time"

	"umbra/gitstore/object"
	"umbra/internal/history"
	"umbra/internal/workspace"
)

// Scope says which entries are to be undone. At most one of the fields is set;
// none means all of the task's work. Commit, Where and Call need no task.
type Scope struct {
	Subtask string
	Path    string  // a file, by its name now or one before, or a directory
	Change  uint64  // one entry, which may be a revert itself
	Commit  *Commit // all entries of one commit, of whatever source
	Where   *Where  // what a condition selects in the whole workspace
	Call    *Call   // what one call of an agent did; needs no task
}

// OnConflict says what happens where a file cannot be undone cleanly.
type OnConflict string

// The ways.
const (
	Fail  OnConflict = ""      // nothing is changed
	Force OnConflict = "force" // the state that the task found, whatever is there
	Skip  OnConflict = "skip"  // that file is left out
)

// Request is a revert.
//
// Entries that may be another's work are left, and listed in the Result, unless
// the request includes them or names them: a change, a commit, or their source.
type Request struct {
	By              workspace.By
	Task            string // whose work is undone, and whose the revert is; not with Commit and Where
	Scope           Scope
	OnConflict      OnConflict
	IncludeExternal bool   // also what was changed outside the server
	IncludeShared   bool   // also what several agents may have changed
	DryRun          bool   // report, and change nothing
	Diff            bool   // report each file's patch; of a dry run
	Plan            string // a dry run's token: do just that, or nothing
	// May, if set, is called before anything is done and just before the commit;
	// its error fails the request. It must not block.
	May func() error
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
	Patch  *Patch // of a dry run with Diff
}

// Conflict is a file that cannot be undone cleanly.
type Conflict struct {
	Path   string
	Reason string // "modified", "deleted", "renamed", "occupied", "binary", "overlapping"
	Entry  uint64 // the newest entry that was to be undone; 0 if it has no task
	By     ChangedBy
}

// ChangedBy is who changed the file since.
type ChangedBy struct {
	Commit               object.ID
	Task, Subtask, Actor string
}

// Left is an entry that a revert does not undo, since it may be another's work.
type Left struct {
	Path  string // the entry's path after it
	Entry uint64 // 0 without a task
	At    time.Time
}

// Result is what a revert did, or would do.
type Result struct {
	Commit    object.ID // zero: nothing was changed
	Seq       uint64
	Reverted  int // entries undone
	Files     []File
	Conflicts []Conflict
	External  []Left // changes from outside the server that were left
	Shared    []Left // changes that several agents may have made, left
	Plan      string // token of a dry run
	Replayed  bool
}

// target is what one chain is to become.
type target struct {
	chain    *history.Chain
	entries  []*history.Entry // those of the chain that are undone, oldest first
	now      history.State    // the state at the chain's last path
	want     history.State    // Mode 0: nothing
	data     []byte           // merged bytes, if they are new
	merged   bool
	conflict *Conflict
	skipped  bool
	// permissions are the bits that another's removal recorded, in octal.
	permissions string
}
