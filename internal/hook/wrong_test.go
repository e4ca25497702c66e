package hook

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"umbra/internal/need"
)

// runs are whole sessions of each agent, as recorded or as its documentation has
// them; each ends by the session's end.
func runs(t *testing.T) map[string][]string {
	t.Helper()
	lines := func(text string) (list []string) {
		for line := range strings.Lines(strings.ReplaceAll(text, "$WS", "/ws")) {
			if strings.TrimSpace(line) != "" {
				list = append(list, line)
			}
		}
		return list
	}
	const qwen = `{"session_id":"0bf9b733-c7c3-4127-8d70-24f5c22bbf51","cwd":"$WS","hook_event_name":"SessionEnd"}`
	bash := func(event, id string) string {
		return claude(event, `,"transcript_path":"/t.jsonl","permission_mode":"default","tool_name":"Bash","tool_input":{"command":"echo one > a"},"tool_response":{"stdout":""},"tool_use_id":"`+id+`","duration_ms":5`)
	}
	sub := func(event string) string {
		return claude(event, `,"agent_id":"a1","agent_type":"x","tool_name":"Write","tool_input":{"file_path":"$WS/b.txt","content":"b\n"},"tool_use_id":"u3"`)
	}
	shell := `,"cwd":"/ws","model":"m","tool_name":"Shell","tool_input":{"command":"x"},"tool_use_id":"u1"`
	write := `,"tool_name":"Write","tool_input":{"file_path":"/ws/a"},"tool_use_id":"u2"`
	return map[string][]string{
		"codex codex.jsonl":           lines(file(t, "codex.jsonl")),
		"codex codex-subagents.jsonl": lines(file(t, "codex-subagents.jsonl")),
		"gemini-cli":                  lines(file(t, "gemini.jsonl")),
		"qwen-code":                   lines(file(t, "qwen.jsonl") + qwen),
		"claude-code": lines(claude("SessionStart", `,"source":"startup","model":"m"`) + claude("UserPromptSubmit", `,"prompt":"go"`) +
			bash("PreToolUse", "u1") + bash("PostToolUse", "u1") + bash("PreToolUse", "u2") + bash("PostToolUseFailure", "u2") + claude("PostToolBatch", `,"tool_calls":[]`) +
			claude("SubagentStart", `,"agent_id":"a1","agent_type":"x"`) + sub("PreToolUse") + sub("PostToolUse") + claude("SubagentStop", `,"agent_id":"a1","agent_type":"x"`) +
			claude("Stop", `,"stop_hook_active":false`) + claude("SessionEnd", `,"reason":"other"`)),
		"cursor": lines(cursor("sessionStart", "") + cursor("beforeSubmitPrompt", `,"prompt":"go"`) + cursor("preToolUse", shell) + cursor("beforeShellExecution", `,"command":"x","cwd":"/ws"`) +
			cursor("afterShellExecution", `,"command":"x","output":""`) + cursor("postToolUse", shell) + cursor("preToolUse", write) + cursor("afterFileEdit", `,"file_path":"/ws/b","edits":[]`) +
			cursor("postToolUse", write) + cursor("subagentStart", `,"subagent_id":"k1"`) + strings.ReplaceAll(cursor("preToolUse", write)+cursor("postToolUse", write), `"c1"`, `"k1"`) +
			cursor("subagentStop", `,"subagent_id":"k1"`) + cursor("stop", `,"status":"completed"`) + cursor("sessionEnd", "")),
		"copilot": lines(`{"sessionId":"s","timestamp":5,"cwd":"/ws","prompt":"go"}
{"sessionId":"s","timestamp":5,"cwd":"/ws","toolName":"bash","toolArgs":"{\"command\":\"x\"}"}
{"sessionId":"s","timestamp":6,"cwd":"/ws","toolName":"bash","toolArgs":"{\"command\":\"x\"}","toolResult":{"resultType":"success","textResultForLlm":""}}
{"sessionId":"s","timestamp":7,"cwd":"/ws","reason":"complete"}`),
		"copilot snake": lines(`{"hook_event_name":"UserPromptSubmit","session_id":"s","timestamp":"5","cwd":"/ws","prompt":"go"}
{"hook_event_name":"PreToolUse","session_id":"s","timestamp":"5","cwd":"/ws","tool_name":"create","tool_input":{"path":"a","file_text":"x"}}
{"hook_event_name":"PostToolUse","session_id":"s","timestamp":"6","cwd":"/ws","tool_name":"create","tool_input":{"path":"a","file_text":"x"},"tool_result":{"result_type":"success"}}
{"hook_event_name":"SessionEnd","session_id":"s","cwd":"/ws"}`),
	}
}

