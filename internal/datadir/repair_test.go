package datadir

import (
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"umbra/gitstore"
	"umbra/internal/need"
	"umbra/internal/state"
	"umbra/internal/vfs"
	"umbra/internal/workspaces"
)

// TestRepairForgetsAnswers: a repair may move the head and free room, so what
// the record says of a workspace that was put away holds no longer.
func TestRepairForgetsAnswers(t *testing.T) {
	path := filepath.Join(t.TempDir(), "data")
	must := func(err error) {
		t.Helper()
		need.NoError(t, err)
	}
	// records opens the records for a moment.
	records := func(do func(Records)) {
		t.Helper()
		dir, err := state.Acquire(path)
		must(err)
		db, err := state.Open(dir.Join("state.db"))
		must(err)
		stored, err := OpenRecords(db)
		must(err)
		do(stored)
		must(db.Close())
		must(dir.Release())
	}
	rest := workspaces.Rest{Head: "0123456789012345678901234567890123456789", DiskBytes: 7, Warnings: []string{"pack x is damaged"}}
	records(func(r Records) {
		for _, id := range []string{"one-00000001", "two-00000002"} {
			must(os.MkdirAll(filepath.Join(path, "workspaces", id), 0o700))
			files, err := vfs.OS(filepath.Join(path, "workspaces", id))
			must(err)
			s, err := gitstore.Open(t.Context(), gitstore.Options{FS: files})
			must(err)
			must(s.Close(t.Context()))
			must(r.Put(workspaces.Record{ID: id, Root: "/nowhere/" + id, Rest: &rest}))
		}
	})
	done, err := Repair(t.Context(), path, []string{"two-00000002"}, slog.New(slog.DiscardHandler))
	if err != nil || len(done) != 1 || len(done["two-00000002"].Cannot) > 0 {
		t.Fatalf("%v, %v", done, err)
	}
	records(func(r Records) {
		all, err := r.All()
		must(err)
		for _, rec := range all {
			if repaired := rec.ID == "two-00000002"; (rec.Rest == nil) != repaired {
				t.Errorf("%s: what was told is %+v", rec.ID, rec.Rest)
			}
		}
	})
}
