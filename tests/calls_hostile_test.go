package tests

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"umbra/internal/need"
)

// edit is a hook's event of an editing tool.
func (a *agentOn) edit(t *testing.T, path string, do func()) {
	t.Helper()
	a.n++
	for _, event := range []string{"PreToolUse", "PostToolUse"} {
		input := fmt.Sprintf(`{"session_id":%q,"cwd":%q,"prompt_id":%q,"hook_event_name":%q,"tool_name":"Edit","tool_input":{"file_path":%q,"old_string":"a","new_string":"b"},"tool_use_id":"u%d"}`,
			a.session, a.p.dir, a.prompt, event, path, a.n)
		status, _, errOut := hookRun(t, []string{"UMBRA_SERVER=" + a.p.URL, "UMBRA_DATA_DIR=" + a.p.DataDir}, input, "claude-code", "--on-failure=block")
		if status != 0 {
			t.Fatalf("hook: status %d: %s", status, errOut)
		}
		if event == "PreToolUse" {
			do()
		}
	}
}

// owners lists the log as "path operation session".
func (p *project) owners(t *testing.T) []string {
	t.Helper()
	var calls struct {
		Calls []struct {
			WorkspaceID string `json:"workspace_id"`
			TaskID      string `json:"task_id"`
			Session     string `json:"agent_session"`
			Workspace   string
		}
	}
	p.call(t, "GET", "/calls", nil).want(t, 200).into(t, &calls)
	sessions := map[string]string{}
	ws := ""
	for _, c := range calls.Calls {
		sessions[c.TaskID] = c.Session
		ws = c.WorkspaceID
	}
	var log struct{ Entries []callEntry }
	p.call(t, "GET", "/workspaces/"+ws+"/log", nil).want(t, 200).into(t, &log)
	var out []string
	for _, e := range log.Entries {
		if e.Source == "baseline" {
			continue
		}
		who := e.Source
		if e.TaskID != nil && sessions[*e.TaskID] != "" {
			who = sessions[*e.TaskID]
		}
		if e.Source == "revert" {
			who = "revert"
		}
		name := e.Path
		if e.NewPath != nil && *e.NewPath != "" {
			name += ">" + *e.NewPath
		}
		out = append(out, name+" "+e.Operation+" "+who)
	}
	return out
}

func (p *project) ownersAre(t *testing.T, want ...string) {
	t.Helper()
	got := p.owners(t) // those of one look are in no order
	slices.Sort(got)
	slices.Sort(want)
	if strings.Join(got, ", ") != strings.Join(want, ", ") {
		t.Errorf("history is %q, want %q", got, want)
	}
}

// An editing tool names its file through links and by roundabout names.
func TestCallsThroughLinks(t *testing.T) {
	p := newProject(t, map[string]string{"real/f": "a\n", "real/g": "a\n", "real/h": "a\n", "real/i": "a\n"})
	p.shell(t, "ln -s real alias; ln -s real/g one; mkdir elsewhere; ln -s ../real/i elsewhere/up")
	outside := filepath.Join(t.TempDir(), "project")
	need.NoError(t, os.Symlink(p.dir, outside))
	a := &agentOn{p: p, session: "s1", prompt: "p"}
	a.edit(t, p.dir+"/alias/f", func() { p.shell(t, "echo b > alias/f") })
	a.edit(t, p.dir+"/one", func() { p.shell(t, "echo b > one") })
	a.edit(t, outside+"/alias/../real/h", func() { p.shell(t, "echo b > real/h") })
	a.edit(t, "elsewhere/up", func() { p.shell(t, "echo b > elsewhere/up") })
	a.edit(t, outside+"/alias/new/deep", func() { p.shell(t, "mkdir alias/new; echo b > alias/new/deep") })
	p.ownersAre(t, "real/f modify s1", "real/g modify s1", "real/h modify s1", "real/i modify s1", "real/new/deep create s1")
}

