// Package object holds git's nouns: object ids, kinds, modes, tree entries,
// commits and tags, and their exact bytes (gitformat-pack(5), git-mktree(1),
// git-hash-object(1)). It does no I/O.
//
// Hash is for objects that are made here or compared; HashChecked is for content
// that comes from outside.
package object

import (
	"crypto/sha1"
	"encoding/hex"
	"errors"
	"hash"
	"strconv"
)

// MaxMeta bounds what is read whole as a commit, tag or tree, in bytes.
const MaxMeta = 256 << 20

// ID is a SHA-1 object id.
type ID [20]byte

// Zero is the id of nothing.
var Zero ID

// IsZero reports whether the id is that of nothing.
func (id ID) IsZero() bool { return id == Zero }

// String gives 40 lower-case hex digits.
func (id ID) String() string { return hex.EncodeToString(id[:]) }

// ErrBadID is returned for what is no object id.
var ErrBadID = errors.New("object: not an object id")

// ParseID reads 40 hex digits.
func ParseID(s string) (ID, error) {
	var id ID
	if len(s) != 40 {
		return id, ErrBadID
	}
	if _, err := hex.Decode(id[:], []byte(s)); err != nil {
		return Zero, ErrBadID
	}
	return id, nil
}

// Kind is an object's type, by its number in a pack entry (gitformat-pack(5)).
type Kind uint8

// The kinds.
const (
	Commit Kind = 1
	Tree   Kind = 2
	Blob   Kind = 3
	Tag    Kind = 4
)

// String gives git's word for the kind.
func (k Kind) String() string {
	switch k {
	case Commit:
		return "commit"
	case Tree:
		return "tree"
	case Blob:
		return "blob"
	case Tag:
		return "tag"
	}
	return "kind" + strconv.Itoa(int(k))
}

// NewHash begins the hash whose sum is the id of an object of size bytes, which are written
// to it.
func NewHash(k Kind, size int64) hash.Hash {
	h := sha1.New()
	h.Write(Header(k, size))
	return h
}

// Hash gives the id of an object with these bytes.
func Hash(k Kind, data []byte) ID {
	h := sha1.New()
	h.Write(Header(k, int64(len(data))))
	h.Write(data)
	var id ID
	h.Sum(id[:0])
	return id
}

// Header gives what git hashes before an object's bytes: "blob 12\x00".
func Header(k Kind, size int64) []byte {
	b := make([]byte, 0, 32)
	b = append(b, k.String()...)
	b = append(b, ' ')
	b = strconv.AppendInt(b, size, 10)
	return append(b, 0)
}

// EmptyTree is the id of the tree without entries.
var EmptyTree = Hash(Tree, nil)

// EmptyBlob is the id of the blob without bytes.
var EmptyBlob = Hash(Blob, nil)

// Mode is a tree entry's mode. Only these five exist in git; Submodule is
// never written by us.
type Mode uint32

// The modes.
const (
	Dir        Mode = 0o040000
	Regular    Mode = 0o100644
	Executable Mode = 0o100755
	Symlink    Mode = 0o120000
	Submodule  Mode = 0o160000
)

// String gives six octal digits, as git prints a mode: "100644", "040000".
func (m Mode) String() string {
	s := strconv.FormatUint(uint64(m), 8)
	for len(s) < 6 {
		s = "0" + s
	}
	return s
}

// ParseMode reads "100644", "100755", "120000", "40000" or "040000".
func ParseMode(s string) (Mode, bool) {
	switch s {
	case "100644":
		return Regular, true
	case "100755":
		return Executable, true
	case "120000":
		return Symlink, true
	case "40000", "040000":
		return Dir, true
	case "160000":
		return Submodule, true
	}
	return 0, false
}