// spoiled lists a document with each of its fields, also those of inner objects,
// missing, renamed, of every other type, empty, or with a text that is too long or has
// characters that no name has; and with more fields. A field of an event and tool that
// is in seen is left out.
func spoiled(t *testing.T, line string, seen map[string]bool) map[string]string {
	t.Helper()
	out := map[string]string{}
	var doc map[string]any
	need.NoError(t, json.Unmarshal([]byte(line), &doc))
	var walk func(at map[string]any, path string)
	note := func(name string) {
		raw, err := json.Marshal(doc)
		need.NoError(t, err)
		out[name] = string(raw)
	}
	walk = func(at map[string]any, path string) {
		for _, name := range slices.Sorted(maps.Keys(at)) {
			was := at[name]
			if key := fmt.Sprint(doc["hook_event_name"], doc["tool_name"], path, name); seen[key] {
				continue
			} else {
				seen[key] = true
			}
			delete(at, name)
			note(path + name + " missing")
			at["x_"+name] = was
			note(path + name + " renamed")
			delete(at, "x_"+name)
			for what, v := range map[string]any{"null": nil, "number": 7.5, "array": []any{was}, "object": map[string]any{"x": was}, "empty": "",
				"long": strings.Repeat("é", 9000), "controls": "a\x00b\r\n\x1b[31m\u0085b\ufffd", "other text": "../../x y"} {
				if testing.Short() && what != "null" && what != "array" && what != "controls" {
					continue
				}
				at[name] = v
				note(path + name + " " + what)
			}
			at[name] = was
			if inner, ok := was.(map[string]any); ok && name == "tool_input" {
				walk(inner, name+".")
			}
		}
		at["later"] = map[string]any{"hook_event_name": "Stop", "list": []any{1, nil}}
		note(path + "more")
		delete(at, "later")
	}
	walk(doc, "")
	return out
}

// clone is the server as it is, with its state directory.
func (f *fake) clone(r *Runner, dir string) (*fake, *Runner) {
	c := newFake(f.t)
	for _, had := range f.order {
		call := *had
		c.order = append(c.order, &call)
		c.calls[call.CallID] = &call
	}
	c.others, c.over = f.others, f.over
	next := *r
	next.State, next.Send = dir, c.send
	if err := errors.Join(os.RemoveAll(dir), os.CopyFS(dir, os.DirFS(r.State))); err != nil {
		f.t.Fatal(err)
	}
	return c, &next
}

