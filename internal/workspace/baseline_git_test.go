package workspace

import (
	"context"
	"crypto/sha1"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"umbra/gitstore"
	"umbra/gitstore/object"
	"umbra/internal/need"
	"umbra/internal/workspace/reconcile"
	"umbra/internal/wspath"
)

// repo is a person's repository.
type repo struct {
	t   testing.TB
	dir string
}

func (r repo) git(args ...string) string {
	r.t.Helper()
	cmd := exec.Command(need.Tool(r.t, "git"), append([]string{"-c", "user.name=p", "-c", "user.email=p@example.org"}, args...)...)
	cmd.Dir = r.dir
	out, err := cmd.CombinedOutput()
	if err != nil {
		r.t.Fatalf("git %q: %v\n%s", args, err, out)
	}
	return strings.TrimSpace(string(out))
}

func (r repo) write(name, data string) {
	r.t.Helper()
	must(r.t, os.MkdirAll(filepath.Dir(filepath.Join(r.dir, name)), 0o755))
	must(r.t, os.WriteFile(filepath.Join(r.dir, name), []byte(data), 0o644))
}

// clone makes a clean checkout of a repository of some history, all its objects
// in one pack with deltas.
func clone(t testing.TB, args ...string) repo {
	t.Helper()
	t.Setenv("HOME", t.TempDir())
	t.Setenv("XDG_CONFIG_HOME", "")
	origin := repo{t, filepath.Join(t.TempDir(), "origin")}
	must(t, os.MkdirAll(origin.dir, 0o755))
	origin.git("init", "-q")
	for round := range 4 {
		for i := range 60 {
			origin.write(fmt.Sprintf("d%d/f%d", i%7, i), strings.Repeat(fmt.Sprintf("line of file %d\n", i), 40)+fmt.Sprint("round ", round*(i%3), "\n"))
		}
		origin.git("add", "-A")
		origin.git("commit", "-q", "-m", fmt.Sprint("round ", round))
	}
	origin.git("repack", "-adfq", "--depth=50", "--window=50")
	c := repo{t, filepath.Join(t.TempDir(), "clone")}
	origin.git(append([]string{"clone", "-q", "--no-local"}, append(args, "file://"+origin.dir, c.dir)...)...)
	return c
}

// lentTo opens the folder as a workspace and tells how many blobs came from the
// person's repository, and holds that history is the disk.
func lentTo(t testing.TB, dir string) int {
	t.Helper()
	var log strings.Builder
	m := &opener{DataDir: filepath.Join(t.TempDir(), "data"), Records: &memRecords{}, Foreground: true, Log: debugLog(&log)}
	w, err := m.Open(context.Background(), dir)
	must(t, err)
	want := make(map[string]object.ID)
	must(t, filepath.WalkDir(dir, func(name string, e os.DirEntry, err error) error {
		if err == nil && e.Name() == ".git" {
			if e.IsDir() {
				return filepath.SkipDir
			}
			return nil
		}
		if err != nil || !e.Type().IsRegular() {
			return err
		}
		data, err := os.ReadFile(name)
		rel, _ := filepath.Rel(dir, name)
		want[rel] = object.Hash(object.Blob, data)
		return err
	}))
	must(t, w.store.Snapshot().Walk(wspath.Root, func(e gitstore.Entry) error {
		if want[string(e.Path)] != e.ID {
			t.Errorf("%s is %v in history, %v on disk", e.Path, e.ID, want[string(e.Path)])
		}
		delete(want, string(e.Path))
		return nil
	}))
	if len(want) > 0 {
		t.Errorf("not in history: %v", want)
	}
	must(t, w.store.Publish(context.Background()))
	if out := (repo{t, w.gitDir}).git("fsck", "--strict", "--full", "--no-progress"); out != "" {
		t.Errorf("fsck: %s", out)
	}
	if res, err := w.Sync(context.Background(), reconcile.SyncOptions{}); err != nil || res.Changed != 0 {
		t.Errorf("a scan after the baseline: %+v, %v", res, err)
	}
	w.Release()
	must(t, m.Close(context.Background()))
	_, tail, found := strings.Cut(log.String(), "blobs copied from the project's repository\" workspace=")
	if !found {
		return 0
	}
	_, tail, _ = strings.Cut(tail, "files=")
	n, err := strconv.Atoi(tail[:strings.IndexByte(tail, ' ')])
	must(t, err)
	return n
}

