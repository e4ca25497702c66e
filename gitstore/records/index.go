// Package records is the commit index of one history: what lists and pages need
// without reading commits. It is a cache, never synced, checksummed, and read from
// history again where it is missing or damaged.
//
// All methods of an Index may be called concurrently but Open, Fill and Close.
package records

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/hex"
	"hash/crc32"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"umbra/gitstore/message"
	"umbra/gitstore/object"
	"umbra/internal/errs"
	"umbra/internal/vfs"
)

// Record is one commit in the index: what lists and pages need without
// reading the commit.
type Record struct {
	Seq      uint64
	Commit   object.ID
	Task     string
	Subtask  string
	Change   uint64 // id of the first entry in its task
	Entries  uint32
	WhenUnix int64 // seconds
	Source   message.Source
	Reverts  bool   // undoes entries of the changelog
	Foreign  bool   // undoes entries of another task, or of none
	Renames  bool   // gives a file or folder another name
	Claims   bool   // entries of a shared commit become its task's
	Key      string // first 16 hex digits of the idempotency key's hash

	paths uint16 // which paths the commit touched; see pathFilter
}

// The index is a cache: `records`, 64 bytes a commit at (seq-1)*64, and
// `records.names`, the texts (task and subtask ids) that records name by
// number. Neither is ever synced; every record carries a checksum, and what is
// missing or damaged is read from history again.
const (
	recordSize = 64
	pathsAt    = 50 // where a record has the filter of its paths
	File       = "records"
	NamesFile  = "records.names"
)

// The bits of a record's flags. recordFlags is in every record: one without
// it was written when there was no more than flagReverts, and is read again.
const (
	flagReverts = 1
	flagRenames = 2
	flagForeign = 4 // no commit made before it existed has it
	flagClaims  = 8 // nor this
	recordFlags = 0x80
)

var recordSources = []message.Source{"", message.API, message.Script, message.External, message.Revert, message.Baseline, message.Rollback, message.Call, message.Shared, message.Merge}

// TakeBacks is the key in byTask of the commits that undo entries of another
// task: a user's save that took a change back, a revert of no task or across
// tasks. Undoes is the key of all commits that undo entries, Claimed of those
// that several tasks may have made, and of those that settle whose they are.
const (
	TakeBacks = "\x00"
	Undoes    = "\x01"
	Claimed   = "\x02"
)

// Options of an index.
type Options struct {
	FS  vfs.FS // the workspace's directory
	Log *slog.Logger
	// First is the number of the oldest record: 1, the boundary's, or the one after
	// the commit at which a fork begins.
	First uint64
	// Base has the records before First; nil but for a fork.
	Base *Index
	// Read reads a commit's record from history, and its parent.
	Read func(ctx context.Context, id object.ID) (rec Record, parent object.ID, err error)
}

// ErrDropped is the error for anything before the boundary: errs.Gone,
// "history_dropped".
func ErrDropped() error {
	return errs.New(errs.Gone, "history_dropped", "That part of the history was dropped by retention.")
}

func errDamaged(seq uint64) error {
	return errs.New(errs.Internal, "", "the commit index is damaged at %d", seq)
}

// Index is the commit index of one history.
type Index struct {
	opt Options

	mu      sync.RWMutex
	f, nf   vfs.File
	first   uint64 // number of the oldest record there is: 1, or the boundary's
	n       uint64 // number of the newest record in the file
	hole    uint64 // up to this number the file has no bytes
	names   []string
	nameNo  map[string]uint32
	nameEnd int64
	byTask  map[string][]uint32 // sequence numbers, ascending; nil until first asked for
	keys    map[string][]uint32 // sequence numbers by Key, of the last day; nil until first asked for
	keyed   []keyedCommit       // what keys has, ascending; the oldest leave
	keysOf  int64               // since when keys has them, Unix seconds
	broken  bool                // a write failed: records are read from history
	stale   bool                // the file's records are no more true
	tail    []Record            // records that the file could not take
	later   []Record            // appended before the index is filled

	filling  chan struct{} // one place: one Filled at a time
	unfilled atomic.Pointer[newest]
	looking  chan struct{}       // one place: one search for keys at a time
	early    map[string][]Record // those with keys up to unfilled; nil until first asked for
	earlyOf  int64               // since when early has them, Unix seconds
}

