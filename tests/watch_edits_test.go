package tests

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"umbra/internal/need"
	"umbra/tests/harness"
)

func TestEditsAreFoundWithoutACall(t *testing.T) {
	t.Parallel()
	w := newWatched(t, harness.Options{}, map[string]string{"a": "1", "d/b": "2", "d/c": "3"})
	best := time.Hour
	for i := range 3 {
		began := time.Now()
		w.write(t, "a", fmt.Sprint("edit ", i))
		c := w.await(t, "modify a")
		best = min(best, time.Since(began))
		has(t, c[0], map[string]any{"task_id": w.k.ID, "source": "external"})
	}
	if best > 2*time.Second {
		t.Errorf("found after %v", best)
	}
	w.write(t, "new/deep/file", "x")
	w.await(t, "create new/deep/file")
	w.rename(t, "d/b", "moved")
	w.await(t, "rename d/b -> moved")
	w.rename(t, "new", "d/newer")
	w.await(t, "rename new/deep/file -> d/newer/deep/file")
	w.remove(t, "d")
	w.await(t, "delete d/c", "delete d/newer/deep/file")
	need.NoError(t, os.Symlink("a", filepath.Join(w.dir, "link")))
	w.await(t, "symlink link")
	need.NoError(t, os.Chmod(filepath.Join(w.dir, "a"), 0o755))
	w.await(t, "chmod a")
	w.k.fsck(t)
}

func TestOwnWritesAreNoExternalChanges(t *testing.T) {
	t.Parallel()
	w := newWatched(t, harness.Options{}, map[string]string{"a": "1"})
	for i := range 30 {
		w.k.put(t, fmt.Sprintf("d%d/f", i%3), fmt.Sprint(i)).want(t, map[bool]int{true: 201, false: 200}[i < 3])
	}
	w.write(t, "theirs", "x")
	for _, c := range w.await(t, "create theirs") {
		if n := len(c["entries"].([]any)); n != 1 {
			t.Errorf("%d entries in %v", n, c)
		}
	}
	if out := w.k.git(t, "log", "--format=%s", "--grep=^Source: external", "refs/umbra/head"); out != "external change (1 files)" {
		t.Errorf("external changes: %s", out)
	}
}

func TestReplacedKinds(t *testing.T) {
	t.Parallel()
	w := newWatched(t, harness.Options{}, map[string]string{"d/f": "1", "e/f": "1", "file": "x", "special": "y"})
	// A link in place of a folder: what it leads to is not what was there.
	w.remove(t, "d")
	need.NoError(t, os.Symlink("e", filepath.Join(w.dir, "d")))
	w.await(t, "delete d/f", "symlink d")
	w.remove(t, "file")
	w.write(t, "file/below", "z")
	w.await(t, "delete file", "create file/below")
}

func TestWhatCannotBeRecorded(t *testing.T) {
	t.Parallel()
	need.Root(t)
	w := newWatched(t, harness.Options{}, map[string]string{"a": "1", "sub/.git/config": "[core]\n", "sub/.git/HEAD": "ref: refs/heads/main\n", "sub/code": "x", "wt/.git": "gitdir: /nowhere\n", "wt/f": "y"})
	need.NoError(t, syscall.Mkfifo(filepath.Join(w.dir, "fifo"), 0o644))
	w.write(t, "b", "2")
	w.await(t, "create b")
	got := testJSON(w.sync(t)["skipped"])
	if got != `[{"path":"fifo","reason":"special"}]` {
		t.Errorf("skipped: %s", got)
	}
	tree := w.tree(t)
	for _, name := range []string{"a", "b", "sub/code", "wt/f"} {
		if tree[name] == "" {
			t.Errorf("%s is not recorded: %v", name, tree)
		}
	}
	if len(tree) != 4 {
		t.Errorf("recorded: %v", tree)
	}
	w.remove(t, "fifo")
	w.write(t, "c", "3")
	w.await(t, "create c")
	if got := testJSON(w.sync(t)["skipped"]); got != "[]" {
		t.Errorf("skipped: %s", got)
	}
	c := w.call(t, "GET", w.ws+"/coverage", nil).want(t, 200).obj(t)
	has(t, c, map[string]any{"tracked": 5})
}

func TestIgnoreRulesThatChange(t *testing.T) {
	t.Parallel()
	w := newWatched(t, harness.Options{}, map[string]string{".gitignore": "build/\n*.log\n", "build/x": "1", "a.log": "2", "src/m": "3"})
	w.k.put(t, "build/agent", "kept").want(t, 201)
	w.write(t, "build/agent", "changed by a person")
	w.await(t, "modify build/agent")
	w.write(t, "build/y", "4")
	w.write(t, "src/n", "5")
	w.await(t, "create src/n")
	if tree := w.tree(t); tree["build/y"] != "" || tree["a.log"] != "" || tree["build/agent"] == "" {
		t.Errorf("recorded: %v", tree)
	}
	w.write(t, ".gitignore", "build/\n")
	for _, c := range w.await(t, "modify .gitignore", "create a.log") {
		for _, raw := range c["entries"].([]any) {
			if e := raw.(map[string]any); e["path"] == "a.log" && e["task_id"] != nil {
				t.Errorf("a file captured by a rule belongs to a task: %v", e)
			}
		}
	}
	w.write(t, ".umbraignore", "secret\n")
	w.await(t, "create .umbraignore")
	w.write(t, "secret", "s")
	w.write(t, "open", "o")
	w.await(t, "create open")
	if tree := w.tree(t); tree["secret"] != "" || tree["open"] == "" {
		t.Errorf("recorded: %v", tree)
	}
}

func TestCheckoutBetweenBranches(t *testing.T) {
	t.Parallel()
	w := &watched{project: &project{Server: harness.Start(t, harness.Options{}), dir: t.TempDir()}}
	files := map[string]string{".gitignore": "node_modules/\n*.o\n"}
	for i := range 300 {
		files[fmt.Sprintf("src/d%d/f%d", i%20, i)] = fmt.Sprint("one ", i)
	}
	w.fill(t, files)
	w.person(t, "init", "-q")
	w.person(t, "add", "-A")
	w.person(t, "commit", "-q", "-m", "one")
	w.person(t, "checkout", "-q", "-b", "two")
	for i := range 300 {
		name := fmt.Sprintf("src/d%d/f%d", i%20, i)
		if i%3 == 0 {
			w.remove(t, name)
		} else {
			w.write(t, name, fmt.Sprint("two ", i))
		}
		w.write(t, fmt.Sprintf("lib/e%d/g%d", i%10, i), fmt.Sprint("new ", i))
	}
	w.person(t, "add", "-A")
	w.person(t, "commit", "-q", "-m", "two")
	w.fill(t, map[string]string{"node_modules/x/y": "ignored", "src/a.o": "ignored"})
	w = watch(t, w.project)
	for _, branch := range []string{"main", "two", "main", "two"} {
		w.person(t, "checkout", "-q", branch)
		w.write(t, "node_modules/"+branch, "ignored too")
		tree := w.tree(t)
		want := w.person(t, "ls-tree", "-r", "--format=%(objectname) %(path)", branch)
		if n := strings.Count(want, "\n") + 1; n != len(tree) {
			t.Errorf("on %s: %d files, history has %d", branch, n, len(tree))
		}
		for line := range strings.SplitSeq(want, "\n") {
			if id, path, _ := strings.Cut(line, " "); tree[path] != id {
				t.Errorf("on %s: %s is %q", branch, line, tree[path])
			}
		}
	}
	w.k.fsck(t)
}
