package interop

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"umbra/gitstore/object"
	"umbra/internal/need"
)

// TestStockGit runs the commands of people and CI on a history, and compares
// what they give with the model. The parts go one after the other on one
// repository: what a command leaves behind must not hurt the next.
func TestStockGit(t *testing.T) {
	h := newHistory(t, historyOptions{commits: 240, tasks: 70, names: append(slices.Clone(oddNames), withBackslash)})
	g := &stock{h: h, base: t.TempDir(), last: h.trees[len(h.trees)-1]}
	for _, part := range []struct {
		name string
		run  func(*testing.T)
	}{
		{"cat-file", g.catFile}, {"log and show", g.log}, {"trailers", g.trailers}, {"blame", g.blame}, {"archive", g.archive},
		{"worktree", g.worktree}, {"bisect", g.bisect}, {"clone", g.clone}, {"shallow clone", g.shallow}, {"partial clone", g.partial},
		{"fetch of a task", g.fetchTask}, {"bundle", g.bundle}, {"format-patch and am", g.patches},
	} {
		t.Run(part.name, part.run)
		fsck(t, h.repo)
	}
}

type stock struct {
	h    *history
	base string
	last map[string]file
}

func (g *stock) tip() string { return g.h.store.Tip().Commit.String() }

// at gives a commit by its sequence number.
func (g *stock) at(t *testing.T, seq int) string {
	t.Helper()
	id, err := g.h.store.CommitAt(t.Context(), uint64(seq))
	need.NoError(t, err)
	return id.String()
}

func (g *stock) catFile(t *testing.T) {
	// Each object is there once in our packs, whole, and every one that the
	// store tells of is among them.
	listed := make(map[string]bool)
	for line := range strings.SplitSeq(git(t, g.h.repo, "cat-file", "--batch-all-objects", "--batch-check=%(objectname) %(objecttype) %(objectsize)"), "\n") {
		listed[line] = true
	}
	for _, line := range g.h.dump(t) {
		f := strings.Fields(line)
		if f[0] == "blob" && !listed[fmt.Sprintf("%s blob %s", f[1], f[2])] {
			t.Errorf("cat-file does not list blob %s of %s bytes", f[1], f[2])
		}
	}
	if n := len(git(t, g.h.repo, "cat-file", "--batch-all-objects", "--batch", "--unordered")); n < len(listed) {
		t.Fatalf("cat-file --batch gave %d bytes", n)
	}
	if got := git(t, g.h.repo, "cat-file", "-p", "HEAD:crlf.txt"); got != g.last["crlf.txt"].data {
		t.Fatalf("crlf.txt is %q", got)
	}
	if out := git(t, g.h.repo, "count-objects", "-v"); !strings.Contains(out, "count: 0\n") || !strings.Contains(out, "garbage: 0\n") {
		t.Fatalf("loose objects or garbage:\n%s", out)
	}
}

func (g *stock) log(t *testing.T) {
	if got := git(t, g.h.repo, "rev-list", "--count", "HEAD"); got != strconv.Itoa(len(g.h.trees)) {
		t.Fatalf("rev-list counts %s commits of %d", got, len(g.h.trees))
	}
	if got := git(t, g.h.repo, "rev-list", "--merges", "--all"); got != "" {
		t.Fatalf("merges: %s", got)
	}
	ids := strings.Split(git(t, g.h.repo, "log", "--format=%H", "--reverse", "refs/umbra/head"), "\n")
	for i, id := range ids {
		if id != g.at(t, i+1) {
			t.Fatalf("commit %d is %s in git log", i+1, id)
		}
	}
	if out := git(t, g.h.repo, "log", "-p", "--stat", "-M"); strings.Count(out, "\ncommit ") != len(ids)-1 {
		t.Fatalf("log -p shows %d commits", strings.Count(out, "\ncommit ")+1)
	}
	if out := git(t, g.h.repo, "log", "--format=%an <%ae> %cn", "-1"); out != "claude <claude@umbra.invalid> umbra" {
		t.Fatalf("identities: %s", out)
	}
	git(t, g.h.repo, "show", "--format=fuller", "HEAD")
	git(t, g.h.repo, "show", "refs/umbra/tasks/task-001/info")
	git(t, g.h.repo, "shortlog", "-sn", "HEAD")
	// A diff of two ends, applied to the one, gives the other.
	from, to := g.at(t, 1), g.tip()
	patch := git(t, g.h.repo, "diff", "--binary", "--full-index", "-M", from, to) + "\n"
	tree := filepath.Join(g.base, "diff")
	git(t, g.h.repo, "worktree", "add", "--quiet", "--detach", tree, from)
	gitFed(t, tree, patch, "apply", "--index", "--whitespace=nowarn")
	if got, want := git(t, tree, "write-tree"), git(t, g.h.repo, "rev-parse", to+"^{tree}"); got != want {
		t.Fatalf("the patch gives tree %s, not %s", got, want)
	}
	git(t, g.h.repo, "worktree", "remove", "--force", tree)
}

