package tests

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"umbra/internal/need"
	"umbra/tests/harness"
)

// callEntry is an entry of a changelog, as far as these tests look.
type callEntry struct {
	ID        *uint64   `json:"id"`
	Seq       *uint64   `json:"seq"`
	Commit    *string   `json:"commit"`
	Timestamp time.Time `json:"timestamp"`
	TaskID    *string   `json:"task_id"`
	SubtaskID *string   `json:"subtask_id"`
	Operation string    `json:"operation"`
	Path      string    `json:"path"`
	NewPath   *string   `json:"new_path"`
	Source    string    `json:"source"`
	CallID    *string   `json:"call_id"`
	Tool      *string   `json:"tool"`
	Certainty *string   `json:"certainty"`
	Claimants []string  `json:"claimants"`
}

// text gives an entry as "path operation certainty".
func (e callEntry) text() string {
	certainty := "-"
	if e.Certainty != nil {
		certainty = *e.Certainty
	}
	return e.Path + " " + e.Operation + " " + certainty
}

// into reads the answer's body.
func (a *answer) into(t *testing.T, v any) {
	t.Helper()
	if err := json.Unmarshal(a.Body, v); err != nil {
		t.Fatalf("%s: %v: %.300s", a.what, err, a.Body)
	}
}

type callBegun struct {
	CallID      string  `json:"call_id"`
	TaskID      string  `json:"task_id"`
	SubtaskID   *string `json:"subtask_id"`
	WorkspaceID string  `json:"workspace_id"`
	Workspace   string  `json:"workspace"`
	At          string  `json:"at"`
	Others      []struct {
		Path      string
		Operation string
		Source    string
		Lines     *string
	} `json:"others"`
}

type callEnded struct {
	Commits []string    `json:"commits"`
	Entries []callEntry `json:"entries"`
	Status  string      `json:"status"`
	Shared  []struct {
		Path      string
		Claimants []string
	} `json:"shared"`
	Overwrote []struct {
		Path   string
		TaskID *string `json:"task_id"`
		Source string
	} `json:"overwrote"`
	Undo string `json:"undo"`
}

func (e callEnded) text() string {
	var out []string
	for _, x := range e.Entries {
		out = append(out, x.text())
	}
	return strings.Join(out, ", ")
}

// begin begins a call of a session; more is added to the body.
func (p *project) begin(t *testing.T, session string, more map[string]any) callBegun {
	t.Helper()
	body := map[string]any{"agent": "codex", "agent_session": session, "cwd": p.dir}
	maps.Copy(body, more)
	var out callBegun
	p.post(t, "/calls", body).want(t, 201).into(t, &out)
	return out
}

func (p *project) end(t *testing.T, c callBegun, body map[string]any) callEnded {
	t.Helper()
	if body == nil {
		body = map[string]any{}
	}
	var out callEnded
	p.post(t, "/calls/"+c.CallID+"/end", body).want(t, 200).into(t, &out)
	return out
}

// shell runs a command in the project, as an agent's shell does.
func (p *project) shell(t *testing.T, command string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "sh", "-ec", command)
	cmd.Dir = p.dir
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", command, err, out)
	}
}

func (p *project) log(t *testing.T, ws string) []callEntry {
	t.Helper()
	var log struct{ Entries []callEntry }
	p.call(t, "GET", "/workspaces/"+ws+"/log", nil).want(t, 200).into(t, &log)
	return log.Entries
}

