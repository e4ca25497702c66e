package backup

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"umbra/gitstore"
	"umbra/internal/errs"
	"umbra/internal/need"
	"umbra/internal/vfs"
)

func gone() error { return errs.New(errs.NotFound, "workspace_not_found", "gone") }

func TestBackupAndAgain(t *testing.T) {
	r := newRig(t)
	to := vfs.NewMem(vfs.MemOptions{})
	first, err := r.backup(to)
	r.must(err)
	if first.CopiedBytes != first.Bytes || first.Workspaces != 1 || len(first.Warnings) > 0 {
		t.Errorf("%+v", first)
	}
	if got := restored(t, to); got != r.moment() {
		t.Errorf("restored %+v, want %+v", got, r.moment())
	}
	again, err := r.backup(to)
	r.must(err)
	if again.CopiedBytes > 0 || again.ReusedBytes != first.Bytes {
		t.Errorf("nothing changed, and: %+v", again)
	}
	r.write()
	second, err := r.backup(to)
	r.must(err)
	if second.CopiedBytes == 0 || second.ReusedBytes == 0 || second.RemovedBytes == 0 {
		t.Errorf("%+v", second)
	}
	if got := restored(t, to); got != r.moment() {
		t.Errorf("restored %+v, want %+v", got, r.moment())
	}
}

// TestBackupMerges merges the packs away that a moment named, and drops them.
func TestBackupMerges(t *testing.T) {
	r := newRig(t)
	for range 12 {
		r.write()
	}
	times := 0
	r.frozen = func() {
		if times++; times > 2 {
			return
		}
		for range 3 { // the merge, the grace, the removal
			r.must(r.store.Maintain(context.Background()))
		}
		for range 6 {
			r.write()
			r.must(r.store.Publish(context.Background()))
		}
	}
	to := vfs.NewMem(vfs.MemOptions{})
	if _, err := r.backup(to); err != nil {
		t.Fatal(err)
	}
	if times < 2 {
		t.Error("no moment was taken again")
	}
	if got := restored(t, to); got != r.moment() {
		t.Errorf("restored %+v, want %+v", got, r.moment())
	}
}

// TestBackupKilled kills a second backup at every change that it makes: the result
// restores to the first or to the second, and the next run completes it.
func TestBackupKilled(t *testing.T) {
	r := newRig(t)
	to := vfs.NewMem(vfs.MemOptions{})
	_, err := r.backup(to)
	r.must(err)
	first := r.moment()
	r.write()
	second := r.moment()
	base := to.CrashClone(vfs.CrashOptions{Mode: vfs.CrashNothing})
	h := &vfs.Hook{}
	_, err = r.backup(vfs.Inject(base.CrashClone(vfs.CrashOptions{Mode: vfs.CrashNothing}), h))
	r.must(err)
	for n := 1; n <= h.Count(); n += stride() {
		at := base.CrashClone(vfs.CrashOptions{Mode: vfs.CrashNothing})
		hook := &vfs.Hook{}
		hook.StopAt(n, errKilled)
		if _, err := r.backup(vfs.Inject(at, hook)); err == nil {
			t.Fatalf("killed at call %d, and it ended", n)
		}
		clones(t, at, n, func(t *testing.T, clone *vfs.Mem) {
			if got := restored(t, clone); got != first && got != second {
				t.Fatalf("restored %+v, want %+v or %+v", got, first, second)
			}
			if _, err := r.backup(clone); err != nil {
				t.Fatal(err)
			}
			if got := restored(t, clone.CrashClone(vfs.CrashOptions{Mode: vfs.CrashSyncedOnly})); got != second {
				t.Fatalf("gone on with, it restores to %+v, want %+v", got, second)
			}
		})
	}
	t.Logf("%d calls", h.Count())
}

// TestFirstBackupKilled has nothing to fall back to, and copies nothing twice that
// it said is there.
func TestFirstBackupKilled(t *testing.T) {
	r := newRig(t)
	h := &vfs.Hook{}
	whole, err := r.backup(vfs.Inject(vfs.NewMem(vfs.MemOptions{}), h))
	r.must(err)
	for n := 1; n <= h.Count(); n += stride() {
		at := vfs.NewMem(vfs.MemOptions{})
		hook := &vfs.Hook{}
		hook.StopAt(n, errKilled)
		killed, err := r.backup(vfs.Inject(at, hook))
		if err == nil {
			t.Fatalf("killed at call %d, and it ended", n)
		}
		clones(t, at, n, func(t *testing.T, clone *vfs.Mem) {
			rep, err := r.backup(clone)
			need.NoError(t, err)
			if got := restored(t, clone); got != r.moment() {
				t.Fatalf("restored %+v, want %+v", got, r.moment())
			}
			if strings.HasSuffix(t.Name(), "nothing") && rep.CopiedBytes+killed.CopiedBytes < whole.CopiedBytes {
				t.Errorf("%d bytes, and %d of %d before", rep.CopiedBytes, killed.CopiedBytes, whole.CopiedBytes)
			}
		})
	}
}