func TestBaselineOfACheckout(t *testing.T) {
	old := time.Now().Add(-time.Hour)
	settle := func(r repo) {
		// As an hour later: nothing is racy.
		must(t, filepath.WalkDir(r.dir, func(name string, e os.DirEntry, err error) error {
			if err == nil && e.Name() == ".git" {
				return filepath.SkipDir
			}
			if err == nil && e.Type().IsRegular() {
				err = os.Chtimes(name, old, old)
			}
			return err
		}))
		r.git("update-index", "--refresh")
	}
	for _, c := range []struct {
		name  string
		args  []string
		after func(r repo)
		want  int // blobs that are borrowed; -1: any number
	}{
		{name: "clean", want: 60},
		{name: "some changed", want: 58, after: func(r repo) {
			r.write("d1/f1", "changed")
			r.write("new", "x")
			must(t, os.Remove(filepath.Join(r.dir, "d2/f2")))
		}},
		{name: "assume unchanged", want: 59, after: func(r repo) {
			r.git("update-index", "--assume-unchanged", "d1/f1")
			r.write("d1/f1", "changed")
		}},
		{name: "skip worktree", want: 59, after: func(r repo) {
			r.git("update-index", "--skip-worktree", "d1/f1")
			r.write("d1/f1", "changed")
		}},
		{name: "racy", want: -1, after: func(r repo) {
			r.write("d1/f1", "one of a size")
			r.git("add", "d1/f1")
			r.write("d1/f1", "two of a size")
		}},
		{name: "line ends", args: []string{"-c", "core.autocrlf=true"}, want: 0},
		{name: "attributes of text", want: -1, after: func(r repo) {
			r.write(".gitattributes", "* text eol=crlf\n")
			r.git("add", ".gitattributes")
			must(t, os.Remove(filepath.Join(r.dir, "d1/f1")))
			r.git("checkout", "-q", "--", "d1/f1")
		}},
		{name: "a filter", want: 0, after: func(r repo) {
			r.git("config", "filter.upper.clean", "tr a-z A-Z")
			r.write(".gitattributes", "d1/* filter=upper\n")
			r.git("add", ".gitattributes")
			r.write("d1/f1", "lower case")
			r.git("add", "d1/f1")
			must(t, os.Chtimes(filepath.Join(r.dir, "d1/f1"), old, old))
			r.git("update-index", "--refresh")
		}},
		{name: "an untracked filter", want: 0, after: func(r repo) {
			r.git("config", "filter.upper.clean", "tr a-z A-Z")
			r.write("d1/.gitattributes", "* filter=upper\n")
			r.write("d1/f1", "lower case")
			r.git("add", "d1/f1")
			must(t, os.Chtimes(filepath.Join(r.dir, "d1/f1"), old, old))
			r.git("update-index", "--refresh")
		}},
		{name: "more configuration", want: 0, after: func(r repo) { r.git("config", "include.path", "/elsewhere") }},
		{name: "split index", want: 0, after: func(r repo) { r.git("update-index", "--split-index") }},
		{name: "shallow", args: []string{"--depth=1"}, want: 60},
		{name: "sparse", want: -1, after: func(r repo) { r.git("sparse-checkout", "set", "d1") }},
		{name: "shared", args: []string{"--shared"}, want: 0},
		{name: "damaged pack", want: -1, after: func(r repo) {
			packs, err := filepath.Glob(filepath.Join(r.dir, ".git/objects/pack/*.pack"))
			must(t, err)
			must(t, os.Chmod(packs[0], 0o644))
			data, err := os.ReadFile(packs[0])
			must(t, err)
			for i := 500; i < len(data)-20; i += 97 {
				data[i] ^= 0xff
			}
			must(t, os.WriteFile(packs[0], data, 0o444))
		}},
		{name: "an index that leads to other objects", want: 0, after: func(r repo) { swapEntries(t, r) }},
		{name: "no packs", want: 0, after: func(r repo) { must(t, os.RemoveAll(filepath.Join(r.dir, ".git/objects/pack"))) }},
		{name: "a file called .git", want: 0, after: func(r repo) {
			must(t, os.Rename(filepath.Join(r.dir, ".git"), r.dir+".git"))
			r.write(".git", "gitdir: "+r.dir+".git\n")
		}},
		{name: "linked worktree", want: 0, after: func(r repo) {
			r.git("worktree", "add", "-q", filepath.Join(r.dir, "wt"))
			must(t, os.RemoveAll(filepath.Join(r.dir, "d1")))
		}},
		{name: "nested repository", want: 60, after: func(r repo) {
			r.write("sub/x", "x")
			(repo{t, filepath.Join(r.dir, "sub")}).git("init", "-q")
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			args := c.args
			if slices.Contains(args, "--shared") {
				args = nil
			}
			r := clone(t, args...)
			if !slices.Equal(args, c.args) {
				shared := repo{t, r.dir + "-shared"}
				r.git("clone", "-q", "--shared", r.dir, shared.dir)
				r = shared
			}
			settle(r)
			if c.after != nil {
				c.after(r)
			}
			if got := lentTo(t, r.dir); got != c.want && (c.want >= 0 || got > 60) && !(c.name == "linked worktree") {
				t.Errorf("%d blobs were borrowed, want %d", got, c.want)
			}
		})
	}
}