// What a call's shell does is the call's; what is changed between calls is
// nobody's; and undoing the call leaves the rest.
func TestCallOfAShell(t *testing.T) {
	p := newProject(t, map[string]string{"a": "one\n1\n2\n3\n4\n", "b": "two\n", "d/e": "three\n"})
	c := p.begin(t, "s", map[string]any{"tool": "Bash", "prompt_id": "turn 1", "model": "m"})
	if c.SubtaskID == nil || *c.SubtaskID != "turn-1" || c.Workspace != p.dir || len(c.Others) != 0 {
		t.Fatalf("%+v", c)
	}
	p.shell(t, "echo more >> a; rm b; mv d/e d/f; echo new > g")
	e := p.end(t, c, map[string]any{"exit_code": 0})
	if got := e.text(); got != "a modify window, b delete window, d/e rename window, g create window" || len(e.Commits) != 1 {
		t.Fatalf("%s in %v", got, e.Commits)
	}
	if again := p.end(t, c, map[string]any{"status": "failed"}); again.text() != e.text() || again.Status != "ok" {
		t.Errorf("ended again: %s %s", again.Status, again.text())
	}
	p.shell(t, "sed -i 1s/one/person/ a; echo person > h")
	c2 := p.begin(t, "s", nil)
	if c2.TaskID != c.TaskID || len(c2.Others) != 2 || c2.Others[0].Source != "external" {
		t.Errorf("%+v", c2)
	}
	p.end(t, c2, nil)
	for _, x := range p.log(t, c.WorkspaceID)[:2] {
		if x.TaskID != nil || x.Source != "external" || x.CallID != nil {
			t.Errorf("%+v", x)
		}
	}
	var undone struct{ Conflicts []any }
	p.post(t, "/calls/"+c.CallID+"/revert", map[string]any{}).want(t, 200).into(t, &undone)
	if a, b := p.read(t, "a"), p.read(t, "b"); a != "person\n1\n2\n3\n4\n" || b != "two\n" || p.read(t, "d/e") != "three\n" || p.read(t, "h") != "person\n" {
		t.Errorf("%q %q", a, b)
	}
	p.absent(t, "g")
}

// Two calls at once: what either may have made is shared, what one declared is
// its own, and what neither of them could make is nobody's.
func TestCallsAtOnce(t *testing.T) {
	p := newProject(t, map[string]string{"a": "one\n"})
	sum := sha256.Sum256([]byte("hey"))
	shell1, shell2 := p.begin(t, "s1", nil), p.begin(t, "s2", nil)
	edit := p.begin(t, "s3", map[string]any{"only_paths": true, "paths": []any{filepath.Join(p.dir, "x"),
		map[string]any{"path": "y", "sha256": hex.EncodeToString(sum[:])}, "/outside"}})
	p.shell(t, "echo 1 > a; echo 2 > x; printf hey > y")
	if got := p.end(t, edit, nil).text(); got != "x create declared, y create exact" {
		t.Errorf("the edit: %s", got)
	}
	e1, e2 := p.end(t, shell1, nil), p.end(t, shell2, nil)
	want := []string{shell1.CallID, shell2.CallID}
	for _, e := range []callEnded{e1, e2} {
		if len(e.Entries) != 0 || len(e.Shared) != 1 || e.Shared[0].Path != "a" || !slices.Equal(e.Shared[0].Claimants, want) {
			t.Errorf("a shell: %+v", e)
		}
	}
	for _, c := range []callBegun{shell1, shell2} {
		var log struct{ Entries []callEntry }
		p.call(t, "GET", "/tasks/"+c.TaskID+"/changes", nil).want(t, 200).into(t, &log)
		if len(log.Entries) != 1 || log.Entries[0].ID != nil || log.Entries[0].TaskID != nil || log.Entries[0].Source != "shared" {
			t.Errorf("changelog: %+v", log.Entries)
		}
		var sum struct {
			Files []struct {
				Path   string
				Shared bool
			}
		}
		p.call(t, "GET", "/tasks/"+c.TaskID+"/files", nil).want(t, 200).into(t, &sum)
		if len(sum.Files) != 1 || !sum.Files[0].Shared {
			t.Errorf("summary: %+v", sum.Files)
		}
	}
	var left struct{ Shared []struct{ Path string } }
	p.post(t, "/tasks/"+shell1.TaskID+"/revert", map[string]any{}).want(t, 200).into(t, &left)
	if len(left.Shared) != 1 || p.read(t, "a") != "1\n" {
		t.Errorf("%+v %q", left, p.read(t, "a"))
	}
	p.post(t, "/tasks/"+shell1.TaskID+"/revert", map[string]any{"include_shared": true}).want(t, 200)
	if p.read(t, "a") != "one\n" {
		t.Errorf("%q", p.read(t, "a"))
	}
}

