package tests

import (
	"fmt"
	"os/exec"
	"strings"
	"testing"

	"umbra/internal/need"
	"umbra/tests/harness"
)

type blameRange struct {
	Start      int     `json:"start"`
	End        int     `json:"end"`
	Commit     string  `json:"commit"`
	OriginPath string  `json:"origin_path"`
	OriginLine int     `json:"origin_line"`
	TaskID     *string `json:"task_id"`
	SubtaskID  *string `json:"subtask_id"`
	Actor      *string `json:"actor"`
	Agent      *string `json:"agent"`
	Model      *string `json:"model"`
	CallID     *string `json:"call_id"`
	Certainty  *string `json:"certainty"`
	Source     string  `json:"source"`
	Via        *string `json:"via"`
	Project    *struct {
		Commit string `json:"commit"`
		Author string `json:"author"`
	} `json:"project"`
}

type blameAnswer struct {
	Path   string       `json:"path"`
	At     string       `json:"at"`
	Lines  int          `json:"lines"`
	Ranges []blameRange `json:"ranges"`
	Next   *string      `json:"next"`
}

// blame asks for the blame of the task's workspace.
func (k *taskOf) blame(t *testing.T, query string) blameAnswer {
	t.Helper()
	var out blameAnswer
	k.p.call(t, "GET", "/workspaces/"+k.str("workspace_id")+"/blame?"+query, nil).want(t, 200).into(t, &out)
	return out
}

// String gives the ranges as "1-2 abc@7", with the subtask or source.
func (a blameAnswer) String() string {
	var out []string
	for _, r := range a.Ranges {
		who := r.Source
		if r.SubtaskID != nil {
			who = *r.SubtaskID
		}
		text := fmt.Sprintf("%d-%d %s %s:%d", r.Start, r.End, who, r.OriginPath, r.OriginLine)
		if r.Via != nil {
			text += " via"
		}
		out = append(out, text)
	}
	return strings.Join(out, ", ")
}

func (a blameAnswer) is(t *testing.T, want string) {
	t.Helper()
	if got := a.String(); got != want {
		t.Errorf("the ranges are\n%s, not\n%s", got, want)
	}
}

// Lines belong to who wrote them: through edits, a recorded rename and a revert.
func TestBlameLines(t *testing.T) {
	p := newProject(t, map[string]string{"a.txt": "one\ntwo\nthree\nfour\nfive\n", "bin": "a\x00b"})
	k := p.task(t, "metadata", map[string]any{"agent": "codex"})
	base := k.str("base")
	k.blame(t, "path=a.txt").is(t, "1-5 baseline a.txt:1")
	k.put(t, "a.txt", "one\nTWO\nthree\nfour\nfive\n", "X-Subtask-Id", "s1", "X-Actor", "claude").want(t, 200)
	k.blame(t, "path=a.txt").is(t, "1-1 baseline a.txt:1, 2-2 s1 a.txt:2, 3-5 baseline a.txt:3")
	p.post(t, k.url("/move"), map[string]any{"from": "a.txt", "to": "src/b.txt"}, "X-Subtask-Id", "s2").want(t, 200)
	k.put(t, "src/b.txt", "zero\none\nTWO\n  three\n", "X-Subtask-Id", "s3").want(t, 200)
	k.blame(t, "path=src/b.txt").is(t, "1-1 s3 src/b.txt:1, 2-2 baseline a.txt:1, 3-3 s1 a.txt:2, 4-4 s3 src/b.txt:4")
	k.blame(t, "path=src/b.txt&ignore_whitespace=true").is(t, "1-1 s3 src/b.txt:1, 2-2 baseline a.txt:1, 3-3 s1 a.txt:2, 4-4 baseline a.txt:3")
	k.blame(t, "path=src/b.txt&lines=2-3").is(t, "2-2 baseline a.txt:1, 3-3 s1 a.txt:2")
	k.blame(t, "path=a.txt&at="+base[:12]).is(t, "1-5 baseline a.txt:1")

	// What the revert brings back is the baseline's again.
	p.post(t, k.url("/subtasks/s3/revert"), map[string]any{}).want(t, 200)
	a := k.blame(t, "path=src/b.txt")
	a.is(t, "1-1 baseline a.txt:1, 2-2 s1 a.txt:2, 3-5 baseline a.txt:3 via")
	if head := k.git(t, "rev-parse", "refs/heads/shadow"); a.At != head || a.Ranges[2].Via == nil || *a.Ranges[2].Via != head || a.Lines != 5 || a.Next != nil {
		t.Errorf("%+v", a)
	}
	if r := a.Ranges[1]; r.TaskID == nil || *r.TaskID != k.ID || r.Actor == nil || *r.Actor != "claude" || r.Agent == nil || *r.Agent != "codex" || r.Source != "api" {
		t.Errorf("%+v", r)
	}

	// A page at a time.
	one := k.blame(t, "path=src/b.txt&limit=2")
	if len(one.Ranges) != 2 || one.Next == nil {
		t.Fatalf("%+v", one)
	}
	k.put(t, "src/b.txt", "other\n", "X-Subtask-Id", "s4").want(t, 200)
	two := k.blame(t, "path=src/b.txt&after="+*one.Next)
	two.is(t, "3-5 baseline a.txt:3 via")

	ws := "/workspaces/" + k.str("workspace_id") + "/blame"
	p.call(t, "GET", ws+"?path=bin", nil).fails(t, 422, "not_text")
	p.call(t, "GET", ws+"?path=src", nil).fails(t, 422, "not_text")
	p.call(t, "GET", ws+"?path=a.txt", nil).fails(t, 404, "file_not_found")
	p.call(t, "GET", ws+"?path=src/b.txt&at="+base, nil).fails(t, 404, "file_not_found")
	p.call(t, "GET", ws+"?path=src/b.txt&at=0000000000000000000000000000000000000001", nil).fails(t, 404, "commit_not_found")
	p.call(t, "GET", "/workspaces/none/blame?path=a.txt", nil).fails(t, 404, "workspace_not_found")
	for _, query := range []string{"?path=src/b.txt&lines=0-3", "?path=src/b.txt&lines=5-3", "?path=src/b.txt&lines=x", "?path=src/b.txt&lines=7-9",
		"?path=src/b.txt&after=x", "?path=src/b.txt&limit=0", "?path=src/b.txt&format=x", "?path=src/b.txt&ignore_whitespace=x"} {
		p.call(t, "GET", ws+query, nil).fails(t, 400, "invalid_parameter")
	}
	p.call(t, "GET", ws, nil).fails(t, 400, "missing_parameter")
}

