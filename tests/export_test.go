package tests

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"umbra/internal/need"
	"umbra/tests/harness"
)

type exportReport struct {
	OK        bool   `json:"ok"`
	Branch    string `json:"branch"`
	Base      string `json:"base"`
	SameBase  bool   `json:"same_base"`
	Changes   int    `json:"changes"`
	Commits   int    `json:"commits"`
	Commit    string `json:"commit"`
	Conflicts []struct {
		Path   string `json:"path"`
		Reason string `json:"reason"`
	} `json:"conflicts"`
}

// export runs umbra export and gives its report.
func export(t *testing.T, status int, args ...string) *exportReport {
	t.Helper()
	got, out, errOut := harness.Run(t, nil, append([]string{"export", "--json"}, args...)...)
	if got != status {
		t.Fatalf("export %q: status %d, want %d\n%s\n%s", args, got, status, out, errOut)
	}
	r := &exportReport{}
	if out != "" {
		if err := json.Unmarshal([]byte(out), r); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	return r
}

// repository makes the user's own, on branch main, with one commit.
func repository(t *testing.T, dir string) {
	t.Helper()
	harness.Git(t, dir, "init", "-q", "-b", "main")
	harness.Git(t, dir, "add", "-A")
	harness.Git(t, dir, "commit", "-q", "-m", "mine")
}

// exported is a project that is its user's repository, with a task of three
// subtask runs, and another one's commits between.
func exported(t *testing.T) (k *taskOf) {
	p := &project{Server: harness.Start(t, harness.Options{}), dir: t.TempDir()}
	p.fill(t, map[string]string{"a": "1\n2\n3\n4\n5\n6\n7\n8\n", "dir/x": "x\n", "run.sh": "#!/bin/sh\n"})
	repository(t, p.dir)
	k = p.task(t)
	other := p.task(t)
	put := func(path, data, sub string) {
		k.put(t, path, data, "X-Subtask-Id", sub)
	}
	put("a", "one\n2\n3\n4\n5\n6\n7\n8\n", "s1")
	put("new", "n\n", "s1")
	other.save(t, "a", "one\n2\n3\n4\n5\n6\n7\neight\n")
	put("a", "one\n2\n3\nfour\n5\n6\n7\neight\n", "s2")
	p.post(t, k.url("/move"), map[string]any{"from": "dir", "to": "moved"}, "X-Subtask-Id", "s2").want(t, 200)
	put("\"ünï\tcode\"", "u\n", "s1")
	return k
}

// TestExport holds that a branch has the task's work and not the others', and
// that nothing else of the repository is touched.
func TestExport(t *testing.T) {
	k := exported(t)
	dir := k.p.dir
	// As a person leaves it: something staged, something not.
	need.NoError(t, os.WriteFile(filepath.Join(dir, "staged"), []byte("s\n"), 0o644))
	harness.Git(t, dir, "add", "staged")
	state := func() string {
		index, err := os.ReadFile(filepath.Join(dir, ".git", "index"))
		need.NoError(t, err)
		return string(index) + harness.Git(t, dir, "symbolic-ref", "HEAD") + harness.Git(t, dir, "rev-parse", "HEAD")
	}
	before := state()
	status := harness.Git(t, dir, "status", "--porcelain")
	main := harness.Git(t, dir, "rev-parse", "main")
	want := map[string]string{"a": "one\n2\n3\nfour\n5\n6\n7\n8", "new": "n", "moved/x": "x", "\"ünï\tcode\"": "u", "run.sh": "#!/bin/sh"}
	for squash, commits := range map[string]int{"none": 5, "subtask": 3, "task": 1} {
		branch := "agent/" + squash
		r := export(t, 0, k.ID, "--data-dir", k.p.DataDir, "--repo", dir, "--branch", branch, "--squash", squash)
		if !r.OK || !r.SameBase || r.Base != main || r.Changes != 5 || r.Commits != commits {
			t.Errorf("%s: %+v", squash, r)
		}
		if got := harness.Git(t, dir, "rev-list", "--count", "main.."+branch); got != fmt.Sprint(commits) {
			t.Errorf("%s: %s commits", squash, got)
		}
		for path, data := range want {
			if got := harness.Git(t, dir, "cat-file", "blob", branch+":"+path); got != data {
				t.Errorf("%s: %s is %q", squash, path, got)
			}
		}
		if got := strings.Count(harness.Git(t, dir, "ls-tree", "-r", "-z", branch), "\x00"); got != len(want) {
			t.Errorf("%s: %d files", squash, got)
		}
		if got := harness.Git(t, dir, "log", "-1", "--format=%(trailers:key=Task-Id,valueonly)%(trailers:key=Actor,valueonly)", branch); strings.Count(got, k.ID) != 1 {
			t.Errorf("%s: trailers %q", squash, got)
		}
		if out := harness.Git(t, dir, "fsck", "--strict"); strings.Contains(out, "error") {
			t.Error(out)
		}
	}
	if got := harness.Git(t, dir, "log", "-1", "--format=%(trailers:key=Change,valueonly,separator=%x2C)", "agent/task"); got != "1,2,3,4,5" {
		t.Errorf("the squashed commit lists the changes %q", got)
	}
	if got := harness.Git(t, dir, "log", "-1", "--format=%s", "agent/task"); got != "test" { // the goal
		t.Errorf("its subject is %q", got)
	}
	if state() != before || harness.Git(t, dir, "status", "--porcelain") != status {
		t.Error("the index, HEAD or the working tree changed")
	}
	// A branch that is there stays.
	export(t, 1, k.ID, "--data-dir", k.p.DataDir, "--repo", dir, "--branch", "main")
}

// TestExportWorkspace takes everybody's commits, from a server by its URL, and
// with no server at all.
func TestExportWorkspace(t *testing.T) {
	k := exported(t)
	dir := k.p.dir
	head := k.git(t, "rev-parse", "refs/umbra/head^{tree}")
	r := export(t, 0, k.str("workspace_id"), "--server", k.p.URL, "--repo", dir, "--branch", "all")
	if !r.OK || !r.SameBase || r.Commits != 6 {
		t.Errorf("%+v", r)
	}
	if got := harness.Git(t, dir, "rev-parse", "all^{tree}"); got != head {
		t.Errorf("the tree is %s, the workspace's %s", got, head)
	}
	r = export(t, 0, dir, "--server", k.p.URL, "--repo", dir, "--branch", "runs", "--squash", "task")
	if r.Commits != 3 || harness.Git(t, dir, "rev-parse", "runs^{tree}") != head {
		t.Errorf("runs of tasks: %+v", r)
	}
	k.p.Stop()
	// Into a repository without a commit.
	fresh := t.TempDir()
	harness.Git(t, fresh, "init", "-q", "-b", "main")
	r = export(t, 0, dir, "--data-dir", k.p.DataDir, "--repo", fresh, "--branch", "all")
	if !r.OK || r.Base != "" || r.Commits != 7 || harness.Git(t, fresh, "rev-parse", "all^{tree}") != head {
		t.Errorf("an empty repository: %+v", r)
	}
}

// TestExportMerges puts a task onto a HEAD that has gone on, in a linked
// working tree.
func TestExportMerges(t *testing.T) {
	k := exported(t)
	top := t.TempDir()
	repo := filepath.Join(top, "repo")
	need.NoError(t, os.Mkdir(repo, 0o755))
	write := func(dir, name, data string) {
		full := filepath.Join(dir, name)
		need.NoError(t, os.MkdirAll(filepath.Dir(full), 0o755))
		need.NoError(t, os.WriteFile(full, []byte(data), 0o644))
	}
	write(repo, "a", "1\n2\n3\n4\n5\n6\n7\n8\nnine\n")
	write(repo, "dir/x", "x\n")
	write(repo, "mine", "m\n")
	repository(t, repo)
	linked := filepath.Join(top, "linked")
	harness.Git(t, repo, "worktree", "add", "-q", "-b", "side", linked)
	r := export(t, 0, k.ID, "--data-dir", k.p.DataDir, "--repo", linked, "--branch", "agent")
	if !r.OK || r.SameBase || r.Base != harness.Git(t, repo, "rev-parse", "side") || r.Commits != 5 {
		t.Errorf("%+v", r)
	}
	if got := harness.Git(t, repo, "show", "agent:a"); got != "one\n2\n3\nfour\n5\n6\n7\n8\nnine" {
		t.Errorf("merged: %q", got)
	}
	if got := harness.Git(t, repo, "show", "agent:mine"); got != "m" {
		t.Errorf("mine: %q", got)
	}
	write(repo, "a", "mine altogether\n")
	harness.Git(t, repo, "commit", "-q", "-am", "other")
	objects := harness.Git(t, repo, "count-objects", "-v")
	r = export(t, 1, k.ID, "--data-dir", k.p.DataDir, "--repo", repo, "--branch", "conflicts")
	if r.OK || len(r.Conflicts) != 2 || r.Conflicts[0].Path != "a" || r.Conflicts[0].Reason != "overlapping" {
		t.Errorf("%+v", r)
	}
	if _, err := harness.TryGit(t, repo, "rev-parse", "--verify", "-q", "conflicts"); err == nil || harness.Git(t, repo, "count-objects", "-v") != objects {
		t.Error("after a conflict something was written")
	}
}

func TestExportWrongUse(t *testing.T) {
	dir := t.TempDir()
	harness.Git(t, dir, "init", "-q")
	for _, bad := range [][]string{{}, {"x"}, {"x", "--repo", dir}, {"x", "--branch", "b"}, {"x", "--repo", dir, "--branch", "b", "--squash", "all"},
		{"x", "--repo", filepath.Join(dir, "none"), "--branch", "b"}, {"x", "y", "--repo", dir, "--branch", "b"}} {
		export(t, 2, bad...)
	}
	p := newProject(t, map[string]string{"a": "x"})
	p.task(t)
	export(t, 1, "unknown", "--data-dir", p.DataDir, "--repo", dir, "--branch", "b")
	export(t, 2, p.dir, "--data-dir", p.DataDir, "--repo", t.TempDir(), "--branch", "b")
	for _, name := range []string{"..bad", "-x", "a b", "x.lock"} {
		export(t, 2, p.dir, "--data-dir", p.DataDir, "--repo", dir, "--branch="+name)
	}
}