// A shared change may be any of a task's sub-agents': each has it in its subtask.
func TestCallsSharedBySubtasks(t *testing.T) {
	p := newProject(t, map[string]string{"a": "0\n"})
	one := p.begin(t, "s", map[string]any{"tool": "Bash", "subtask_id": "main"})
	two := p.begin(t, "s", map[string]any{"tool": "Bash", "subtask_id": "helper"})
	p.shell(t, "echo 1 > a")
	p.end(t, two, nil)
	p.end(t, one, nil)
	for _, subtask := range []string{"main", "helper"} {
		var sum struct {
			Files []struct {
				Shared   bool
				Subtasks []string
			}
		}
		p.call(t, "GET", "/tasks/"+one.TaskID+"/files?subtask_id="+subtask, nil).want(t, 200).into(t, &sum)
		if len(sum.Files) != 1 || !sum.Files[0].Shared || !slices.Equal(sum.Files[0].Subtasks, []string{"helper", "main"}) {
			t.Errorf("%s: %+v", subtask, sum)
		}
		var left struct{ Shared []struct{ Path string } }
		p.post(t, "/tasks/"+one.TaskID+"/subtasks/"+subtask+"/revert", map[string]any{}).want(t, 200).into(t, &left)
		if len(left.Shared) != 1 || p.read(t, "a") != "1\n" {
			t.Errorf("%s: left %+v, a is %q", subtask, left, p.read(t, "a"))
		}
	}
	p.post(t, "/tasks/"+one.TaskID+"/subtasks/helper/revert", map[string]any{"include_shared": true}).want(t, 200)
	if got := p.read(t, "a"); got != "0\n" {
		t.Errorf("a is %q", got)
	}
}

// A shared change becomes the one claimant's that declared it when it ended.
func TestCallClaimsLate(t *testing.T) {
	p := newProject(t, map[string]string{"a": "one\n"})
	c1, c2 := p.begin(t, "s1", nil), p.begin(t, "s2", nil)
	p.shell(t, "echo 1 > a; echo 2 > b")
	p.post(t, "/workspaces/"+c1.WorkspaceID+"/sync", map[string]any{}).want(t, 200) // seen by a look that is nobody's end
	if e := p.end(t, c1, map[string]any{"paths": []string{"a"}}); len(e.Shared) != 2 {
		t.Errorf("before the other's end: %+v", e)
	}
	p.end(t, c2, nil)
	if e := p.end(t, c1, nil); e.text() != "a modify declared" || len(e.Shared) != 1 || e.Shared[0].Path != "b" {
		t.Errorf("after: %s, %+v", e.text(), e.Shared)
	}
	var log struct{ Entries []callEntry }
	p.call(t, "GET", "/tasks/"+c1.TaskID+"/changes", nil).want(t, 200).into(t, &log)
	var listed []string
	for _, e := range log.Entries {
		listed = append(listed, e.text())
	}
	slices.Sort(listed)
	if strings.Join(listed, ", ") != "a modify declared, b create shared" {
		t.Errorf("%v", listed)
	}
	p.post(t, "/workspaces/"+c1.WorkspaceID+"/sync", map[string]any{}).want(t, 200)
	for _, more := range [][]string{nil, {"--only"}} { // a replay has what was claimed late
		args := append([]string{"replay", "--from", gitDirOf(t, p, c1.WorkspaceID), "--task", c1.TaskID}, more...)
		if status, out, errOut := harness.Run(t, nil, args...); status != 0 {
			t.Errorf("%v: %d %s %s", args, status, out, errOut)
		}
	}
	p.post(t, "/tasks/"+c1.TaskID+"/revert", map[string]any{}).want(t, 200)
	if p.read(t, "a") != "one\n" || p.read(t, "b") != "2\n" {
		t.Errorf("%q %q", p.read(t, "a"), p.read(t, "b"))
	}
	harness.Git(t, gitDirOf(t, p, c1.WorkspaceID), "fsck", "--strict")
}

func gitDirOf(t *testing.T, p *project, ws string) string {
	t.Helper()
	var out struct {
		GitDir string `json:"git_dir"`
	}
	p.call(t, "GET", "/workspaces/"+ws, nil).want(t, 200).into(t, &out)
	return out.GitDir
}