// TestBackupFails has the backup's disk fail once, at every call.
func TestBackupFails(t *testing.T) {
	r := newRig(t)
	to := vfs.NewMem(vfs.MemOptions{})
	_, err := r.backup(to)
	r.must(err)
	first := r.moment()
	r.write()
	second := r.moment()
	h := &vfs.Hook{Reads: true}
	_, err = r.backup(vfs.Inject(to.CrashClone(vfs.CrashOptions{Mode: vfs.CrashNothing}), h))
	r.must(err)
	for _, errno := range errnos {
		for n := 1; n <= h.Count(); n += stride() {
			at := to.CrashClone(vfs.CrashOptions{Mode: vfs.CrashNothing})
			hook := &vfs.Hook{Reads: true, OnCall: func(c vfs.Call) error {
				if c.N == n {
					return vfs.Partial(errno)
				}
				return nil
			}}
			_, err := r.backup(vfs.Inject(at, hook))
			if err != nil && !errors.Is(err, errno) {
				t.Fatalf("call %d, %v: %v", n, errno, err)
			}
			t.Run(fmt.Sprintf("%v at %d", errno, n), func(t *testing.T) {
				clone := at.CrashClone(vfs.CrashOptions{Mode: vfs.CrashSyncedOnly})
				if got := restored(t, clone); got != first && got != second || err == nil && got != second {
					t.Fatalf("%v; restored %+v, want %+v", err, got, second)
				}
				if _, err := r.backup(at); err != nil {
					t.Fatal(err)
				}
				if got := restored(t, at); got != second {
					t.Fatalf("restored %+v, want %+v", got, second)
				}
			})
		}
	}
}

// TestRestoreKilled kills a restore at every change that it makes: a folder is not
// taken for a data directory until all of it is there, and the next run ends it.
func TestRestoreKilled(t *testing.T) {
	r := newRig(t)
	from := vfs.NewMem(vfs.MemOptions{})
	_, err := r.backup(from)
	r.must(err)
	want := r.moment()
	h := &vfs.Hook{}
	_, err = Restore(context.Background(), RestoreOptions{From: from, To: vfs.Inject(vfs.NewMem(vfs.MemOptions{}), h)})
	r.must(err)
	for n := 1; n <= h.Count(); n += stride() {
		at := vfs.NewMem(vfs.MemOptions{})
		hook := &vfs.Hook{}
		hook.StopAt(n, errKilled)
		if _, err := Restore(context.Background(), RestoreOptions{From: from, To: vfs.Inject(at, hook)}); err == nil {
			t.Fatalf("killed at call %d, and it ended", n)
		}
		clones(t, at, n, func(t *testing.T, clone *vfs.Mem) {
			if _, err := clone.Lstat(StageDir); err != nil {
				// No server is kept out.
				if _, err := clone.Lstat("format"); err == nil {
					if got := look(t, clone); got != want {
						t.Fatalf("%+v, want %+v", got, want)
					}
					return
				}
			}
			if _, err := Restore(context.Background(), RestoreOptions{From: from, To: clone}); err != nil {
				t.Fatal(err)
			}
			if got := look(t, clone); got != want {
				t.Fatalf("%+v, want %+v", got, want)
			}
		})
	}
	t.Logf("%d calls", h.Count())
}

// TestRestoreFails leaves nothing.
func TestRestoreFails(t *testing.T) {
	r := newRig(t)
	from := vfs.NewMem(vfs.MemOptions{})
	_, err := r.backup(from)
	r.must(err)
	for n := 1; ; n += stride() {
		to, met := vfs.NewMem(vfs.MemOptions{}), false
		hook := &vfs.Hook{OnCall: func(c vfs.Call) error {
			if c.N == n {
				met = true
				return vfs.Partial(errnos[0])
			}
			return nil
		}}
		_, err := Restore(context.Background(), RestoreOptions{From: from, To: vfs.Inject(to, hook)})
		if !met {
			return
		}
		if err == nil {
			t.Fatalf("call %d failed without an error", n)
		}
		if list, lerr := to.ReadDir("."); lerr != nil || len(list) > 0 {
			t.Errorf("call %d: %v; left: %v %v", n, err, list, lerr)
		}
	}
}

