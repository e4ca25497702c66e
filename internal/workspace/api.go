package workspace

import (
	"time"

	"umbra/gitstore/message"
	"umbra/gitstore/object"
	"umbra/internal/workspace/browse"
	"umbra/internal/workspace/disk"
	"umbra/internal/workspace/op"
	"umbra/internal/workspace/pathlock"
	"umbra/internal/workspace/record"
	"umbra/internal/wspath"
)

// Names of the packages below that callers of a workspace use.
type (
	By          = op.By
	OpKind      = op.OpKind
	Condition   = op.Condition
	Op          = op.Op
	Request     = op.Request
	Result      = op.Result
	OpResult    = op.OpResult
	ChangeEntry = op.ChangeEntry
	Attribution = op.Attribution
	Skip        = op.Skip
	Kind        = op.Kind
	FolderMove  = op.FolderMove
	Limits      = op.Limits

	IgnoreSources = disk.IgnoreSources
	NotHeld       = pathlock.NotHeld
	Owner         = record.Owner
	ListOptions   = browse.ListOptions
	Listed        = browse.Listed
	Looked        = browse.Looked
	Node          = browse.Node
	Opened        = browse.Opened
	Peeked        = browse.Peeked
	Owners        = record.Owners
	NoOwners      = record.NoOwners
)

// The kinds of operations, and of what is at a path.
const (
	OpWrite     = op.OpWrite
	OpDelete    = op.OpDelete
	OpRename    = op.OpRename
	OpCopy      = op.OpCopy
	OpChmod     = op.OpChmod
	OpMkdir     = op.OpMkdir
	OpSymlink   = op.OpSymlink
	OpPrune     = op.OpPrune
	OpEdit      = op.OpEdit
	KindNone    = op.KindNone
	KindFile    = op.KindFile
	KindDir     = op.KindDir
	KindSymlink = op.KindSymlink
	KindSpecial = op.KindSpecial
)

// FolderMoves returns the directories that a commit's request moved.
func FolderMoves(m *message.Message) []FolderMove { return op.FolderMoves(m) }

// Filled returns the directories that existed before a commit's request put
// something into them.
func Filled(m *message.Message) []wspath.Path { return op.Filled(m) }

// SyncOptions steer a full scan.
type SyncOptions struct {
	// Adopt takes a folder that stands in place of the one that was opened.
	Adopt bool
	// Allow judges the folder that is adopted by its canonical path; nil: any.
	Allow func(root string) error
	// Attribute lets what is found belong to the one executing task; it is
	// false for what is found at a start or at a first use.
	Attribute bool

	since  time.Duration // a scan that began then or later will do, by clock.Boot; 0: none will
	gentle bool          // on one processor, beside requests
	// periodic is set for a scan that nothing asked for: what it finds and its
	// watcher has not told of may be as old as the scan before.
	periodic *watch
}

// SyncResult tells what a scan found.
type SyncResult struct {
	Commit  object.ID // the tip, if something was recorded
	Changed int       // entries recorded
	Skipped []Skip    // all that is left out now
}

// Coverage counts what is recorded and what is not.
type Coverage struct {
	Skipped          []Skip
	Tracked, Ignored int64
}

// State is how a workspace stands to its folder.
type State string

// The states.
const (
	Clean       State = "clean"
	Reconciling State = "reconciling"
	Missing     State = "missing"
)
