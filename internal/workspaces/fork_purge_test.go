package workspaces

import (
	"testing"
	"time"

	"umbra/gitstore"
	"umbra/gitstore/message"
	"umbra/gitstore/object"
	"umbra/internal/errs"
	"umbra/internal/workspace"
	"umbra/internal/wspath"
)

// secretBench is a workspace whose file a had a secret.
func secretBench(t *testing.T) *bench {
	b := newBench(t, map[string]string{"a": "secret", "b": "b"})
	b.ok(write("a", "clean"))
	return b
}

func (b *bench) fork(t *testing.T) Record {
	t.Helper()
	made, err := b.m.ForkVirtual(t.Context(), b.w, ForkSpec{}, []string{""})
	must(t, err)
	return made[0]
}

func (b *bench) purge(id string, progress func(step string)) error {
	w, err := b.m.Get(b.t.Context(), id)
	must(b.t, err)
	defer w.Release()
	_, err = w.Purge(b.t.Context(), workspace.PurgeRequest{Path: "a", Ignore: w.Root() == "", Progress: func(step string, _, _ int64) {
		if progress != nil {
			progress(step)
		}
	}})
	return err
}

// A forced deletion that fails after the forks got histories of their own leaves the
// secret in them: a purge of the parent says so, and does nothing until they are purged.
func TestPurgeAfterDetach(t *testing.T) {
	b := secretBench(t)
	defer b.stop()
	r := b.fork(t)
	must(t, b.m.Detach(t.Context(), b.w.ID())) // and then the deletion fails
	tip := b.w.Store().Tip()
	if err := b.purge(b.w.ID(), nil); errs.CodeOf(err) != "has_forks" || b.w.Store().Tip() != tip {
		t.Fatalf("%v; the tip was %v and is %v", err, tip.Commit, b.w.Store().Tip().Commit)
	}
	must(t, b.purge(r.ID, nil))
	must(t, b.purge(b.w.ID(), nil))
}

// The same holds for the forks of a fork that was deleted.
func TestPurgeAfterForkBetween(t *testing.T) {
	b := secretBench(t)
	defer b.stop()
	between := b.fork(t)
	w, err := b.m.Get(t.Context(), between.ID)
	must(t, err)
	made, err := b.m.ForkVirtual(t.Context(), w, ForkSpec{}, []string{""})
	must(t, err)
	w.Release()
	must(t, b.m.Detach(t.Context(), between.ID))
	must(t, b.m.Forget(t.Context(), between.ID, true))
	if err := b.purge(b.w.ID(), nil); errs.CodeOf(err) != "has_forks" {
		t.Fatal(err)
	}
	must(t, b.purge(made[0].ID, nil))
	must(t, b.purge(b.w.ID(), nil))
}

// detached makes a fork at a commit of the bench's workspace, with a history of its own.
func (b *bench) detached(t *testing.T, at object.ID) *workspace.Workspace {
	t.Helper()
	made, err := b.m.ForkVirtual(t.Context(), b.w, ForkSpec{At: at}, []string{""})
	must(t, err)
	must(t, b.m.Detach(t.Context(), b.w.ID()))
	fork, err := b.m.Get(t.Context(), made[0].ID)
	must(t, err)
	return fork
}

// What a dry run of a purge reports of related forks, it finds without a change to them: what
// nothing reaches there is removed by the purge.
func TestPurgeDryRunOfForks(t *testing.T) {
	b := newBench(t, map[string]string{"b": "b"})
	defer b.stop()
	before := b.w.Store().Tip().Commit
	b.ok(write("a", "secret"))
	b.ok(write("a", "clean"))
	fork := b.detached(t, before)
	defer fork.Release()
	secret := object.Hash(object.Blob, []byte("secret"))
	if !fork.Store().HasBlob(secret) {
		t.Fatal("the fork has no pack with the secret")
	}
	_, err := b.w.Purge(t.Context(), workspace.PurgeRequest{Path: "a", DryRun: true})
	must(t, err)
	if !fork.Store().HasBlob(secret) {
		t.Error("the dry run removed the secret from the fork")
	}
	must(t, b.purge(b.w.ID(), nil))
	if fork.Store().HasBlob(secret) {
		t.Error("the purge left the secret in the fork")
	}
}

// A purge that is refused leaves related forks as they are too, whether a fork refuses it or a
// file on disk.
func TestPurgeRefusedOfForks(t *testing.T) {
	secret := object.Hash(object.Blob, []byte("secret"))
	for _, code := range []string{"has_forks", "purge_on_disk"} {
		b := newBench(t, map[string]string{"b": "b"})
		defer b.stop()
		before := b.w.Store().Tip().Commit
		b.ok(write("a", "secret"))
		b.ok(write("a", "clean"))
		var clean []*workspace.Workspace
		for i := range 3 { // the one in the middle has it in its history
			at := before
			if i == 1 && code == "has_forks" {
				at = object.Zero
			}
			fork := b.detached(t, at)
			defer fork.Release()
			if at == before {
				clean = append(clean, fork)
			}
		}
		if code == "purge_on_disk" {
			b.ok(write("c", "secret"))
		}
		if err := b.purge(b.w.ID(), nil); errs.CodeOf(err) != code {
			t.Fatalf("%v, not %s", err, code)
		}
		for _, fork := range clean {
			if !fork.Store().HasBlob(secret) {
				t.Errorf("%s: the refused purge removed the secret from %s", code, fork.ID())
			}
		}
	}
}

// A fork that is made while a purge is under way keeps its history whole.
func TestForkBesidePurge(t *testing.T) {
	b := secretBench(t)
	defer b.stop()
	var r Record
	err := b.purge(b.w.ID(), func(step string) {
		if step == "looking at the directory" && r.ID == "" {
			r = b.fork(t)
		}
	})
	if errs.CodeOf(err) != "has_forks" {
		t.Errorf("the purge: %v", err)
	}
	b.whole(t, r.ID)
}

// The same of retention.
func TestForkBesideRetention(t *testing.T) {
	b := secretBench(t)
	defer b.stop()
	old := b.w.Store().Tip().Commit
	_, err := b.w.Store().PutTask(t.Context(), message.Info{TaskID: "old", Status: "completed"}, old)
	must(t, err)
	b.ok(write("a", "newer"))
	b.ok(write("a", "newest"))
	var r Record
	_, err = b.w.Retain(t.Context(), gitstore.RetainOptions{Before: time.Now().Add(time.Hour), Keep: func([]gitstore.Task) error {
		made, err := b.m.ForkVirtual(t.Context(), b.w, ForkSpec{At: old}, []string{""})
		r = made[0]
		return err
	}})
	must(t, err)
	if r.ID == "" {
		t.Fatal("no task went")
	}
	b.whole(t, r.ID)
}

// whole checks that a fork opens and is sound.
func (b *bench) whole(t *testing.T, id string) {
	t.Helper()
	w, err := b.m.Get(t.Context(), id)
	if err != nil {
		t.Errorf("the fork cannot be opened: %v", err)
		return
	}
	defer w.Release()
	e, ok, err := w.Store().Snapshot().Lookup(wspath.Path("a"))
	if err != nil || !ok {
		t.Fatal(ok, err)
	}
	_, err = w.Store().ReadBlob(t.Context(), e.ID, 1<<20)
	must(t, err)
	report, err := w.Store().Verify(t.Context(), nil)
	if err != nil || len(report.Problems) > 0 {
		t.Errorf("%v %v", report.Problems, err)
	}
}
