package gitstore

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

// A journal is a pack being written: `journal/<number>.journal`, ten decimal
// digits, higher is newer. Its header's count is 0 and what lies past the last
// entry is zeros until Publish closes it.

const (
	journalDir    = "journal"
	journalSuffix = ".journal"
	idxSuffix     = ".idx"
	packHeaderLen = 12
	// minPrepared is how large a journal is made ahead when nothing is known
	// of its use; maxPrepared bounds what a busy one grows to.
	minPrepared = 32 << 10
	maxPrepared = 16 << 20
	// maxHasty bounds what is zeroed while a group waits for it.
	maxHasty = 2 << 20
)

// loc is where an object of a journal stands.
type loc struct {
	off, end int64
	size     int64 // inflated, of the whole object
	kind     object.Kind
	base     object.ID // what it is a delta of, zero if whole
	depth    uint8     // deltas to its full base
	crc      uint32
}

// journal is one journal file. Only the committer appends; anyone reads.
type journal struct {
	number uint64
	name   string // below the store's root
	f      vfs.File
	room   int64 // zeroed up to here

	mu  sync.RWMutex
	at  map[object.ID]loc
	end int64 // acknowledged bytes
	tip Tip   // as of its end
	// tasks are the newest records of those tasks that it changed, as of its end.
	tasks  map[string]*Task
	closed bool

	// unsound is set once a write or sync of the file failed: its bytes past
	// end, and any later sync of it, mean nothing. logs.mu, or pub.mu when closing.
	unsound bool
}

func journalName(n uint64) string {
	return path.Join(journalDir, fmt.Sprintf("%010d%s", n, journalSuffix))
}

func parseJournalName(base string) (uint64, bool) {
	digits, ok := strings.CutSuffix(base, journalSuffix)
	if !ok || len(digits) != 10 {
		return 0, false
	}
	n, err := strconv.ParseUint(digits, 10, 64)
	return n, err == nil
}

// createJournal makes an empty journal with room zeroed bytes, durable with
// its name.
func (s *Store) createJournal(number uint64, room int64) (*journal, error) {
	name := journalName(number)
	f, err := s.fs.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return nil, err
	}
	j := &journal{number: number, name: name, f: f, room: room, end: packHeaderLen, at: make(map[object.ID]loc), tasks: make(map[string]*Task)}
	if err := j.format(s.fs); err != nil {
		f.Close()
		s.fs.Remove(name) // best effort: an empty journal is dropped at a start
		return nil, err
	}
	return j, nil
}

