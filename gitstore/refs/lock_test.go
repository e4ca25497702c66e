package refs

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"umbra/gitstore/object"
	"umbra/internal/need"
	"umbra/internal/vfs"
)

// memRepo is a repository in memory.
func memRepo(t *testing.T, f vfs.FS, opt Options) *Store {
	t.Helper()
	opt.FS, opt.Repo = f, "repo.git"
	if opt.Peel == nil {
		opt.Peel = func(object.ID) (object.ID, bool, error) { return object.Zero, false, nil }
	}
	need.NoError(t, Init(f, "repo.git"))
	s, err := Open(opt)
	need.NoError(t, err)
	return s
}

func create(t *testing.T, f vfs.FS, name string) {
	t.Helper()
	h, err := f.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o666)
	need.NoError(t, err)
	need.NoError(t, h.Close())
}

func TestWaitsForALock(t *testing.T) {
	for _, lock := range []string{ShadowRef, packedName} {
		synctest.Test(t, func(t *testing.T) {
			f := vfs.NewMem(vfs.MemOptions{})
			s := memRepo(t, f, Options{})
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			updates := []Update{{Name: TasksPrefix + "t/head", New: object.ID{1}}, {Name: ShadowRef, New: object.ID{1}}}
			if lock == packedName {
				update(t, s, updates...)
			}
			move := func(ctx context.Context) error {
				if lock == packedName {
					return s.Pack(ctx)
				}
				_, failed := s.Update(ctx, updates)
				return Join(failed)
			}
			create(t, f, "repo.git/"+lock+lockSuffix)
			start := time.Now()
			short, cancel2 := context.WithTimeout(t.Context(), 3*time.Second)
			defer cancel2()
			err := move(short)
			locked, ok := errors.AsType[*LockedError](err)
			if !ok || locked.Name != lock+lockSuffix || !errors.Is(err, context.DeadlineExceeded) || time.Since(start) != 3*time.Second {
				t.Errorf("after %v: %v", time.Since(start), err)
			}
			start = time.Now()
			if err := move(context.Background()); !errors.As(err, &locked) || time.Since(start) != defaultWait {
				t.Errorf("without a deadline, after %v: %v", time.Since(start), err)
			}
			if lock == ShadowRef && value(t, s, TasksPrefix+"t/head") != (object.ID{1}) {
				t.Error("what stands before it was not moved")
			}
			time.AfterFunc(5*time.Second, func() { f.Remove("repo.git/" + lock + lockSuffix) })
			if err := move(ctx); err != nil {
				t.Error(err)
			}
			if value(t, s, ShadowRef) != (object.ID{1}) {
				t.Error("it was not moved")
			}
			noTrash(t, f)
		})
	}
}

func TestOurDeadLockIsTakenOver(t *testing.T) {
	f := vfs.NewMem(vfs.MemOptions{})
	s := memRepo(t, f, Options{})
	need.NoError(t, f.Link("repo.git/"+markerName, "repo.git/"+ShadowRef+lockSuffix))
	update(t, s, Update{Name: ShadowRef, New: object.ID{1}})
	noTrash(t, f)
}

func TestMarkerIsMadeAnew(t *testing.T) {
	f := vfs.NewMem(vfs.MemOptions{})
	s := memRepo(t, f, Options{})
	need.NoError(t, f.Remove("repo.git/"+markerName))
	update(t, s, Update{Name: ShadowRef, New: object.ID{1}})
	links := 0
	full := vfs.Inject(f, &vfs.Hook{OnCall: func(c vfs.Call) error {
		if c.Op == vfs.OpLink && links == 0 {
			links++
			return syscall.EMLINK
		}
		return nil
	}})
	s, err := Open(Options{FS: full, Repo: "repo.git"})
	need.NoError(t, err)
	update(t, s, Update{Name: ShadowRef, New: object.ID{2}, Before: was(object.ID{1})})
	if links != 1 || value(t, s, ShadowRef) != (object.ID{2}) {
		t.Errorf("%d links, at %s", links, value(t, s, ShadowRef))
	}
	noTrash(t, f)
}

func TestClearStale(t *testing.T) {
	r := newRepo(t)
	path := func(name string) string { return filepath.Join(r.dir, name) }
	need.NoError(t, os.MkdirAll(path("worktrees/w"), 0o777))
	for _, name := range []string{"refs/heads/young.lock", "refs/heads/old.lock", "refs/heads/used.lock", "packed-refs.lock", "HEAD.lock",
		"config.lock", "worktrees/w/index.lock", "objects/pack/multi-pack-index.lock", "refs/heads/old"} {
		need.NoError(t, os.WriteFile(path(name), nil, 0o666))
		if name != "refs/heads/young.lock" {
			old := time.Now().Add(-staleAge - time.Minute)
			need.NoError(t, os.Chtimes(path(name), old, old))
		}
	}
	need.NoError(t, os.Link(path(markerName), path("refs/tags/ours.lock")))
	used, err := os.Open(path("refs/heads/used.lock"))
	need.NoError(t, err)
	defer used.Close()
	got, err := r.open().ClearStale(t.Context())
	need.NoError(t, err)
	slices.Sort(got)
	want := []string{"HEAD.lock", "config.lock", "objects/pack/multi-pack-index.lock", "packed-refs.lock", "refs/heads/old.lock",
		"refs/tags/ours.lock", "worktrees/w/index.lock"}
	if !slices.Equal(got, want) {
		t.Errorf("cleared %v\nwant %v", got, want)
	}
	for _, name := range append(want, "refs/heads/young.lock", "refs/heads/used.lock", "refs/heads/old", markerName) {
		_, err := os.Stat(path(name))
		if gone := os.IsNotExist(err); gone != slices.Contains(want, name) {
			t.Errorf("%s: gone is %v", name, gone)
		}
	}
}

// removing is a file system on which another process removes a directory above
// the one that is being made, a number of times.
type removing struct {
	vfs.FS
	times int
}

func (r *removing) Mkdir(name string, perm fs.FileMode) error {
	if r.times > 0 && strings.HasSuffix(name, "/tasks/a") {
		r.times--
		return &fs.PathError{Op: "mkdir", Path: name, Err: syscall.ENOENT}
	}
	return r.FS.Mkdir(name, perm)
}

// A ref is set although git removes the empty directories on its way meanwhile.
func TestDirectoryRemovedWhileItIsMade(t *testing.T) {
	r := newRepo(t)
	r.fs = &removing{FS: r.fs, times: 5}
	s := r.open()
	id := r.commit("c")
	update(t, s, Update{Name: TasksPrefix + "a/head", New: id})
	if got := value(t, s, TasksPrefix+"a/head"); got != id {
		t.Errorf("the ref is %s", got)
	}
}
