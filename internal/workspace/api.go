package workspace

import (
	"maps"
	"slices"
	"time"

	"umbra/gitstore/message"
	"umbra/gitstore/object"
	"umbra/internal/workspace/disk"
	"umbra/internal/workspace/op"
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

	IgnoreSources = disk.IgnoreSources
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

func folderTrailers(moves []FolderMove) []message.Trailer { return op.FolderTrailers(moves) }

func filledTrailers(filled map[wspath.Path]bool, entries []netEntry) []message.Trailer {
	var out []message.Trailer
	for _, dir := range slices.Sorted(maps.Keys(filled)) {
		if filled[dir] && slices.ContainsFunc(entries, func(e netEntry) bool { return e.after.Mode != 0 && e.after.Path.IsUnder(dir) }) {
			out = append(out, message.Trailer{Key: op.KeyFilled, Value: string(dir)})
		}
	}
	return out
}

// remadeTrailers names the removed directories of which a file that was there before
// is there afterwards.
func remadeTrailers(removed []removal, entries []netEntry) []message.Trailer {
	var out []message.Trailer
	for _, r := range removed {
		if dir := r.node.origin; r.node.kind == KindDir && dir != "" && slices.ContainsFunc(entries, func(e netEntry) bool {
			return e.OldPath == "" && e.before.Mode != 0 && e.after.Mode != 0 && e.after.Path.IsUnder(dir)
		}) {
			out = append(out, message.Trailer{Key: op.KeyRemade, Value: string(dir)})
		}
	}
	return out
}

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

// Limits of a workspace; the zero value means the defaults of the contracts.
type Limits struct {
	CaptureBytes int64 // 256 MiB; a larger file found on disk is not recorded
	EditBytes    int64 // 64 MiB; OpEdit
	CacheBytes   int64 // 64 MiB; of histories in memory, all workspaces together
}