// An undo's writes are its own, whatever calls are open, and take back nothing
// of them.
func TestUndoBesideOpenCalls(t *testing.T) {
	p := newProject(t, map[string]string{"f": "0\n"})
	one, two := &agentOn{p: p, session: "s1", prompt: "p"}, &agentOn{p: p, session: "s2", prompt: "q"}
	one.tool(t, "p", func() { p.put(t, "f", "1\n"); p.put(t, "made", "1\n") })
	two.tool(t, "q", func() {
		p.put(t, "two", "2\n")
		if status, out, errOut := p.verb(t, "undo", "--session", "s1", "--yes"); status != 0 {
			t.Errorf("undo: %d %s%s", status, out, errOut)
		}
	})
	if got, want := p.state(t), "f=0/ two=2/"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	p.ownersAre(t, "f modify s1", "made create s1", "two create s2", "f modify revert", "made delete revert")
	if status, out, errOut := p.verb(t, "redo", "--yes"); status != 0 || p.state(t) != "f=1/ made=1/ two=2/" {
		t.Errorf("redo: %d %s%s: %s", status, out, errOut, p.state(t))
	}
}

// TestUndoOfAnEmptyName: an empty name undoes nothing, least of all the last turn of anybody.
func TestUndoOfAnEmptyName(t *testing.T) {
	p := newProject(t, map[string]string{"f": "0\n"})
	(&agentOn{p: p, session: "s1"}).tool(t, "p", func() { p.put(t, "f", "1\n") })
	for _, flag := range []string{"--session=", "--agent=", "--call="} {
		if status, out, errOut := p.verb(t, "undo", "--yes", flag); status != 2 || p.read(t, "f") != "1\n" {
			t.Errorf("%s: %d %s%s", flag, status, out, errOut)
		}
	}
}

// A person edits between undo and redo: neither takes that back.
func TestUndoChainsKeepAPersonsEdits(t *testing.T) {
	start := "1\n2\n3\n4\n5\n6\n7\n8\n9\n"
	p := newProject(t, map[string]string{"f": start})
	a := &agentOn{p: p, session: "s1"}
	line := func(n int, text string) {
		t.Helper()
		list := strings.Split(p.read(t, "f"), "\n")
		list[n-1] = text
		p.put(t, "f", strings.Join(list, "\n"))
	}
	a.tool(t, "p1", func() { line(1, "agent"); p.put(t, "new", "agent\n") })
	a.tool(t, "p2", func() { line(5, "agent") })
	want := func(state string, args ...string) {
		t.Helper()
		status, out, errOut := p.verb(t, args...)
		if got := p.state(t); got != state {
			t.Errorf("%q (%d): %s, want %s\n%s%s", args, status, got, state, out, errOut)
		}
	}
	line(9, "person")
	want("f=agent/2/3/4/5/6/7/8/person/ new=agent/", "undo", "--yes")
	line(9, "person again")
	want("f=agent/2/3/4/agent/6/7/8/person again/ new=agent/", "redo", "--yes")
	line(9, "person 3")
	want("f=1/2/3/4/5/6/7/8/person 3/", "undo", "--session", "s1", "--turns", "9", "--yes")
	p.put(t, "new", "a person's\n")
	line(9, "person 4")
	// The file that the redo would make is a person's by now.
	want("f=1/2/3/4/5/6/7/8/person 4/ new=a person's/", "redo", "--yes")
	p.shell(t, "rm new")
	want("f=agent/2/3/4/agent/6/7/8/person 4/ new=agent/", "redo", "--yes")
	p.put(t, "new", "agent\na person's\n")
	// What the agent made has a person's line now: it stays.
	want("f=agent/2/3/4/5/6/7/8/person 4/ new=agent/a person's/", "undo", "--turns", "1", "--yes")
	want("f=agent/2/3/4/5/6/7/8/person 4/ new=agent/a person's/", "undo", "--turns", "1", "--yes")
}