// What a call destroys that is in no commit of the project is told.
func TestCallOverwrote(t *testing.T) {
	p := newProject(t, map[string]string{"a": "one\n", "b": "two\n", "c": "three\n"})
	p.shell(t, "git init -q; git add -A; git -c user.name=x -c user.email=x@invalid commit -qm base; echo unsaved >> b")
	c := p.begin(t, "s", nil)
	p.shell(t, "git checkout -q b; rm a; echo four >> c")
	e := p.end(t, c, nil)
	if len(e.Overwrote) != 1 || e.Overwrote[0].Path != "b" || e.Overwrote[0].Source != "baseline" {
		t.Errorf("%+v", e.Overwrote)
	}
	p.shell(t, "echo mine > a")
	c2 := p.begin(t, "t", nil)
	p.shell(t, "rm a; git stash -q")
	e = p.end(t, c2, nil)
	listed := map[string]string{}
	for _, o := range e.Overwrote {
		listed[o.Path] = o.Source
	}
	if listed["a"] != "external" || listed["c"] != "call" {
		t.Errorf("%+v", e.Overwrote)
	}
}

// TestCallOverwroteSubmodule: the git of a submodule counts for its files, also where the
// submodule's directory was removed; what no commit of it has is reported.
func TestCallOverwroteSubmodule(t *testing.T) {
	p := &project{dir: superproject(t), Server: harness.Start(t, harness.Options{})}
	overwrote := func(command string, want ...string) {
		t.Helper()
		c := p.begin(t, "s", nil)
		p.shell(t, command)
		var got []string
		for _, o := range p.end(t, c, nil).Overwrote {
			got = append(got, o.Path)
		}
		slices.Sort(got)
		if !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", command, got, want)
		}
	}
	p.shell(t, "echo unsaved >> sub/f; echo new > sub/in/new")
	overwrote("rm sub/in/g a")
	overwrote("git -C sub checkout -q f in; rm -r sub/in", "sub/f", "sub/in/new")
	p.shell(t, "git -C sub checkout -q in; echo again > sub/new")
	overwrote("rm -rf sub", "sub/new")
	p.shell(t, "git submodule -q update")
	overwrote("git submodule -q deinit -f sub")
}

// Open calls survive a kill, and what is found at the next start is theirs.
func TestCallsOverAKill(t *testing.T) {
	p := newProject(t, map[string]string{"a": "one\n"})
	c := p.begin(t, "s", nil)
	p.shell(t, "echo two > a")
	p.Kill()
	p.shell(t, "echo three > b")
	p.Restart()
	var open struct {
		Calls []struct {
			CallID string `json:"call_id"`
		}
	}
	p.call(t, "GET", "/calls?open=true", nil).want(t, 200).into(t, &open)
	if len(open.Calls) != 1 || open.Calls[0].CallID != c.CallID {
		t.Fatalf("%+v", open)
	}
	if e := p.end(t, c, nil); e.text() != "a modify window, b create window" {
		t.Errorf("%s", e.text())
	}
	p.call(t, "GET", "/calls?open=true", nil).want(t, 200).into(t, &open)
	if len(open.Calls) != 0 {
		t.Errorf("%+v", open)
	}
}

func TestCallsOfSessions(t *testing.T) {
	p := newProject(t, map[string]string{"a": "one\n", "deep/er/b": "two\n"})
	body := map[string]any{"agent": "codex", "agent_session": "s", "cwd": filepath.Join(p.dir, "deep/er"), "call_id": "c1"}
	p.shell(t, "git init -q")
	var first, again callBegun
	p.post(t, "/calls", body).want(t, 201).into(t, &first)
	if first.Workspace != p.dir {
		t.Errorf("the top of the work tree: %s", first.Workspace)
	}
	p.post(t, "/calls", body).want(t, 200).into(t, &again)
	body["tool"] = "Bash"
	if r := p.post(t, "/calls", body); r.Status != 409 || !strings.Contains(string(r.Body), "call_exists") {
		t.Errorf("%d %s", r.Status, r.Body)
	}
	hash := sha256.Sum256([]byte("s"))
	if want := "codex-" + hex.EncodeToString(hash[:6]); first.TaskID != want || again.TaskID != want {
		t.Errorf("%s, %s, want %s", first.TaskID, again.TaskID, want)
	}
	// Its task ends, and so does the call.
	p.call(t, "PATCH", "/tasks/"+first.TaskID, map[string]any{"status": "completed"}).want(t, 200)
	var call struct{ Status string }
	p.call(t, "GET", "/calls/c1", nil).want(t, 200).into(t, &call)
	if call.Status != "lost" {
		t.Errorf("%s", call.Status)
	}
	if r := p.post(t, "/calls/c1/touch", nil); r.Status != 409 || !strings.Contains(string(r.Body), "call_ended") {
		t.Errorf("%d %s", r.Status, r.Body)
	}
	next := p.begin(t, "s", nil)
	if next.TaskID != first.TaskID+"-2" {
		t.Errorf("%s", next.TaskID)
	}
	var tk struct{ Metadata map[string]string }
	p.call(t, "GET", "/tasks/"+next.TaskID, nil).want(t, 200).into(t, &tk)
	if tk.Metadata["continues"] != first.TaskID || tk.Metadata["agent"] != "codex" || tk.Metadata["agent_session"] != "s" {
		t.Errorf("%v", tk.Metadata)
	}
	other := newProjectBeside(t, p)
	there := other.begin(t, "s", nil)
	if !strings.HasPrefix(there.TaskID, first.TaskID+"-w") || len(there.TaskID) != len(first.TaskID)+8 {
		t.Errorf("%s", there.TaskID)
	}
}

