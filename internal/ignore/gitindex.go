package ignore

import (
	"bytes"
	"cmp"
	"crypto/sha1"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"slices"
	"strings"

	"umbra/internal/wspath"
)

// Why an index cannot be used. A caller then goes on as if there were none.
var (
	// ErrUnsupported is an index of a form that is not read: a split or sparse
	// one, one of a SHA-256 repository, or with an unknown extension that must
	// be understood.
	ErrUnsupported = errors.New("ignore: git index of a form that is not read")
	// ErrCorrupt is an index that breaks its format.
	ErrCorrupt = errors.New("ignore: corrupt git index")
)

// MaxIndex is the largest index that is read, in bytes.
const MaxIndex = 1 << 30

// The modes of an index entry, gitformat-index(5).
const (
	IndexFile    = 0o100000 // with the permission bits 0644 or 0755
	IndexSymlink = 0o120000
	IndexGitlink = 0o160000
	modeType     = 0o170000
)

// Timestamp is a time as the index holds it: cut to 32 bits of seconds since
// 1970, and nanoseconds where git was built to keep them.
type Timestamp struct{ Sec, Nsec uint32 }

// Entry is one path of an index. The stat data is lstat's when the entry
// was written, each value cut to its low 32 bits.
type Entry struct {
	Path         string
	ID           [sha1.Size]byte
	Mode         uint32
	Ctime, Mtime Timestamp
	Dev, Ino     uint32
	UID, GID     uint32
	Size         uint32 // 0 also where git found the entry racy

	Stage        uint8 // 1 to 3 while a merge is unresolved
	AssumeValid  bool  // the user asked git not to check the file
	SkipWorktree bool  // the file need not be on disk
	IntentToAdd  bool  // "git add -N": there is no blob yet
}

// IsGitlink reports whether the entry is a submodule's commit.
func (e *Entry) IsGitlink() bool { return e.Mode&modeType == IndexGitlink }

// Index is what git's index file holds, but for its extensions.
type Index struct {
	Version uint32
	Entries []Entry // by path, bytewise, then by stage
	// Mtime is the file's own time, which ReadIndex fills in: an entry whose
	// Mtime is not older may have changed since, unseen (see Racy).
	Mtime Timestamp
}

// ParseIndex reads an index, version 2, 3 or 4 (gitformat-index(5)). Optional
// extensions are skipped. It fails with ErrUnsupported or ErrCorrupt.
func ParseIndex(data []byte) (*Index, error) {
	const header = 12
	if len(data) < header+sha1.Size || string(data[:4]) != "DIRC" {
		return nil, ErrCorrupt
	}
	ix := &Index{Version: binary.BigEndian.Uint32(data[4:])}
	if ix.Version < 2 || ix.Version > 4 {
		return nil, ErrUnsupported
	}
	body, sum := data[:len(data)-sha1.Size], data[len(data)-sha1.Size:]
	// With index.skipHash the checksum is all zeros.
	if !bytes.Equal(sum, make([]byte, sha1.Size)) {
		if got := sha1.Sum(body); !bytes.Equal(sum, got[:]) {
			if n := len(data) - sha256.Size; n >= header && sha256.Sum256(data[:n]) == [sha256.Size]byte(data[n:]) {
				return nil, ErrUnsupported
			}
			return nil, ErrCorrupt
		}
	}
	count := binary.BigEndian.Uint32(data[8:])
	r := indexReader{data: body, at: header, version: ix.Version}
	ix.Entries = make([]Entry, 0, min(int(count), len(body)/minEntry))
	for range count {
		e, err := r.entry()
		if err != nil {
			return nil, err
		}
		if e.Mode&modeType == 0o040000 {
			return nil, ErrUnsupported // a sparse index's folder
		}
		if n := len(ix.Entries); n > 0 && compareEntries(&ix.Entries[n-1], &e) >= 0 {
			return nil, ErrCorrupt
		}
		ix.Entries = append(ix.Entries, e)
	}
	if err := r.extensions(); err != nil {
		return nil, err
	}
	return ix, nil
}

func compareEntries(a, b *Entry) int {
	return cmp.Or(strings.Compare(a.Path, b.Path), cmp.Compare(a.Stage, b.Stage))
}

const (
	fixedEntry = 62 // stat data, id and flags
	minEntry   = fixedEntry + 2
)

// indexReader walks over the entries.
type indexReader struct {
	data    []byte
	at      int
	version uint32
	prev    string // the last entry's path: version 4 has only the new part
}

