// Package op describes changes of a workspace: what a request asks for (Op,
// Request), what it did (Result), and how the changelog shows it (ChangeEntry,
// FolderMoves). It has no behavior of its own but the judgment of a Condition, so
// that planning, browsing, recovery and a task's own directories (package areas)
// share it without knowing each other.
package op

import (
	"cmp"
	"io"
	"slices"
	"time"

	"umbra/gitstore/message"
	"umbra/gitstore/object"
	"umbra/internal/claims"
	"umbra/internal/errs"
	"umbra/internal/wspath"
)

// By is whose a change is.
type By struct {
	TaskID, SubtaskID string
	Actor             string
	Source            message.Source // API when empty
	RequestID         string
	// Message is the caller's, where the Request has none; may be empty.
	Message string
	// IdempotencyKey is "sha256:<hex>" of key and request, or empty. A commit
	// made with it within the last 24 hours is answered again, not repeated.
	IdempotencyKey string
}

// OpKind is what an operation does.
type OpKind uint8

// The kinds of operations.
const (
	OpWrite   OpKind = iota + 1 // create or replace a file
	OpDelete                    // a file, link or folder
	OpRename                    // Path -> To; a folder moves whole
	OpCopy                      // Path -> To; a folder with everything recorded or on disk under it
	OpChmod                     // Mode only
	OpMkdir                     // an empty folder; Recursive makes missing parents and accepts an existing one
	OpSymlink                   // Path -> Target
	OpPrune                     // remove a folder if it is empty; else nothing, and no error
	OpEdit                      // read, change by Edit, write, as one step
)

// Condition is a precondition on the file that an operation replaces (for
// rename and copy: on the source). The zero value always holds.
type Condition struct {
	// Match holds blob ids in hex, or "*" (the file exists). Empty: no condition.
	Match []string
	// NoneMatchAny is If-None-Match: * (the file must not exist).
	NoneMatchAny bool
}

// Check returns an error if the condition does not hold for what is at a path:
// nothing, a file or link with the blob id have, or something without an id.
// errs.Precondition "precondition_failed", with the field "etag" if there is an id.
func (c Condition) Check(path string, exists bool, have object.ID) error {
	if c.NoneMatchAny && exists || len(c.Match) > 0 &&
		!(exists && (slices.Contains(c.Match, "*") || !have.IsZero() && slices.Contains(c.Match, have.String()))) {
		e := &errs.Error{Kind: errs.Precondition, Code: "precondition_failed", Detail: "The file is not in the state that the condition names.", Path: path}
		if exists && !have.IsZero() {
			return e.With("etag", have.String())
		}
		return e
	}
	return nil
}

// Op is one operation of a change set. They apply in order, each on what the
// ones before it left.
type Op struct {
	Kind OpKind
	Path wspath.Path // canonical by words; links in it are resolved by Apply
	To   wspath.Path // OpRename, OpCopy

	// Content of OpWrite: Body if not nil (Size its length, or -1), else Blob
	// if set (one that history has), else Data.
	Data []byte
	Body io.Reader
	Size int64
	Blob *object.ID
	// MaxSize, if not 0, bounds Body: errs.TooLarge "file_too_large".
	MaxSize int64

	Mode   *object.Mode // Regular or Executable; nil keeps the present one
	Target string       // OpSymlink
	// Permissions, if not nil, are the bits that a restored file gets at most; 0 is a
	// limit too.
	Permissions *uint32

	Recursive bool // OpDelete: a folder that is not empty; OpMkdir: with parents
	Force     bool // OpDelete: also what cannot be recorded; a missing path is no error
	Overwrite bool // OpRename, OpCopy, OpSymlink: replace what is at the target
	NoFollow  bool // OpWrite: replace a link itself instead of its target
	// Listed makes OpPrune an entry of its own, as for a directory that a request
	// removes by name.
	Listed bool
	// MustBe, if not 0, refuses another kind of thing at Path: errs.Invalid
	// "is_a_directory" or "not_a_directory".
	MustBe Kind

	If Condition
	// Edit is OpEdit's function, called under the path's lock with the bytes
	// now on disk; perhaps more than once. An error of it fails the request.
	Edit func(old []byte) ([]byte, error)
	// MaxEdit bounds what OpEdit reads; 0 means 64 MiB.
	MaxEdit int64

	// Reverts are the changelog entries that this operation undoes.
	Reverts []message.EntryRef
	// RevertsOf is the same for the files in a folder that OpRename moves, by
	// their new paths.
	RevertsOf map[wspath.Path][]message.EntryRef
}