func (g *stock) trailers(t *testing.T) {
	for seq := 1; seq <= len(g.h.trees); seq += 7 {
		id := g.at(t, seq)
		parsed := gitFed(t, g.h.repo, git(t, g.h.repo, "log", "-1", "--format=%B", id)+"\n", "interpret-trailers", "--parse")
		tasks := 0
		for line := range strings.Lines(parsed) {
			if strings.HasPrefix(line, "Task-Id: ") {
				tasks++
			}
		}
		want := 0
		if g.h.taskOf[seq-1] != "" {
			want = 1
		}
		if tasks != want || !strings.Contains(parsed, fmt.Sprintf("Seq: %d\n", seq)) {
			t.Errorf("commit %d, trailers:\n%s", seq, parsed)
		}
		if got := git(t, g.h.repo, "log", "-1", "--format=%(trailers:key=Task-Id,valueonly)", id); strings.TrimSpace(got) != g.h.taskOf[seq-1] {
			t.Errorf("commit %d: Task-Id %q, not %q", seq, got, g.h.taskOf[seq-1])
		}
	}
	out := git(t, g.h.repo, "for-each-ref", "--format=%(objecttype) %(contents)", "refs/umbra/tasks/task-000/info")
	if !strings.HasPrefix(out, "tag make task-000 work") || !strings.Contains(out, "\nStatus: completed\n") ||
		!strings.Contains(out, "\nMetadata: {\"n\":1,\"s\":\"x\\ny\"}\n") {
		t.Errorf("info tag: %s", out)
	}
}

func (g *stock) blame(t *testing.T) {
	var p string
	for _, p = range slices.Sorted(func(yield func(string) bool) {
		for p, f := range g.last {
			if code(p, f) && strings.Contains(f.data, "edited in ") && !yield(p) {
				return
			}
		}
	}) {
		break
	}
	out := git(t, g.h.repo, "blame", "--porcelain", "HEAD", "--", p)
	var text strings.Builder
	for line := range strings.Lines(out + "\n") {
		if strings.HasPrefix(line, "\t") {
			text.WriteString(line[1:])
		}
	}
	if text.String() != g.last[p].data {
		t.Fatalf("blame of %s gives other lines", p)
	}
	git(t, g.h.repo, "log", "--follow", "--oneline", "--", p)
}

func (g *stock) archive(t *testing.T) {
	// .gitattributes would have archive convert; the history itself says what
	// the bytes are.
	out := run(t, command(t.Context(), g.h.repo, need.Tool(t, "git"), "-c", "core.attributesFile=/dev/null", "archive", "--format=tar", "HEAD"))
	r := tar.NewReader(bytes.NewReader(out))
	got := make(map[string]file)
	for {
		head, err := r.Next()
		if err == io.EOF {
			break
		}
		need.NoError(t, err)
		switch head.Typeflag {
		case tar.TypeReg:
			data, err := io.ReadAll(r)
			need.NoError(t, err)
			mode := object.Regular
			if head.Mode&0o100 != 0 {
				mode = object.Executable
			}
			got[head.Name] = file{mode, string(data)}
		case tar.TypeSymlink:
			got[head.Name] = file{object.Symlink, head.Linkname}
		}
	}
	for p, f := range g.last {
		have, ok := got[p]
		if !ok || have.mode != f.mode || have.data != f.data && !converted(p) {
			t.Errorf("archive has not %q as it is", p)
		}
	}
	if len(got) != len(g.last) {
		t.Errorf("archive has %d files of %d", len(got), len(g.last))
	}
}

// converted tells what .gitattributes of the history has git change at a
// checkout.
func converted(p string) bool {
	return strings.HasSuffix(p, ".txt") || strings.HasSuffix(p, ".go")
}

