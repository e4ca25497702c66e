package datadir

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"umbra/internal/need"
	"umbra/internal/state"
	"umbra/internal/workspaces"
)

// someRecord returns a record of a random sort.
func someRecord(r *rand.Rand, n int) workspaces.Record {
	at := time.Unix(1_700_000_000, int64(r.IntN(1000))).UTC()
	rec := workspaces.Record{ID: fmt.Sprintf("w-%d", n), Kind: workspaces.VirtualKind, Created: at, LastUsed: at}
	switch r.IntN(6) {
	case 0:
		rec.Kind, rec.Root = workspaces.PhysicalKind, fmt.Sprintf("/ws/%d", n)
		rec.Unfinished = r.IntN(3) == 0
	case 1:
		rec.Namespace = []string{"team", fmt.Sprint(n)}
	case 2, 3:
		rec.Fork = &workspaces.Fork{Of: fmt.Sprintf("w-%d", r.IntN(20)), Kind: "virtual", Unmade: r.IntN(2) == 0}
		if r.IntN(2) == 0 {
			rec.Fork.Expires = at.Add(time.Hour)
		}
	case 4:
		rec.Restored = true
	}
	return rec
}

// indexes are all that a record of someRecord may be in.
func indexes() map[workspaces.Index]bool {
	all := map[workspaces.Index]bool{workspaces.ByAge: true, workspaces.Resident: true, workspaces.Expiring: true, "stub/": true}
	for n := range 20 {
		all[workspaces.Index(fmt.Sprintf("fork/w-%d/", n))] = true
	}
	return all
}

// same fails where two stores list different records in an index, or count others.
func same(t *testing.T, got, want workspaces.Records, page int) {
	t.Helper()
	for x := range maps.Keys(indexes()) {
		all, _, err := want.List(x, "", 0)
		need.NoError(t, err)
		var list []workspaces.Record
		for after := ""; ; {
			part, last, err := got.List(x, after, page)
			if err != nil || page > 0 && len(part) > page {
				t.Fatal(len(part), err)
			}
			list = append(list, part...)
			if after = last; last == "" {
				break
			}
		}
		if len(list)+len(all) > 0 && !reflect.DeepEqual(list, all) {
			t.Fatalf("%s lists %+v, want %+v", x, list, all)
		}
	}
	n, err := got.Count()
	m, err2 := want.Count()
	if n != m || errors.Join(err, err2) != nil {
		t.Fatalf("counted %d, want %d, %v", n, m, errors.Join(err, err2))
	}
}

// TestRecords does random changes on the records of a database and on those in memory.
func TestRecords(t *testing.T) {
	seed := rand.Uint64()
	r := rand.New(rand.NewPCG(seed, 4))
	defer func() {
		if t.Failed() {
			t.Logf("seed %d", seed)
		}
	}()
	stored, err := OpenRecords(state.NewMemory())
	need.NoError(t, err)
	held := &workspaces.MemRecords{}
	for range 300 {
		if id := fmt.Sprintf("w-%d", r.IntN(40)); r.IntN(4) == 0 {
			need.NoError(t, errors.Join(stored.Delete(id), held.Delete(id)))
		} else {
			var list []workspaces.Record
			for _, n := range r.Perm(40)[:1+r.IntN(4)] {
				list = append(list, someRecord(r, n))
			}
			need.NoError(t, errors.Join(stored.Put(list...), held.Put(list...)))
			got, found, err := stored.Get(list[0].ID)
			if err != nil || !found || !reflect.DeepEqual(got, list[0]) {
				t.Fatal(got, found, err)
			}
		}
		same(t, stored, held, r.IntN(7))
	}
	if _, found, err := stored.Get("none"); found || err != nil {
		t.Error(found, err)
	}
	all, err := stored.All()
	want, _ := held.All()
	key := func(a, b workspaces.Record) int {
		return len(a.ID) - len(b.ID) + 2*slices.Compare([]byte(a.ID), []byte(b.ID))
	}
	slices.SortFunc(all, key)
	slices.SortFunc(want, key)
	if err != nil || !reflect.DeepEqual(all, want) {
		t.Errorf("%d records, want %d, %v", len(all), len(want), err)
	}
}