// TestEachFieldWrong runs each session with one field of one event wrong. No event may
// fail in a way that an agent sees, no request may be one that a server refuses, and no
// call of the session may stay open.
func TestEachFieldWrong(t *testing.T) {
	cases := 0
	for name, events := range runs(t) {
		agent, _, _ := strings.Cut(name, " ")
		whole := newFake(t)
		feed(t, whole.runner(agent), strings.Join(events, ""))
		before := newFake(t)
		before.others, before.over = `{"path":"x"}`, `{"path":"y"}`
		first := before.runner(agent)
		first.Exec = []string{"umbra", "exec"}
		need.NoError(t, os.Mkdir(first.State, 0o700))
		dir := filepath.Join(t.TempDir(), "hooks")
		seen := map[string]bool{}
		for n := range events {
			// What comes next, and how the session ends.
			rest := slices.Concat(events[n+1:min(n+4, len(events))], events[max(min(n+4, len(events)), len(events)-2):])
			for what, bad := range spoiled(t, events[n], seen) {
				cases++
				f, r := before.clone(first, dir)
				began := len(f.order)
				for i, e := range append([]string{bad}, rest...) {
					out, err := r.Run([]byte(e))
					if err != nil && (i > 0 || !errors.Is(err, ErrInput)) {
						t.Errorf("%s, event %d, %s: event %d after it fails: %v", name, n, what, i, err)
					}
					if len(out) > 0 && (err != nil || !answers(agent, out)) {
						t.Errorf("%s, event %d, %s: %q with %v", name, n, what, out, err)
					}
				}
				for _, c := range f.order[began:] {
					if why := c.unfit(); why != "" {
						t.Errorf("%s, event %d, %s: %s", name, n, what, why)
					}
				}
				for _, c := range f.order {
					// The end of a session that only the wrong field names never comes.
					if c.status == "open" && c.Session == whole.order[0].Session {
						t.Errorf("%s, event %d, %s: a call stays open: %s", name, n, what, f.text())
					}
				}
				if len(f.order) > len(whole.order)+1 {
					t.Errorf("%s, event %d, %s: %s, untouched %s", name, n, what, f.text(), whole.text())
				}
			}
			if _, err := first.Run([]byte(events[n])); err != nil {
				t.Fatal(err)
			}
		}
	}
	t.Logf("%d events", cases)
}

// answers reports whether a text is one that the agent reads as context or a new input,
// and as nothing else.
func answers(agent string, out []byte) bool {
	var a map[string]json.RawMessage
	if json.Unmarshal(out, &a) != nil {
		return false
	}
	for name := range a {
		if name != "hookSpecificOutput" && (agent != "cursor" || name != "additional_context") {
			return false
		}
	}
	var specific map[string]json.RawMessage
	if raw, ok := a["hookSpecificOutput"]; ok && json.Unmarshal(raw, &specific) != nil {
		return false
	}
	for name, value := range specific {
		switch name {
		case "hookEventName", "additionalContext", "updatedInput", "tool_input":
		case "permissionDecision":
			if agent != "codex" || string(value) != `"allow"` || specific["updatedInput"] == nil {
				return false
			}
		default:
			return false
		}
	}
	return true
}

// unfit says why a server refuses a begin; empty if it does not.
func (c *fakeCall) unfit() string {
	if !filepath.IsAbs(c.Cwd) || strings.IndexByte(c.Cwd, 0) >= 0 {
		return fmt.Sprintf("cwd %q", c.Cwd)
	}
	for name, s := range map[string]string{"session": c.Session, "tool": c.Tool, "model": c.Model, "prompt": c.Prompt} {
		if s != "" && (label(s) != s || len([]rune(s)) > 256 || strings.ContainsRune(s, '\ufffd')) {
			return fmt.Sprintf("%s %q", name, s)
		}
	}
	for _, p := range c.Paths {
		if p.Path == "" || strings.IndexByte(p.Path, 0) >= 0 || !filepath.IsAbs(p.Path) {
			return fmt.Sprintf("path %q", p.Path)
		}
	}
	if c.OnlyPaths != (len(c.Paths) > 0) {
		return "only_paths without paths"
	}
	return ""
}