// Open opens the files, and makes them if they do not exist. Damaged parts are
// left to Fill.
func Open(opt Options) (*Index, error) {
	r := &Index{opt: opt, filling: make(chan struct{}, 1), looking: make(chan struct{}, 1), nameNo: make(map[string]uint32), first: opt.First}
	if opt.Base != nil {
		r.hole = opt.First - 1
	}
	r.n = r.first - 1
	var err error
	if r.f, err = opt.FS.OpenFile(File, os.O_RDWR|os.O_CREATE, 0o600); err != nil {
		return nil, err
	}
	if r.nf, err = opt.FS.OpenFile(NamesFile, os.O_RDWR|os.O_CREATE, 0o600); err != nil {
		r.f.Close()
		return nil, err
	}
	if err := r.load(); err != nil {
		r.Close()
		return nil, err
	}
	return r, nil
}

// Close frees the files.
func (r *Index) Close() {
	r.f.Close()
	r.nf.Close()
}

// load reads the names and counts the records that are sound.
func (r *Index) load() error {
	info, err := r.nf.Stat()
	if err != nil {
		return err
	}
	data := make([]byte, info.Size)
	if len(data) > 0 {
		if _, err := r.nf.ReadAt(data, 0); err != nil {
			return err
		}
	}
	for len(data) >= 6 {
		n := int(binary.BigEndian.Uint16(data))
		if len(data) < 6+n || crc32.ChecksumIEEE(data[6:6+n]) != binary.BigEndian.Uint32(data[2:]) {
			break
		}
		r.addName(string(data[6 : 6+n]))
		r.nameEnd += int64(6 + n)
		data = data[6+n:]
	}
	if info, err = r.f.Stat(); err != nil {
		return err
	}
	total := uint64(info.Size) / recordSize
	buf := make([]byte, min(total, 1024)*recordSize)
	for r.n < total { // what lies before the first may be a hole
		chunk := buf[:min(uint64(len(buf)), (total-r.n)*recordSize)]
		if _, err := r.f.ReadAt(chunk, int64(r.n)*recordSize); err != nil {
			return err
		}
		for ; len(chunk) > 0; chunk = chunk[recordSize:] {
			if _, ok := r.decode(r.n+1, chunk[:recordSize]); !ok {
				return nil
			}
			r.n++
		}
	}
	return nil
}

func (r *Index) addName(name string) uint32 {
	no := uint32(len(r.names))
	r.names = append(r.names, name)
	r.nameNo[name] = no
	return no
}

// name gives the number of a text, writing it down when it is new.
func (r *Index) name(text string) (uint32, error) {
	if no, ok := r.nameNo[text]; ok {
		return no, nil
	}
	buf := make([]byte, 6, 6+len(text))
	binary.BigEndian.PutUint16(buf, uint16(len(text)))
	binary.BigEndian.PutUint32(buf[2:], crc32.ChecksumIEEE([]byte(text)))
	buf = append(buf, text...)
	if _, err := r.nf.WriteAt(buf, r.nameEnd); err != nil {
		return 0, err
	}
	r.nameEnd += int64(len(buf))
	return r.addName(text), nil
}

func (r *Index) encode(rec Record) ([]byte, error) {
	b := make([]byte, recordSize)
	copy(b, rec.Commit[:])
	task, err := r.name(rec.Task)
	if err != nil {
		return nil, err
	}
	sub, err := r.name(rec.Subtask)
	if err != nil {
		return nil, err
	}
	binary.BigEndian.PutUint32(b[20:], task)
	binary.BigEndian.PutUint32(b[24:], sub)
	binary.BigEndian.PutUint64(b[28:], rec.Change)
	binary.BigEndian.PutUint32(b[36:], rec.Entries)
	binary.BigEndian.PutUint64(b[40:], uint64(rec.WhenUnix))
	for i, s := range recordSources {
		if s == rec.Source {
			b[48] = byte(i)
		}
	}
	b[49] = recordFlags
	if rec.Reverts {
		b[49] |= flagReverts
	}
	if rec.Renames {
		b[49] |= flagRenames
	}
	if rec.Foreign {
		b[49] |= flagForeign
	}
	if rec.Claims {
		b[49] |= flagClaims
	}
	binary.BigEndian.PutUint16(b[pathsAt:], rec.paths) // 0 in records that are older than the filter
	_, _ = hex.Decode(b[52:60], []byte(rec.Key))       // shorter or none: zeros
	binary.BigEndian.PutUint32(b[60:], checkRecord(rec.Seq, b, rec.Task, rec.Subtask))
	return b, nil
}

// checkRecord covers the texts too: neither file is synced, and after a power
// cut the names may be others, or zeros, under the numbers that a record has.
func checkRecord(seq uint64, b []byte, task, sub string) uint32 {
	head := make([]byte, 10, 10+len(task)+len(sub))
	binary.BigEndian.PutUint64(head, seq)
	binary.BigEndian.PutUint16(head[8:], uint16(len(task)))
	head = append(append(head, task...), sub...)
	return crc32.Update(crc32.ChecksumIEEE(head), crc32.IEEETable, b[:60])
}

