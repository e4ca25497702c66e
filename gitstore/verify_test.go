package gitstore

import (
	"fmt"
	"os"
	"path"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"umbra/gitstore/object"
	"umbra/gitstore/storedir"
	"umbra/gitstore/verify"
	"umbra/internal/need"
	"umbra/internal/vfs"
)

// agedHistory is a store with a task of 30 commits that is completed, and one of
// 30 that goes on, all published.
func agedHistory(t *testing.T) (a *aged, made []Committed) {
	t.Helper()
	a = newAged(t)
	for _, task := range []string{"old", "young"} {
		a.task(task, "executing", ID{})
		for i := range 30 {
			made = append(made, a.write(task, fmt.Sprintf("d/f%d", i%4), fmt.Sprintf("%s %d\n", task, i)))
		}
		a.task(task, "completed", ID{})
	}
	need.NoError(t, a.Publish(t.Context()))
	return a, made
}

// during verifies, and calls fn once when a number of commits has been looked at.
func (a *aged) during(commits uint64, fn func()) Report {
	a.t.Helper()
	rep, err := a.Verify(a.t.Context(), func(done, _ uint64) {
		if now := fn; done == commits {
			fn = func() {}
			now()
		}
	})
	need.NoError(a.t, err)
	return rep
}

func wantProblem(t *testing.T, rep Report, text string) {
	t.Helper()
	if !strings.Contains(strings.Join(rep.Problems, "\n"), text) {
		t.Errorf("not found: %q, but %q", text, rep.Problems)
	}
}

// TestVerifyBesideRetention: what is dropped while it looks is not missed.
func TestVerifyBesideRetention(t *testing.T) {
	for _, free := range []bool{false, true} {
		a, made := agedHistory(t)
		rep := a.during(10, func() {
			a.retain(made[39])
			if free {
				a.collect()
			}
		})
		if len(rep.Problems) > 0 || rep.Commits != 21 {
			t.Errorf("freed %v: %d commits looked at, %q", free, rep.Commits, rep.Problems)
		}
		// One that was read before the boundary passed it.
		rep = a.during(10, func() { a.retain(made[len(made)-1]) })
		if len(rep.Problems) > 0 || rep.Commits != 10 {
			t.Errorf("freed %v, once more: %d commits looked at, %q", free, rep.Commits, rep.Problems)
		}
	}
}

// TestVerifyWhileTheBoundaryMoves: between its steps git ends the history where it
// did before. What is wrong at that moment is told all the same.
func TestVerifyWhileTheBoundaryMoves(t *testing.T) {
	a, made := agedHistory(t)
	closeStore(t, a.Store)
	disk, err := vfs.OS(a.dir)
	need.NoError(t, err)
	refuses := false
	hook := &vfs.Hook{OnCall: func(c vfs.Call) error {
		if refuses && c.Op == vfs.OpRename && path.Base(c.Name) == "shallow" {
			return syscall.EIO
		}
		return nil
	}}
	if a.Store, err = Open(t.Context(), Options{FS: vfs.Inject(disk, hook), Foreground: true, Now: func() time.Time { return a.now }}); err != nil {
		t.Fatal(err)
	}
	shallow := filepath.Join(a.dir, storedir.Repo, "shallow")
	held := func(at Committed) {
		t.Helper()
		refuses = true
		if _, err := a.Retain(t.Context(), RetainOptions{Before: at.When.Add(time.Second)}); err == nil || a.Boundary().Commit != at.Commit {
			t.Fatalf("retain: %v, the boundary is %v", err, a.Boundary())
		}
	}
	clean := func() {
		t.Helper()
		if rep, err := a.Verify(t.Context(), nil); err != nil || len(rep.Problems) > 0 {
			t.Errorf("verify: %q %v", rep.Problems, err)
		}
	}
	end := func(at Committed) {
		t.Helper()
		refuses = false
		a.retain(at)
		clean()
	}
	held(made[9])
	clean()
	end(made[9])
	held(made[19])
	clean()
	was, err := os.ReadFile(shallow)
	need.NoError(t, err)
	for _, at := range []string{"while it moves", "after it moved"} {
		need.NoError(t, os.Remove(shallow))
		rep, err := a.Verify(t.Context(), nil)
		if err != nil {
			t.Fatal(at, err)
		}
		wantProblem(t, rep, "the file shallow does not name the commit "+made[19].Commit.String())
		need.NoError(t, os.WriteFile(shallow, was, 0o600))
		if at == "while it moves" {
			end(made[19])
			if was, err = os.ReadFile(shallow); err != nil {
				t.Fatal(err)
			}
		}
	}
	clean()
}

// TestVerifyOfATaskThatGoesOn: a task is judged as it is, not as it was when the
// list was made.
func TestVerifyOfATaskThatGoesOn(t *testing.T) {
	a, made := agedHistory(t)
	before := a.Tasks()
	a.retain(made[39])
	a.collect()
	v := &verify.Verifier{Ctx: t.Context(), S: a.r}
	for _, task := range before { // one is gone, one begins at the boundary now
		v.Task(task)
	}
	if len(v.Problems) > 0 {
		t.Errorf("%q", v.Problems)
	}
	lost := object.Hash(object.Blob, []byte("never"))
	a.Store.r.TaskMap.Mu.Lock()
	a.Store.r.TaskMap.ByID["young"].Base, a.Store.r.TaskMap.ByID["young"].InfoTag = made[20].Commit, lost
	a.Store.r.TaskMap.Mu.Unlock()
	for _, task := range a.Tasks() {
		v.Task(task)
	}
	wantProblem(t, v.Report, "task young: its base "+made[20].Commit.String()+" is missing")
	wantProblem(t, v.Report, "task young: its record is missing")
}

// TestVerifyBesideAPurge: what was looked at is no more the history, so all of it
// is looked at anew.
func TestVerifyBesideAPurge(t *testing.T) {
	a, _ := agedHistory(t)
	blob := a.NewBlob([]byte("old 3\n")).ID()
	rep := a.during(10, func() {
		if _, err := purgeOf(t.Context(), a.Store, PurgeOptions{Blobs: []ID{blob}}); err != nil {
			t.Fatal(err)
		}
	})
	if len(rep.Problems) > 0 || rep.Commits != 61 {
		t.Errorf("%d commits looked at, %q", rep.Commits, rep.Problems)
	}
}
