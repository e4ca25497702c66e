package task

import (
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"umbra/internal/need"
	"umbra/internal/state"
)

// The index answers as a list of all records would, whatever of it is in memory
// and whatever in the database, also after a start and with buckets of a program
// that knew only the records.
func TestIndexIsAList(t *testing.T) {
	for seed := range uint64(6) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) { indexModel(t, rand.New(rand.NewPCG(seed, 1))) })
	}
}

func indexModel(t *testing.T, r *rand.Rand) {
	path := filepath.Join(t.TempDir(), "state.db")
	db := openState(t, path)
	defer func() { db.Close() }()
	x, err := loadIndex(db)
	check := func(err error) {
		t.Helper()
		need.NoError(t, err)
	}
	check(err)
	all := map[string]Record{}
	statuses := []Status{Executing, Paused, Completed, Failed, Cancelled}
	start := time.Unix(1_700_000_000, 0).UTC()
	pick := func(list ...string) string { return list[r.IntN(len(list))] }
	for range 400 {
		id := fmt.Sprintf("t%d", r.IntN(40))
		was, exists := all[id]
		rec := was
		if !exists {
			rec = Record{ID: id, Workspace: pick("w1", "w2", "w10"), Created: start.Add(time.Duration(r.IntN(9)) * time.Second), Status: Executing,
				Parent: pick("", "", "p", "pp"), KeyHash: pick("", "k"+id)}
		}
		switch op := r.IntN(10); {
		case op < 4: // noted, and written a moment later
			end, err := x.begin(rec.Workspace)
			check(err)
			if !exists && !reserved(t, x, rec) {
				t.Fatalf("%s is taken", id)
			}
			rec.Status = statuses[r.IntN(len(statuses))]
			rec.Deleted = rec.Status.Ended() && r.IntN(3) == 0
			x.note(rec)
			end()
			all[id] = rec
		case op < 6:
			rec.Status = statuses[r.IntN(len(statuses))]
			check(x.put(rec))
			all[id] = rec
		case op == 6:
			check(x.remove(id))
			delete(all, id)
		case op == 7:
			check(x.flush(0))
		case op == 8: // a start
			check(x.close())
			check(db.Close())
			db = openState(t, path)
			if r.IntN(2) == 0 { // of a program of before
				check(db.Update(func(tx *state.Tx) error { return tx.DeleteBucket(indexMade) }))
			}
			x, err = loadIndex(db)
			check(err)
		case exists && reserved(t, x, rec):
			t.Fatalf("%s was given twice", id)
		}
		compareIndex(t, x, all, pick, r.IntN(4))
	}
	check(x.close())
}

func compareIndex(t *testing.T, x *index, all map[string]Record, pick func(...string) string, n int) {
	t.Helper()
	var list []Record
	for _, r := range all {
		list = append(list, r)
	}
	slices.SortFunc(list, newestFirst)
	for id, want := range all {
		if got, ok := known(t, x, id); !ok || !got.same(want) {
			t.Fatalf("%s is %+v, want %+v", id, got, want)
		}
	}
	f := filter{status: Status(pick("", "", "executing", "failed")), workspace: pick("", "w1", "w10"), sees: anyWorkspace}
	if pick("a", "b", "c") == "a" {
		f.sees = func(ws string) bool { return ws == "w1" }
	}
	var want, got []string
	for _, r := range list {
		if f.want(r) {
			want = append(want, r.ID)
		}
	}
	for before := (Record{}); ; {
		page, err := x.page(before, n+1, f)
		need.NoError(t, err)
		if len(page) == 0 {
			break
		}
		got = append(got, ids(page)...)
		before = page[len(page)-1]
	}
	if !slices.Equal(got, want) {
		t.Fatalf("the list of %+v is %v, want %v", f, got, want)
	}
	for _, ws := range []string{"w1", "w2", "w10"} {
		count, on, live := 0, []string{}, 0
		for _, r := range list {
			if r.Workspace == ws {
				on = append(on, r.ID)
				if !r.Deleted {
					count++
					if !r.Status.Ended() {
						live++
					}
				}
			}
		}
		recs, err := x.on(ws)
		need.NoError(t, err)
		slices.SortFunc(recs, newestFirst)
		if n, err := x.count(ws); err != nil || n != count || x.live(ws) != live || !slices.Equal(ids(recs), on) {
			t.Fatalf("%s has %d tasks, %d live, %v, want %d, %d, %v (%v)", ws, n, x.live(ws), ids(recs), count, live, on, err)
		}
	}
	for _, p := range []string{"p", "pp"} {
		var want []string
		for _, r := range list {
			if r.Parent == p && !r.Deleted {
				want = append(want, r.ID)
			}
		}
		recs, err := x.children(p)
		slices.SortFunc(recs, newestFirst)
		if got := ids(recs); err != nil || len(got)+len(want) > 0 && !slices.Equal(got, want) {
			t.Fatalf("the children of %s are %v, want %v (%v)", p, got, want, err)
		}
	}
	for _, r := range list {
		if r.KeyHash == "" {
			continue
		}
		if got, ok := byKeyOf(t, x, r.KeyHash); !ok || got.ID != r.ID {
			t.Fatalf("the key of %s leads to %q", r.ID, got.ID)
		}
	}
}