func (r *Index) decode(seq uint64, b []byte) (Record, bool) {
	task, sub, src := binary.BigEndian.Uint32(b[20:]), binary.BigEndian.Uint32(b[24:]), int(b[48])
	if int(task) >= len(r.names) || int(sub) >= len(r.names) || src >= len(recordSources) || b[49]&recordFlags == 0 {
		return Record{}, false
	}
	if binary.BigEndian.Uint32(b[60:]) != checkRecord(seq, b, r.names[task], r.names[sub]) {
		return Record{}, false
	}
	rec := Record{Seq: seq, Task: r.names[task], Subtask: r.names[sub], Change: binary.BigEndian.Uint64(b[28:]),
		Entries: binary.BigEndian.Uint32(b[36:]), WhenUnix: int64(binary.BigEndian.Uint64(b[40:])), Source: recordSources[src],
		Reverts: b[49]&flagReverts != 0, Renames: b[49]&flagRenames != 0, Foreign: b[49]&flagForeign != 0, Claims: b[49]&flagClaims != 0, paths: binary.BigEndian.Uint16(b[pathsAt:])}
	copy(rec.Commit[:], b)
	if key := b[52:60]; !bytes.Equal(key, make([]byte, 8)) {
		rec.Key = hex.EncodeToString(key)
	}
	return rec, true
}

// Append adds the records of a durable group. A file that does not take them
// does not hurt: they stay in memory.
func (r *Index) Append(recs []Record) {
	if len(recs) == 0 {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.unfilled.Load() != nil {
		r.later = append(r.later, recs...)
		return
	}
	r.appendLocked(recs)
}

// appendLocked is like Append; the caller must hold mu.
func (r *Index) appendLocked(recs []Record) {
	if len(recs) == 0 {
		return
	}
	if r.byTask != nil {
		for _, rec := range recs {
			r.byTask[rec.Task] = append(r.byTask[rec.Task], uint32(rec.Seq))
			for _, key := range rec.undoKeys() {
				r.byTask[key] = append(r.byTask[key], uint32(rec.Seq))
			}
		}
	}
	if r.keys != nil {
		for _, rec := range recs {
			r.addKey(rec)
		}
	}
	if !r.broken {
		buf := make([]byte, 0, len(recs)*recordSize)
		var err error
		for _, rec := range recs {
			var b []byte
			if b, err = r.encode(rec); err != nil {
				break
			}
			buf = append(buf, b...)
		}
		if err == nil {
			_, err = r.f.WriteAt(buf, int64(r.n)*recordSize)
		}
		if err == nil {
			r.n += uint64(len(recs))
			return
		}
		r.broken = true
		r.opt.Log.Warn("commit index not written; kept in memory", "error", err)
	}
	r.tail = append(r.tail, recs...)
}

// Begin returns the number of the oldest record.
func (r *Index) Begin() uint64 {
	if r.opt.Base != nil {
		return r.opt.Base.Begin()
	}
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.first
}

// Drop forgets the records before a number. Their bytes stay in the file until
// Shrink.
func (r *Index) Drop(before uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if before <= r.first {
		return
	}
	r.first, r.byTask, r.keys, r.keyed = before, nil, nil, nil
}

// Truncate drops the records after n.
func (r *Index) Truncate(n uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.n = min(r.n, n)
	r.tail, r.byTask, r.keys, r.keyed = nil, nil, nil, nil
}

// Count returns the number of the newest record.
func (r *Index) Count() uint64 {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.n + uint64(len(r.tail))
}

// At returns a record: errs.Gone before the oldest, errs.NotFound after the newest.
func (r *Index) At(seq uint64) (Record, error) {
	if err := r.Filled(context.Background()); err != nil {
		return Record{}, err
	}
	if r.opt.Base != nil && seq > 0 && seq < r.opt.First { // which may wait for the base's history
		return r.opt.Base.At(seq)
	}
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.atLocked(seq)
}

func (r *Index) atLocked(seq uint64) (Record, error) {
	if seq > 0 && seq < r.first {
		return Record{}, ErrDropped()
	}
	if seq == 0 || seq > r.n+uint64(len(r.tail)) {
		return Record{}, errs.New(errs.NotFound, "commit_not_found", "The commit does not exist.")
	}
	if seq > r.n {
		return r.tail[seq-r.n-1], nil
	}
	var b [recordSize]byte
	if _, err := r.f.ReadAt(b[:], int64(seq-1)*recordSize); err != nil {
		return Record{}, err
	}
	rec, ok := r.decode(seq, b[:])
	if !ok {
		return rec, errDamaged(seq)
	}
	return rec, nil
}

// Each calls fn with the records from..to, ascending, of those that there are.
func (r *Index) Each(ctx context.Context, from, to uint64, fn func(Record) error) error {
	if err := r.Filled(ctx); err != nil {
		return err
	}
	if r.opt.Base != nil && from < r.first { // which no drop moves
		if err := r.opt.Base.Each(ctx, from, min(to, r.opt.First-1), fn); err != nil {
			return err
		}
		from = r.first
	}
	from, to = max(from, r.Begin()), min(to, r.Count())
	buf := make([]byte, 256*recordSize)
	for from <= to {
		if err := ctx.Err(); err != nil {
			return errs.Wrap(err, "")
		}
		recs, err := r.chunk(from, to, buf)
		if err != nil {
			return err
		}
		for _, rec := range recs {
			if err := fn(rec); err != nil {
				return err
			}
		}
		from += uint64(len(recs))
	}
	return nil
}

func (r *Index) chunk(from, to uint64, buf []byte) ([]Record, error) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.chunkLocked(from, to, buf)
}

