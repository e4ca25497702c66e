package gitstore

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"umbra/gitstore/message"
	"umbra/gitstore/object"
	"umbra/gitstore/records"
	"umbra/gitstore/storedir"
	"umbra/internal/errs"
	"umbra/internal/need"
	"umbra/internal/vfs"
)

// aged is a store whose commits are a minute apart.
type aged struct {
	*Store
	t   *testing.T
	dir string
	now time.Time
}

func newAged(t *testing.T) *aged {
	t.Helper()
	a := &aged{t: t, dir: testDir(t), now: time.Unix(1_700_000_000, 0)}
	a.open()
	t.Cleanup(func() { closeStore(t, a.Store) })
	baselineOf(t, a.Store, map[string]string{"a": "base a\n", "d/b": "base b\n", "d/e/c": strings.Repeat("a line of the base\n", 50)})
	return a
}

func (a *aged) open() {
	a.Store = openAt(a.t, a.dir, Options{Foreground: true, MergeGrace: time.Minute, InlineBlob: 8 << 10, Now: func() time.Time { return a.now },
		InUse: func(context.Context, []vfs.Info, []vfs.Info) (bool, error) { return false, nil }})
}

func (a *aged) reopen() {
	a.t.Helper()
	closeStore(a.t, a.Store)
	a.open()
}

// write makes a commit a minute after the last one.
func (a *aged) write(task, path, data string) Committed {
	a.t.Helper()
	a.now = a.now.Add(time.Minute)
	return mustPut(a.t, a.Store, task, path, data)
}

func (a *aged) task(id, status string, base ID) Task {
	a.t.Helper()
	task, err := a.PutTask(a.t.Context(), message.Info{TaskID: id, Goal: "goal of " + id, Status: status, Updated: a.now}, base)
	need.NoError(a.t, err)
	return task
}

// retain cuts to the newest commit that is as old as the given one.
func (a *aged) retain(at Committed) RetainReport {
	a.t.Helper()
	rep, err := a.Retain(a.t.Context(), RetainOptions{Before: at.When.Add(time.Second)})
	need.NoError(a.t, err)
	return rep
}

func (a *aged) collect() CollectReport {
	a.t.Helper()
	rep, err := a.Collect(a.t.Context(), CollectOptions{Now: true})
	need.NoError(a.t, err)
	return rep
}

// sound looks at the repository with git and with Verify, before and after a
// start.
func (a *aged) sound() {
	a.t.Helper()
	for range 2 {
		need.NoError(a.t, a.Publish(a.t.Context()))
		fsck(a.t, a.dir, "--no-dangling")
		if rep, err := a.Verify(a.t.Context(), nil); err != nil || len(rep.Problems) > 0 {
			a.t.Fatal(rep.Problems, err)
		}
		a.reopen()
	}
}

func (a *aged) revs(rev string) []string { return strings.Fields(git(a.t, a.dir, "rev-list", rev)) }

