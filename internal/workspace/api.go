package workspace

import (
	"umbra/gitstore/message"
	"umbra/internal/workspace/browse"
	"umbra/internal/workspace/disk"
	"umbra/internal/workspace/op"
	"umbra/internal/workspace/pathlock"
	"umbra/internal/workspace/reconcile"
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
	Skip        = op.Skip
	Kind        = op.Kind
	Limits      = op.Limits

	IgnoreSources = disk.IgnoreSources
	NotHeld       = pathlock.NotHeld
	Owner         = record.Owner
	Coverage      = reconcile.Coverage
	Difference    = reconcile.Difference
	SyncOptions   = reconcile.SyncOptions
	SyncResult    = reconcile.SyncResult
	Watcher       = reconcile.Watcher
	WatchSpace    = reconcile.WatchSpace
	ListOptions   = browse.ListOptions
	Listed        = browse.Listed
	Node          = browse.Node
	Opened        = browse.Opened
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
)

// FolderMoves returns the directories that a commit's request moved.
func FolderMoves(m *message.Message) []wspath.Move { return op.FolderMoves(m) }

// Filled returns the directories that existed before a commit's request put
// something into them.
func Filled(m *message.Message) []wspath.Path { return op.Filled(m) }

// State is the state of a workspace's directory.
type State string

// The states.
const (
	Clean       State = "clean"
	Reconciling State = "reconciling"
	Missing     State = "missing"
)