// newProjectBeside is another directory of the same server.
func newProjectBeside(t *testing.T, p *project) *project {
	t.Helper()
	dir := t.TempDir()
	need.NoError(t, os.WriteFile(filepath.Join(dir, "x"), []byte("x\n"), 0o644))
	return &project{Server: p.Server, dir: dir}
}

func TestCallsRefuse(t *testing.T) {
	p := newProject(t, map[string]string{"a": "one\n"})
	ok := map[string]any{"agent": "codex", "agent_session": "s", "cwd": p.dir}
	for i, x := range []struct {
		change map[string]any
		status int
		code   string
	}{
		{map[string]any{"cwd": nil}, 400, "invalid_field"},
		{map[string]any{"workspace_id": "w"}, 400, "invalid_field"},
		{map[string]any{"agent": nil}, 400, "invalid_field"},
		{map[string]any{"agent": "a b"}, 400, "invalid_field"},
		{map[string]any{"agent_session": ""}, 400, "invalid_field"},
		{map[string]any{"agent_session": strings.Repeat("x", 257)}, 400, "invalid_field"},
		{map[string]any{"tool": "a\x01"}, 400, "invalid_field"},
		{map[string]any{"cwd": "rel"}, 400, "invalid_field"},
		{map[string]any{"ttl_s": 59}, 400, "invalid_field"},
		{map[string]any{"call_id": "../x"}, 400, "invalid_field"},
		{map[string]any{"paths": []any{1}}, 400, "invalid_field"},
		{map[string]any{"paths": []any{map[string]any{"path": "a", "sha256": "zz"}}}, 400, "invalid_field"},
		{map[string]any{"command_sha256": "zz"}, 400, "invalid_field"},
		{map[string]any{"agnet": "x"}, 400, "unknown_field"},
		{map[string]any{"open": false}, 404, "workspace_not_found"},
		{map[string]any{"task_id": "nope"}, 404, "task_not_found"},
		{map[string]any{"cwd": nil, "workspace_id": "nope"}, 404, "workspace_not_found"},
		{map[string]any{"cwd": "/"}, 400, "workspace_too_wide"},
		{map[string]any{"task_id": "-x"}, 400, "invalid_field"},
		{map[string]any{"subtask_id": "a/b"}, 400, "invalid_field"},
		{map[string]any{"model": strings.Repeat("m", 257)}, 400, "invalid_field"},
		{map[string]any{"prompt_id": "a\nb"}, 400, "invalid_field"},
		{map[string]any{"actor": "a <b>"}, 400, "invalid_field"},
		{map[string]any{"goal": strings.Repeat("g", 70_000)}, 400, "invalid_field"},
		{map[string]any{"ttl_s": 86_401}, 400, "invalid_field"},
		{map[string]any{"ttl_s": "600"}, 400, "invalid_field"},
		{map[string]any{"only_paths": "yes"}, 400, "invalid_field"},
		{map[string]any{"open": 1}, 400, "invalid_field"},
		{map[string]any{"agent": 1}, 400, "invalid_field"},
		{map[string]any{"paths": "a"}, 400, "invalid_field"},
		{map[string]any{"paths": []any{""}}, 400, "invalid_field"},
		{map[string]any{"paths": []any{"a\x00"}}, 400, "invalid_field"},
		{map[string]any{"paths": []any{map[string]any{"path": "a", "sha": "x"}}}, 400, "invalid_field"},
		{map[string]any{"paths": slices.Repeat([]any{"a"}, 10_001)}, 400, "invalid_field"},
	} {
		body := map[string]any{}
		maps.Copy(body, ok)
		for k, v := range x.change {
			if body[k] = v; v == nil {
				delete(body, k)
			}
		}
		r := p.post(t, "/calls", body)
		if r.Status != x.status || !strings.Contains(string(r.Body), `"`+x.code+`"`) {
			t.Errorf("%d %v: %d %s", i, x.change, r.Status, r.Body)
		}
	}
	for _, path := range []string{"/calls/nope/end", "/calls/nope/touch", "/calls/nope/revert"} {
		if r := p.post(t, path, map[string]any{}); r.Status != 404 || !strings.Contains(string(r.Body), "call_not_found") {
			t.Errorf("%s: %d %s", path, r.Status, r.Body)
		}
	}
	for _, query := range []string{"limit=0", "limit=1001", "limit=x", "open=maybe", "within_s=0", "within_s=3601", "open=true&open=false"} {
		if r := p.call(t, "GET", "/calls?"+query, nil); r.Status != 400 || !strings.Contains(string(r.Body), "invalid_parameter") {
			t.Errorf("%s: %d %s", query, r.Status, r.Body)
		}
	}
	fresh := t.TempDir() // no workspace yet
	for _, x := range []map[string]any{{"task_id": "nope"}, {"goal": strings.Repeat("g", 70_000)}, {"ttl_s": 1}, {"paths": []any{""}}} {
		x["agent"], x["agent_session"], x["cwd"] = "codex", "s", fresh
		if r := p.post(t, "/calls", x); r.Status/100 != 4 {
			t.Errorf("%d %s", r.Status, r.Body)
		}
	}
	// Nothing was made for what was refused.
	var list struct{ Calls, Tasks, Workspaces []any }
	for _, path := range []string{"/calls", "/tasks", "/workspaces"} {
		p.call(t, "GET", path, nil).want(t, 200).into(t, &list)
	}
	if len(list.Calls)+len(list.Tasks)+len(list.Workspaces) != 0 {
		t.Error(fmt.Sprint(list))
	}
	// An end that is refused leaves its call open.
	var b struct {
		CallID string `json:"call_id"`
	}
	p.post(t, "/calls", ok).want(t, 201).into(t, &b)
	for i, body := range []map[string]any{{"status": "done"}, {"status": ""}, {"status": "lost"}, {"status": "open"}, {"status": 1}, {"exit_code": "1"}, {"exit_code": 1.5},
		{"paths": []any{""}}, {"paths": "a"}, {"paths": []any{map[string]any{"path": "a", "sha256": "zz"}}}, {"state": "ok"}} {
		if r := p.post(t, "/calls/"+b.CallID+"/end", body); r.Status != 400 {
			t.Errorf("end %d %v: %d %s", i, body, r.Status, r.Body)
		}
	}
	if r := p.post(t, "/calls/"+b.CallID+"/touch", map[string]any{"ttl_s": 60}); r.Status != 400 {
		t.Errorf("touch with a field: %d %s", r.Status, r.Body)
	}
	var call struct {
		Status string
		Paths  []any
	}
	p.call(t, "GET", "/calls/"+b.CallID, nil).want(t, 200).into(t, &call)
	if call.Status != "open" || len(call.Paths) != 0 {
		t.Errorf("after refused ends: %+v", call)
	}
}

