package gitstore

import (
	"testing"
	"time"

	"umbra/internal/errs"
	"umbra/internal/need"
)

// TestPurgeBehindABoundary: where older history was dropped, the boundary's
// commit gets another id too, and what waits to be removed goes.
func TestPurgeBehindABoundary(t *testing.T) {
	a := newAged(t)
	a.task("t", "executing", ID{})
	a.write("t", "secret", secret+"\n")
	old := a.write("t", "x", "1\n")
	cutAt := a.write("t", "x", "2\n")
	a.task("t", "completed", ID{})
	a.task("u", "executing", ID{})
	late := a.write("u", "secret", secret+" again\n")
	a.write("u", "secret", "vault\n")
	need.NoError(t, a.Publish(t.Context()))
	rep, err := a.Retain(t.Context(), RetainOptions{Before: a.now.Add(time.Hour)})
	if err != nil || rep.To.Commit != cutAt.Commit {
		t.Fatalf("retain: %+v %v, want the boundary at %s", rep, err, cutAt.Commit)
	}
	// The boundary's tree has the first content, a later one the second.
	blobs := []ID{a.NewBlob([]byte(secret + "\n")).ID(), a.NewBlob([]byte(secret + " again\n")).ID()}
	if _, err := purgeOf(t.Context(), a.Store, PurgeOptions{Blobs: blobs}); err != nil {
		t.Fatal(err)
	}
	if b := a.Boundary(); b.Commit == cutAt.Commit || b.Seq != cutAt.Seq {
		t.Errorf("the boundary is %s", b)
	}
	if _, err := a.Collect(t.Context(), CollectOptions{Now: true, Thorough: true}); err != nil {
		t.Fatal(err)
	}
	check := func() {
		t.Helper()
		if rep, err := a.Verify(t.Context(), nil); err != nil || len(rep.Problems) > 0 {
			t.Errorf("verify: %v %v", rep.Problems, err)
		}
		fsck(t, a.dir)
		if found := need.Leaks(t, a.dir, secret); len(found) > 0 {
			t.Errorf("left on disk: %v", found)
		}
		if _, err := a.ReadCommit(t.Context(), old.Commit); errs.CodeOf(err) != "history_dropped" {
			t.Errorf("a dropped commit: %v", err)
		}
		if _, err := a.ReadCommit(t.Context(), late.Commit); errs.CodeOf(err) != "history_rewritten" {
			t.Errorf("a rewritten commit: %v", err)
		}
		git(t, a.dir, "clone", "-q", "--no-local", ".", testDir(t))
	}
	check()
	a.reopen()
	check()
}
