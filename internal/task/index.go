package task

import (
	"cmp"
	"encoding/json"
	"slices"
	"strings"
	"sync"
	"time"

	"umbra/internal/state"
)

// Record is what the index keeps of a task: enough to find its repository, to
// list it, and to decide whose an external change is.
type Record struct {
	ID        string    `json:"id"`
	Workspace string    `json:"workspace"` // the workspace's id
	Created   time.Time `json:"created"`
	Status    Status    `json:"status"`
	// Auto is a task that a session or toolset made for itself; it counts for
	// external changes from its first change of its own (Active).
	Auto   bool `json:"auto,omitempty"`
	Active bool `json:"active,omitempty"`
	// Deleted keeps the id taken.
	Deleted bool `json:"deleted,omitempty"`
	// Pending is a task that is being made. In the database it is what programs
	// of before wrote while the repository might know more, and a start settles
	// it from there.
	Pending bool `json:"pending,omitempty"`
	// Parent is the task that this one represents on a workspace of the
	// server's own (For).
	Parent string `json:"parent,omitempty"`
	// KeyHash is the idempotency key of the request that made the task.
	KeyHash string `json:"key_hash,omitempty"`
	// Dropped is set once the history that the task was in was, or is about
	// to be, dropped. While the repository has the task it means nothing. In
	// memory there is only isDropped; index.dropped reads it.
	Dropped *Dropped `json:"dropped,omitempty"`

	isDropped bool
}

// same reports whether two records say the same.
func (r Record) same(o Record) bool {
	created := r.Created.Equal(o.Created)
	r.Created, o.Created = time.Time{}, time.Time{}
	return created && r == o
}

// short gives the record as it stays in memory, where it has a fixed size.
func (r Record) short() Record {
	r.isDropped = r.isDropped || r.Dropped != nil
	r.Dropped = nil
	return r
}

// index finds tasks' Records: in the state database, by key, and before that in
// memory, where are those of live tasks and those that the database has not yet.
// So what a server takes does not grow with the tasks that have ended. Losing the
// database's part costs the time of Rebuild.
//
// No transaction of the database's is begun to read while mu is wanted inside it.
//
// In a shared database (Service) memory has the live tasks of the workspaces that
// this process owns, and only for what asks about one of these: the database has
// every record before its change is answered.
type index struct {
	db     *state.DB
	shared bool

	// writing is held for writing from before a transaction that changes records
	// until memory agrees with it.
	writing sync.RWMutex

	mu    sync.RWMutex
	byID  map[string]*entry
	byKey map[string]string              // KeyHash to id
	byWS  map[string]map[string]struct{} // workspace to the ids on it
	// byParent leads from a task to the ids of its children.
	byParent map[string]map[string]struct{}
	late     late
	epochs   map[string]int64 // of the workspaces that this process owns, in a shared database
}

// entry is a Record in memory.
type entry struct {
	Record
	counted bool // the database has it, and counts it as not deleted
}

func loadIndex(db *state.DB) (*index, error) {
	x := &index{db: db, shared: db.Shared(), byID: map[string]*entry{}, byKey: map[string]string{}, byWS: map[string]map[string]struct{}{}, byParent: map[string]map[string]struct{}{}, late: newLate(), epochs: map[string]int64{}}
	if err := x.makeIndex(); err != nil || x.shared {
		return x, err
	}
	err := db.View(func(tx *state.Tx) error {
		return tx.ForEach(liveTasks, "", func(id string, _ []byte) (bool, error) {
			return true, x.load(tx, id)
		})
	})
	return x, err
}

// load reads a record into memory; mu is held, or no one else is there yet.
func (x *index) load(tx *state.Tx, id string) error {
	r, found, err := stored(tx, id)
	if err == nil && found {
		x.set(r)
		x.byID[id].counted = !r.Deleted
	}
	return err
}

// empty reports whether the index knows no task.
func (x *index) empty() (none bool, err error) {
	x.mu.RLock()
	defer x.mu.RUnlock()
	if len(x.byID) > 0 {
		return false, nil
	}
	err = x.db.View(func(tx *state.Tx) error {
		none = tx.Empty(bucket)
		return nil
	})
	return none, err
}

// dropped gives what is kept of a task whose refs went; nil if there is none, or
// nothing is kept.
func (x *index) dropped(id string) (*Dropped, error) {
	var r Record
	_, err := x.db.Get(bucket, id, &r)
	return r.Dropped, err
}

// newestFirst orders records as lists show them.
func newestFirst(a, b Record) int {
	if c := b.Created.Compare(a.Created); c != 0 {
		return c
	}
	return cmp.Compare(b.ID, a.ID)
}

// join adds an id to a set of a map of sets.
func join(sets map[string]map[string]struct{}, key, id string) {
	if sets[key] == nil {
		sets[key] = map[string]struct{}{}
	}
	sets[key][id] = struct{}{}
}

