package gitstore

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"umbra/gitstore/message"
	"umbra/gitstore/object"
	"umbra/gitstore/storedir"
	"umbra/internal/errs"
	"umbra/internal/need"
	"umbra/internal/vfs"
)

// forkOf opens a store that continues another's history, in a directory beside it.
func forkOf(t *testing.T, base *Store, at ID, baseDir, dir string) *Store {
	t.Helper()
	rel, err := filepath.Rel(filepath.Join(dir, storedir.Repo, "objects"), filepath.Join(baseDir, storedir.Repo, "objects"))
	need.NoError(t, err)
	return openAt(t, dir, Options{Base: &Base{Store: base, At: at, Alternate: rel}})
}

func addTask(t *testing.T, s *Store, id string) {
	t.Helper()
	if _, err := s.PutTask(t.Context(), message.Info{TaskID: id, Goal: id, Status: "executing"}, ID{}); err != nil {
		t.Fatal(err)
	}
}

func TestForkContinuesHistory(t *testing.T) {
	dir, forkDir, deepDir := testDir(t), testDir(t), testDir(t)
	parent := openAt(t, dir, Options{})
	baselineOf(t, parent, map[string]string{"a.txt": "one\n", "dir/b.txt": "two\n"})
	addTask(t, parent, "t1")
	at := mustPut(t, parent, "t1", "a.txt", "two\n")
	mustPut(t, parent, "t1", "later.txt", "only in the parent\n")
	need.NoError(t, parent.Publish(t.Context()))

	fork := forkOf(t, parent, at.Commit, dir, forkDir)
	if tip := fork.Tip(); tip.Commit != at.Commit || tip.Seq != at.Seq || fork.ForkedAt() != at.Seq {
		t.Fatalf("the fork begins at %+v, not at %+v", tip, at)
	}
	fsck(t, forkDir, "--no-dangling")
	addTask(t, fork, "t2")
	first := mustPut(t, fork, "t2", "dir/b.txt", "fork\n")
	if first.Seq != at.Seq+1 || first.Parent != at.Commit {
		t.Fatalf("the fork's first commit is %+v", first)
	}
	for i := range 20 {
		mustPut(t, fork, "t2", fmt.Sprintf("dir/new%d.txt", i), fmt.Sprint("fork ", i, "\n"))
	}
	if got := content(t, fork, "a.txt"); got != "two\n" {
		t.Fatalf("a.txt has %q", got)
	}
	if _, ok, _ := fork.Snapshot().Lookup("later.txt"); ok {
		t.Fatal("a later file of the parent's is in the fork")
	}
	need.NoError(t, fork.Publish(t.Context()))
	fsck(t, forkDir, "--no-dangling")
	if got := strings.TrimSpace(git(t, forkDir, "rev-list", "--count", "refs/heads/shadow")); got != fmt.Sprint(fork.Tip().Seq) {
		t.Fatalf("git counts %s commits of %d", got, fork.Tip().Seq)
	}

	// A fork of the fork, and all of it again after a restart.
	check := func(parent, fork, deep *Store) {
		t.Helper()
		for s, want := range map[*Store][2]int{fork: {1, 21}, deep: {1, 22}} {
			for i, task := range []string{"t1", "t2"} {
				recs, err := s.TaskRecords(t.Context(), task)
				if err != nil || len(recs) != want[i] {
					t.Errorf("%d records of %s, not %d: %v", len(recs), task, want[i], err)
				}
			}
			n := uint64(0)
			var all []Record
			if err := s.Records(t.Context(), 1, s.Tip().Seq, func(r Record) error {
				all = append(all, r)
				if n++; r.Seq != n {
					return fmt.Errorf("record %d is number %d", n, r.Seq)
				}
				return nil
			}); err != nil || n != s.Tip().Seq {
				t.Errorf("%d records of %d: %v", n, s.Tip().Seq, err)
			}
			checkTouching(t, s, all)
			rep, err := s.Verify(t.Context(), nil)
			if err != nil || len(rep.Problems) > 0 {
				t.Errorf("verify: %v %v", rep.Problems, err)
			}
		}
	}
	need.NoError(t, fork.Publish(t.Context()))
	deepAt := fork.Tip()
	deep := forkOf(t, fork, deepAt.Commit, forkDir, deepDir)
	addTask(t, deep, "t2") // of its own, and it goes on counting
	mustPut(t, deep, "t2", "deep.txt", "deep\n")
	check(parent, fork, deep)
	closeStore(t, deep)
	closeStore(t, fork)
	closeStore(t, parent)
	parent = openAt(t, dir, Options{})
	fork = forkOf(t, parent, at.Commit, dir, forkDir)
	deep = forkOf(t, fork, deepAt.Commit, forkDir, deepDir)
	check(parent, fork, deep)
	if deep.Depth() != 2 {
		t.Fatalf("the fork's fork is %d deep", deep.Depth())
	}
	fsck(t, deepDir, "--no-dangling")

	// Made a store of its own it needs nobody.
	closeStore(t, deep)
	to, err := vfs.OS(deepDir)
	need.NoError(t, err)
	for range 2 {
		need.NoError(t, fork.Detach(t.Context(), to))
	}
	closeStore(t, fork)
	closeStore(t, parent)
	deep = openAt(t, deepDir, Options{})
	defer closeStore(t, deep)
	check(nil, deep, deep)
	fsck(t, deepDir, "--no-dangling")
	if got := content(t, deep, "a.txt"); got != "two\n" {
		t.Fatalf("a.txt has %q", got)
	}
}

// A blob that only the base has is committed by its id, and read after a crash.
func TestForkTakesKnownBlobs(t *testing.T) {
	dir, forkDir := testDir(t), testDir(t)
	parent := openAt(t, dir, Options{})
	defer closeStore(t, parent)
	at := baselineOf(t, parent, map[string]string{"a.txt": "one\n"})
	later := mustPut(t, parent, "", "b.txt", "of the parent\n")
	need.NoError(t, parent.Publish(t.Context()))
	fork := forkOf(t, parent, at.Commit, dir, forkDir)
	snap, err := parent.SnapshotOf(t.Context(), later.Commit)
	need.NoError(t, err)
	e, ok, err := snap.Lookup("b.txt")
	if err != nil || !ok {
		t.Fatal(ok, err)
	}
	if !fork.HasBlob(e.ID) {
		t.Fatal("the fork does not have the parent's blob")
	}
	if _, err := fork.Commit(t.Context(), Draft{Edits: []Edit{{Path: "c.txt", Mode: object.Regular, Blob: KnownBlob(e.ID)}}, Entries: 1,
		Message: message.Message{Actor: "tester", Source: message.API, Entries: []message.Entry{{Operation: message.Create, Path: "c.txt"}}}}); err != nil {
		t.Fatal(err)
	}
	crashed := testDir(t) // as a kill leaves it: the journal is not closed
	need.NoError(t, os.CopyFS(crashed, os.DirFS(forkDir)))
	closeStore(t, fork)
	again := forkOf(t, parent, at.Commit, dir, crashed)
	defer closeStore(t, again)
	if got := content(t, again, "c.txt"); got != "of the parent\n" {
		t.Fatalf("c.txt has %q", got)
	}
	fsck(t, crashed, "--no-dangling")
	if _, err := again.ReadCommit(t.Context(), ID{1}); !errs.Is(err, errs.NotFound) {
		t.Fatalf("a commit that never was: %v", err)
	}
}