// A shell moves and deletes what another agent and a person have made.
func TestCallsAcrossOwners(t *testing.T) {
	p := newProject(t, map[string]string{"mine": "a person's\n"})
	one, two := &agentOn{p: p, session: "s1"}, &agentOn{p: p, session: "s2"}
	one.tool(t, "p", func() { p.put(t, "a", "one's\n"); p.put(t, "b", "one's too\n") })
	two.tool(t, "q", func() { p.shell(t, "mv a moved; mv mine taken; rm b; echo two > b") })
	undo := func(state string, args ...string) {
		t.Helper()
		status, out, errOut := p.verb(t, append([]string{"undo", "--yes"}, args...)...)
		if got := p.state(t); got != state {
			t.Errorf("%q (%d): %s, want %s\n%s%s", args, status, got, state, out, errOut)
		}
	}
	undo("a=one's/ b=one's too/ mine=a person's/", "--session", "s2")
	undo("mine=a person's/", "--session", "s1")
	if status, out, errOut := p.verb(t, "redo", "--yes"); status != 0 || p.state(t) != "a=one's/ b=one's too/ mine=a person's/" {
		t.Errorf("redo: %d %s%s: %s", status, out, errOut, p.state(t))
	}
	if status, out, errOut := p.verb(t, "redo", "--yes"); status != 0 || p.state(t) != "b=two/ moved=one's/ taken=a person's/" {
		t.Errorf("redo: %d %s%s: %s", status, out, errOut, p.state(t))
	}
	// What one made is two's by another name, or has two's content: nothing of two's goes.
	status, out, errOut := p.verb(t, "undo", "--yes", "--session", "s1")
	if got := p.read(t, "b"); got != "two\n" || p.read(t, "taken") != "a person's\n" {
		t.Errorf("undo: %d %s%s: b is %q", status, out, errOut, got)
	}
}

// A rule of .gitignore that comes in the middle of a call hides nothing that
// history tracks.
func TestCallsIgnoreRulesThatChange(t *testing.T) {
	p := newProject(t, map[string]string{"f": "precious\n", ".gitignore": "out\n"})
	p.shell(t, "mkdir out; echo built > out/x")
	a := &agentOn{p: p, session: "s1"}
	a.tool(t, "p", func() { p.shell(t, "echo '*' > .gitignore; rm f; echo hidden > g; rm -r out") })
	if status, out, errOut := p.verb(t, "undo", "--yes"); status != 0 {
		t.Fatalf("%d %s%s", status, out, errOut)
	}
	if got := p.read(t, "f"); got != "precious\n" || p.read(t, ".gitignore") != "out\n" {
		t.Errorf("f is %q", got)
	}
}

// A server that is killed within calls.
func TestCallsAcrossKills(t *testing.T) {
	p := newProject(t, map[string]string{"f": "0\n", "g": "0\n"})
	one, two := p.begin(t, "s1", map[string]any{"tool": "Bash"}), p.begin(t, "s2", map[string]any{"tool": "Edit", "paths": []string{"g"}, "only_paths": true})
	p.shell(t, "echo 1 > f")
	p.Kill()
	p.shell(t, "echo 2 > g; echo 1 > made")
	p.Restart()
	if e := p.end(t, two, nil); e.text() != "g modify declared" {
		t.Errorf("the edit: %s", e.text())
	}
	p.Kill()
	p.Restart()
	if e := p.end(t, one, nil); e.text() != "f modify window, made create window" && e.text() != "made create window, f modify window" {
		t.Errorf("the shell: %s", e.text())
	}
	if e := p.end(t, two, map[string]any{"status": "failed"}); e.text() != "g modify declared" {
		t.Errorf("the edit, ended again: %s", e.text())
	}
	p.ownersAre(t, "f modify s1", "g modify s2", "made create s1")
}

// A call whose task has ended is over; what comes later is nobody's.
func TestCallsOfEndedTasks(t *testing.T) {
	p := newProject(t, map[string]string{"f": "0\n"})
	one := p.begin(t, "s1", map[string]any{"tool": "Bash"})
	p.shell(t, "echo 1 > f")
	p.call(t, "PATCH", "/tasks/"+one.TaskID, map[string]any{"status": "completed"}).want(t, 200)
	p.shell(t, "echo late > late")
	if e := p.end(t, one, nil); e.text() != "f modify window" {
		t.Errorf("%s", e.text())
	}
	p.call(t, "POST", "/workspaces/"+one.WorkspaceID+"/sync", map[string]any{}).want(t, 200)
	next := p.begin(t, "s1", map[string]any{"tool": "Bash"})
	if next.TaskID == one.TaskID {
		t.Error("the ended task has a new call")
	}
	p.end(t, next, nil)
	var log struct{ Entries []callEntry }
	p.call(t, "GET", "/workspaces/"+one.WorkspaceID+"/log", nil).want(t, 200).into(t, &log)
	for _, e := range log.Entries {
		if e.Path == "late" && (e.TaskID != nil || e.Source != "external") {
			t.Errorf("late: %+v", e)
		}
	}
}