// TestCallsOfATakenTask: a task that another client made under the ID of a session is
// not that session's, whatever became of it; and a session that begins in two directories
// at once has a task in each.
func TestCallsOfATakenTask(t *testing.T) {
	p := newProject(t, map[string]string{"a": "one\n"})
	hash := sha256.Sum256([]byte("s"))
	id := "codex-" + hex.EncodeToString(hash[:6])
	make := func(dir, id string) {
		t.Helper()
		p.post(t, "/tasks", map[string]any{"goal": "mine", "task_id": id, "workspace": dir}).want(t, 201)
	}
	taskOf := func(p *project, session string) (string, map[string]string) {
		t.Helper()
		c := p.begin(t, session, nil)
		p.end(t, c, nil)
		var tk struct{ Metadata map[string]string }
		p.call(t, "GET", "/tasks/"+c.TaskID, nil).want(t, 200).into(t, &tk)
		return c.TaskID, tk.Metadata
	}
	other := newProjectBeside(t, p)
	make(p.dir, id)
	make(other.dir, id+"-2")
	p.call(t, "PATCH", "/tasks/"+id, map[string]any{"status": "completed"}).want(t, 200)
	if got, meta := taskOf(p, "s"); got != id+"-3" || meta["continues"] != "" || meta["agent_session"] != "s" {
		t.Errorf("%s %v", got, meta)
	}
	make(p.dir, id+"-4")
	p.call(t, "PATCH", "/tasks/"+id+"-4", map[string]any{"status": "paused"}).want(t, 200)
	p.call(t, "PATCH", "/tasks/"+id+"-3", map[string]any{"status": "completed"}).want(t, 200)
	if got, meta := taskOf(p, "s"); got != id+"-5" || meta["continues"] != id+"-3" {
		t.Errorf("%s %v", got, meta)
	}
	for n := range 10 {
		session := fmt.Sprint("both", n)
		var ids [2]string
		var group sync.WaitGroup
		for i, at := range []*project{p, other} {
			group.Go(func() {
				c := at.begin(t, session, nil)
				ids[i] = c.TaskID
				at.end(t, c, nil)
			})
		}
		group.Wait()
		if ids[0] == ids[1] || ids[0] == "" || ids[1] == "" {
			t.Errorf("%q", ids)
		}
	}
}

