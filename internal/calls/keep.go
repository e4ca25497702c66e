package calls

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"maps"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"umbra/internal/clock"
	"umbra/internal/state"
	"umbra/internal/vfs"
)

// The buckets of the state database. Records of calls are found by their ids;
// order leads from the time of their begin, the newest first, to these.
const (
	bucket      = "calls"
	bucketOrder = "calls_order"
	// bucketBy has the same keys behind byWorkspace or byTask, so that a list of few
	// of many calls reads no others.
	bucketBy       = "calls_by"
	bucketOpen     = "calls_open" // of those that are unfinished too: id; in a shared database workspace, NUL, id
	bucketSessions = "calls_sessions"
	bucketSeen     = "calls_seen" // when a workspace had its last call
)

// byWorkspace and byTask begin the keys of bucketBy.
func byWorkspace(id string) string { return "w " + id + "\x00" }
func byTask(id string) string      { return "t " + id + "\x00" }

// session is what is known of an agent's session on a workspace.
type session struct {
	Task    string `json:"task"`    // its newest
	Through uint64 `json:"through"` // number of the last commit when its last call ended; 0: none has
}

// sighting is when a workspace had a call begin or end: by the wall clock, and by the
// time since the system's start Boot, which does not follow the wall clock.
type sighting struct {
	At     time.Time     `json:"at"`
	Boot   string        `json:"boot,omitempty"`
	BootAt time.Duration `json:"boot_at,omitempty"`
}

func sightingAt(now time.Time) sighting {
	return sighting{now, clock.BootID(), clock.Boot()}
}

// UnmarshalJSON also reads the time alone, as older versions wrote it.
func (s *sighting) UnmarshalJSON(raw []byte) error {
	*s = sighting{}
	if len(raw) > 0 && raw[0] == '"' {
		return json.Unmarshal(raw, &s.At)
	}
	type plain sighting
	return json.Unmarshal(raw, (*plain)(s))
}

// within reports whether the sighting is less than d ago. One of this process is
// measured by the monotonic reading of At.
func (s *sighting) within(d time.Duration, now time.Time, read bool) bool {
	if read && s.Boot != "" && s.Boot == clock.BootID() {
		return clock.Boot()-s.BootAt < d
	}
	return !s.At.IsZero() && now.Sub(s.At) < d
}

// keeper keeps records: at once in a log, a moment later in the database, which
// takes long to sync.
//
// In a shared database they are written at once: the next owner of a workspace has all
// that was answered.
type keeper struct {
	db   *state.DB
	fs   vfs.FS // nil where there is no log
	name string
	warn func(err error)

	mu       sync.Mutex
	log      vfs.File
	size     int64
	fresh    batch // not in the database yet
	moving   batch // on its way there: older than fresh
	timer    *time.Timer
	closed   bool
	flushing sync.Mutex
}

// batch is what lines of the log come to: calls by id, sessions by key, workspaces.
type batch struct {
	calls    map[string]Record
	sessions map[string]session
	seen     map[string]sighting
}

func newBatch() batch {
	return batch{map[string]Record{}, map[string]session{}, map[string]sighting{}}
}

func (b batch) size() int { return len(b.calls) + len(b.sessions) + len(b.seen) }

// take applies a line.
func (b batch) take(l line) {
	switch {
	case l.Call != nil:
		b.calls[l.Call.ID] = *l.Call
	case l.Session != nil:
		b.sessions[l.Key] = *l.Session
	case l.At != nil:
		b.seen[l.Seen] = *l.At
	}
}

// merge applies what is newer.
func (b batch) merge(newer batch) {
	maps.Copy(b.calls, newer.calls)
	maps.Copy(b.sessions, newer.sessions)
	maps.Copy(b.seen, newer.seen)
}

// line is one line of the log: one thing that is new.
type line struct {
	Call    *Record   `json:"call,omitempty"`
	Key     string    `json:"key,omitempty"` // of a session
	Session *session  `json:"session,omitempty"`
	Seen    string    `json:"seen,omitempty"` // a workspace
	At      *sighting `json:"at,omitempty"`
}