// leave takes an id out of one; an empty set goes.
func leave(sets map[string]map[string]struct{}, key, id string) {
	delete(sets[key], id)
	if len(sets[key]) == 0 {
		delete(sets, key)
	}
}

// set puts a record into memory; mu is held, or nothing else runs yet.
func (x *index) set(r Record) {
	e := &entry{Record: r.short()}
	if old, ok := x.byID[r.ID]; ok {
		e.counted = old.counted
		x.drop(r.ID)
	}
	x.byID[r.ID] = e
	if r.KeyHash != "" {
		x.byKey[r.KeyHash] = r.ID
	}
	join(x.byWS, r.Workspace, r.ID)
	if r.Parent != "" {
		join(x.byParent, r.Parent, r.ID)
	}
}

// drop takes a record out of memory; mu is held.
func (x *index) drop(id string) {
	p, ok := x.byID[id]
	if !ok {
		return
	}
	delete(x.byID, id)
	if p.KeyHash != "" && x.byKey[p.KeyHash] == id {
		delete(x.byKey, p.KeyHash)
	}
	leave(x.byWS, p.Workspace, id)
	leave(x.byParent, p.Parent, id)
}

// follow is called after a record became durable: what is not live leaves memory,
// unless a newer form of it is late. mu is held.
func (x *index) follow(r Record) {
	if _, newer := x.late.ids[r.ID]; !newer {
		if r.live() {
			x.set(r)
		} else {
			x.drop(r.ID)
		}
	}
	if e, ok := x.byID[r.ID]; ok {
		e.counted = !r.Deleted
	}
}

// get returns a copy of a task's record. ok is false where there is none, and with
// an error.
func (x *index) get(id string) (r Record, ok bool, err error) {
	x.mu.RLock()
	defer x.mu.RUnlock()
	return x.find(id)
}

// find is like get; the caller must hold mu, for reading at least.
func (x *index) find(id string) (r Record, ok bool, err error) {
	if e, ok := x.byID[id]; ok {
		return e.Record, true, nil
	}
	ok, err = x.db.Get(bucket, id, &r)
	return r.short(), ok && err == nil, err
}

// withKey returns the record of the task that a request with an idempotency key
// made.
func (x *index) withKey(hash string) (r Record, ok bool, err error) {
	if hash == "" {
		return Record{}, false, nil
	}
	x.mu.RLock()
	defer x.mu.RUnlock()
	id := x.byKey[hash]
	if id == "" {
		if _, err := x.db.Get(byKey, hash, &id); err != nil || id == "" {
			return Record{}, false, err
		}
	}
	return x.find(id)
}

