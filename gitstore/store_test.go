package gitstore

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"umbra/gitstore/journal"
	"umbra/gitstore/message"
	"umbra/gitstore/object"
	"umbra/gitstore/storedir"
	"umbra/internal/errs"
	"umbra/internal/need"
	"umbra/internal/vfs"
	"umbra/internal/wspath"
)

// testDir gives an empty folder, on tmpfs if the machine has one.
func testDir(t testing.TB) string {
	t.Helper()
	base := ""
	if info, err := os.Stat("/dev/shm"); err == nil && info.IsDir() {
		base = "/dev/shm"
	}
	dir, err := os.MkdirTemp(base, "gitstore-")
	need.NoError(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

func openAt(t testing.TB, dir string, opt Options) *Store {
	t.Helper()
	fs, err := vfs.OS(dir)
	need.NoError(t, err)
	opt.FS = fs
	s, err := Open(t.Context(), opt)
	need.NoError(t, err)
	return s
}

func closeStore(t testing.TB, s *Store) {
	t.Helper()
	need.NoError(t, s.Close(context.Background()))
}

// git runs the machine's git on a store's repository, without any
// configuration of the machine's.
func git(t testing.TB, dir string, args ...string) string {
	t.Helper()
	cmd := exec.Command("git", append([]string{"-C", filepath.Join(dir, storedir.Repo)}, args...)...)
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=/nonexistent", "GIT_CONFIG_NOSYSTEM=1", "LC_ALL=C"}
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("git %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return string(out)
}

func fsck(t testing.TB, dir string, more ...string) {
	t.Helper()
	out := git(t, dir, append([]string{"fsck", "--strict", "--full"}, more...)...)
	if s := strings.TrimSpace(out); s != "" && !strings.HasPrefix(s, "notice: HEAD points to an unborn branch") {
		t.Fatalf("fsck: %s", out)
	}
}

// put commits one file, as task if it is not empty.
func put(ctx context.Context, s *Store, task, path, data string) (Committed, error) {
	b := s.NewBlob([]byte(data))
	return s.Commit(ctx, Draft{
		Edits:   []Edit{{Path: wspath.Path(path), Mode: object.Regular, Blob: b}},
		Entries: 1,
		Message: message.Message{TaskID: task, Actor: "tester", Source: message.API,
			Entries: []message.Entry{{Operation: message.Modify, Path: path, AfterHash: b.AfterHash()}}},
	})
}

func mustPut(t testing.TB, s *Store, task, path, data string) Committed {
	t.Helper()
	c, err := put(t.Context(), s, task, path, data)
	need.NoError(t, err)
	return c
}

func baselineOf(t testing.TB, s *Store, files map[string]string) Committed {
	t.Helper()
	c, err := s.Baseline(t.Context(), message.Message{Source: message.Baseline}, func(add AddFile) error {
		for p, data := range files {
			if _, err := add(wspath.Path(p), object.Regular, strings.NewReader(data), int64(len(data))); err != nil {
				return err
			}
		}
		return nil
	})
	need.NoError(t, err)
	return c
}

func content(t testing.TB, s *Store, path string) string {
	t.Helper()
	e, ok, err := s.Snapshot().Lookup(wspath.Path(path))
	if err != nil || !ok {
		t.Fatalf("lookup %s: %v %v", path, ok, err)
	}
	data, err := s.ReadBlob(t.Context(), e.ID, 1<<20)
	need.NoError(t, err)
	return string(data)
}

func TestCommitsAreReadByGit(t *testing.T) {
	dir := testDir(t)
	s := openAt(t, dir, Options{})
	base := baselineOf(t, s, map[string]string{"a.txt": "one\n", "dir/b.txt": "two\n", "dir-x/c": "three\n", "dir/sub/d": "four\n"})
	if base.Seq != 1 {
		t.Fatalf("baseline is seq %d", base.Seq)
	}
	for _, goal := range []string{"first", "try"} {
		if _, err := s.PutTask(t.Context(), message.Info{TaskID: "t1", Goal: goal, Status: "executing"}, ID{}); err != nil {
			t.Fatal(err)
		}
	}
	c := mustPut(t, s, "t1", "dir/sub/d", "five\n")
	if c.Change != 1 || c.Seq != 2 {
		t.Fatalf("change %d seq %d", c.Change, c.Seq)
	}
	mustPut(t, s, "t1", "new/deep/er/file", "six\n")
	if _, err := s.Commit(t.Context(), Draft{Edits: []Edit{{Path: "a.txt"}}, Entries: 1,
		Message: message.Message{TaskID: "t1", Source: message.API, Entries: []message.Entry{{Operation: message.Delete, Path: "a.txt"}}}}); err != nil {
		t.Fatal(err)
	}
	mv, err := s.Commit(t.Context(), Draft{Edits: []Edit{{Path: "dir", MoveTo: "moved/here"}}, Entries: 2,
		Message: message.Message{TaskID: "t1", Source: message.API, Entries: []message.Entry{
			{Operation: message.Rename, Path: "moved/here/b.txt", OldPath: "dir/b.txt"},
			{Operation: message.Rename, Path: "moved/here/sub/d", OldPath: "dir/sub/d"}}}})
	need.NoError(t, err)
	if mv.Change != 4 {
		t.Fatalf("change %d", mv.Change)
	}
	if got := content(t, s, "moved/here/sub/d"); got != "five\n" {
		t.Fatalf("content %q", got)
	}
	need.NoError(t, s.Publish(t.Context()))
	fsck(t, dir)
	if got := strings.Fields(git(t, dir, "rev-list", "--count", "refs/umbra/head"))[0]; got != "5" {
		t.Fatalf("%s commits", got)
	}
	want := "dir-x/c\nmoved/here/b.txt\nmoved/here/sub/d\nnew/deep/er/file\n"
	if got := git(t, dir, "ls-tree", "-r", "--name-only", "HEAD"); got != want {
		t.Fatalf("tree:\n%s", got)
	}
	if got := git(t, dir, "show", "HEAD:moved/here/sub/d"); got != "five\n" {
		t.Fatalf("show %q", got)
	}
	if got := strings.TrimSpace(git(t, dir, "rev-parse", "refs/umbra/tasks/t1/head")); got != mv.Commit.String() {
		t.Fatalf("task head %s", got)
	}
	if got := strings.TrimSpace(git(t, dir, "rev-parse", "refs/umbra/tasks/t1/info^{commit}")); got != base.Commit.String() {
		t.Fatalf("info on %s", got)
	}
	if rep, err := s.Verify(t.Context(), nil); err != nil || len(rep.Problems) > 0 || rep.Commits != 5 {
		t.Fatalf("verify: %+v %v", rep, err)
	}
	closeStore(t, s)
	fsck(t, dir)

	s = openAt(t, dir, Options{})
	defer closeStore(t, s)
	if s.Tip().Commit != mv.Commit || s.Tip().Seq != 5 {
		t.Fatalf("tip after reopening: %+v", s.Tip())
	}
	task, ok := s.Task("t1")
	if !ok || task.Changes != 5 || task.Info.Goal != "try" || task.Head != mv.Commit {
		t.Fatalf("task after reopening: %+v", task)
	}
	if c := mustPut(t, s, "t1", "x", "y"); c.Change != 6 || c.Seq != 6 {
		t.Fatalf("goes on with change %d seq %d", c.Change, c.Seq)
	}
}

func TestFailedMemberLeavesTheGroup(t *testing.T) {
	s := openAt(t, testDir(t), Options{})
	defer closeStore(t, s)
	baselineOf(t, s, map[string]string{"f": "x", "d/f": "y"})
	var wg sync.WaitGroup
	for i := range 64 {
		wg.Go(func() {
			path := fmt.Sprintf("n/%d", i)
			if i%4 == 0 {
				path = fmt.Sprintf("f/%d", i) // below a file
			}
			_, err := put(t.Context(), s, "", path, "data")
			if (i%4 == 0) != (errs.CodeOf(err) == "not_a_directory" && err != nil) {
				t.Errorf("%s: %v", path, err)
			}
		})
	}
	wg.Wait()
	if got := s.Tip().Seq; got != 1+48 {
		t.Fatalf("seq %d", got)
	}
	for _, e := range []Edit{{Path: "nothing"}, {Path: "d", Mode: object.Regular, Blob: s.NewBlob(nil)}, {Path: "d", MoveTo: "d/e"}} {
		if _, err := s.Commit(t.Context(), Draft{Edits: []Edit{e}}); err == nil {
			t.Errorf("%+v was accepted", e)
		}
	}
	if c := mustPut(t, s, "", "f", "x"); !c.NoChange {
		t.Fatalf("an equal file made a commit: %+v", c)
	}
}

func TestRepoStaysSoundUnderGitMaintenance(t *testing.T) {
	dir := testDir(t)
	s := openAt(t, dir, Options{VisibleAfter: 20 * time.Millisecond, MergeGrace: time.Second})
	baselineOf(t, s, map[string]string{"f": "x"})
	need.NoError(t, s.Publish(t.Context()))
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	for w := range 8 {
		wg.Go(func() {
			for i := 0; ctx.Err() == nil; i++ {
				if _, err := put(context.Background(), s, "", fmt.Sprintf("w%d/f%d", w, i%20), fmt.Sprint(i)); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	for _, args := range [][]string{{"gc", "--prune=now", "-q"}, {"repack", "-adq"}, {"pack-refs", "--all"}, {"fsck", "--strict"},
		{"log", "-p", "-5"}, {"multi-pack-index", "write"}, {"fsck", "--strict"}, {"gc", "-q"}, {"prune"}, {"fsck", "--full"}} {
		git(t, dir, args...)
	}
	cancel()
	wg.Wait()
	n := s.Tip().Seq
	closeStore(t, s)
	fsck(t, dir)
	if got := strings.TrimSpace(git(t, dir, "rev-list", "--count", "HEAD")); got != fmt.Sprint(n) {
		t.Fatalf("git counts %s commits, we %d", got, n)
	}
}

func TestLargeBlobIsStreamed(t *testing.T) {
	dir := testDir(t)
	s := openAt(t, dir, Options{InlineBlob: 1 << 10})
	data := bytes.Repeat([]byte("0123456789abcdef"), 10_000)
	b, err := s.StreamBlob(t.Context(), bytes.NewReader(data), int64(len(data)))
	need.NoError(t, err)
	dropped, err := s.StreamBlob(t.Context(), bytes.NewReader(data[1:]), int64(len(data)-1))
	need.NoError(t, err)
	s.Discard(dropped)
	if _, err := s.Commit(t.Context(), Draft{Edits: []Edit{{Path: "big", Mode: object.Regular, Blob: b}}}); err != nil {
		t.Fatal(err)
	}
	if s.HasBlob(dropped.ID()) {
		t.Fatal("a discarded blob is still there")
	}
	closeStore(t, s)
	fsck(t, dir)
	s = openAt(t, dir, Options{})
	defer closeStore(t, s)
	got, err := s.ReadBlob(t.Context(), b.ID(), 1<<30)
	if err != nil || !bytes.Equal(got, data) {
		t.Fatalf("read back %d bytes, %v", len(got), err)
	}
	if left, _ := filepath.Glob(filepath.Join(dir, journal.Dir, "*")); len(left) > 0 {
		t.Fatalf("left in journal: %v", left)
	}
}

func TestForeignRefIsPutBack(t *testing.T) {
	dir := testDir(t)
	s := openAt(t, dir, Options{})
	baselineOf(t, s, map[string]string{"f": "x"})
	c := mustPut(t, s, "", "f", "y")
	need.NoError(t, s.Publish(t.Context()))
	git(t, dir, "update-ref", "refs/heads/shadow", "HEAD~1")
	d := mustPut(t, s, "", "f", "z")
	need.NoError(t, s.Publish(t.Context()))
	if got := strings.TrimSpace(git(t, dir, "rev-parse", "HEAD")); got != d.Commit.String() {
		t.Fatalf("HEAD is %s", got)
	}
	if out := git(t, dir, "for-each-ref", "refs/foreign"); !strings.Contains(out, "refs/foreign/1") {
		t.Fatalf("foreign refs: %q", out)
	}
	if len(s.Warnings()) == 0 {
		t.Fatal("nothing was reported")
	}
	closeStore(t, s)
	git(t, dir, "update-ref", "refs/heads/shadow", c.Commit.String())
	s = openAt(t, dir, Options{})
	defer closeStore(t, s)
	if s.Tip().Commit != d.Commit || s.Recovery().Foreign != 1 {
		t.Fatalf("tip %+v, recovery %+v", s.Tip(), s.Recovery())
	}
	fsck(t, dir)
}