// TestExitStatus: with --on-failure=block the status is one that blocks only where an
// event is of a tool, and nothing is on standard output.
func TestExitStatus(t *testing.T) {
	down := func(Server, time.Time) func(string, string, []byte) (int, []byte, error) {
		return func(string, string, []byte) (int, []byte, error) {
			return 0, nil, fmt.Errorf("%w: refused", ErrUnreachable)
		}
	}
	lost := func(Server, time.Time) func(string, string, []byte) (int, []byte, error) {
		return func(string, string, []byte) (int, []byte, error) { return 0, nil, errors.New("no answer") }
	}
	run := func(v Invocation, input string, send Sender) int {
		t.Helper()
		var out, errOut bytes.Buffer
		status := v.Main(strings.NewReader(input), &out, &errOut, time.Now(), send, nil)
		if out.Len() > 0 || (errOut.Len() > 0) != (status != 0) {
			t.Errorf("%s: status %d, %q, %q", input, status, &out, &errOut)
		}
		return status
	}
	for _, c := range []struct {
		agent, event, input string
		want                int // with block
	}{
		{"claude-code", "", claude("PreToolUse", `,"tool_name":"Bash","tool_use_id":"u2"`), refused},
		{"claude-code", "", claude("PostToolUse", `,"tool_name":"Bash","tool_use_id":"u1"`), refused},
		{"claude-code", "", claude("UserPromptSubmit", ``), failed},
		{"claude-code", "", claude("Stop", ``), failed},
		{"claude-code", "", claude("SubagentStop", `,"agent_id":"a1"`), 0}, // it has nothing open
		{"claude-code", "", claude("SessionEnd", ``), failed},
		{"claude-code", "", `{"hook_event_name":"Stop"}`, failed},
		{"claude-code", "", `{"hook_event_name":"PreToolUse"}`, refused},
		{"claude-code", "", `{`, refused},
		{"copilot", "agentStop", `{"cwd":7}`, 0},
		{"gemini-cli", "", `{"hook_event_name":"AfterAgent"}`, failed},
		{"cursor", "", `{"hook_event_name":"stop"}`, failed},
		{Generic, "", `{"phase":"begin"}`, refused},
		{Generic, "", `{"phase":"stop"}`, refused},
	} {
		for _, block := range []bool{false, true} {
			v := Invocation{Agent: c.agent, Event: c.event, Server: "unix:/none", DataDir: t.TempDir(), Block: block}
			if c.agent == "claude-code" { // a call that may be open
				open := v
				open.Block = false
				run(open, claude("PreToolUse", `,"tool_name":"Bash","tool_use_id":"u1"`), lost)
			}
			want := 0
			if block {
				want = c.want
			}
			if got := run(v, strings.ReplaceAll(c.input, "$WS", "/ws"), down); got != want {
				t.Errorf("%s %s, block %v: status %d, want %d", c.agent, c.input, block, got, want)
			}
		}
	}
	// An agent that has closed the pipe, one that sends nothing, and one that never ends its input.
	v := Invocation{Agent: "codex", Server: "unix:/none", DataDir: t.TempDir()}
	r, w := io.Pipe()
	defer w.Close()
	if status := v.Main(r, io.Discard, io.Discard, time.Now().Add(-Limit+50*time.Millisecond), down, nil); status != 0 {
		t.Errorf("an input without end: %d", status)
	}
	if log, err := os.ReadFile(filepath.Join(v.DataDir, "hooks.log")); err != nil || !bytes.Contains(log, []byte("no answer in time")) {
		t.Errorf("%s, %v", log, err)
	}
}

// TestWrongWorktree: a field of another type does not have the event taken for none.
func TestWrongWorktree(t *testing.T) {
	for _, input := range []string{`{"hook_event_name":"WorktreeCreate","name":7,"cwd":"/"}`, `{"hook_event_name":"WorktreeCreate","name":"x","cwd":{}}`,
		`{"hook_event_name":"WorktreeRemove","worktree_path":[]}`} {
		if worktreeOf("claude-code", []byte(input)) == nil {
			t.Errorf("%s is no worktree's event", input)
		}
	}
	// One that fails at once is not taken for done.
	v := Invocation{Agent: "claude-code", Server: "unix:/none", DataDir: t.TempDir()}
	down := func(Server, time.Time) func(string, string, []byte) (int, []byte, error) {
		return func(string, string, []byte) (int, []byte, error) { return 0, nil, ErrUnreachable }
	}
	for range 30_000 {
		w := v
		if status := w.Main(strings.NewReader(`{"hook_event_name":"WorktreeRemove","worktree_path":"/x"}`), io.Discard, io.Discard, time.Now(), down, nil); status == 0 {
			t.Fatal("an event that failed has the status of one that was handled")
		}
	}
}