// swapEntries makes the index of a pack tell of each object where another of its
// size lies, with the right CRC and checksum: only a hash shows that.
func swapEntries(t *testing.T, r repo) {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(r.dir, ".git/objects/pack/*.idx"))
	must(t, err)
	idx, err := os.ReadFile(names[0])
	must(t, err)
	n := int(binary.BigEndian.Uint32(idx[8+4*255:]))
	const ids = 8 + 4*256
	crcs, offsets := ids+20*n, ids+24*n
	bySize := make(map[string][]int)
	for i := range n {
		id := hex.EncodeToString(idx[ids+20*i : ids+20*(i+1)])
		kind := r.git("cat-file", "-t", id)
		bySize[kind+r.git("cat-file", "-s", id)] = append(bySize[kind+r.git("cat-file", "-s", id)], i)
	}
	swapped := slices.Clone(idx)
	for _, same := range bySize {
		for k, i := range same {
			j := same[(k+1)%len(same)]
			copy(swapped[crcs+4*i:crcs+4*i+4], idx[crcs+4*j:])
			copy(swapped[offsets+4*i:offsets+4*i+4], idx[offsets+4*j:])
		}
	}
	sum := sha1.Sum(swapped[:len(swapped)-20])
	copy(swapped[len(swapped)-20:], sum[:])
	must(t, os.Chmod(names[0], 0o644))
	must(t, os.WriteFile(names[0], swapped, 0o444))
}

// cpuSeconds is what the process, or its children, have used: on a busy machine
// it tells more than the clock.
func cpuSeconds(who int) float64 {
	var u syscall.Rusage
	_ = syscall.Getrusage(who, &u)
	return float64(u.Utime.Nano()+u.Stime.Nano()) / 1e9
}

// The baseline of a clean checkout, of the same files without a repository, and
// git add -A of them into an empty one, on one file system. UMBRA_FILES says how
// many.
func BenchmarkBaselineBesideGit(b *testing.B) {
	n, err := strconv.Atoi(os.Getenv("UMBRA_FILES"))
	if err != nil {
		n = 10_000
	}
	b.Setenv("HOME", b.TempDir())
	origin := repo{b, filepath.Join(b.TempDir(), "origin")}
	benchTree(b, origin.dir, n)
	origin.git("init", "-q")
	start, cpu := time.Now(), cpuSeconds(syscall.RUSAGE_CHILDREN)
	origin.git("add", "-A")
	git, gitCPU := time.Since(start).Seconds(), cpuSeconds(syscall.RUSAGE_CHILDREN)-cpu
	b.ReportMetric(git, "s/git-add")
	b.ReportMetric(gitCPU, "cpu-s/git-add")
	origin.git("commit", "-q", "-m", "all")
	origin.git("repack", "-adq")
	origin.git("update-index", "--refresh")
	origin.git("status")
	for _, what := range []string{"checkout", "plain"} {
		if what == "plain" {
			must(b, os.RemoveAll(filepath.Join(origin.dir, ".git")))
		}
		m := &opener{DataDir: filepath.Join(b.TempDir(), "data"), Records: &memRecords{}, Foreground: true}
		runtime.GC()
		start, cpu := time.Now(), cpuSeconds(syscall.RUSAGE_SELF)
		w, err := m.Open(context.Background(), origin.dir)
		must(b, err)
		took := time.Since(start).Seconds()
		b.ReportMetric(cpuSeconds(syscall.RUSAGE_SELF)-cpu, "cpu-s/"+what)
		b.ReportMetric(took, "s/"+what)
		b.ReportMetric(git/took, "x-git-add/"+what)
		w.Release()
		must(b, m.Close(context.Background()))
	}
}
