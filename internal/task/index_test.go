package task

import (
	"path/filepath"
	"slices"
	"testing"
	"time"

	"umbra/internal/need"
	"umbra/internal/state"
)

func openState(t *testing.T, path string) *state.DB {
	t.Helper()
	db, err := state.Open(path)
	need.NoError(t, err)
	return db
}

func ids(recs []Record) []string {
	out := []string{}
	for _, r := range recs {
		out = append(out, r.ID)
	}
	return out
}

func known(t *testing.T, x *index, id string) (Record, bool) {
	t.Helper()
	r, ok, err := x.get(id)
	need.NoError(t, err)
	return r, ok
}

func reserved(t *testing.T, x *index, r Record) bool {
	t.Helper()
	ok, err := x.reserve(r)
	need.NoError(t, err)
	return ok
}

func byKeyOf(t *testing.T, x *index, key string) (Record, bool) {
	t.Helper()
	r, ok, err := x.withKey(key)
	need.NoError(t, err)
	return r, ok
}

func anyWorkspace(string) bool { return true }

func TestIndexKeepsAndPages(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.db")
	db := openState(t, path)
	x, err := loadIndex(db)
	need.NoError(t, err)
	start := time.Unix(1_700_000_000, 0).UTC()
	// Two share an instant, one comes late in the order of making.
	for i, id := range []string{"b", "a", "d", "c", "e"} {
		at := start.Add(time.Duration([]int{1, 1, 3, 2, 4}[i]) * time.Second)
		r := Record{ID: id, Workspace: "w" + id[:1], Created: at, Status: Executing, KeyHash: "k" + id}
		if !reserved(t, x, r) {
			t.Fatal(id, "is taken")
		}
		if err := x.put(r); err != nil {
			t.Fatal(id, err)
		}
	}
	if reserved(t, x, Record{ID: "a"}) {
		t.Error("an id was given twice")
	}
	need.NoError(t, x.put(Record{ID: "d", Workspace: "wd", Created: start.Add(3 * time.Second), Status: Failed, Deleted: true, KeyHash: "kd"}))
	db.Close()
	db = openState(t, path)
	defer db.Close()
	if x, err = loadIndex(db); err != nil {
		t.Fatal(err)
	}
	var got []string
	place := Record{}
	for {
		page, err := x.page(place, 2, filter{sees: anyWorkspace})
		need.NoError(t, err)
		if len(page) == 0 {
			break
		}
		got = append(got, ids(page)...)
		place, err = parseCursor(cursor(page[len(page)-1]))
		need.NoError(t, err)
	}
	if want := []string{"e", "c", "b", "a"}; !slices.Equal(got, want) {
		t.Errorf("pages give %v, want %v", got, want)
	}
	if r, ok := byKeyOf(t, x, "kc"); !ok || r.ID != "c" {
		t.Errorf("by key: %+v", r)
	}
	if _, ok := byKeyOf(t, x, ""); ok {
		t.Error("no key finds a task")
	}
	need.NoError(t, x.remove("c"))
	if _, ok := byKeyOf(t, x, "kc"); ok {
		t.Error("a removed task is found by its key")
	}
	for _, c := range []string{"!", "bm9wZQ", "MS8uLg", "eC9h"} {
		if _, err := parseCursor(c); err == nil {
			t.Errorf("cursor %q is taken", c)
		}
	}
}

func TestAttribution(t *testing.T) {
	db := openState(t, filepath.Join(t.TempDir(), "state.db"))
	defer db.Close()
	x, err := loadIndex(db)
	need.NoError(t, err)
	set := func(id string, st Status, auto, active bool) {
		t.Helper()
		need.NoError(t, x.put(Record{ID: id, Workspace: "w", Status: st, Auto: auto, Active: active}))
	}
	steps := []struct {
		id           string
		st           Status
		auto, active bool
		want         string
	}{
		{"a", Executing, false, false, "a"},
		{"b", Paused, false, false, "a"},
		{"b", Executing, false, false, ""},
		{"a", Completed, false, false, "b"},
		{"s", Executing, true, false, "b"},
		{"s", Executing, true, true, ""},
		{"b", Paused, false, false, "s"},
		{"s", Cancelled, true, true, ""},
	}
	for i, s := range steps {
		set(s.id, s.st, s.auto, s.active)
		if got := x.executing("w"); got != s.want {
			t.Errorf("step %d: %q, want %q", i, got, s.want)
		}
	}
	if got := x.executing("elsewhere"); got != "" {
		t.Errorf("another workspace has %q", got)
	}
}