// A line that an agent's own tool wrote on disk is its call's, and what is on disk
// is recorded before the answer.
func TestBlameCalls(t *testing.T) {
	p := newProject(t, map[string]string{"a.txt": "one\ntwo\n"})
	c := p.begin(t, "s", map[string]any{"model": "m-1", "tool": "Bash", "prompt_id": "p1"})
	p.shell(t, "echo three >> a.txt")
	p.end(t, c, nil)
	p.shell(t, "echo four >> a.txt")
	k := &taskOf{p: p, ID: c.TaskID, At: map[string]any{"workspace_id": c.WorkspaceID}}
	a := k.blame(t, "path=a.txt")
	a.is(t, "1-2 baseline a.txt:1, 3-3 p1 a.txt:3, 4-4 external a.txt:4")
	if r := a.Ranges[1]; r.CallID == nil || *r.CallID != c.CallID || r.Model == nil || *r.Model != "m-1" || r.Agent == nil || *r.Agent != "codex" ||
		r.Certainty == nil || *r.Certainty != "window" || r.Source != "call" {
		t.Errorf("%+v", r)
	}
}

// A baseline's lines have the commits of the project's own git.
func TestBlameProject(t *testing.T) {
	need.Tool(t, "git")
	p := newProject(t, map[string]string{"sub/a.txt": "one\ntwo\n"})
	git := func(args ...string) string {
		cmd := exec.CommandContext(t.Context(), "git", append([]string{"-C", p.dir, "-c", "user.name=Ann", "-c", "user.email=ann@example.com"}, args...)...)
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("git %v: %v\n%s", args, err, out)
		}
		return strings.TrimSpace(string(out))
	}
	git("init", "-q")
	git("add", ".")
	git("commit", "-q", "-m", "first")
	first := git("rev-parse", "HEAD")
	p.fill(t, map[string]string{"sub/a.txt": "one\nTWO\n"})
	git("commit", "-q", "-a", "-m", "second")
	second := git("rev-parse", "HEAD")
	k := p.task(t)
	k.put(t, "sub/a.txt", "one\nTWO\nthree\n", "X-Subtask-Id", "s1").want(t, 200)
	git("commit", "-q", "-a", "-m", "third")
	a := k.blame(t, "path=sub/a.txt")
	a.is(t, "1-1 baseline sub/a.txt:1, 2-2 baseline sub/a.txt:2, 3-3 s1 sub/a.txt:3")
	if one, two := a.Ranges[0].Project, a.Ranges[1].Project; one == nil || one.Commit != first || one.Author != "Ann" || two == nil || two.Commit != second || a.Ranges[2].Project != nil {
		t.Errorf("%+v", a)
	}
	k.blame(t, "path=sub/a.txt&project=false").is(t, "1-2 baseline sub/a.txt:1, 3-3 s1 sub/a.txt:3")
}