// compareTree compares a checkout with a tree of the model.
func compareTree(t *testing.T, dir string, want map[string]file) {
	t.Helper()
	n := 0
	err := filepath.WalkDir(dir, func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(dir, name)
		if err != nil {
			return err
		}
		if rel == ".git" && d.IsDir() {
			return fs.SkipDir
		}
		if d.IsDir() || rel == ".git" {
			return nil
		}
		n++
		f, ok := want[rel]
		if !ok {
			return fmt.Errorf("%q should not be there", rel)
		}
		return compareFile(name, f)
	})
	need.NoError(t, err)
	if n != len(want) {
		t.Fatalf("%d files of %d in %s", n, len(want), dir)
	}
}

func compareFile(name string, f file) error {
	info, err := os.Lstat(name)
	if err != nil {
		return err
	}
	mode, data := object.Regular, ""
	switch {
	case info.Mode()&fs.ModeSymlink != 0:
		mode = object.Symlink
		data, err = os.Readlink(name)
	default:
		if info.Mode()&0o100 != 0 {
			mode = object.Executable
		}
		var b []byte
		b, err = os.ReadFile(name)
		data = string(b)
	}
	if err == nil && (mode != f.mode || data != f.data && !converted(name)) {
		err = fmt.Errorf("%q differs", name)
	}
	return err
}

func (g *stock) worktree(t *testing.T) {
	dir := filepath.Join(g.base, "worktree")
	git(t, g.h.repo, "worktree", "add", "--quiet", "-b", "person", dir, "HEAD")
	compareTree(t, dir, g.last)
	need.NoError(t, os.WriteFile(filepath.Join(dir, "mine"), []byte("a person's\n"), 0o644))
	git(t, dir, "add", "mine")
	git(t, dir, "commit", "--quiet", "-m", "mine")
	git(t, g.h.repo, "worktree", "remove", "--force", dir) // its attributes make git see a change at once
	git(t, g.h.repo, "branch", "-D", "person")
}

func (g *stock) bisect(t *testing.T) {
	// large.bin shows up with one of the commits: bisect must find which.
	first := 0
	for i, tree := range g.h.trees {
		if _, ok := tree["large.bin"]; ok {
			first = i + 1
			break
		}
	}
	dir := filepath.Join(g.base, "bisect")
	git(t, g.h.repo, "worktree", "add", "--quiet", "--detach", dir, "HEAD")
	git(t, dir, "bisect", "start", "HEAD", g.at(t, 1))
	out := git(t, dir, "bisect", "run", "sh", "-c", "test ! -e large.bin")
	if !strings.Contains(out, g.at(t, first)+" is the first bad commit") {
		t.Fatalf("bisect run: %s", tail([]byte(out)))
	}
	git(t, dir, "bisect", "reset")
	git(t, g.h.repo, "worktree", "remove", "--force", dir)
	// Without any checkout, in the bare repository itself.
	git(t, g.h.repo, "bisect", "start", "--no-checkout", "HEAD", g.at(t, 1))
	out = git(t, g.h.repo, "bisect", "run", "sh", "-c", "! git cat-file -e BISECT_HEAD:large.bin")
	if !strings.Contains(out, g.at(t, first)+" is the first bad commit") {
		t.Fatalf("bisect run without a checkout: %s", tail([]byte(out)))
	}
	git(t, g.h.repo, "bisect", "reset")
}

func (g *stock) clone(t *testing.T) {
	for _, url := range []string{g.h.repo, "file://" + g.h.repo} {
		dir := filepath.Join(t.TempDir(), "clone")
		git(t, g.base, "clone", "--quiet", url, dir)
		compareTree(t, dir, g.last)
		fsck(t, dir)
		if got := git(t, dir, "rev-parse", "--abbrev-ref", "HEAD"); got != "shadow" {
			t.Fatalf("the clone stands on %s", got)
		}
		if got := git(t, dir, "rev-list", "--count", "HEAD"); got != strconv.Itoa(len(g.h.trees)) {
			t.Fatalf("the clone has %s commits", got)
		}
		// A person's own maintenance in a clone that took the .keep files along.
		git(t, dir, "gc", "--quiet", "--prune=now")
		fsck(t, dir)
	}
	dir := filepath.Join(t.TempDir(), "mirror")
	git(t, g.base, "clone", "--quiet", "--mirror", "file://"+g.h.repo, dir)
	if got, want := git(t, dir, "for-each-ref"), git(t, g.h.repo, "for-each-ref"); got != want {
		t.Fatalf("a mirror has other refs:\n%s\nnot\n%s", got, want)
	}
	fsck(t, dir)
}