func (r *indexReader) entry() (Entry, error) {
	start := r.at
	if len(r.data)-start < minEntry {
		return Entry{}, ErrCorrupt
	}
	b := r.data[start:]
	u32 := func(i int) uint32 { return binary.BigEndian.Uint32(b[i:]) }
	e := Entry{
		Ctime: Timestamp{u32(0), u32(4)}, Mtime: Timestamp{u32(8), u32(12)},
		Dev: u32(16), Ino: u32(20), Mode: u32(24), UID: u32(28), GID: u32(32), Size: u32(36),
	}
	copy(e.ID[:], b[40:60])
	flags := binary.BigEndian.Uint16(b[60:])
	e.AssumeValid = flags&0x8000 != 0
	e.Stage = uint8(flags >> 12 & 3)
	r.at += fixedEntry
	if flags&0x4000 != 0 {
		if r.version < 3 {
			return Entry{}, ErrCorrupt
		}
		more := binary.BigEndian.Uint16(b[fixedEntry:])
		e.SkipWorktree, e.IntentToAdd = more&0x4000 != 0, more&0x2000 != 0
		if more&^0x6000 != 0 {
			return Entry{}, ErrUnsupported
		}
		r.at += 2
	}
	if r.version == 4 {
		drop, err := r.varint()
		if err != nil || drop > uint64(len(r.prev)) {
			return Entry{}, ErrCorrupt
		}
		e.Path = r.prev[:len(r.prev)-int(drop)]
	}
	end := bytes.IndexByte(r.data[r.at:], 0)
	if end < 0 {
		return Entry{}, ErrCorrupt
	}
	e.Path += string(r.data[r.at : r.at+end])
	r.at += end + 1
	// The length is in the flags too, as far as it fits.
	if int(flags&0xfff) != min(len(e.Path), 0xfff) {
		return Entry{}, ErrCorrupt
	}
	if e.Path == "" {
		return Entry{}, ErrUnsupported // replaces an entry of a split index's base
	}
	if r.version < 4 {
		// One to eight NULs, up to a multiple of eight from the entry's start.
		r.at = start + (r.at-1-start+8)&^7
		if r.at > len(r.data) {
			return Entry{}, ErrCorrupt
		}
	}
	r.prev = e.Path
	return e, nil
}

// varint reads a number as a pack's OFS_DELTA has it (gitformat-pack(5)).
func (r *indexReader) varint() (uint64, error) {
	var v uint64
	for i := 0; i < 9 && r.at < len(r.data); i++ {
		c := r.data[r.at]
		r.at++
		v = v<<7 | uint64(c&0x7f)
		if c&0x80 == 0 {
			return v, nil
		}
		v++
	}
	return 0, ErrCorrupt
}

// extensions looks for one that must be understood: their names begin with a
// lower-case letter, as "link" (split index) and "sdir" (sparse index).
func (r *indexReader) extensions() error {
	for rest := r.data[r.at:]; len(rest) > 0; {
		if len(rest) < 8 {
			return ErrCorrupt
		}
		size := uint64(binary.BigEndian.Uint32(rest[4:]))
		if size > uint64(len(rest)-8) {
			return ErrCorrupt
		}
		if rest[0] < 'A' || rest[0] > 'Z' {
			return ErrUnsupported
		}
		rest = rest[8+size:]
	}
	return nil
}

// Find gives the entry of a path at stage 0, or of the lowest stage, or nil. A
// nil Index holds nothing.
func (ix *Index) Find(p wspath.Path) *Entry {
	if ix == nil {
		return nil
	}
	i := ix.search(string(p))
	if i == len(ix.Entries) || ix.Entries[i].Path != string(p) {
		return nil
	}
	return &ix.Entries[i]
}

// Has reports whether git tracks a path: a file, a link, or a submodule's
// folder.
func (ix *Index) Has(p wspath.Path) bool { return ix.Find(p) != nil }

// HasUnder reports whether git tracks anything below a folder.
func (ix *Index) HasUnder(dir wspath.Path) bool {
	if ix == nil {
		return false
	}
	if dir.IsRoot() {
		return len(ix.Entries) > 0
	}
	prefix := string(dir) + "/"
	i := ix.search(prefix)
	return i < len(ix.Entries) && strings.HasPrefix(ix.Entries[i].Path, prefix)
}

// search gives the first entry whose path is not before p.
func (ix *Index) search(p string) int {
	i, _ := slices.BinarySearchFunc(ix.Entries, p, func(e Entry, p string) int { return strings.Compare(e.Path, p) })
	return i
}

// Racy reports whether an entry was written so close to the file's last change
// that the same stat data do not mean the same content (Documentation/technical/
// racy-git in git's source).
func (ix *Index) Racy(e *Entry) bool {
	return ix.Mtime == (Timestamp{}) ||
		cmp.Or(cmp.Compare(e.Mtime.Sec, ix.Mtime.Sec), cmp.Compare(e.Mtime.Nsec, ix.Mtime.Nsec)) >= 0
}