// TestDamagedPack: a damaged pack is reported, and read again the next time.
func TestDamagedPack(t *testing.T) {
	r := newRig(t)
	r.must(r.store.Publish(context.Background()))
	const packs = "workspaces/w/repo.git/objects/pack"
	list, err := r.data.ReadDir(packs)
	r.must(err)
	for _, e := range list {
		if strings.HasSuffix(e.Name, ".pack") {
			name := packs + "/" + e.Name
			text, err := vfs.ReadFile(r.data, name)
			r.must(err)
			text[len(text)/2] ^= 1
			r.file(name, string(text))
			break
		}
	}
	to := vfs.NewMem(vfs.MemOptions{})
	for range 2 {
		rep, err := r.backup(to)
		if err != nil || len(rep.Warnings) != 1 || !strings.Contains(rep.Warnings[0], "damaged") {
			t.Fatalf("%q %v", rep.Warnings, err)
		}
	}
}

// TestForgotten: a workspace that the records no longer name is in the backup as
// its files are, and one that is removed while it is copied has the records read again.
func TestForgotten(t *testing.T) {
	r := newRig(t)
	for _, dir := range []string{"workspaces/old", "workspaces/old/repo.git", "workspaces/old/journal"} {
		r.must(r.data.Mkdir(dir, 0o700))
	}
	r.file("workspaces/old/repo.git/HEAD", "ref: refs/heads/shadow\n")
	r.file("workspaces/old/refs", "note")
	r.file("workspaces/old/records", "a cache")
	to := vfs.NewMem(vfs.MemOptions{})
	rep, err := r.backup(to)
	if err != nil || rep.Workspaces != 1 {
		t.Fatal(rep, err)
	}
	data := vfs.NewMem(vfs.MemOptions{})
	_, err = Restore(context.Background(), RestoreOptions{From: to, To: data})
	r.must(err)
	for name, want := range map[string]bool{"workspaces/old/refs": true, "workspaces/old/repo.git/HEAD": true, "workspaces/old/records": false,
		"lock": false, "owner": false, "cache": false, "workspaces/w/records": false} {
		if _, err := data.Lstat(name); (err == nil) != want {
			t.Errorf("%s: %v", name, err)
		}
	}
	leaving := &leavingSource{rig: r}
	if _, err := Run(context.Background(), Options{Source: leaving, Data: r.data, To: to, Now: time.Now}); err != nil {
		t.Fatal(err)
	}
	if leaving.states != 2 {
		t.Errorf("the records were read %d times", leaving.states)
	}
}

// leavingSource names a workspace that is gone when it comes to it, once.
type leavingSource struct {
	*rig
	states int
}

// State is Source's.
func (s *leavingSource) State(ctx context.Context, w io.Writer) ([]string, error) {
	ids, err := s.rig.State(ctx, w)
	if s.states++; s.states == 1 {
		ids = append(ids, "gone")
	}
	return ids, err
}

// TestUnfinished: a workspace whose baseline is being taken, or was cut off, keeps
// no backup from being made, and none of its files is in it.
func TestUnfinished(t *testing.T) {
	r := newRig(t)
	r.must(r.data.Mkdir("workspaces/u", 0o700))
	r.file("workspaces/u/half", "half")
	to := vfs.NewMem(vfs.MemOptions{})
	for _, named := range []bool{true, false} { // in the records, or since
		rep, err := Run(context.Background(), Options{Source: &makingSource{rig: r, named: named}, Data: r.data, To: to, Now: time.Now})
		if err != nil || rep.Workspaces != 1 || len(rep.Warnings) > 0 {
			t.Fatalf("%+v, %v", rep, err)
		}
		data := vfs.NewMem(vfs.MemOptions{})
		_, err = Restore(context.Background(), RestoreOptions{From: to, To: data})
		r.must(err)
		if _, err := data.Lstat("workspaces/u"); err == nil {
			t.Error("the half workspace was copied")
		}
	}
}

// makingSource has a workspace u whose baseline is being taken.
type makingSource struct {
	*rig
	named bool
}

// State is Source's.
func (s *makingSource) State(ctx context.Context, w io.Writer) ([]string, error) {
	ids, err := s.rig.State(ctx, w)
	if s.named {
		ids = append(ids, "u")
	}
	return ids, err
}

// Freeze is Source's.
func (s *makingSource) Freeze(ctx context.Context, id string) (*gitstore.Frozen, error) {
	if id == "u" {
		return nil, errs.New(errs.Conflict, "workspace_unfinished", "not whole")
	}
	return s.rig.Freeze(ctx, id)
}
