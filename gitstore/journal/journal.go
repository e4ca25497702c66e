// Package journal is the write-ahead log of a history: packs being written. A group
// of objects is appended and made durable by one write and one fdatasync, and found
// once it is accepted. A file whose write or sync failed is replaced by a copy of its
// accepted entries.
// What a journal leads to is its owner's to know.
package journal

import (
	"fmt"
	"maps"
	"os"
	"path"
	"sort"
	"strconv"
	"strings"
	"sync"

	"umbra/gitstore/object"
	"umbra/gitstore/pack"
	"umbra/internal/vfs"
)

// A journal's file is <Dir>/<number><Suffix>, ten decimal digits, higher is newer. Its
// header of HeaderLen bytes has count 0, and what follows the last entry is zeros,
// until it is finished.
const (
	Dir       = "journal" // in the workspace's directory
	Suffix    = ".journal"
	HeaderLen = 12
	// minPrepared is how large a journal is made ahead when nothing is known
	// of its use; MaxPrepared bounds what a busy one grows to.
	minPrepared = 32 << 10
	MaxPrepared = 16 << 20
	// maxHasty bounds what is zeroed while a group waits for it.
	maxHasty = 2 << 20
)

// Loc is where an object of a journal is.
type Loc struct {
	Off, End int64
	Size     int64 // inflated, of the whole object
	Kind     object.Kind
	Base     object.ID // what it is a delta of, zero if whole
	Depth    uint8     // deltas to its full base
	CRC      uint32
}

// Journal is one journal file. Only its owner appends, one group at a time; anyone
// reads.
type Journal struct {
	Number uint64
	Name   string // below the workspace's directory
	Room   int64  // zeroed up to here
	// State is the owner's: what the journal leads to. Salvage hands it on.
	State any
	// Unsound is set once a write or sync of the file failed: its bytes past the
	// accepted ones, and any later sync of it, mean nothing. By the owner's lock.
	Unsound bool

	f      vfs.File
	mu     sync.RWMutex
	at     map[object.ID]Loc
	end    int64 // accepted bytes
	closed bool
}

func fileName(n uint64) string {
	return path.Join(Dir, fmt.Sprintf("%010d%s", n, Suffix))
}

// ParseName returns the number in a file's name; ok is false for any other name.
func ParseName(base string) (uint64, bool) {
	digits, ok := strings.CutSuffix(base, Suffix)
	if !ok || len(digits) != 10 {
		return 0, false
	}
	n, err := strconv.ParseUint(digits, 10, 64)
	return n, err == nil
}

// create makes an empty journal with room zeroed bytes, durable with its name.
func create(fs vfs.FS, number uint64, room int64) (*Journal, error) {
	name := fileName(number)
	f, err := fs.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return nil, err
	}
	j := &Journal{Number: number, Name: name, f: f, Room: room, end: HeaderLen, at: make(map[object.ID]Loc)}
	if err := j.format(fs); err != nil {
		f.Close()
		fs.Remove(name) // best effort: an empty journal is dropped at a start
		return nil, err
	}
	return j, nil
}