// TestRecordsOfBefore opens records without an index, as format 3 has them, also where
// a stop left a part of one.
func TestRecordsOfBefore(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	path := filepath.Join(t.TempDir(), "state.db")
	db, err := state.Open(path)
	need.NoError(t, err)
	defer db.Close()
	held := &workspaces.MemRecords{}
	err = db.Update(func(tx *state.Tx) error {
		for n := range 100 {
			rec := someRecord(r, n)
			if err := errors.Join(held.Put(rec), tx.Put(WorkspacesBucket, rec.ID, rec)); err != nil {
				return err
			}
		}
		return tx.Put(WorkspacesIndexBucket, "age/00000000000000000001/gone", 0)
	})
	need.NoError(t, err)
	for range 2 {
		stored, err := OpenRecords(db)
		need.NoError(t, err)
		same(t, stored, held, 0)
	}
	if err := db.Update(func(tx *state.Tx) error {
		return errors.Join(tx.Put(WorkspacesBucket, "bad", 7), tx.Delete(WorkspacesIndexBucket, countKey))
	}); err != nil {
		t.Fatal(err)
	}
	if _, err := OpenRecords(db); err == nil {
		t.Error("a damaged record was accepted")
	}
}

// TestSharedRecordsOfANamespace: where servers share the records, a key has half of a
// namespace's hash, and another workspace with the same half is not listed.
func TestSharedRecordsOfANamespace(t *testing.T) {
	db := state.NewShared()
	stored, err := OpenRecords(db)
	need.NoError(t, err)
	rec := func(id, segment string) (workspaces.Record, workspaces.Index) {
		r := workspaces.Record{ID: id, Kind: workspaces.VirtualKind, Namespace: []string{"team", segment}, Created: time.Unix(1, 0).UTC(), LastUsed: time.Unix(1, 0).UTC()}
		for _, key := range workspaces.IndexKeys(r) {
			if strings.HasPrefix(key, byName) {
				return r, workspaces.Index(strings.TrimSuffix(key, id))
			}
		}
		t.Fatal("no key of a namespace")
		return r, ""
	}
	a, ofA := rec("a-1", "a")
	b, ofB := rec("b-1", "b")
	need.NoError(t, stored.Put(a, b))
	// As if both had the same half.
	need.NoError(t, db.Put(WorkspacesIndexBucket, halved(string(ofB))+"a-1", 0))
	lists := func(x workspaces.Index, want ...workspaces.Record) {
		t.Helper()
		if list, last, err := stored.List(x, "", 1); err != nil || last != "" || !slices.EqualFunc(list, want, func(a, b workspaces.Record) bool { return reflect.DeepEqual(a, b) }) {
			t.Errorf("%s lists %+v, %q, %v, want %+v", x, list, last, err, want)
		}
	}
	lists(ofA, a)
	lists(ofB, b)
	var keys []string
	need.NoError(t, db.View(func(tx *state.Tx) error {
		return tx.Prefixed(WorkspacesIndexBucket, byName, "", func(key string, _ []byte) (bool, error) {
			keys = append(keys, key)
			return true, nil
		})
	}))
	if len(keys) != 3 || len(keys[0]) != len(byName)+nameHash/2+len("/a-1") {
		t.Errorf("the keys are %q", keys)
	}
	need.NoError(t, stored.Delete("a-1"))
	lists(ofA)
	need.NoError(t, db.Delete(WorkspacesIndexBucket, halved(string(ofB))+"a-1"))
	need.NoError(t, stored.Put(workspaces.Record{ID: "b-1", Kind: workspaces.VirtualKind, Created: b.Created, LastUsed: b.LastUsed}))
	lists(ofB)
}