// The verbs: a table, git's own format, and one line's story.
func TestBlameVerbs(t *testing.T) {
	need.Tool(t, "git")
	p := newProject(t, map[string]string{"a.txt": "one\ntwo\nthree\n"})
	k := p.task(t, "goal", "make it two", "metadata", map[string]any{"agent": "codex"})
	k.put(t, "a.txt", "one\nTWO\nthree\n", "X-Subtask-Id", "s1").want(t, 200)
	run := func(want int, args ...string) string {
		t.Helper()
		status, out, text := p.verb(t, args...)
		if status != want {
			t.Fatalf("umbra %v: status %d\n%s%s", args, status, out, text)
		}
		return out
	}
	table := strings.Split(strings.TrimSpace(run(0, "blame", "a.txt")), "\n")
	head := k.git(t, "rev-parse", "refs/heads/shadow")
	if len(table) != 3 || !strings.HasPrefix(table[1], head[:12]) || !strings.Contains(table[1], "codex/s1") || !strings.HasSuffix(table[1], "  TWO") {
		t.Errorf("%q", table)
	}
	if got := run(0, "blame", "-L", "2,3", "a.txt"); strings.Count(got, "\n") != 2 {
		t.Errorf("%q", got)
	}
	k.sync(t)
	want := harness.Git(t, k.gitDir(), "blame", "--porcelain", "refs/heads/shadow", "--", "a.txt")
	if got := run(0, "blame", "--porcelain", "a.txt"); strings.TrimSpace(got) != strings.TrimSpace(want) {
		t.Errorf("git prints\n%s\nnot\n%s", want, got)
	}
	if got := run(0, "blame", "--json", "-L", "2,2", "a.txt"); !strings.Contains(got, `"subtask_id":`) || !strings.Contains(got, head) {
		t.Error(got)
	}
	why := run(0, "why", "a.txt:2")
	for _, text := range []string{head, "codex", "make it two", "+TWO", "umbra revert " + head[:12]} {
		if !strings.Contains(why, text) {
			t.Errorf("%q is not in\n%s", text, why)
		}
	}
	if got := run(0, "why", "--json", "a.txt:2"); !strings.Contains(got, `"undo"`) || !strings.Contains(got, "make it two") {
		t.Error(got)
	}
	if got := run(0, "why", "a.txt:1"); !strings.Contains(got, "baseline") {
		t.Error(got)
	}
	run(2, "why", "a.txt")
	run(2, "why", "a.txt:0")
	run(2, "blame", "-L", "x", "a.txt")
	run(2, "why", "a.txt:9")
	run(1, "blame", "none.txt")
}

// The record names the task's own lines.
func TestTaskTrace(t *testing.T) {
	p := newProject(t, map[string]string{"a.txt": "one\ntwo\n"})
	k := p.task(t, "metadata", map[string]any{"agent": "codex"})
	k.put(t, "a.txt", "one\nTWO\nthree\n").want(t, 200)
	k.put(t, "gone.txt", "x\n").want(t, 201)
	p.call(t, "DELETE", k.file("gone.txt"), nil).want(t, 200)
	// The format cannot write this name; as "%FF" it would be another file's.
	p.post(t, k.url("/batch"), map[string]any{"operations": []any{map[string]any{"op": "write", "path": "%FF", "path_encoding": "percent", "content": "x\n"}}}).want(t, 200)
	r := p.call(t, "GET", k.url("/trace"), nil).want(t, 200)
	if ct := r.head("Content-Type"); ct != "application/vnd.agent-trace.record+json" {
		t.Error(ct)
	}
	fitsTrace(t, string(r.Body))
	if want := `"files":[{"path":"a.txt","conversations":[{"contributor":{"type":"ai"},"ranges":[{"start_line":2,"end_line":3}]}]}]`; !strings.Contains(string(r.Body), want) {
		t.Errorf("%s", r.Body)
	}
	p.call(t, "GET", "/tasks/none/trace", nil).fails(t, 404, "task_not_found")
}