func (g *stock) shallow(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "clone")
	git(t, g.base, "clone", "--quiet", "--depth", "1", "file://"+g.h.repo, dir)
	compareTree(t, dir, g.last)
	if got := git(t, dir, "rev-list", "--count", "HEAD"); got != "1" {
		t.Fatalf("a shallow clone has %s commits", got)
	}
	fsck(t, dir)
	git(t, dir, "fetch", "--quiet", "--unshallow")
	if got := git(t, dir, "rev-list", "--count", "HEAD"); got != strconv.Itoa(len(g.h.trees)) {
		t.Fatalf("unshallowed it has %s commits", got)
	}
}

func (g *stock) partial(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "clone")
	git(t, g.base, "clone", "--quiet", "--no-checkout", "--filter=blob:none", "file://"+g.h.repo, dir)
	if got := git(t, dir, "rev-list", "--objects", "--all", "--missing=print"); !strings.Contains(got, "\n?") {
		t.Fatal("a partial clone has every blob")
	}
	git(t, dir, "checkout", "--quiet", "HEAD")
	compareTree(t, dir, g.last)
	git(t, dir, "log", "-p", "-20")
	fsck(t, dir)
}

func (g *stock) fetchTask(t *testing.T) {
	const task = "refs/umbra/tasks/task-003/"
	dir := filepath.Join(t.TempDir(), "clone")
	git(t, g.base, "init", "--quiet", dir)
	git(t, dir, "fetch", "--quiet", "file://"+g.h.repo, task+"*:"+task+"*")
	refs := git(t, g.h.repo, "for-each-ref", task)
	if got := git(t, dir, "for-each-ref"); got != refs || strings.Count(refs, "\n") != 2 {
		t.Fatalf("fetched\n%s\nof\n%s", got, refs)
	}
	git(t, dir, "fetch", "--quiet", "file://"+g.h.repo, "refs/umbra/*:refs/umbra/*")
	if got := git(t, dir, "rev-parse", "refs/umbra/head"); got != g.tip() {
		t.Fatalf("refs/umbra/head is %s", got)
	}
	fsck(t, dir)
}

func (g *stock) bundle(t *testing.T) {
	name := filepath.Join(t.TempDir(), "task.bundle")
	const task = "refs/umbra/tasks/task-003/"
	git(t, g.h.repo, "bundle", "create", "--quiet", name, "HEAD", "refs/heads/shadow", task+"base", task+"head", task+"info")
	git(t, g.h.repo, "bundle", "verify", "--quiet", name)
	dir := filepath.Join(t.TempDir(), "clone")
	git(t, g.base, "clone", "--quiet", name, dir)
	compareTree(t, dir, g.last)
	git(t, dir, "fetch", "--quiet", name, task+"*:"+task+"*")
	fsck(t, dir)
}

func (g *stock) patches(t *testing.T) {
	// The attributes of the history would convert lines at the checkout that am
	// applies to: a person who wants the exact bytes turns them off.
	dir := filepath.Join(t.TempDir(), "clone")
	git(t, g.base, "clone", "--quiet", "--no-checkout", g.h.repo, dir)
	if err := os.WriteFile(filepath.Join(dir, ".git/info/attributes"), []byte("* -text -ident\n"), 0o644); err != nil && !errors.Is(err, fs.ErrExist) {
		t.Fatal(err)
	}
	git(t, dir, "checkout", "--quiet", "--detach", g.at(t, 1))
	mail := git(t, g.h.repo, "format-patch", "--stdout", "--binary", "--full-index", g.at(t, 1)+"..HEAD") + "\n"
	gitFed(t, dir, mail, "am", "--quiet", "--keep-cr", "--keep-non-patch")
	if got, want := git(t, dir, "rev-parse", "HEAD^{tree}"), git(t, g.h.repo, "rev-parse", "HEAD^{tree}"); got != want {
		t.Fatalf("am gives tree %s, not %s", got, want)
	}
	if got := git(t, dir, "rev-list", "--count", "HEAD"); got != strconv.Itoa(len(g.h.trees)) {
		t.Fatalf("am made %s commits", got)
	}
}