func (j *journal) format(fs vfs.FS) error {
	if err := j.f.Allocate(j.room); err != nil {
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
	return fs.SyncDir(journalDir)
}

// zero writes zeros from off to the end of the room. Written, not only
// reserved: a write into reserved extents changes metadata, and each fdatasync
// would have to log it.
func (j *journal) zero(off int64) error {
	zeros := make([]byte, 64<<10)
	for off < j.room {
		n := min(int64(len(zeros)), j.room-off)
		if _, err := j.f.WriteAt(zeros[:n], off); err != nil {
			return err
		}
		off += n
	}
	return nil
}

// empty reports whether nothing was ever acknowledged in the journal.
func (j *journal) empty() bool {
	j.mu.RLock()
	defer j.mu.RUnlock()
	return len(j.at) == 0
}

// halfFull reports whether it is time to make the next one.
func (j *journal) halfFull() bool {
	j.mu.RLock()
	defer j.mu.RUnlock()
	return j.end > j.room/2
}

func (j *journal) used() int64 {
	j.mu.RLock()
	defer j.mu.RUnlock()
	return j.end
}

func (j *journal) find(id object.ID) (loc, bool) {
	j.mu.RLock()
	defer j.mu.RUnlock()
	l, ok := j.at[id]
	return l, ok
}

// get gives an object; ok is false where the journal has none, or is closed
// (its objects then stand in a pack).
func (j *journal) get(id object.ID) (kind object.Kind, data []byte, ok bool, err error) {
	j.mu.RLock()
	defer j.mu.RUnlock()
	l, ok := j.at[id]
	if !ok || j.closed {
		return 0, nil, false, nil
	}
	data, err = j.read(l)
	return l.kind, data, true, err
}

// close frees the file once no reader is in it.
func (j *journal) close() {
	j.mu.Lock()
	defer j.mu.Unlock()
	if !j.closed {
		j.closed = true
		j.f.Close()
	}
}

// append writes a group's bytes at the end and makes them durable. After an
// error the file must not be used for writing again.
func (j *journal) append(buf []byte) error {
	if _, err := j.f.WriteAt(buf, j.end); err != nil {
		return err
	}
	return j.f.Datasync()
}

// accept makes the objects of an appended group findable. tip is the newest commit
// after it, tasks are the records that it changed.
func (j *journal) accept(n int, objs map[object.ID]loc, tip Tip, tasks map[string]*Task) {
	j.mu.Lock()
	for id, l := range objs {
		j.at[id] = l
	}
	j.end += int64(n)
	j.tip = tip
	maps.Copy(j.tasks, tasks)
	j.mu.Unlock()
}

// read gives an object's bytes, resolving deltas within the journal; mu is
// held.
func (j *journal) read(l loc) ([]byte, error) {
	buf := make([]byte, l.end-l.off)
	if _, err := j.f.ReadAt(buf, l.off); err != nil {
		return nil, err
	}
	_, data, err := pack.InflateEntry(buf)
	if err != nil || l.base.IsZero() {
		return data, err
	}
	bl, ok := j.at[l.base]
	if !ok {
		return nil, fmt.Errorf("journal %d: entry at %d: no base %s", j.number, l.off, l.base)
	}
	base, err := j.read(bl)
	if err != nil {
		return nil, err
	}
	return pack.ApplyDelta(base, data)
}

// entries gives the index of the journal, and how many entries it holds.
func (j *journal) entries() []pack.IdxEntry {
	j.mu.RLock()
	defer j.mu.RUnlock()
	out := make([]pack.IdxEntry, 0, len(j.at))
	for id, l := range j.at {
		out = append(out, pack.IdxEntry{ID: id, Offset: uint64(l.off), CRC: l.crc})
	}
	sort.Slice(out, func(a, b int) bool { return out[a].Offset < out[b].Offset })
	return out
}

// journalSet hands out the open journal and keeps the next one ready.
type journalSet struct {
	s *Store

	mu      sync.Mutex // next, number, size
	next    *journal
	number  uint64 // highest in use
	prepare int64  // size of the next one
}

// rotate gives a fresh journal, the prepared one if there is one. full is the
// room of the journal that ran full before its time, 0 if none did: a storm
// then gets a larger one, and not a pack for each moment of it.
func (js *journalSet) rotate(full int64) (*journal, error) {
	js.mu.Lock()
	defer js.mu.Unlock()
	js.prepare = max(js.prepare, min(2*full, maxHasty))
	if j := js.next; j != nil {
		js.next = nil
		return j, nil
	}
	js.number++
	return js.s.createJournal(js.number, js.prepare)
}

// ready makes the next journal if there is none, sized by what was written
// since the last publication. Errors are left for rotate to meet again.
func (js *journalSet) ready(used int64) {
	js.mu.Lock()
	defer js.mu.Unlock()
	size := int64(minPrepared)
	for size < 2*used && size < maxPrepared {
		size *= 2
	}
	js.prepare = size
	if js.next != nil {
		return
	}
	js.number++
	j, err := js.s.createJournal(js.number, size)
	if err != nil {
		js.s.log.Warn("journal not prepared ahead", "error", err)
		return
	}
	js.next = j
}

// isReady reports whether the next journal is there, or being made.
func (js *journalSet) isReady() bool {
	if !js.mu.TryLock() {
		return true
	}
	defer js.mu.Unlock()
	return js.next != nil
}

func (js *journalSet) dropNext() {
	if js.next != nil {
		js.next.close()
		js.s.fs.Remove(js.next.name) // an empty journal left behind is dropped at a start
		js.next = nil
	}
}

func (js *journalSet) close() {
	js.mu.Lock()
	defer js.mu.Unlock()
	js.dropNext()
}