// openKeeper takes up what the log still has. A line that was cut off ends it.
func openKeeper(db *state.DB, files vfs.FS, name string, warn func(error)) (*keeper, error) {
	k := &keeper{db: db, fs: files, name: name, warn: warn, fresh: newBatch()}
	if db.Shared() {
		k.fs = nil
		return k, nil
	}
	made, err := k.load()
	if err != nil {
		return nil, err
	}
	if k.log, err = files.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o600); err != nil {
		return nil, err
	}
	if !made {
		if err := files.SyncDir("."); err != nil {
			k.log.Close()
			return nil, err
		}
	}
	if err := k.index(); err != nil {
		k.log.Close()
		return nil, err
	}
	if err := k.flush(); err != nil {
		k.log.Close()
		return nil, err
	}
	return k, nil
}

// load reads the log; made is false where there is none yet.
func (k *keeper) load() (made bool, err error) {
	f, err := k.fs.OpenFile(k.name, os.O_RDONLY, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer f.Close()
	r := bufio.NewReader(f)
	for {
		text, err := r.ReadString('\n')
		if err != nil {
			return true, nil // the end, or a line that was cut off
		}
		sum, body, _ := strings.Cut(strings.TrimSuffix(text, "\n"), " ")
		if want, err := strconv.ParseUint(sum, 16, 32); err != nil || uint32(want) != crc32.ChecksumIEEE([]byte(body)) {
			return true, nil
		}
		var l line
		if json.Unmarshal([]byte(body), &l) != nil {
			return true, nil
		}
		k.fresh.take(l)
	}
}

// put keeps what is new. It does not wait for a disk.
func (k *keeper) put(lines ...line) error {
	if k.fs == nil {
		return k.putShared(lines)
	}
	var b []byte
	for i := range lines {
		body, err := json.Marshal(&lines[i])
		if err != nil {
			return err
		}
		b = fmt.Appendf(b, "%08x %s\n", crc32.ChecksumIEEE(body), body)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.closed {
		return errors.New("calls: closed")
	}
	if _, err := k.log.WriteAt(b, k.size); err != nil {
		return err
	}
	k.size += int64(len(b))
	for _, l := range lines {
		k.fresh.take(l)
	}
	if k.timer == nil {
		k.timer = time.AfterFunc(flushAfter, func() {
			if err := k.flush(); err != nil {
				k.warn(err)
			}
		})
	}
	return nil
}

func (k *keeper) putShared(lines []line) error {
	now := newBatch()
	for _, l := range lines {
		now.take(l)
	}
	return k.db.Update(func(tx *state.Tx) error { return k.write(tx, now) })
}

// sync makes durable what is known of a call.
func (k *keeper) sync(id string) error {
	for k.fs != nil {
		k.mu.Lock()
		_, fresh := either(k.fresh.calls, k.moving.calls, id)
		log := k.log
		k.mu.Unlock()
		if !fresh {
			break // it is in the database
		}
		err := log.Sync()
		k.mu.Lock()
		same := log == k.log
		k.mu.Unlock()
		if same {
			return err
		}
	}
	return nil
}

// either returns the value of a key from the first of two maps that has it.
func either[V any](first, second map[string]V, key string) (v V, ok bool) {
	if v, ok = first[key]; !ok {
		v, ok = second[key]
	}
	return v, ok
}

// flushAfter is how long records are in the log alone.
const flushAfter = time.Second

// maxLog is from which size of the log, in bytes, what is in the database leaves it
// while calls come without a pause.
const maxLog = 1 << 20

// flush moves what is fresh into the database, and out of the log if nothing came
// meanwhile or the log is long. What came meanwhile is the next one's.
func (k *keeper) flush() error {
	if k.fs == nil {
		return nil
	}
	k.flushing.Lock()
	defer k.flushing.Unlock()
	k.mu.Lock()
	if k.timer != nil {
		k.timer.Stop()
		k.timer = nil
	}
	size := k.size
	k.moving, k.fresh = k.fresh, newBatch()
	k.mu.Unlock()
	var err error
	if k.moving.size() > 0 {
		err = k.db.Update(func(tx *state.Tx) error { return k.write(tx, k.moving) })
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if err != nil {
		k.moving.merge(k.fresh)
		k.fresh, k.moving = k.moving, batch{}
		return err
	}
	k.moving = batch{}
	switch {
	case k.size == size:
		err = k.log.Truncate(0)
		if err == nil {
			k.size = 0
		}
	case size >= maxLog:
		err = k.trim(size)
	}
	return err
}

// trim has the log begin with what was at an offset. A log that is durable stays so.
// mu is held.
func (k *keeper) trim(offset int64) error {
	rest := make([]byte, k.size-offset)
	if _, err := k.log.ReadAt(rest, offset); err != nil {
		return err
	}
	name := k.name + ".new"
	f, err := k.fs.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	if _, err = f.WriteAt(rest, 0); err == nil {
		err = f.Sync()
	}
	if err == nil {
		err = k.fs.Rename(name, k.name)
	}
	if err != nil {
		return errors.Join(err, f.Close())
	}
	old := k.log
	k.log, k.size = f, int64(len(rest))
	return errors.Join(k.fs.SyncDir("."), old.Close())
}

func (k *keeper) write(tx *state.Tx, b batch) error {
	for id, r := range b.calls {
		if err := tx.Put(bucket, id, r); err != nil {
			return err
		}
		if err := enlist(tx, &r); err != nil {
			return err
		}
		var err error
		if r.Status == Open || r.unfinished() {
			err = tx.Put(bucketOpen, k.openKey(&r), true)
		} else {
			err = tx.Delete(bucketOpen, k.openKey(&r))
		}
		if err != nil {
			return err
		}
	}
	for key, s := range b.sessions {
		if err := tx.Put(bucketSessions, key, s); err != nil {
			return err
		}
	}
	for ws, at := range b.seen {
		if err := tx.Put(bucketSeen, ws, at); err != nil {
			return err
		}
	}
	return nil
}

func (k *keeper) openKey(r *Record) string {
	if k.fs == nil {
		return r.Workspace + "\x00" + r.ID
	}
	return r.ID
}

// enlist has a call found in the order of calls.
func enlist(tx *state.Tx, r *Record) error {
	key := orderKey(r)
	err := tx.Put(bucketOrder, key, r.ID)
	for _, by := range []string{byWorkspace(r.Workspace), byTask(r.Task)} {
		if err == nil {
			err = tx.Put(bucketBy, by+key, r.ID)
		}
	}
	return err
}

// index makes bucketBy where the newest call is not in it: a version of the program
// that did not know the bucket wrote the calls.
func (k *keeper) index() error {
	whole := true
	err := k.db.View(func(tx *state.Tx) error {
		return tx.ForEach(bucketOrder, "", func(key string, raw []byte) (bool, error) {
			var r Record
			var id string
			if err := json.Unmarshal(raw, &id); err != nil {
				return false, err
			}
			ok, err := tx.Get(bucket, id, &r)
			if ok && err == nil {
				whole, err = tx.Get(bucketBy, byWorkspace(r.Workspace)+key, &id)
			}
			return !ok && err == nil, err
		})
	})
	if whole || err != nil {
		return err
	}
	return k.db.Update(func(tx *state.Tx) error {
		return tx.ForEach(bucket, "", func(_ string, raw []byte) (bool, error) {
			var r Record
			if err := json.Unmarshal(raw, &r); err != nil {
				return false, err
			}
			err := enlist(tx, &r)
			return err == nil, err
		})
	})
}

// orderKey sorts the newest first.
func orderKey(r *Record) string {
	return fmt.Sprintf("%016x %s", math.MaxInt64-r.order(), r.ID)
}

// newest returns the order of the newest call.
func (k *keeper) newest() (order uint64, err error) {
	err = k.db.View(func(tx *state.Tx) error {
		return tx.ForEach(bucketOrder, "", func(key string, _ []byte) (bool, error) {
			n, err := strconv.ParseUint(key[:min(len(key), 16)], 16, 64)
			if err == nil {
				order = math.MaxInt64 - n
			}
			return false, err
		})
	})
	return order, err
}

// get returns a call's record.
func (k *keeper) get(id string) (r Record, ok bool, err error) {
	k.mu.Lock()
	r, ok = either(k.fresh.calls, k.moving.calls, id)
	k.mu.Unlock()
	if ok {
		return r, true, nil
	}
	ok, err = k.db.Get(bucket, id, &r)
	return r, ok, err
}

// open returns the records of all open and unfinished calls, in a shared database of
// those of a workspace.
func (k *keeper) open(workspace string) (out []Record, err error) {
	prefix := ""
	if k.fs == nil {
		prefix = workspace + "\x00"
	}
	err = k.db.View(func(tx *state.Tx) (err error) {
		out, err = openOf(tx, prefix)
		return err
	})
	return out, err
}

// openOf returns the records of the open and unfinished calls whose keys begin with prefix.
func openOf(tx *state.Tx, prefix string) (out []Record, err error) {
	err = tx.Prefixed(bucketOpen, prefix, "", func(key string, _ []byte) (bool, error) {
		var r Record
		ok, err := tx.Get(bucket, key[strings.LastIndexByte(key, 0)+1:], &r)
		if ok {
			out = append(out, r)
		}
		return err == nil, err
	})
	return out, err
}

// current returns the records of a shared database of all open calls and, with within,
// of those that ended so shortly ago, among the mostRecent that began last.
func (k *keeper) current(within time.Duration, now time.Time) (out []Record, err error) {
	err = k.db.View(func(tx *state.Tx) (err error) {
		out, err = openOf(tx, "")
		return err
	})
	out = slices.DeleteFunc(out, func(r Record) bool { return r.Status != Open })
	if err != nil || within == 0 {
		return out, err
	}
	seen := 0
	err = k.list("", "", func(_ string, r *Record) bool {
		if r.Status != Open && now.Sub(r.Ended) <= within {
			out = append(out, *r)
		}
		seen++
		return seen < mostRecent
	})
	return out, err
}

func (k *keeper) session(key string) (s session, err error) {
	k.mu.Lock()
	s, ok := either(k.fresh.sessions, k.moving.sessions, key)
	k.mu.Unlock()
	if !ok {
		_, err = k.db.Get(bucketSessions, key, &s)
	}
	return s, err
}

func (k *keeper) lastSeen(ws string) (at sighting, err error) {
	k.mu.Lock()
	at, ok := either(k.fresh.seen, k.moving.seen, ws)
	k.mu.Unlock()
	if !ok {
		_, err = k.db.Get(bucketSeen, ws, &at)
	}
	return at, err
}

// list calls fn with the records of calls whose order key is above after, the newest
// first, until it returns false: all calls, or those below a prefix of bucketBy.
func (k *keeper) list(by, after string, fn func(key string, r *Record) bool) error {
	if err := k.flush(); err != nil {
		return err
	}
	from := bucketOrder
	if by != "" {
		from, after = bucketBy, by+after
	}
	return k.db.View(func(tx *state.Tx) error {
		return tx.ForEach(from, after, func(key string, raw []byte) (bool, error) {
			key, ok := strings.CutPrefix(key, by)
			if !ok {
				return false, nil
			}
			var id string
			if err := json.Unmarshal(raw, &id); err != nil {
				return false, err
			}
			var r Record
			ok, err := tx.Get(bucket, id, &r)
			if err != nil || !ok {
				return ok || err == nil, err
			}
			return fn(key, &r), nil
		})
	})
}

func (k *keeper) close() error {
	if k.fs == nil {
		return nil
	}
	err := k.flush()
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.timer != nil {
		k.timer.Stop()
	}
	k.closed = true
	return errors.Join(err, k.log.Close())
}
