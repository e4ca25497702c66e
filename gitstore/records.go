package gitstore

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/hex"
	"hash/crc32"
	"os"
	"slices"
	"sync"
	"time"

	"umbra/gitstore/message"
	"umbra/internal/errs"
	"umbra/internal/vfs"
)

// Record is one commit in the index: what lists and pages need without
// reading the commit.
type Record struct {
	Seq      uint64
	Commit   ID
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
	recordSize  = 64
	recordsFile = "records"
	namesFile   = "records.names"
)

// The bits of a record's flags. recordFlags stands in every record: one without
// it was written when there was no more than flagReverts, and is read again.
const (
	flagReverts = 1
	flagRenames = 2
	flagForeign = 4 // no commit made before it existed has it
	flagClaims  = 8 // nor this
	recordFlags = 0x80
)

var recordSources = []message.Source{"", message.API, message.Script, message.External, message.Revert, message.Baseline, message.Rollback, message.Call, message.Shared, message.Merge}

// takeBacks is the key in byTask of the commits that undo entries of another
// task: a user's save that took a change back, a revert of no task or across
// tasks. undoes is the key of all commits that undo entries, claimed of those
// that several tasks may have made, and of those that settle whose they are.
const (
	takeBacks = "\x00"
	undoes    = "\x01"
	claimed   = "\x02"
)

type recordIndex struct {
	s    *Store
	base *forkPoint // has the records before first; nil but for a fork

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
	broken  bool                // a write failed: records are read from history
	stale   bool                // the file's records are no more true
	tail    []Record            // records that the file could not take
}

func openRecords(s *Store) (*recordIndex, error) {
	r := &recordIndex{s: s, nameNo: make(map[string]uint32), first: max(1, s.Boundary().Seq)}
	if s.base != nil {
		r.base, r.first, r.hole = s.base, s.base.seq+1, s.base.seq
	}
	r.n = r.first - 1
	var err error
	if r.f, err = s.fs.OpenFile(recordsFile, os.O_RDWR|os.O_CREATE, 0o600); err != nil {
		return nil, err
	}
	if r.nf, err = s.fs.OpenFile(namesFile, os.O_RDWR|os.O_CREATE, 0o600); err != nil {
		r.f.Close()
		return nil, err
	}
	if err := r.load(); err != nil {
		r.close()
		return nil, err
	}
	return r, nil
}

func (r *recordIndex) close() {
	r.f.Close()
	r.nf.Close()
}

// load reads the names and counts the records that are sound.
func (r *recordIndex) load() error {
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

func (r *recordIndex) addName(name string) uint32 {
	no := uint32(len(r.names))
	r.names = append(r.names, name)
	r.nameNo[name] = no
	return no
}

// name gives the number of a text, writing it down when it is new.
func (r *recordIndex) name(text string) (uint32, error) {
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

func (r *recordIndex) encode(rec Record) ([]byte, error) {
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
	binary.BigEndian.PutUint16(b[50:], rec.paths) // 0 in records that are older than the filter
	_, _ = hex.Decode(b[52:60], []byte(rec.Key))  // shorter or none: zeros
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

func (r *recordIndex) decode(seq uint64, b []byte) (Record, bool) {
	task, sub, src := binary.BigEndian.Uint32(b[20:]), binary.BigEndian.Uint32(b[24:]), int(b[48])
	if int(task) >= len(r.names) || int(sub) >= len(r.names) || src >= len(recordSources) || b[49]&recordFlags == 0 {
		return Record{}, false
	}
	if binary.BigEndian.Uint32(b[60:]) != checkRecord(seq, b, r.names[task], r.names[sub]) {
		return Record{}, false
	}
	rec := Record{Seq: seq, Task: r.names[task], Subtask: r.names[sub], Change: binary.BigEndian.Uint64(b[28:]),
		Entries: binary.BigEndian.Uint32(b[36:]), WhenUnix: int64(binary.BigEndian.Uint64(b[40:])), Source: recordSources[src],
		Reverts: b[49]&flagReverts != 0, Renames: b[49]&flagRenames != 0, Foreign: b[49]&flagForeign != 0, Claims: b[49]&flagClaims != 0, paths: binary.BigEndian.Uint16(b[50:])}
	copy(rec.Commit[:], b)
	if key := b[52:60]; !bytes.Equal(key, make([]byte, 8)) {
		rec.Key = hex.EncodeToString(key)
	}
	return rec, true
}

// append adds the records of a durable group. A file that does not take them
// does not hurt: they stay in memory.
func (r *recordIndex) append(recs []Record) {
	if len(recs) == 0 {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
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
		r.s.log.Warn("commit index not written; kept in memory", "error", err)
	}
	r.tail = append(r.tail, recs...)
}

// begin gives the number of the oldest record.
func (r *recordIndex) begin() uint64 {
	if r.base != nil {
		return r.base.records.begin()
	}
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.first
}

// drop forgets the records before a number. Their bytes stay in the file until
// shrink.
func (r *recordIndex) drop(before uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if before <= r.first {
		return
	}
	r.first, r.byTask, r.keys, r.keyed = before, nil, nil, nil
}

// truncate drops the records after n.
func (r *recordIndex) truncate(n uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.n = min(r.n, n)
	r.tail, r.byTask, r.keys, r.keyed = nil, nil, nil, nil
}

func (r *recordIndex) count() uint64 {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.n + uint64(len(r.tail))
}

func (r *recordIndex) at(seq uint64) (Record, error) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.atLocked(seq)
}

func (r *recordIndex) atLocked(seq uint64) (Record, error) {
	if seq > 0 && seq < r.first && r.base != nil {
		return r.base.records.at(seq)
	}
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
		return rec, errs.New(errs.Internal, "", "the commit index is damaged at %d", seq)
	}
	return rec, nil
}

// each calls fn with the records from..to, ascending, of those that there are.
func (r *recordIndex) each(ctx context.Context, from, to uint64, fn func(Record) error) error {
	if r.base != nil && from < r.first { // which no drop moves
		if err := r.base.records.each(ctx, from, min(to, r.base.seq), fn); err != nil {
			return err
		}
		from = r.first
	}
	from, to = max(from, r.begin()), min(to, r.count())
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

func (r *recordIndex) chunk(from, to uint64, buf []byte) ([]Record, error) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.chunkLocked(from, to, buf)
}

func (r *recordIndex) chunkLocked(from, to uint64, buf []byte) ([]Record, error) {
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
			return nil, errs.New(errs.Internal, "", "the commit index is damaged at %d", from+uint64(len(out)))
		}
		out = append(out, rec)
	}
	return out, nil
}