func (r *Index) chunkLocked(from, to uint64, buf []byte) ([]Record, error) {
	if from > r.n {
		return append([]Record(nil), r.tail[from-r.n-1:min(to-r.n, uint64(len(r.tail)))]...), nil
	}
	n := min(to, r.n) - from + 1
	buf = buf[:min(uint64(len(buf)), n*recordSize)]
	if _, err := r.f.ReadAt(buf, int64(from-1)*recordSize); err != nil {
		return nil, err
	}
	out := make([]Record, 0, len(buf)/recordSize)
	for i := 0; i < len(buf); i += recordSize {
		rec, ok := r.decode(from+uint64(len(out)), buf[i:i+recordSize])
		if !ok {
			return nil, errDamaged(from + uint64(len(out)))
		}
		out = append(out, rec)
	}
	return out, nil
}

// Fill reads from history what the index lacks up to its newest commit, id with the
// number seq.
func (r *Index) Fill(ctx context.Context, seq uint64, id object.ID) error {
	return r.fill(ctx, context.Background(), seq, id)
}

// fill is Fill until life ends.
func (r *Index) fill(ctx, life context.Context, seq uint64, id object.ID) error {
	if r.n > seq {
		r.Truncate(seq)
	}
	var missing []Record
	for ; seq >= r.first && seq > 0; seq-- {
		if err := life.Err(); err != nil {
			return errs.Wrap(err, "")
		}
		if seq <= r.n {
			r.mu.RLock()
			rec, err := r.atLocked(seq)
			r.mu.RUnlock()
			if err == nil && rec.Commit == id {
				break
			}
			r.Truncate(seq - 1)
		}
		rec, parent, err := r.opt.Read(ctx, id)
		if err != nil {
			return err
		}
		missing = append(missing, rec)
		id = parent
	}
	for i, j := 0, len(missing)-1; i < j; i, j = i+1, j-1 {
		missing[i], missing[j] = missing[j], missing[i]
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.appendLocked(missing)
	return nil
}

// Of returns the record of a commit.
func Of(seq uint64, id object.ID, when time.Time, m *message.Message) Record {
	return Record{Seq: seq, Commit: id, Task: m.TaskID, Subtask: m.SubtaskID, Change: m.Change,
		Entries: uint32(m.EntryCount()), WhenUnix: when.Unix(), Source: m.Source, Reverts: reverts(m), Foreign: foreign(m), Renames: renames(m), Claims: m.Trailer(message.KeyClaims) != "", Key: KeyPrefix(m.IdempotencyKey), paths: pathFilter(m)}
}

// KeyPrefix returns the first eight bytes' hex digits of a key's hash, which the
// index holds.
func KeyPrefix(key string) string {
	h := strings.TrimPrefix(key, "sha256:")
	if len(h) > 16 {
		h = h[:16]
	}
	return h
}

func reverts(m *message.Message) bool {
	if len(m.RevertsEntries) > 0 {
		return true
	}
	for i := range m.Entries {
		if len(m.Entries[i].Reverts) > 0 {
			return true
		}
	}
	return false
}

// foreign reports whether a message Undoes entries of another task than its own.
func foreign(m *message.Message) bool {
	other := func(r message.EntryRef) bool { return r.Task != m.TaskID }
	return slices.ContainsFunc(m.RevertsEntries, other) ||
		slices.ContainsFunc(m.Entries, func(e message.Entry) bool { return slices.ContainsFunc(e.Reverts, other) })
}

// undoKeys gives the keys of byTask under which a commit that Undoes is listed
// next to its task's.
func (rec *Record) undoKeys() []string {
	switch {
	case rec.Source == message.Shared || rec.Claims:
		return []string{Claimed}
	case !rec.Reverts:
		return nil
	case rec.Task == "" || rec.Foreign:
		return []string{Undoes, TakeBacks}
	}
	return []string{Undoes}
}

func renames(m *message.Message) bool {
	for i := range m.Entries {
		if m.Entries[i].Operation == message.Rename {
			return true
		}
	}
	return false
}

// keyedCommit is a commit with an idempotency key.
type keyedCommit struct {
	key  string
	seq  uint32
	when int64 // Unix seconds
}

// lookBack is how many commits in a row may be older than what is looked for
// before it is given up: dates need not ascend, where a clock was wrong.
const lookBack = 4096

// addKey notes a commit's key, if it has one; mu is held.
func (r *Index) addKey(rec Record) {
	if rec.Key == "" {
		return
	}
	r.keys[rec.Key] = append(r.keys[rec.Key], uint32(rec.Seq))
	r.keyed = append(r.keyed, keyedCommit{key: rec.Key, seq: uint32(rec.Seq), when: rec.WhenUnix})
}

// keySlack is how much further back keys are kept than was asked for last, in seconds: a call
// that asks for a little more does not have all read again.
const keySlack = 2 * 60 * 60

// forgetKeys drops the oldest keys that are from before a time; mu is held.
func (r *Index) forgetKeys(before int64) {
	r.keysOf = max(r.keysOf, before)
	n := 0
	for n < len(r.keyed) && r.keyed[n].when < before {
		k := r.keyed[n]
		if left := r.keys[k.key][1:]; len(left) > 0 {
			r.keys[k.key] = left
		} else {
			delete(r.keys, k.key)
		}
		n++
	}
	r.keyed = r.keyed[n:]
}

// WithKey gives the records since a time, and maybe older ones, with a key, ascending. The
// first call reads the records back to that time; later ones look into a map. While the index
// is not filled, history is read that far back, and no further.
func (r *Index) WithKey(ctx context.Context, prefix string, since time.Time) ([]Record, error) {
	if to := r.unfilled.Load(); to != nil {
		return r.withKeyBefore(ctx, to, prefix, since)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	from := since.Unix() - keySlack
	if r.keys == nil || since.Unix() < r.keysOf {
		found, err := keyedSince(from, r.first, r.n+uint64(len(r.tail)), r.atLocked)
		if err != nil {
			return nil, err
		}
		r.keys, r.keyed, r.keysOf = make(map[string][]uint32), nil, from
		for _, rec := range found {
			r.addKey(rec)
		}
	}
	r.forgetKeys(from)
	var out []Record
	for _, seq := range r.keys[prefix] {
		rec, err := r.atLocked(uint64(seq))
		if err != nil {
			return nil, err
		}
		out = append(out, rec)
	}
	return out, nil
}

// keyedSince returns the records with keys of some numbers that are not from before a time (Unix
// seconds), ascending. It calls at with descending numbers.
func keyedSince(from int64, first, seq uint64, at func(seq uint64) (Record, error)) (found []Record, err error) {
	for older := 0; seq >= first && seq > 0 && older < lookBack; seq-- {
		rec, err := at(seq)
		if err != nil {
			return nil, err
		}
		if rec.WhenUnix < from {
			older++
			continue
		}
		older = 0
		if rec.Key != "" {
			found = append(found, rec)
		}
	}
	slices.Reverse(found)
	return found, nil
}

// Bytes returns the room that the files take: what was dropped is a hole.
func (r *Index) Bytes() int64 {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return int64(r.n-r.hole)*recordSize + r.nameEnd
}

// Sound reports whether the file holds records of this size, each of them good.
func (r *Index) Sound(size int64) bool { return r.n*recordSize == uint64(size) }

// Stats are sizes of what an index holds.
type Stats struct {
	InFile uint64 // number of the newest record in the file
	Hole   uint64 // up to this number the file has no bytes
	Texts  int    // that records name by number
	Keys   int    // idempotency keys in memory
}

// Stats returns them.
func (r *Index) Stats() Stats {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return Stats{InFile: r.n, Hole: r.hole, Texts: len(r.names), Keys: len(r.keys)}
}
