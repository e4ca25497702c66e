package workspaces

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"
)

// Records is where a manager keeps what it knows of its workspaces. Reads may be
// concurrent with everything; changes are made one at a time.
type Records interface {
	// Get returns the record of an id.
	Get(id string) (r Record, found bool, err error)
	// List returns the records of an index whose keys are above after, in the order of
	// their keys: n at most, 0: all. last is the key of the last one, for the next
	// call; empty where there are no more.
	List(x Index, after string, n int) (list []Record, last string, err error)
	// Count returns how many workspaces are listed in ByAge.
	Count() (int, error)
	Put(...Record) error // all or none; durable when it returns
	// PutUnless is Put where no record in Resident has what clash is asked about, else
	// ErrExists. What another server puts meanwhile is seen. clash may be called again.
	PutUnless(r Record, clash func(other Record) bool) error
	Delete(id string) error
}

// ErrExists is returned by Records.PutUnless.
var ErrExists = errors.New("workspaces: there is a record already")

// Index is an order of records, or of some of them: the prefix of its keys.
type Index string

// The indexes. An unfinished workspace is in Resident alone.
const (
	ByAge    Index = "age/"  // all, the oldest first
	Resident Index = "here/" // those that a manager keeps in memory: with directories, restored, unfinished
	Expiring Index = "ends/" // forks that expire, the next first
	unmade   Index = "stub/" // forks without a repository
)

// forksOf is the index of a workspace's forks, the oldest first.
func forksOf(id string) Index { return Index("fork/" + id + "/") }

// keeping is the index of the forks that have a workspace's history and are no forks of
// it, nor linked to any.
func keeping(id string) Index { return Index("kept/" + id + "/") }

// below is the index of the forks that show a directory of BelowDir.
func below(name string) Index { return Index("base/" + name + "/") }

// named is the index of the virtual workspaces of a namespace: one at most.
func named(namespace []string) Index {
	raw, err := json.Marshal(namespace)
	if err != nil {
		panic(err) // a list of strings
	}
	sum := sha256.Sum256(raw)
	return Index("name/" + hex.EncodeToString(sum[:]) + "/")
}

// IndexKeys returns the keys under which a record is found. Each ends with the
// record's ID, behind the last slash.
func IndexKeys(r Record) []string {
	age := ordered(r.Created) + "/" + r.ID
	if r.Unfinished {
		return []string{string(Resident) + age}
	}
	keys := []string{string(ByAge) + age}
	if r.resident() {
		keys = append(keys, string(Resident)+age)
	}
	if r.Kind == VirtualKind && r.Namespace != nil {
		keys = append(keys, string(named(r.Namespace))+r.ID)
	}
	if f := r.Fork; f != nil {
		keys = append(keys, string(forksOf(f.Of))+age)
		for _, id := range f.Shares {
			keys = append(keys, string(keeping(id))+r.ID)
		}
		if !f.Expires.IsZero() {
			keys = append(keys, string(Expiring)+ordered(f.Expires)+"/"+r.ID)
		}
		if f.Below != "" {
			keys = append(keys, string(below(f.Below))+r.ID)
		}
		if f.Unmade {
			keys = append(keys, string(unmade)+r.ID)
		}
	}
	return keys
}

// ordered is a time as a key: nanoseconds since 1970, as many digits for each.
func ordered(t time.Time) string {
	if t.Year() < 1970 {
		t = time.Unix(0, 0)
	}
	return fmt.Sprintf("%020d", t.UnixNano())
}

// resident reports whether a record is in memory also while its workspace is not
// open: directories are compared with one another.
func (r Record) resident() bool { return r.Kind != VirtualKind || r.Restored || r.Unfinished }

// MemRecords are records in memory, for tests. The zero value is empty.
type MemRecords struct {
	mu  sync.Mutex
	all map[string]Record
}

// All returns every record.
func (m *MemRecords) All() ([]Record, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Collect(maps.Values(m.all)), nil
}

// Get implements Records.
func (m *MemRecords) Get(id string) (Record, bool, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	r, ok := m.all[id]
	return r, ok, nil
}

// List implements Records.
func (m *MemRecords) List(x Index, after string, n int) (list []Record, last string, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	type entry struct {
		key string
		r   Record
	}
	var found []entry
	for _, r := range m.all {
		for _, key := range IndexKeys(r) {
			if strings.HasPrefix(key, string(x)) && key > after {
				found = append(found, entry{key, r})
			}
		}
	}
	slices.SortFunc(found, func(a, b entry) int { return cmp.Compare(a.key, b.key) })
	if n > 0 && len(found) > n {
		found, last = found[:n], found[n-1].key
	}
	for _, e := range found {
		list = append(list, e.r)
	}
	return list, last, nil
}

// Count implements Records.
func (m *MemRecords) Count() (int, error) {
	list, _, err := m.List(ByAge, "", 0)
	return len(list), err
}

// Put implements Records.
func (m *MemRecords) Put(list ...Record) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.all == nil {
		m.all = map[string]Record{}
	}
	for _, r := range list {
		m.all[r.ID] = r
	}
	return nil
}

// PutUnless implements Records.
func (m *MemRecords) PutUnless(r Record, clash func(other Record) bool) error {
	list, _, err := m.List(Resident, "", 0)
	if err != nil {
		return err
	}
	if slices.ContainsFunc(list, clash) {
		return ErrExists
	}
	return m.Put(r)
}

// Delete implements Records.
func (m *MemRecords) Delete(id string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.all, id)
	return nil
}
