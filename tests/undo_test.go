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

// agentOn is an agent whose hooks are run by the test.
type agentOn struct {
	p       *project
	session string
	prompt  string
	n       int
}

// event runs the hook for one event of a shell and returns what it printed.
func (a *agentOn) event(t *testing.T, name string) string {
	t.Helper()
	input := fmt.Sprintf(`{"session_id":%q,"cwd":%q,"prompt_id":%q,"hook_event_name":%q,"tool_name":"Bash","tool_input":{"command":"x"},"tool_use_id":"u%d"}`,
		a.session, a.p.dir, a.prompt, name, a.n)
	status, out, errOut := hookRun(t, []string{"UMBRA_SERVER=" + a.p.URL, "UMBRA_DATA_DIR=" + a.p.DataDir}, input, "claude-code", "--on-failure=block")
	if status != 0 {
		t.Fatalf("hook: status %d: %s", status, errOut)
	}
	return out
}

// tool runs do as a shell of the agent and returns what the model is given.
func (a *agentOn) tool(t *testing.T, prompt string, do func()) string {
	t.Helper()
	a.prompt = prompt
	a.n++
	if out := a.event(t, "PreToolUse"); out != "" {
		t.Errorf("the begin printed %s", out)
	}
	do()
	return a.event(t, "PostToolUse")
}

// verb runs the program in the project's directory, as its user.
func (p *project) verb(t *testing.T, args ...string) (status int, stdout, stderr string) {
	t.Helper()
	cmd := harness.Command(t, []string{"UMBRA_DATA_DIR=" + p.DataDir}, args...)
	cmd.Dir = p.dir
	var out, errOut strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &errOut
	_ = cmd.Run()
	return cmd.ProcessState.ExitCode(), out.String(), errOut.String()
}

func (p *project) put(t *testing.T, name, data string) {
	t.Helper()
	need.NoError(t, os.WriteFile(filepath.Join(p.dir, name), []byte(data), 0o644))
}

// state lists the project's files with their content.
func (p *project) state(t *testing.T) string {
	t.Helper()
	list, err := os.ReadDir(p.dir)
	need.NoError(t, err)
	var parts []string
	for _, f := range list {
		parts = append(parts, f.Name()+"="+strings.ReplaceAll(p.read(t, f.Name()), "\n", "/"))
	}
	return strings.Join(parts, " ")
}

func TestUndoTurns(t *testing.T) {
	p := newProject(t, map[string]string{"keep": "1\n2\n3\n4\n5\n", "mine": "precious\n"})
	one, two := &agentOn{p: p, session: "s1"}, &agentOn{p: p, session: "s2"}
	out := one.tool(t, "p1", func() {
		p.put(t, "a", "a\n")
		need.NoError(t, os.Remove(filepath.Join(p.dir, "mine")))
	})
	if !strings.Contains(out, `"PostToolUse"`) || !strings.Contains(out, "mine (last written by") || !strings.Contains(out, "umbra undo --call") {
		t.Errorf("the model was not given what its call overwrote: %s", out)
	}
	one.tool(t, "p2", func() { p.put(t, "b", "b\n"); p.put(t, "keep", "one\n2\n3\n4\n5\n") })
	two.tool(t, "q1", func() { p.put(t, "c", "c\n"); p.put(t, "keep", "one\n2\n3\n4\nfive\n") })
	if out := one.tool(t, "p3", func() {}); !strings.Contains(out, "keep lines 5") || !strings.Contains(out, "c lines 1") {
		t.Errorf("the model was not given what others changed: %s", out)
	}
	step := func(want string, status int, args ...string) {
		t.Helper()
		got, out, errOut := p.verb(t, args...)
		if got != status {
			t.Errorf("%q: status %d, want %d: %s%s", args, got, status, out, errOut)
		}
		if state := p.state(t); state != want {
			t.Errorf("%q: %s, want %s\n%s%s", args, state, want, out, errOut)
		}
	}
	all := "a=a/ b=b/ c=c/ keep=one/2/3/4/five/"
	step(all, 2, "undo")
	step(all, 0, "undo", "--dry-run")
	step(all, 0, "undo", "--agent", "codex", "--yes")
	step("a=a/ c=c/ keep=1/2/3/4/five/", 0, "undo", "--session", "s1", "--yes")
	step("a=a/ keep=1/2/3/4/5/", 0, "undo", "--yes")
	step("keep=1/2/3/4/5/ mine=precious/", 0, "undo", "--yes")
	step("keep=1/2/3/4/5/ mine=precious/", 0, "undo", "--yes")
	step("a=a/ keep=1/2/3/4/5/", 0, "redo")
	step("a=a/ c=c/ keep=1/2/3/4/five/", 0, "redo", "--yes")
	p.Stop()
	p.Restart()
	step(all, 0, "redo")
	step(all, 0, "redo")
	step("keep=1/2/3/4/5/ mine=precious/", 0, "undo", "--yes", "--turns", "9")
	step(all, 0, "redo")

	// Another's later work on the same line is a conflict that names it.
	two.tool(t, "q2", func() { p.put(t, "keep", "uno\n2\n3\n4\nfive\n") })
	conflict := "a=a/ b=b/ c=c/ keep=uno/2/3/4/five/"
	step(conflict, 1, "undo", "--session", "s1", "--yes")
	_, text, _ := p.verb(t, "undo", "--session", "s1", "--yes", "--dry-run")
	if !strings.Contains(text, "conflict") || !strings.Contains(text, "claude-code-") {
		t.Errorf("the conflict does not say whose it is: %s", text)
	}

	var list []struct {
		Agent     string `json:"agent"`
		Session   string `json:"agent_session"`
		Prompt    string `json:"prompt_id"`
		Certainty *string
		Undone    bool
		Calls     []string
		Files     []struct{ Path string }
	}
	status, text, _ := p.verb(t, "turns", "--json")
	if err := json.Unmarshal([]byte(text), &list); err != nil || status != 0 {
		t.Fatalf("%v: %s", err, text)
	}
	var got []string
	for _, x := range list {
		got = append(got, fmt.Sprintf("%s/%s:%d", x.Session, x.Prompt, len(x.Files)))
	}
	if want := "s2/q2:1 s1/p3:0 s2/q1:2 s1/p2:2 s1/p1:2"; strings.Join(got, " ") != want {
		t.Errorf("turns %q, want %q", got, want)
	}
	step("a=a/ b=b/ c=c/ keep=one/2/3/4/five/", 0, "undo", "--call", list[0].Calls[0], "--yes")
	if status, text, _ := p.verb(t, "undo", "--session", "s9", "--yes"); status != 0 || strings.TrimSpace(text) != "nothing to undo" {
		t.Errorf("nothing to undo: %d %q", status, text)
	}
	for _, args := range [][]string{{"undo", "--turns", "0"}, {"undo", "--call", "x", "--turns", "2"}, {"undo", "x"}, {"redo", "x"}, {"turns", "x"}} {
		if status, _, _ := p.verb(t, args...); status != 2 {
			t.Errorf("%q: status %d", args, status)
		}
	}
}