// Request is one change set: one commit.
type Request struct {
	By      By
	Message string // the caller's, may be empty
	Ops     []Op

	// For reverts and saves; they go into the commit's message as they are.
	Reverts             []object.ID
	RevertsEntries      []message.EntryRef
	RevertWhat          string
	Author, Description string
	Extra               []message.Trailer
	// Authored is git's author date of the commit; zero: when it is made.
	Authored time.Time
	// AllowRepoShape lets a revert bring back a folder of bare-repository shape,
	// and a link that leads out: both existed there before.
	AllowRepoShape bool
	// Check, if set, is asked by the committer just before the commit is made,
	// and once where nothing has to be committed; its error fails the request
	// and is answered as it is. It must not block.
	Check func() error
	// DryRun plans and judges, and changes nothing. External changes are not
	// recorded either. The result has no commit.
	DryRun bool
}

// Subject is the caller's message.
func (r *Request) Subject() string { return cmp.Or(r.Message, r.By.Message) }

// Result is what a request did.
type Result struct {
	Commit object.ID // zero: nothing changed
	Seq    uint64
	When   time.Time
	// Entries are the changelog entries of the commit.
	Entries []ChangeEntry
	// Ops has one result for each operation of the request.
	Ops []OpResult
	// Unrecorded is what a forced delete took along without recording it.
	Unrecorded []Skip
	// Replayed: a commit with the same idempotency key was found, and the
	// result rebuilt from it.
	Replayed bool
}

// OpResult is what one operation did.
type OpResult struct {
	Path      wspath.Path // canonical, links resolved
	To        wspath.Path
	Operation message.Operation // empty: nothing changed
	Blob      object.ID         // of the file afterwards; zero for directories and where nothing is left
	Mode      object.Mode       // afterwards
	Size      int64             // bytes written
	Created   bool              // nothing existed there before
	Existed   bool              // OpDelete with Force: something was there
}

// ChangeEntry is one entry of the changelog (contracts/tasks.md, Changelog).
type ChangeEntry struct {
	ID        uint64 // within the task; 0 without a task
	Seq       uint64
	TaskID    string
	SubtaskID string
	When      time.Time
	Operation message.Operation
	Path      string // mkdir, rmdir and a folder's rename end in "/"
	NewPath   string // rename only
	Before    object.ID
	// BeforeMode and Mode are git's modes before and after; 0 for none.
	BeforeMode  object.Mode
	After       object.ID
	Mode        object.Mode
	AfterHash   string // "sha256:<hex>", message.Purged, or empty
	Permissions string // of what was replaced, where they say more than the mode
	Commit      object.ID
	Actor       string
	Reverts     []message.EntryRef
	Source      message.Source
	Message     string // the caller's; empty if none was given
	// Folders: the request moved folders as a whole (FolderMoves of its commit).
	Folders bool
	// Rejects: a reviewer took back hunks of the entry's task (package review).
	Rejects bool
	// Policy names the rules that the change is against.
	Policy []string
	Attribution
}

// Attribution is which call made a change (contracts/calls.md); all is empty
// for a change without one.
type Attribution struct {
	// The call, its tool, model and prompt where they are known, and how its owner
	// is.
	CallID, Tool, Model, Prompt string
	Certainty                   claims.Certainty
	// Claimants are the calls that may have made a shared change, ClaimantTasks
	// the tasks of those, with a subtask after a space.
	Claimants, ClaimantTasks []string
	// Claims is the shared commit that the change was recorded in, where it became
	// this task's later; zero otherwise. ClaimsSeq is its number.
	Claims    object.ID
	ClaimsSeq uint64
}

// Skip is a path that is not recorded, and why: "too_large", "unreadable",
// "special", "name_refused", "nested_git", "changing", "own_folder",
// "sha1_collision".
type Skip struct {
	Path   string
	Reason string
}

// Kind is what is at a path.
type Kind uint8

// The kinds; the zero value is nothing.
const (
	KindNone Kind = iota
	KindFile
	KindDir
	KindSymlink
	KindSpecial // FIFO, socket, device
)

// Limits of a workspace; the zero value means the defaults of the contracts.
type Limits struct {
	CaptureBytes int64 // 256 MiB; a larger file found on disk is not recorded
	EditBytes    int64 // 64 MiB; OpEdit
	CacheBytes   int64 // 64 MiB; of histories in memory, all workspaces together
}