// TestCallsAndAPersonsRename: a file that a person renames while a call begins or ends is
// the call's or nobody's, and not one half the one's and the other half the other's. Other
// files wait to be compared at that moment, so that the comparison takes its time.
func TestCallsAndAPersonsRename(t *testing.T) {
	p := newProject(t, map[string]string{"x/keep": "k\n", "y/keep": "k\n", "other/0": "o\n"})
	rounds := 120
	if testing.Short() {
		rounds = 30
	}
	for n := range 2 * rounds {
		p.put(t, fmt.Sprintf("x/f%d", n), fmt.Sprintf("content %d\n", n))
	}
	p.end(t, p.begin(t, "s", nil), nil)
	r := rand.New(rand.NewPCG(uint64(rounds), 1))
	took := time.Millisecond // of a begin or end
	beside := func(n int, do func()) {
		for i := range 30 {
			p.put(t, fmt.Sprintf("other/%d", i), fmt.Sprintf("%d %d\n", n, i))
		}
		name := fmt.Sprintf("f%d", n)
		p.put(t, "x/"+name, fmt.Sprintf("content %d, saved\n", n))
		wait := time.Duration(r.Int64N(int64(took)))
		started := time.Now()
		var group sync.WaitGroup
		group.Go(func() {
			for time.Since(started) < wait {
				runtime.Gosched()
			}
			if err := os.Rename(p.dir+"/x/"+name, p.dir+"/y/"+name); err != nil {
				t.Error(err)
			}
		})
		do()
		took = max(time.Millisecond, (took*3+time.Since(started))/4)
		group.Wait()
	}
	for n := range rounds {
		var c callBegun
		beside(2*n, func() { c = p.begin(t, "s", nil) })
		beside(2*n+1, func() { p.end(t, c, nil) })
	}
	c := p.begin(t, "s", nil)
	p.end(t, c, nil)
	half := map[string]callEntry{}
	both := 0
	var log []callEntry
	for after := ""; ; {
		var page struct {
			Entries []callEntry
			Next    *string
		}
		p.call(t, "GET", "/workspaces/"+c.WorkspaceID+"/log?limit=1000&after="+after, nil).want(t, 200).into(t, &page)
		log = append(log, page.Entries...)
		if page.Next == nil {
			break
		}
		after = *page.Next
	}
	for _, e := range log {
		name := filepath.Base(e.Path)
		if e.Operation != "create" && e.Operation != "delete" || !strings.HasPrefix(name, "f") {
			continue
		}
		// Newest first: the file's create at its new path, its removal from the old one.
		switch now, ok := half[name]; {
		case !ok:
			half[name] = e
		case now.Operation == e.Operation:
		case (now.Source == "external") != (e.Source == "external") && strings.HasPrefix(now.Path, "y/") != strings.HasPrefix(e.Path, "y/"):
			t.Errorf("%s by %s, %s by %s", now.text(), now.Source, e.text(), e.Source)
		default:
			both++
		}
	}
	t.Logf("%d renames as a delete and a create", both)
}