// Open opens the file of a journal that a start found: nothing in it is accepted.
func Open(fs vfs.FS, number uint64) (*Journal, error) {
	name := fileName(number)
	f, err := fs.OpenFile(name, os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	// A process that was killed may not have synced the last group.
	if err := f.Datasync(); err != nil {
		f.Close()
		return nil, err
	}
	return &Journal{Number: number, Name: name, f: f, end: HeaderLen, at: make(map[object.ID]Loc)}, nil
}

// Scan reads the file's entries from the first, accepted or not; it refuses objects
// larger than max bytes.
func (j *Journal) Scan(max int64) (*pack.Scanner, error) {
	info, err := j.f.Stat()
	if err != nil {
		return nil, err
	}
	return pack.NewScanner(j.f, info.Size, pack.ScanOptions{MaxObject: max}), nil
}

// ReadAt reads the file, accepted or not.
func (j *Journal) ReadAt(b []byte, off int64) (int, error) { return j.f.ReadAt(b, off) }

// End returns the offset at which the next group begins.
func (j *Journal) End() int64 { return j.Used() }

// Finish makes the file a pack, durable, and returns its index and checksum. Nothing
// is appended afterwards; doing it again after a failure is safe.
func (j *Journal) Finish() (entries []pack.IdxEntry, sum [20]byte, err error) {
	entries = j.Entries()
	sum, err = pack.FinishJournal(j.f, j.Used(), uint32(len(entries)))
	if err == nil {
		err = j.f.Sync()
	}
	j.Unsound = j.Unsound || err != nil
	return entries, sum, err
}

func (j *Journal) format(fs vfs.FS) error {
	if err := j.f.Allocate(j.Room); err != nil {
		return err
	}
	if err := j.zero(0); err != nil {
		return err
	}
	if _, err := j.f.WriteAt([]byte("PACK\x00\x00\x00\x02\x00\x00\x00\x00"), 0); err != nil {
		return err
	}
	if err := j.f.Sync(); err != nil {
		return err
	}
	return fs.SyncDir(Dir)
}

// zero writes zeros from off to the end of the room. Written, not only
// reserved: a write into reserved extents changes metadata, and each fdatasync
// would have to log it.
func (j *Journal) zero(off int64) error {
	zeros := make([]byte, 64<<10)
	for off < j.Room {
		n := min(int64(len(zeros)), j.Room-off)
		if _, err := j.f.WriteAt(zeros[:n], off); err != nil {
			return err
		}
		off += n
	}
	return nil
}

// Empty reports whether nothing was ever acknowledged in the journal.
func (j *Journal) Empty() bool {
	j.mu.RLock()
	defer j.mu.RUnlock()
	return len(j.at) == 0
}

// HalfFull reports whether it is time to make the next one.
func (j *Journal) HalfFull() bool {
	j.mu.RLock()
	defer j.mu.RUnlock()
	return j.end > j.Room/2
}

func (j *Journal) Used() int64 {
	j.mu.RLock()
	defer j.mu.RUnlock()
	return j.end
}

func (j *Journal) Find(id object.ID) (Loc, bool) {
	j.mu.RLock()
	defer j.mu.RUnlock()
	l, ok := j.at[id]
	return l, ok
}

// Get gives an object; ok is false where the journal has none, or is closed
// (its objects then are in a pack).
func (j *Journal) Get(id object.ID) (kind object.Kind, data []byte, ok bool, err error) {
	j.mu.RLock()
	defer j.mu.RUnlock()
	l, ok := j.at[id]
	if !ok || j.closed {
		return 0, nil, false, nil
	}
	data, err = j.read(l)
	return l.Kind, data, true, err
}

// Close frees the file once no reader is in it.
func (j *Journal) Close() {
	j.mu.Lock()
	defer j.mu.Unlock()
	if !j.closed {
		j.closed = true
		j.f.Close()
	}
}

// Append writes a group's bytes at the end and makes them durable. After an
// error the file must not be used for writing again.
func (j *Journal) Append(buf []byte) error {
	if _, err := j.f.WriteAt(buf, j.end); err != nil {
		return err
	}
	return j.f.Datasync()
}

// Accept makes the objects of an appended group of n bytes findable.
func (j *Journal) Accept(n int, objs map[object.ID]Loc) {
	j.mu.Lock()
	maps.Copy(j.at, objs)
	j.end += int64(n)
	j.mu.Unlock()
}

// read gives an object's bytes, resolving deltas within the journal; mu is
// held.
func (j *Journal) read(l Loc) ([]byte, error) {
	buf := make([]byte, l.End-l.Off)
	if _, err := j.f.ReadAt(buf, l.Off); err != nil {
		return nil, err
	}
	_, data, err := pack.InflateEntry(buf)
	if err != nil || l.Base.IsZero() {
		return data, err
	}
	bl, ok := j.at[l.Base]
	if !ok {
		return nil, fmt.Errorf("journal %d: entry at %d: no base %s", j.Number, l.Off, l.Base)
	}
	base, err := j.read(bl)
	if err != nil {
		return nil, err
	}
	return pack.ApplyDelta(base, data)
}

// Entries gives the index of the journal, and how many entries it holds.
func (j *Journal) Entries() []pack.IdxEntry {
	j.mu.RLock()
	defer j.mu.RUnlock()
	out := make([]pack.IdxEntry, 0, len(j.at))
	for id, l := range j.at {
		out = append(out, pack.IdxEntry{ID: id, Offset: uint64(l.Off), CRC: l.CRC})
	}
	sort.Slice(out, func(a, b int) bool { return out[a].Offset < out[b].Offset })
	return out
}

// Head gives the first n bytes; ok is false for one that is closed.
func (j *Journal) Head(n int64) (data []byte, ok bool, err error) {
	j.mu.RLock()
	defer j.mu.RUnlock()
	if j.closed {
		return nil, false, nil
	}
	data = make([]byte, n)
	_, err = j.f.ReadAt(data, 0)
	return data, err == nil, err
}