// fill reads from history what the index lacks up to the tip.
func (r *recordIndex) fill(ctx context.Context, tip Tip) error {
	if r.n > tip.Seq {
		r.truncate(tip.Seq)
	}
	var missing []Record
	id := tip.Commit
	for seq := tip.Seq; seq >= r.first && seq > 0; seq-- {
		if seq <= r.n {
			if rec, err := r.at(seq); err == nil && rec.Commit == id {
				break
			}
			r.truncate(seq - 1)
		}
		c, err := r.s.ReadCommit(ctx, id)
		if err != nil {
			return err
		}
		missing = append(missing, recordOf(c))
		id = c.Parent
	}
	for i, j := 0, len(missing)-1; i < j; i, j = i+1, j-1 {
		missing[i], missing[j] = missing[j], missing[i]
	}
	r.append(missing)
	return nil
}

func recordOf(c *Commit) Record {
	m := c.Message
	return Record{Seq: c.Seq, Commit: c.ID, Task: m.TaskID, Subtask: m.SubtaskID, Change: m.Change,
		Entries: uint32(entryCount(m)), WhenUnix: c.When.Unix(), Source: m.Source, Reverts: reverts(m), Foreign: foreign(m), Renames: renames(m), Claims: m.Trailer(message.KeyClaims) != "", Key: keyPrefix(m.IdempotencyKey), paths: pathFilter(m)}
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

// foreign reports whether a message undoes entries of another task than its own.
func foreign(m *message.Message) bool {
	other := func(r message.EntryRef) bool { return r.Task != m.TaskID }
	return slices.ContainsFunc(m.RevertsEntries, other) ||
		slices.ContainsFunc(m.Entries, func(e message.Entry) bool { return slices.ContainsFunc(e.Reverts, other) })
}

// undoKeys gives the keys of byTask under which a commit that undoes is listed
// next to its task's.
func (rec *Record) undoKeys() []string {
	switch {
	case rec.Source == message.Shared || rec.Claims:
		return []string{claimed}
	case !rec.Reverts:
		return nil
	case rec.Task == "" || rec.Foreign:
		return []string{undoes, takeBacks}
	}
	return []string{undoes}
}

func renames(m *message.Message) bool {
	for i := range m.Entries {
		if m.Entries[i].Operation == message.Rename {
			return true
		}
	}
	return false
}

// CommitAt gives the commit with a sequence number; errs.NotFound if there is
// none, errs.Gone if it was dropped.
func (s *Store) CommitAt(ctx context.Context, seq uint64) (ID, error) {
	rec, err := s.records.at(seq)
	return rec.Commit, err
}

// Records calls fn with the index records from..to (sequence numbers,
// inclusive; to beyond the tip is the tip), ascending. It begins with the
// boundary's commit where older ones are asked for.
func (s *Store) Records(ctx context.Context, from, to uint64, fn func(Record) error) error {
	return s.records.each(ctx, from, to, fn)
}

// TaskRecords gives the records of a task's commits after the boundary, oldest
// first; of no task for the empty id.
func (s *Store) TaskRecords(ctx context.Context, task string) ([]Record, error) {
	recs, _, err := s.TaskRecordsFrom(ctx, task, 0)
	return recs, err
}

// TaskRecordsFrom gives TaskRecords without the first skip of them, and how many
// there are with those.
func (s *Store) TaskRecordsFrom(ctx context.Context, task string, skip int) (recs []Record, all int, err error) {
	seqs, err := s.records.ofTask(ctx, task)
	if err != nil {
		return nil, 0, err
	}
	all = len(seqs)
	seqs = seqs[min(skip, all):]
	recs = make([]Record, 0, len(seqs))
	for i := 0; i < len(seqs); {
		n := 1 // numbers that follow each other are read at once
		for i+n < len(seqs) && seqs[i+n] == seqs[i]+uint32(n) {
			n++
		}
		if n == 1 {
			rec, err := s.records.at(uint64(seqs[i]))
			if err != nil {
				return nil, 0, err
			}
			recs = append(recs, rec)
			i++
			continue
		}
		if err := s.records.each(ctx, uint64(seqs[i]), uint64(seqs[i+n-1]), func(rec Record) error {
			recs = append(recs, rec)
			return nil
		}); err != nil {
			return nil, 0, err
		}
		i += n
	}
	if len(recs) != len(seqs) { // the boundary moved meanwhile
		return nil, 0, ErrDropped()
	}
	return recs, all, nil
}

// TakeBacks returns the records of commits that undo entries of another task
// than their own, or that have none, oldest first.
func (s *Store) TakeBacks(ctx context.Context) ([]Record, error) {
	return s.TaskRecords(ctx, takeBacks)
}

// Claimed returns the records of commits that several tasks may have made, and of
// those that settle whose such changes are, oldest first, without the first skip
// of them, and how many there are with those.
func (s *Store) Claimed(ctx context.Context, skip int) (recs []Record, all int, err error) {
	return s.TaskRecordsFrom(ctx, claimed, skip)
}

// Undoes returns the records of all commits that undo entries of the changelog,
// oldest first, without the first skip of them, and how many there are with those.
func (s *Store) Undoes(ctx context.Context, skip int) (recs []Record, all int, err error) {
	return s.TaskRecordsFrom(ctx, undoes, skip)
}

// FindKey gives the newest commit not older than since (at most a day ago)
// that carries this Idempotency-Key trailer value.
func (s *Store) FindKey(ctx context.Context, key string, since time.Time) (Record, bool, error) {
	prefix := keyPrefix(key)
	if prefix == "" {
		return Record{}, false, nil
	}
	seqs, err := s.records.withKey(prefix, since)
	if err != nil {
		return Record{}, false, err
	}
	for i := len(seqs) - 1; i >= 0; i-- {
		rec, err := s.records.at(uint64(seqs[i]))
		if err != nil {
			return Record{}, false, err
		}
		if rec.WhenUnix < since.Unix() {
			continue
		}
		c, err := s.ReadCommit(ctx, rec.Commit)
		if err != nil {
			return Record{}, false, err
		}
		if c.Message.IdempotencyKey == key {
			return rec, true, nil
		}
	}
	return Record{}, false, nil
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
func (r *recordIndex) addKey(rec Record) {
	if rec.Key == "" {
		return
	}
	r.keys[rec.Key] = append(r.keys[rec.Key], uint32(rec.Seq))
	r.keyed = append(r.keyed, keyedCommit{key: rec.Key, seq: uint32(rec.Seq), when: rec.WhenUnix})
}

// forgetKeys drops the oldest keys that are from before a time; mu is held.
func (r *recordIndex) forgetKeys(before int64) {
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

// withKey gives the commits since a time with a key, ascending. The first call
// reads the records back to that time; later ones look into a map.
func (r *recordIndex) withKey(prefix string, since time.Time) ([]uint32, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.keys == nil {
		var found []Record
		older := 0
		for seq := r.n + uint64(len(r.tail)); seq >= r.first && older < lookBack; seq-- {
			rec, err := r.atLocked(seq)
			if err != nil {
				return nil, err
			}
			if rec.WhenUnix < since.Unix() {
				older++
				continue
			}
			older = 0
			if rec.Key != "" {
				found = append(found, rec)
			}
		}
		r.keys = make(map[string][]uint32)
		for i := len(found) - 1; i >= 0; i-- {
			r.addKey(found[i])
		}
	}
	r.forgetKeys(since.Unix())
	seqs := r.keys[prefix]
	return seqs[:len(seqs):len(seqs)], nil
}