func TestHooksContextOff(t *testing.T) {
	p := &project{Server: harness.Start(t, harness.Options{Config: "hooks:\n  context: \"off\"\n"}), dir: t.TempDir()}
	p.fill(t, map[string]string{"mine": "precious\n"})
	a := &agentOn{p: p, session: "s1"}
	if out := a.tool(t, "p1", func() { p.put(t, "mine", "other\n") }); out != "" {
		t.Errorf("with hooks.context off the model was given %s", out)
	}
}

// TestTurnsOfManyCalls: undo, redo and turns read the newest calls page by page, and
// find a turn behind many, also one whose calls are far apart.
func TestTurnsOfManyCalls(t *testing.T) {
	p := newProject(t, map[string]string{"a": "1\n", "b": "1\n"})
	call := func(session, prompt string, do func()) string {
		t.Helper()
		var b struct {
			CallID string `json:"call_id"`
		}
		p.call(t, "POST", "/calls", map[string]any{"agent": "codex", "agent_session": session, "cwd": p.dir, "prompt_id": prompt}).want(t, 201).into(t, &b)
		if do != nil {
			do()
		}
		p.call(t, "POST", "/calls/"+b.CallID+"/end", map[string]any{}).want(t, 200)
		return b.CallID
	}
	verb := func(args ...string) string {
		t.Helper()
		status, out, errOut := p.verb(t, args...)
		if status != 0 {
			t.Fatalf("%v: status %d: %s", args, status, errOut)
		}
		return out
	}
	holds := func(what, a, b string) {
		t.Helper()
		for name, want := range map[string]string{"a": a, "b": b} {
			if got, err := os.ReadFile(filepath.Join(p.dir, name)); err != nil || string(got) != want {
				t.Errorf("%s: %s is %q, not %q", what, name, got, want)
			}
		}
	}
	call("one", "apart", func() { p.put(t, "a", "2\n") })
	const others = 450
	for i := range others {
		call("two", fmt.Sprintf("empty-%d", i/7), nil)
	}
	second := call("one", "apart", func() { p.put(t, "b", "2\n") })
	verb("undo", "--yes", "--call", second)
	holds("after the undo of a call", "2\n", "1\n")
	verb("undo", "--yes")
	holds("after the undo of the turn", "1\n", "1\n")
	if out := verb("undo", "--yes"); !strings.Contains(out, "nothing to undo") {
		t.Error(out)
	}
	verb("redo")
	holds("after a redo", "2\n", "1\n")
	verb("redo")
	holds("after the other redo", "2\n", "2\n")
	if out := verb("redo"); !strings.Contains(out, "nothing to redo") {
		t.Error(out)
	}
	var list []struct {
		Prompt string   `json:"prompt_id"`
		Calls  []string `json:"calls"`
	}
	for n, want := range []int{2 + (others-1)/7, 1, 2} {
		need.NoError(t, json.Unmarshal([]byte(verb("turns", "--json", "-n", strconv.Itoa(n))), &list))
		if len(list) != want || list[0].Prompt != "apart" {
			t.Errorf("-n %d: %d turns, the first %q", n, len(list), list[0].Prompt)
		}
		if len(list[0].Calls) != 2 {
			t.Errorf("calls of the turn: %v", list[0].Calls)
		}
	}
	if out := verb("turns", "-n", "3"); !strings.Contains(out, "older turns") {
		t.Error(out)
	}
	if status, _, errOut := p.verb(t, "turns", "-n", "-2"); status != 2 {
		t.Errorf("-n -2: status %d: %s", status, errOut)
	}
}
