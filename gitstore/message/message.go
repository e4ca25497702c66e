// Package message is the text of what the server records: the commit message
// of a change set and the message of a task's annotated info tag, with the
// trailers that git itself reads (git-interpret-trailers(1)), and the
// identities in the header.
//
// It does no I/O. Invariants:
//
//   - Nothing that a client sends becomes a trailer, ends the message early or
//     reaches the header: free text is in paragraphs of its own before the
//     trailers, values are one line, quoted where they would not survive.
//   - What Encode writes, Parse reads back: Encode(Parse(Encode(m))) is
//     Encode(m), byte for byte.
//   - The bytes are UTF-8 without control characters other than newline, and
//     tab in free text.
//
// A change set of more than MaxListed entries, and the baseline at any size,
// is condensed: "Files: n" replaces the list, and only entries that a comparison
// of the trees does not show whole are listed (Entry.beyondTrees). Where entries are
// numbered, the listed ones of a condensed commit come first, in their order,
// then the others, by path in byte order.
package message

import "umbra/gitstore/object"

// MaxListed is the number of entries up to which each is listed.
const MaxListed = 500

// Operation is what was done to one path.
type Operation string

// The operations. Chmod, mkdir, rmdir and symlink are used where they happen
// alone.
const (
	Create  Operation = "create"
	Modify  Operation = "modify"
	Delete  Operation = "delete"
	Rename  Operation = "rename"
	Chmod   Operation = "chmod"
	Mkdir   Operation = "mkdir"
	Rmdir   Operation = "rmdir"
	Symlink Operation = "symlink"
)

// Valid reports whether it is one of the operations above.
func (o Operation) Valid() bool {
	switch o {
	case Create, Modify, Delete, Rename, Chmod, Mkdir, Rmdir, Symlink:
		return true
	}
	return false
}

// Source is where a change set came from.
type Source string

// The sources.
const (
	API      Source = "api"
	Script   Source = "script"
	External Source = "external"
	Revert   Source = "revert"
	Baseline Source = "baseline"
	Rollback Source = "rollback"
	Call     Source = "call"   // an agent's tool changed the disk
	Merge    Source = "merge"  // a commit of a fork, or of its parent, made again
	Shared   Source = "shared" // one of several agents' tools did
)

// Valid reports whether it is one of the sources above.
func (s Source) Valid() bool {
	switch s {
	case API, Script, External, Revert, Baseline, Rollback, Call, Merge, Shared:
		return true
	}
	return false
}

// Purged replaces an After-Hash whose content was purged.
const Purged = "purged"

// EntryRef names a changelog entry: the ID-th of a task. A change of no task
// has no such number; it is named by an empty Task, its commit's Seq and its
// place among the commit's entries, from 1; 0 is all of them.
type EntryRef struct {
	Task string
	ID   uint64
	N    uint32 // without a task only
}

// Entry is one path of a change set, one entry of the changelog.
type Entry struct {
	Operation Operation
	// Path is where the file is afterwards (a rename's new name), any bytes
	// but NUL; of mkdir and rmdir it ends in "/".
	Path string
	// OldPath is set for renames only.
	OldPath string
	// AfterHash is "sha256:<64 hex digits>" of the file's bytes (a symbolic
	// link's: of its target), Purged, or empty where no file is left.
	AfterHash string
	// Permissions are four octal digits, the bits of a file that goes or is
	// replaced, where they are others than git's mode and the umask give.
	Permissions string
	// Reverts are the entries that this one undoes.
	Reverts []EntryRef
}

// beyondTrees reports whether an entry has what a comparison of the commit's
// tree with its parent's does not show: a name's origin, an empty directory,
// permission bits that a restored file must not exceed.
func (e *Entry) beyondTrees() bool {
	return e.OldPath != "" || e.Permissions != "" ||
		e.Operation == Rename || e.Operation == Mkdir || e.Operation == Rmdir
}

// Whole is what a request named when that was a directory: the subject has it and
// the number of files that it covered.
type Whole struct {
	Operation Operation
	Path      string
	OldPath   string // rename only
}

// Trailer is a further trailer whose key the server chose.
type Trailer struct {
	Key   string // letters, digits and "-", none of the keys of this package
	Value string // any text; quoted where it would not survive as one line
}

// Message is the message of one commit.
type Message struct {
	// Subject is the caller's message, empty if none was given: its first line
	// becomes the commit's subject, the rest its body. It is cleaned
	// (CleanText) when encoded.
	Subject string
	// Summary is the server's own line. Parse sets it; where it is empty
	// Encode makes it from Source, Entries, Files, Whole and RevertWhat.
	Summary string

	TaskID, SubtaskID string
	Entries           []Entry
	// Files counts the entries of a condensed change set. Encode takes
	// len(Entries) where it is 0 and the set has to be condensed.
	Files int
	// Condensed is set by Parse where there is a "Files:" trailer. Encode condenses
	// what it must, and what has it set.
	Condensed bool
	// Reverts are the commits undone by this one, each once.
	Reverts []object.ID
	// RevertsEntries are undone entries that belong to no listed entry. Encode
	// adds those of the entries that it does not list.
	RevertsEntries []EntryRef

	Actor          string
	Source         Source
	Reason         string // "unclean-stop"; empty for ordinary changes
	RequestID      string
	IdempotencyKey string // "sha256:<hex>" of key and request
	Author         string // metadata.author of a save
	Description    string // metadata.description of a save
	Extra          []Trailer
	Change         uint64 // id of the first entry in its task; 0 without a task
	Seq            uint64 // the commit's number in the workspace, from 1

	// RevertWhat names what was reverted, for the summary: "task",
	// "subtask add-types", "change 4", "file src/a". Not read back.
	RevertWhat string
	// Whole is set where the request named one folder. Not read back.
	Whole *Whole
}

// Texts returns what the caller wrote: subject, author and description, one below
// the other.
func (m *Message) Texts() string {
	if m.Author == "" && m.Description == "" {
		return m.Subject
	}
	return m.Subject + "\n" + m.Author + "\n" + m.Description
}

// EntryCount returns how many changelog entries the commit counts.
func (m *Message) EntryCount() int {
	if m.Files > 0 {
		return m.Files
	}
	return len(m.Entries)
}
