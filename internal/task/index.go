package task

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"time"

	"umbra/internal/state"
)

// Record is what the index keeps of a task: enough to find its repository, to
// list, and to tell whose an external change is.
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
	// Parent is the task that this one stands for on a workspace of the
	// server's own (For).
	Parent string `json:"parent,omitempty"`
	// KeyHash is the idempotency key of the request that made the task.
	KeyHash string `json:"key_hash,omitempty"`
	// Dropped is set once the history that the task stood in was, or is about
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

// bucket is the index in the state database. Losing it costs the time of
// Rebuild.
const bucket = "tasks"

// index holds every task's Record in memory, deleted ones too: some 300 bytes
// each.
type index struct {
	db *state.DB

	mu      sync.RWMutex
	byID    map[string]*Record
	byKey   map[string]string              // KeyHash to id
	ordered []*Record                      // oldest first, by Created, then id
	byWS    map[string]map[string]struct{} // workspace to the ids on it
	// byParent leads from a task to the ids of its children.
	byParent map[string]map[string]struct{}
	late     late
}

func loadIndex(db *state.DB) (*index, error) {
	x := &index{db: db, byID: map[string]*Record{}, byKey: map[string]string{}, byWS: map[string]map[string]struct{}{}, byParent: map[string]map[string]struct{}{}, late: newLate()}
	err := db.View(func(tx *state.Tx) error {
		return tx.ForEach(bucket, "", func(key string, raw []byte) (bool, error) {
			var r Record
			if err := json.Unmarshal(raw, &r); err != nil {
				return false, fmt.Errorf("task: record %q: %w", key, err)
			}
			x.add(r.short())
			return true, nil
		})
	})
	return x, err
}

// dropped gives what is kept of a task whose refs went; nil if there is none, or
// nothing is kept.
func (x *index) dropped(id string) (*Dropped, error) {
	var r Record
	_, err := x.db.Get(bucket, id, &r)
	return r.Dropped, err
}

func order(a, b *Record) int {
	if c := a.Created.Compare(b.Created); c != 0 {
		return c
	}
	return cmp.Compare(a.ID, b.ID)
}

// add puts a record into the maps; mu is held, or nobody else is there yet.
func (x *index) add(r Record) {
	if _, ok := x.byID[r.ID]; ok {
		x.drop(r.ID)
	}
	p := &r
	x.byID[r.ID] = p
	if r.KeyHash != "" {
		x.byKey[r.KeyHash] = r.ID
	}
	at, _ := slices.BinarySearchFunc(x.ordered, p, order)
	x.ordered = slices.Insert(x.ordered, at, p)
	join(x.byWS, r.Workspace, r.ID)
	if r.Parent != "" {
		join(x.byParent, r.Parent, r.ID)
	}
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

// drop takes a record out of the maps; mu is held.
func (x *index) drop(id string) {
	p, ok := x.byID[id]
	if !ok {
		return
	}
	delete(x.byID, id)
	if p.KeyHash != "" && x.byKey[p.KeyHash] == id {
		delete(x.byKey, p.KeyHash)
	}
	if at, found := slices.BinarySearchFunc(x.ordered, p, order); found {
		x.ordered = slices.Delete(x.ordered, at, at+1)
	}
	leave(x.byWS, p.Workspace, id)
	leave(x.byParent, p.Parent, id)
}

// get gives a copy.
func (x *index) get(id string) (Record, bool) {
	x.mu.RLock()
	defer x.mu.RUnlock()
	if p, ok := x.byID[id]; ok {
		return *p, true
	}
	return Record{}, false
}

func (x *index) withKey(hash string) (Record, bool) {
	x.mu.RLock()
	defer x.mu.RUnlock()
	if p, ok := x.byID[x.byKey[hash]]; ok && hash != "" {
		return *p, true
	}
	return Record{}, false
}

// reserve takes an id that is not in the index yet, between begin and end; false
// if it is. What is reserved is in memory only.
func (x *index) reserve(r Record) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	if _, ok := x.byID[r.ID]; ok {
		return false
	}
	x.add(r)
	return true
}

// release gives a reserved id back.
func (x *index) release(id string) {
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
	err := x.change(ids, func(tx *state.Tx) error {
		for _, r := range recs {
			if err := putRecord(tx, r); err != nil {
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
		x.set(r.short())
	}
	return nil
}

// set puts a record into the maps; mu is held.
func (x *index) set(r Record) {
	if p, ok := x.byID[r.ID]; ok && p.Created.Equal(r.Created) && p.Workspace == r.Workspace && p.KeyHash == r.KeyHash && p.Parent == r.Parent {
		*p = r
		return
	}
	x.add(r)
}

func (x *index) remove(id string) error {
	if err := x.change([]string{id}, func(tx *state.Tx) error { return tx.Delete(bucket, id) }); err != nil {
		return err
	}
	x.release(id)
	return nil
}

// on gives copies of a workspace's records, in no order.
func (x *index) on(workspace string) []Record {
	x.mu.RLock()
	defer x.mu.RUnlock()
	out := make([]Record, 0, len(x.byWS[workspace]))
	for id := range x.byWS[workspace] {
		out = append(out, *x.byID[id])
	}
	return out
}

// children gives copies of the records of a task's children that are there.
func (x *index) children(parent string) []Record {
	x.mu.RLock()
	defer x.mu.RUnlock()
	var out []Record
	for id := range x.byParent[parent] {
		if p := x.byID[id]; !p.Deleted {
			out = append(out, *p)
		}
	}
	return out
}

// pending gives copies of the records that are to be settled.
func (x *index) pending() []Record {
	x.mu.RLock()
	defer x.mu.RUnlock()
	var out []Record
	for _, p := range x.ordered {
		if p.Pending {
			out = append(out, *p)
		}
	}
	return out
}

// page gives up to n records that come before a place in the list, newest
// first, of those that want accepts. A zero place is the list's beginning.
func (x *index) page(before Record, n int, want func(*Record) bool) []Record {
	x.mu.RLock()
	defer x.mu.RUnlock()
	at := len(x.ordered)
	if before.ID != "" {
		at, _ = slices.BinarySearchFunc(x.ordered, &before, order)
	}
	var out []Record
	for i := at - 1; i >= 0 && len(out) < n; i-- {
		if p := x.ordered[i]; !p.Deleted && want(p) {
			out = append(out, *p)
		}
	}
	return out
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