// A project within a project: what the outer one's agent does in the inner one
// is not the inner one's agent's.
func TestCallsInNestedWorkspaces(t *testing.T) {
	p := newProject(t, map[string]string{"top": "0\n", "inner/f": "0\n"})
	p.shell(t, "git -C inner init -q")
	outer := &agentOn{p: p, session: "outer"}
	outer.tool(t, "p", func() { p.put(t, "top", "1\n") })
	in := &project{Server: p.Server, dir: filepath.Join(p.dir, "inner")}
	inner := &agentOn{p: in, session: "inner"}
	inner.tool(t, "q", func() { in.put(t, "f", "1\n"); in.put(t, "own", "1\n") })
	outer.tool(t, "p2", func() { p.shell(t, "echo 2 > top; echo 2 > inner/by-outer") })
	if status, out, errOut := in.verb(t, "undo", "--yes", "--session", "inner"); status != 0 || in.read(t, "f") != "0\n" || in.read(t, "by-outer") != "2\n" {
		t.Errorf("undo of the inner agent: %d %s%s: f is %q", status, out, errOut, in.read(t, "f"))
	}
	if status, out, errOut := in.verb(t, "redo", "--yes"); status != 0 || in.read(t, "f") != "1\n" {
		t.Errorf("redo: %d %s%s", status, out, errOut)
	}
	status, out, errOut := p.verb(t, "undo", "--yes", "--session", "outer", "--turns", "9")
	if p.read(t, "top") != "0\n" || in.read(t, "f") != "1\n" || in.read(t, "own") != "1\n" {
		t.Errorf("undo of the outer agent: %d %s%s: f is %q", status, out, errOut, in.read(t, "f"))
	}
}

// TestUndoOfWhatAPersonReplaced: what is in the way of an undo and is in no history
// yet is not said to be the agent's own.
func TestUndoOfWhatAPersonReplaced(t *testing.T) {
	p := newProject(t, map[string]string{"d/x": "1\n", "d/y": "2\n"})
	c := p.begin(t, "s", nil)
	p.shell(t, "rm -r d")
	p.end(t, c, nil)
	p.shell(t, "echo a person > d")
	var out struct {
		Conflicts []struct {
			Path, Reason string
			ChangedBy    struct {
				TaskID *string `json:"task_id"`
			} `json:"changed_by"`
		}
	}
	a := p.post(t, "/calls/"+c.CallID+"/revert", map[string]any{})
	a.fails(t, 409, "revert_conflict")
	a.into(t, &out)
	if len(out.Conflicts) == 0 || p.read(t, "d") != "a person\n" {
		t.Fatalf("%s", a.Body)
	}
	for _, x := range out.Conflicts {
		if x.Path != "d" || x.Reason != "occupied" || x.ChangedBy.TaskID != nil {
			t.Errorf("%s", a.Body)
		}
	}
}

// TestRevertOfAnOpenCall: what an open call has done until now is undone, also what no
// look has found yet.
func TestRevertOfAnOpenCall(t *testing.T) {
	p := newProject(t, map[string]string{"a": "1\n"})
	c := p.begin(t, "s", nil)
	for i := range 5 {
		p.put(t, "made", fmt.Sprint(i, "\n"))
		p.post(t, "/calls/"+c.CallID+"/revert", map[string]any{}).want(t, 200)
		if _, err := os.Stat(filepath.Join(p.dir, "made")); err == nil {
			t.Errorf("%d: made is there", i)
		}
	}
	p.put(t, "after", "1\n")
	if e := p.end(t, c, nil); !strings.Contains(e.text(), "after create window") {
		t.Errorf("after: %s", e.text())
	}
}