func TestRetentionDropsWhatIsOlder(t *testing.T) {
	a := newAged(t)
	var made []Committed
	a.task("before", "executing", ID{})
	for i := range 20 {
		made = append(made, a.write("before", "a", fmt.Sprintf("a %d\n", i)))
	}
	a.task("before", "completed", ID{})
	a.task("across", "executing", ID{})
	for i := range 20 {
		made = append(made, a.write("across", fmt.Sprintf("d/n%d", i), fmt.Sprintf("d %d\n", i)))
	}
	a.task("across", "completed", ID{})
	a.task("after", "executing", ID{})
	for i := range 20 {
		made = append(made, a.write("after", "d/e/c", fmt.Sprintf("c %d\n", i)))
	}
	base, _ := a.Task("across")
	need.NoError(t, a.Publish(t.Context()))
	old, at := made[5], made[29]
	rep := a.retain(at)
	if rep.To.Commit != at.Commit || rep.To.Seq != at.Seq || rep.Commits != at.Seq-1 || rep.Gone != 1 || rep.Across != 1 {
		t.Fatalf("cut to %+v", rep)
	}
	a.sound()
	if n := len(a.revs("shadow")); n != 31 {
		t.Errorf("git sees %d commits", n)
	}
	before := a.DiskBytes()
	got := a.collect()
	if got.Freed <= 0 || a.DiskBytes() >= before {
		t.Errorf("freed %d of %d bytes, %d are left", got.Freed, before, a.DiskBytes())
	}
	a.sound()
	if out, err := os.ReadFile(filepath.Join(a.dir, storedir.Repo, "shallow")); err != nil || string(out) != at.Commit.String()+"\n" {
		t.Errorf("shallow: %q, %v", out, err)
	}

	for _, c := range []Committed{old, made[28]} {
		if _, err := a.ReadCommit(t.Context(), c.Commit); !errs.Is(err, errs.Gone) {
			t.Errorf("commit %d: %v", c.Seq, err)
		}
		if _, err := a.CommitAt(t.Context(), c.Seq); !errs.Is(err, errs.Gone) {
			t.Errorf("number %d: %v", c.Seq, err)
		}
		if _, err := a.SnapshotOf(t.Context(), c.Commit); !errs.Is(err, errs.Gone) {
			t.Errorf("tree of %d: %v", c.Seq, err)
		}
	}
	if _, err := a.ReadCommit(t.Context(), object.Hash(object.Blob, []byte("never"))); !errs.Is(err, errs.NotFound) {
		t.Errorf("a commit that never was: %v", err)
	}
	if _, ok := a.Task("before"); ok {
		t.Error("the task before the boundary is there")
	}
	if out := git(t, a.dir, "for-each-ref", "refs/umbra/tasks/before"); out != "" {
		t.Errorf("its refs: %s", out)
	}
	task, ok := a.Task("across")
	if !ok || !task.BaseDropped() || task.Base != at.Commit || task.Head != made[39].Commit || task.Info.BaseWas != base.Base.String() || task.Changes != 20 {
		t.Errorf("the task across: %+v", task)
	}
	if out := strings.TrimSpace(git(t, a.dir, "rev-parse", "refs/umbra/tasks/across/info^{commit}")); out != at.Commit.String() {
		t.Errorf("its info is on %s", out)
	}
	recs, err := a.TaskRecords(t.Context(), "across")
	if err != nil || len(recs) != 10 || recs[0].Change != 11 {
		t.Errorf("its records: %v, %v", recs, err)
	}
	if task, _ := a.Task("after"); task.BaseDropped() || task.Base != made[39].Commit {
		t.Errorf("the task after: %+v", task)
	}
	next := a.write("after", "a", "more\n")
	if next.Seq != made[59].Seq+1 || next.Change != 21 {
		t.Errorf("the next commit is %+v", next)
	}
	need.NoError(t, a.Publish(t.Context()))
	clone := filepath.Join(t.TempDir(), "clone")
	git(t, a.dir, "clone", "-q", "--bare", "file://"+filepath.Join(a.dir, storedir.Repo), clone)
	if out := strings.TrimSpace(git(t, a.dir, "-C", clone, "rev-list", "--count", "HEAD")); out != "32" {
		t.Errorf("the clone has %s commits", out)
	}
	// Again, further on, and with the commit index lost.
	a.retain(made[50])
	a.collect()
	closeStore(t, a.Store)
	need.NoError(t, os.Remove(filepath.Join(a.dir, records.File)))
	a.open()
	a.sound()
	if _, err := a.ReadCommit(t.Context(), old.Commit); !errs.Is(err, errs.Gone) {
		t.Errorf("commit %d after the second cut: %v", old.Seq, err)
	}
}

// TestBoundaryIsFoundAgain: either of the two places that tell of it may be lost.
func TestBoundaryIsFoundAgain(t *testing.T) {
	a := newAged(t)
	a.task("t", "executing", ID{})
	var made []Committed
	for i := range 12 {
		made = append(made, a.write("t", "a", fmt.Sprintf("%d\n", i)))
	}
	a.task("t", "completed", ID{})
	a.retain(made[8])
	a.collect()
	want := a.Boundary()
	for name, lose := range map[string]func(){
		"shallow": func() {
			need.NoError(t, os.Remove(filepath.Join(a.dir, storedir.Repo, "shallow")))
		},
		"the note and the index": func() {
			for _, name := range []string{"refs", records.File, records.NamesFile} {
				need.NoError(t, os.Remove(filepath.Join(a.dir, name)))
			}
			fs, err := vfs.OS(a.dir)
			need.NoError(t, err)
			if got, err := Repair(t.Context(), Options{FS: fs}); err != nil || len(got.Cannot) > 0 {
				t.Fatalf("repair: %+v, %v", got, err)
			}
		},
	} {
		closeStore(t, a.Store)
		lose()
		a.open()
		if a.Boundary() != want {
			t.Errorf("without %s history begins at %v, not at %v", name, a.Boundary(), want)
		}
		a.sound()
	}
	if task, ok := a.Task("t"); !ok || !task.BaseDropped() || task.Head != made[11].Commit {
		t.Errorf("the task: %+v", task)
	}
}

