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
	fresh    map[string]Record // not in the database yet
	sessions map[string]session
	seen     map[string]sighting
	timer    *time.Timer
	closed   bool
	flushing sync.Mutex
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
	k := &keeper{db: db, fs: files, name: name, warn: warn, fresh: map[string]Record{}, sessions: map[string]session{}, seen: map[string]sighting{}}
	if db.Shared() {
		k.fs = nil
		return k, nil
	}
	if err := k.load(); err != nil {
		return nil, err
	}
	var err error
	if k.log, err = files.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o600); err != nil {
		return nil, err
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

func (k *keeper) load() error {
	f, err := k.fs.OpenFile(k.name, os.O_RDONLY, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer f.Close()
	r := bufio.NewReader(f)
	for {
		text, err := r.ReadString('\n')
		if err != nil {
			return nil // the end, or a line that was cut off
		}
		sum, body, _ := strings.Cut(strings.TrimSuffix(text, "\n"), " ")
		if want, err := strconv.ParseUint(sum, 16, 32); err != nil || uint32(want) != crc32.ChecksumIEEE([]byte(body)) {
			return nil
		}
		var l line
		if json.Unmarshal([]byte(body), &l) != nil {
			return nil
		}
		k.take(l)
	}
}

// take applies a line of the log. mu is held, or nothing else runs yet.
func (k *keeper) take(l line) {
	switch {
	case l.Call != nil:
		k.fresh[l.Call.ID] = *l.Call
	case l.Session != nil:
		k.sessions[l.Key] = *l.Session
	case l.At != nil:
		k.seen[l.Seen] = *l.At
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
		k.take(l)
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
	now := &keeper{fresh: map[string]Record{}, sessions: map[string]session{}, seen: map[string]sighting{}}
	for _, l := range lines {
		now.take(l)
	}
	return k.db.Update(func(tx *state.Tx) error { return k.write(tx, now.fresh, now.sessions, now.seen) })
}

// sync makes durable what is known of a call.
func (k *keeper) sync(id string) error {
	k.mu.Lock()
	_, fresh := k.fresh[id]
	k.mu.Unlock()
	if k.fs == nil || !fresh {
		return nil // it is in the database
	}
	return k.log.Sync()
}

// flushAfter is how long records are in the log alone.
const flushAfter = time.Second

// flush moves what is fresh into the database, and empties the log if nothing
// came meanwhile.
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
	fresh, sessions, seen := clone(k.fresh), clone(k.sessions), clone(k.seen)
	k.mu.Unlock()
	if len(fresh)+len(sessions)+len(seen) > 0 {
		if err := k.db.Update(func(tx *state.Tx) error { return k.write(tx, fresh, sessions, seen) }); err != nil {
			return err
		}
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.size != size {
		return nil // the next one takes all again
	}
	if err := k.log.Truncate(0); err != nil {
		return err
	}
	k.size = 0
	clear(k.fresh)
	clear(k.sessions)
	clear(k.seen)
	return nil
}

func clone[K comparable, V any](m map[K]V) map[K]V {
	out := make(map[K]V, len(m))
	maps.Copy(out, m)
	return out
}

func (k *keeper) write(tx *state.Tx, fresh map[string]Record, sessions map[string]session, seen map[string]sighting) error {
	for id, r := range fresh {
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
	for key, s := range sessions {
		if err := tx.Put(bucketSessions, key, s); err != nil {
			return err
		}
	}
	for ws, at := range seen {
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
	r, ok = k.fresh[id]
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
	s, ok := k.sessions[key]
	k.mu.Unlock()
	if !ok {
		_, err = k.db.Get(bucketSessions, key, &s)
	}
	return s, err
}

func (k *keeper) lastSeen(ws string) (at sighting, err error) {
	k.mu.Lock()
	at, ok := k.seen[ws]
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
