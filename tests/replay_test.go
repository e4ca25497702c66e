package tests

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"umbra/internal/need"
	"umbra/tests/harness"
)

type replayReport struct {
	OK      bool   `json:"ok"`
	Proven  bool   `json:"proven"`
	Broken  int    `json:"broken"`
	Context int    `json:"context"`
	Detail  string `json:"detail"`
	Steps   []struct {
		Commit  string   `json:"commit"`
		Outcome string   `json:"outcome"`
		Detail  string   `json:"detail"`
		Paths   []string `json:"paths"`
	} `json:"steps"`
}

// replay runs umbra replay and gives its report.
func replay(t *testing.T, status int, args ...string) *replayReport {
	t.Helper()
	got, out, errOut := harness.Run(t, nil, append([]string{"replay", "--json"}, args...)...)
	if got != status {
		t.Fatalf("replay %q: status %d, want %d\n%s\n%s", args, got, status, out, errOut)
	}
	r := &replayReport{}
	if out != "" {
		if err := json.Unmarshal([]byte(out), r); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	return r
}

// replayed is a server with two tasks whose commits interleave.
func replayed(t *testing.T) (k, other *taskOf) {
	p := newProject(t, map[string]string{"a": "1\n2\n3\n4\n5\n6\n7\n8\n", "dir/x": "x\n", "dir/y": "y\n", "link-to": "t\n"})
	k, other = p.task(t), p.task(t)
	k.save(t, "a", "one\n2\n3\n4\n5\n6\n7\n8\n")
	other.save(t, "theirs", "o\n")
	k.put(t, "new/deep", "n\n", "X-Subtask-Id", "s1").want(t, 201)
	other.save(t, "a", "one\n2\n3\n4\n5\n6\n7\neight\n")
	k.put(t, "a", "one\n2\n3\nfour\n5\n6\n7\neight\n", "X-Subtask-Id", "s1").want(t, 200)
	p.post(t, k.url("/move"), map[string]any{"from": "dir", "to": "moved"}).want(t, 200)
	p.post(t, k.url("/batch"), map[string]any{"operations": []map[string]any{
		{"op": "rename", "path": "moved/x", "new_path": "t"}, {"op": "rename", "path": "moved/y", "new_path": "moved/x"},
		{"op": "rename", "path": "t", "new_path": "moved/y"}, {"op": "delete", "path": "link-to"}}}).want(t, 200)
	k.sync(t)
	return k, other
}

func TestReplayProves(t *testing.T) {
	k, _ := replayed(t)
	for _, from := range []string{k.gitURL(), k.gitDir()} {
		r := replay(t, 0, "--from", from, "--task", k.ID)
		if !r.OK || !r.Proven || len(r.Steps) != 5 || r.Context != 2 {
			t.Errorf("from %s: %+v", from, r)
		}
	}
	if r := replay(t, 0, "--from", k.gitDir(), "--task", k.ID, "--only"); len(r.Steps) != 5 || r.Context != 0 {
		t.Errorf("--only: %+v", r)
	}
	if r := replay(t, 0, "--from", k.gitDir(), "--task", k.ID, "--subtask", "s1"); len(r.Steps) != 2 || !r.Proven {
		t.Errorf("--subtask: %+v", r)
	}
	for _, bad := range [][]string{{}, {"--task", "x"}, {"--from", "x", "--task", "../x"}, {"--from", "x", "--task", "x", "--report", "r.txt"},
		{"--from", "x", "--task", "x", "--commit", "b"}} {
		replay(t, 2, bad...)
	}
	replay(t, 1, "--from", k.gitDir(), "--task", "unknown")
	replay(t, 1, "--from", t.TempDir(), "--task", k.ID)
}

// TestReplayFindsTampering changes one byte of a recorded file, keeping all
// that names it consistent: the proof still fails, and says where.
func TestReplayFindsTampering(t *testing.T) {
	k, _ := replayed(t)
	dir := filepath.Join(t.TempDir(), "m.git")
	harness.Git(t, t.TempDir(), "clone", "-q", "--mirror", k.gitURL(), dir)
	ref := "refs/umbra/tasks/" + k.ID + "/"
	base, head := harness.Git(t, dir, "rev-parse", ref+"base"), harness.Git(t, dir, "rev-parse", ref+"head")
	commits := strings.Fields(harness.Git(t, dir, "rev-list", "--reverse", base+".."+head))
	parent := base
	work := t.TempDir()
	for i, c := range commits {
		tree := harness.Git(t, dir, "rev-parse", c+"^{tree}")
		if i >= 2 { // from the third commit on, new/deep has another byte
			blob := filepath.Join(work, "blob")
			need.NoError(t, os.WriteFile(blob, []byte("N\n"), 0o600))
			id := harness.Git(t, dir, "hash-object", "-w", blob)
			tree = treeWith(t, dir, tree, "new/deep", id)
		}
		text := filepath.Join(work, "text")
		need.NoError(t, os.WriteFile(text, []byte(harness.Git(t, dir, "log", "-1", "--format=%B", c)), 0o600))
		parent = harness.Git(t, dir, "commit-tree", tree, "-p", parent, "-F", text)
	}
	harness.Git(t, dir, "update-ref", ref+"head", parent)
	r := replay(t, 1, "--from", dir, "--task", k.ID)
	if r.OK || r.Broken != 2 || !strings.Contains(r.Steps[1].Detail, "new/deep") {
		t.Errorf("%+v", r)
	}
}

// treeWith gives a tree with one file, the only one of its folder, replaced.
func treeWith(t *testing.T, dir, tree, path, blob string) string {
	t.Helper()
	lines := harness.Git(t, dir, "ls-tree", "-r", "-z", tree)
	// git mktree makes one level: the two that the path has.
	var top, sub strings.Builder
	for line := range strings.SplitSeq(strings.TrimSuffix(lines, "\x00"), "\x00") {
		_, name, _ := strings.Cut(line, "\t")
		if name == path {
			sub.WriteString("100644 blob " + blob + "\t" + filepath.Base(path) + "\x00")
		}
	}
	subTree := mktree(t, dir, sub.String())
	for line := range strings.SplitSeq(strings.TrimSuffix(harness.Git(t, dir, "ls-tree", "-z", tree), "\x00"), "\x00") {
		meta, name, _ := strings.Cut(line, "\t")
		if name == filepath.Dir(path) {
			meta = "040000 tree " + subTree
		}
		top.WriteString(meta + "\t" + name + "\x00")
	}
	return mktree(t, dir, top.String())
}

func mktree(t *testing.T, dir, list string) string {
	t.Helper()
	return strings.TrimSpace(harness.GitInput(t, dir, list, "mktree", "-z"))
}

func TestReplayExec(t *testing.T) {
	k, _ := replayed(t)
	dir := t.TempDir()
	junit, log := filepath.Join(dir, "r.xml"), filepath.Join(dir, "log")
	r := replay(t, 1, "--from", k.gitDir(), "--task", k.ID, "--report", junit, "--exec",
		fmt.Sprintf(`echo "$UMBRA_STEP $UMBRA_TASK_ID $UMBRA_SUBTASK_ID $UMBRA_PATH" >> %s; ! grep -q four a`, log))
	if r.Broken != 3 || r.Steps[2].Outcome != "exec_failed" || r.Steps[1].Outcome != "ok" {
		t.Fatalf("%+v", r)
	}
	said, err := os.ReadFile(log)
	if err != nil || !strings.Contains(string(said), "2 "+k.ID+" s1 new/deep\n") || strings.Count(string(said), k.ID) != 5 {
		t.Errorf("%v %s", err, said)
	}
	xml, err := os.ReadFile(junit)
	if err != nil || !strings.Contains(string(xml), `<failure type="exec_failed"`) || !strings.Contains(string(xml), `tests="5"`) {
		t.Errorf("%v %s", err, xml)
	}
	r = replay(t, 1, "--from", k.gitDir(), "--task", k.ID, "--stop-on-fail", "--exec", "! grep -q four a")
	if r.Steps[3].Outcome != "skipped" {
		t.Errorf("%+v", r.Steps[3])
	}
	// git bisect finds the same.
	clone := filepath.Join(dir, "clone")
	harness.Git(t, dir, "clone", "-q", k.gitURL(), clone)
	harness.Git(t, clone, "fetch", "-q", k.gitURL(), "refs/umbra/*:refs/umbra/*")
	ref := "refs/umbra/tasks/" + k.ID + "/"
	harness.Git(t, clone, "bisect", "start", ref+"head", ref+"base")
	harness.Git(t, clone, "bisect", "run", "sh", "-c", "! grep -q four a")
	if got := harness.Git(t, clone, "rev-parse", "refs/bisect/bad"); got != r.Steps[2].Commit {
		t.Errorf("bisect found %s, replay %s", got, r.Steps[2].Commit)
	}
}

func TestReplayOnto(t *testing.T) {
	k, _ := replayed(t)
	top := t.TempDir()
	repo := filepath.Join(top, "repo")
	harness.Git(t, top, "init", "-q", "-b", "main", repo)
	for name, data := range map[string]string{"a": "1\n2\n3\n4\n5\n6\n7\n8\nnine\n", "dir/x": "x\n", "dir/y": "y\n", "link-to": "t\n", "mine": "m\n"} {
		full := filepath.Join(repo, name)
		need.NoError(t, os.MkdirAll(filepath.Dir(full), 0o755))
		need.NoError(t, os.WriteFile(full, []byte(data), 0o644))
	}
	harness.Git(t, repo, "add", "-A")
	harness.Git(t, repo, "commit", "-q", "-m", "mine")
	need.NoError(t, os.WriteFile(filepath.Join(repo, "mine"), []byte("not committed\n"), 0o644))
	r := replay(t, 0, "--from", k.gitDir(), "--task", k.ID, "--onto", repo+"@main", "--commit", "agent/work")
	if !r.OK || len(r.Steps) != 5 {
		t.Fatalf("%+v", r)
	}
	if got := harness.Git(t, repo, "rev-list", "--count", "main..agent/work"); got != strconv.Itoa(5) {
		t.Errorf("%s commits", got)
	}
	if got := harness.Git(t, repo, "show", "agent/work:a"); got != "one\n2\n3\nfour\n5\n6\n7\n8\nnine" {
		t.Errorf("merged: %q", got)
	}
	if got := harness.Git(t, repo, "show", "agent/work:moved/x"); got != "y" {
		t.Errorf("swapped: %q", got)
	}
	if out := harness.Git(t, repo, "fsck", "--strict"); strings.Contains(out, "error") {
		t.Error(out)
	}
	if got := harness.Git(t, repo, "status", "--porcelain"); got != " M mine" {
		t.Errorf("the working tree: %q", got)
	}
	replay(t, 1, "--from", k.gitDir(), "--task", k.ID, "--onto", repo, "--commit", "agent/work") // it is there
	plain := filepath.Join(top, "plain")
	need.NoError(t, os.Mkdir(plain, 0o755))
	if r := replay(t, 1, "--from", k.gitDir(), "--task", k.ID, "--onto", plain); r.Steps[0].Outcome != "conflict" || r.Steps[1].Outcome != "ok" {
		t.Errorf("%+v", r)
	}
	if list, err := os.ReadDir(plain); err != nil || len(list) > 0 {
		t.Errorf("the folder was written to: %v %v", list, err)
	}
}