// TestRetentionKeepsWhatPeopleHave: their own commits on ours, with what is
// staged, and nothing of it is lost by a collection.
func TestRetentionKeepsWhatPeopleHave(t *testing.T) {
	a := newAged(t)
	var made []Committed
	for i := range 10 {
		made = append(made, a.write("", "a", fmt.Sprintf("%d\n", i)))
	}
	need.NoError(t, a.Publish(t.Context()))
	work := filepath.Join(t.TempDir(), "w")
	git(t, a.dir, "worktree", "add", "-q", "-b", "mine", work, made[6].Commit.String())
	need.NoError(t, os.WriteFile(filepath.Join(work, "own"), []byte("a person's\n"), 0o644))
	git(t, a.dir, "-C", work, "add", "own")
	git(t, a.dir, "-C", work, "-c", "user.name=p", "-c", "user.email=p@example.org", "commit", "-q", "-m", "mine")
	// The blob of an old version, staged alone: no commit of theirs has it.
	old := strings.TrimSpace(git(t, a.dir, "rev-parse", made[1].Commit.String()+":a"))
	git(t, a.dir, "-C", work, "update-index", "--add", "--cacheinfo", "100644,"+old+",staged")
	if rep := a.retain(made[9]); rep.To.Commit != made[6].Commit {
		t.Errorf("cut to %+v", rep)
	}
	a.collect()
	a.sound()
	git(t, a.dir, "-C", work, "diff", "--cached", "--exit-code", "HEAD", "--", "own")
	git(t, a.dir, "cat-file", "-e", old)
	git(t, a.dir, "worktree", "remove", "--force", work)
	git(t, a.dir, "branch", "-q", "-D", "mine")
	a.retain(made[9])
	a.collect()
	if b := a.Boundary(); b.Commit != made[9].Commit {
		t.Errorf("history begins at %v", b)
	}
	if a.HasBlob(mustParse(t, old)) {
		t.Error("what nobody has any more is there")
	}
	a.sound()
}

func mustParse(t *testing.T, hex string) ID {
	t.Helper()
	id, err := object.ParseID(hex)
	need.NoError(t, err)
	return id
}

// TestCollectDropsCopies: what `git repack -a` wrote once more does not keep what
// was dropped; a pack with anything of a person's own stays.
func TestCollectDropsCopies(t *testing.T) {
	a := newAged(t)
	var made []Committed
	for i := range 10 {
		made = append(made, a.write("", "a", fmt.Sprintf("%d\n", i)))
	}
	need.NoError(t, a.Publish(t.Context()))
	git(t, a.dir, "repack", "-q", "-a", "-d", "-b")
	before := packsOnDisk(t, a.dir)
	a.retain(made[8])
	a.collect()
	if n := packsOnDisk(t, a.dir); n >= before {
		t.Errorf("%d packs, there were %d", n, before)
	}
	if out := git(t, a.dir, "cat-file", "--batch-all-objects", "--batch-check=%(objectname)"); strings.Contains(out, made[2].Commit.String()) {
		t.Error("a dropped commit is there")
	}
	a.sound()
	own := strings.TrimSpace(git(t, a.dir, "-c", "user.name=p", "-c", "user.email=p@example.org", "commit-tree", "-m", "own", "-p", "shadow", "shadow^{tree}"))
	git(t, a.dir, "branch", "own", own)
	git(t, a.dir, "repack", "-q", "-a", "-d")
	a.collect()
	git(t, a.dir, "cat-file", "-e", own)
	a.sound()
}