// reserve takes an id that is not in the index yet, between begin and end; false
// if it is. Reservations are in memory only.
func (x *index) reserve(r Record) (bool, error) {
	if x.shared {
		return x.reserveShared(r)
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	if _, taken, err := x.find(r.ID); taken || err != nil {
		return false, err
	}
	x.set(r)
	return true, nil
}

// release gives a reserved id back.
func (x *index) release(id string) {
	if x.shared {
		x.releaseShared(id)
		return
	}
	x.forget(id)
}

// forget takes a record out of memory.
func (x *index) forget(id string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.drop(id)
}

// put sets a record, first where it is kept, then here.
func (x *index) put(r Record) error {
	return x.putAll([]Record{r})
}

// putAll is put for several, all or none.
func (x *index) putAll(recs []Record) error {
	return x.write(recs, func(*state.Tx) error { return nil })
}

// write is putAll with more in the same transaction.
func (x *index) write(recs []Record, more func(*state.Tx) error) error {
	ids := make([]string, len(recs))
	for i := range recs {
		ids[i] = recs[i].ID
	}
	if !x.shared { // else count reads the database alone
		x.writing.Lock()
		defer x.writing.Unlock()
	}
	err := x.change(ids, func(tx *state.Tx) error {
		for _, r := range recs {
			if err := x.putRecord(tx, r); err != nil {
				return err
			}
		}
		return more(tx)
	})
	if err != nil {
		return err
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, r := range recs {
		if !x.shared || x.epochs[r.Workspace] != 0 {
			x.follow(r.short())
		}
	}
	return nil
}

func (x *index) remove(id string) error {
	if !x.shared {
		x.writing.Lock()
		defer x.writing.Unlock()
	}
	if err := x.change([]string{id}, func(tx *state.Tx) error { return x.deleteRecord(tx, id) }); err != nil {
		return err
	}
	x.forget(id)
	return nil
}

// gather returns copies of the records whose ids are in memory, and then of those
// to which the keys of a bucket lead that begin with prefix; id gets a key's rest.
func (x *index) gather(set func() map[string]struct{}, in, prefix string, id func(rest string) string) ([]Record, error) {
	x.mu.RLock()
	var ids map[string]struct{}
	if !x.shared {
		ids = set()
	}
	out := make([]Record, 0, len(ids))
	seen := make(map[string]bool, len(ids))
	for id := range ids {
		out = append(out, x.byID[id].Record)
		seen[id] = true
	}
	x.mu.RUnlock()
	err := x.db.View(func(tx *state.Tx) error {
		var more []string
		err := within(tx, in, prefix, func(rest string, _ []byte) error {
			if id := id(rest); !seen[id] {
				more = append(more, id)
			}
			return nil
		})
		if err != nil {
			return err
		}
		return eachOf(tx, more, func(r Record) { out = append(out, r) })
	})
	return out, err
}

// on returns copies of a workspace's records, in no order.
func (x *index) on(workspace string) ([]Record, error) {
	return x.gather(func() map[string]struct{} { return x.byWS[workspace] }, byWorkspace, workspace+"\x00", func(rest string) string { return rest[timeBytes:] })
}

// children returns copies of the records of a task's children that are not deleted.
func (x *index) children(parent string) ([]Record, error) {
	all, err := x.gather(func() map[string]struct{} { return x.byParent[parent] }, byParent, parent+"\x00", func(rest string) string { return rest })
	return slices.DeleteFunc(all, func(r Record) bool { return r.Deleted }), err
}

// count returns how many tasks a workspace has that are not deleted.
func (x *index) count(workspace string) (n int, err error) {
	x.writing.RLock()
	defer x.writing.RUnlock()
	if _, err := x.db.Get(counts, workspace, &n); err != nil || x.shared {
		return n, err
	}
	x.mu.RLock()
	defer x.mu.RUnlock()
	for id := range x.byWS[workspace] {
		switch e := x.byID[id]; {
		case e.counted && e.Deleted:
			n--
		case !e.counted && !e.Deleted:
			n++
		}
	}
	return n, nil
}

// pending returns copies of the records that are to be settled.
func (x *index) pending() []Record {
	x.mu.RLock()
	defer x.mu.RUnlock()
	var out []Record
	for _, p := range x.byID {
		if p.Pending {
			out = append(out, p.Record)
		}
	}
	slices.SortFunc(out, func(a, b Record) int { return newestFirst(b, a) })
	return out
}

// filter says which records a list has.
type filter struct {
	status    Status // empty: all
	workspace string // its id; empty: all
	sees      func(workspace string) bool
}

func (f *filter) want(r Record) bool {
	return !r.Deleted && (f.status == "" || r.Status == f.status) && (f.workspace == "" || r.Workspace == f.workspace) && f.sees(r.Workspace)
}

// page returns up to n records that come before a place in the list, newest
// first. A zero place is the list's beginning.
func (x *index) page(before Record, n int, f filter) ([]Record, error) {
	x.mu.RLock()
	var out []Record
	seen := make(map[string]bool, len(x.byID))
	for id, e := range x.byID {
		if x.shared {
			break
		}
		seen[id] = true
		if f.want(e.Record) && (before.ID == "" || newestFirst(before, e.Record) < 0) {
			out = append(out, e.Record)
		}
	}
	x.mu.RUnlock()
	in, prefix := byTime, ""
	switch {
	case f.workspace != "":
		in, prefix = byWorkspace, f.workspace+"\x00"
	case f.status != "":
		in, prefix = byStatus, string(f.status)+"\x00"
	}
	end := ""
	if before.ID != "" {
		end = prefix + place(before)
	}
	err := x.db.View(func(tx *state.Tx) error {
		for found := 0; found < n; {
			var ids []string
			err := tx.Descend(in, prefix, end, func(key string, raw []byte) (bool, error) {
				end = key
				id := strings.TrimPrefix(key, prefix)[timeBytes:]
				if seen[id] {
					return true, nil
				}
				var workspace string
				if in != byWorkspace {
					if err := json.Unmarshal(raw, &workspace); err != nil || !f.sees(workspace) {
						return true, err
					}
				}
				ids = append(ids, id)
				return len(ids) < n-found, nil
			})
			if err != nil || len(ids) == 0 {
				return err
			}
			if err := eachOf(tx, ids, func(r Record) {
				if f.want(r) {
					out = append(out, r)
					found++
				}
			}); err != nil {
				return err
			}
		}
		return nil
	})
	slices.SortFunc(out, newestFirst)
	return out[:min(n, len(out))], err
}

// executing gives the one task that external changes of a workspace belong
// to, "" for none or several.
func (x *index) executing(workspace string) string {
	x.mu.RLock()
	defer x.mu.RUnlock()
	one := ""
	for id := range x.byWS[workspace] {
		p := x.byID[id]
		if p.Status != Executing || p.Deleted || p.Pending || p.Auto && !p.Active {
			continue
		}
		if one != "" {
			return ""
		}
		one = id
	}
	return one
}