// TestOneEventWithoutID: a version that has the call's ID in one of its two events only.
func TestOneEventWithoutID(t *testing.T) {
	with, without := `,"tool_name":"Bash","tool_input":{"command":"x"},"tool_use_id":"u1"`, `,"tool_name":"Bash","tool_input":{"command":"x"}`
	for _, c := range []struct{ name, events, want string }{
		{"only the begin", claude("PreToolUse", with) + claude("PostToolUse", without), "/Bash:ok"},
		{"only the end", claude("PreToolUse", without) + claude("PostToolUse", with), "/Bash:ok"},
		{"neither", claude("PreToolUse", without) + claude("PostToolUse", without), "/Bash:ok"},
		{"an end without a tool", claude("PreToolUse", with) + claude("PostToolUse", `,"tool_use_id":"u1"`), "/Bash:ok"},
		{"two open", claude("PreToolUse", with) + claude("PreToolUse", strings.Replace(with, "u1", "u2", 1)) + claude("PostToolUse", without), "/Bash:open /Bash:open"},
	} {
		f := newFake(t)
		feed(t, f.runner("claude-code"), c.events)
		if got := f.text(); got != c.want {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
	}
	// Cursor without postToolUse: the next event ends the shell.
	shell := `,"tool_name":"Shell","tool_input":{"command":"x"},"tool_use_id":"u1"`
	ran := cursor("preToolUse", shell) + cursor("beforeShellExecution", `,"command":"x"`) + cursor("afterShellExecution", `,"command":"x"`)
	f := newFake(t)
	feed(t, f.runner("cursor"), ran+cursor("preToolUse", `,"tool_name":"Write","tool_input":{"file_path":"/ws/a"},"tool_use_id":"u2"`))
	if got := f.text(); got != "/Shell:ok /Write:open" {
		t.Error(got)
	}
}

// TestWithoutDirectory: of an event without a directory the hook's own counts, also for
// the paths that it names.
func TestWithoutDirectory(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	here, err := os.Getwd()
	need.NoError(t, err)
	for cwd, want := range map[string]string{``: here, `"cwd":7,`: here, `"cwd":"sub",`: filepath.Join(here, "sub"), `"cwd":"a\u0000b",`: here, `"cwd":"/else",`: "/else"} {
		f := newFake(t)
		feed(t, f.runner("codex"), `{`+cwd+`"session_id":"s","hook_event_name":"PreToolUse","tool_name":"Write","tool_input":{"file_path":"a"}}`)
		if c := f.order[0]; c.Cwd != want || !slices.Equal(c.Paths, []Path{{Path: filepath.Join(want, "a")}}) {
			t.Errorf("%s: %q, %v", cwd, c.Cwd, c.Paths)
		}
	}
}

// TestTooManyPaths: a patch of more files than a server accepts is judged as a shell's
// changes are.
func TestTooManyPaths(t *testing.T) {
	var patch strings.Builder
	for n := range maxPaths + 1 {
		fmt.Fprintf(&patch, "%s%d\n", deleteFile, n)
	}
	text, err := json.Marshal(patch.String())
	need.NoError(t, err)
	e, err := Parse("codex", fmt.Appendf(nil, `{"session_id":"s","cwd":"/","hook_event_name":"PreToolUse","tool_name":"apply_patch","tool_input":{"command":%s}}`, text), Origin{})
	if err != nil || e.OnlyPaths || len(e.Paths) > 0 {
		t.Errorf("%v, %d paths", err, len(e.Paths))
	}
}

// TestCopilotNulls: a member that is null is none, and a name that was given as a flag
// comes before a guess.
func TestCopilotNulls(t *testing.T) {
	for _, c := range []struct {
		event, input string
		want         Kind
	}{
		{"", `{"sessionId":"s","cwd":"/","toolName":"bash","toolArgs":{},"toolResult":null,"error":null}`, Begin},
		{"preToolUse", `{"sessionId":"s","cwd":"/","toolName":"bash","toolArgs":{},"toolResult":{}}`, Begin},
		{"", `{"sessionId":"s","cwd":"/","prompt":null,"reason":"x"}`, SessionEnd},
		{"", `{"sessionId":"s","cwd":"/","toolName":"bash","toolArgs":null,"toolResult":{}}`, End},
	} {
		if e, err := Parse("copilot", []byte(c.input), Origin{Event: c.event}); err != nil || e.Kind != c.want {
			t.Errorf("%s: %+v, %v", c.input, e, err)
		}
	}
}
