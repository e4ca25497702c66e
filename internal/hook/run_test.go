package hook

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"umbra/internal/need"
)

// fake is a server that keeps calls by the rules of POST /calls and its end.
type fake struct {
	t      *testing.T
	calls  map[string]*fakeCall
	order  []*fakeCall
	down   error // what Send returns
	others string
	over   string
}

type fakeCall struct {
	beginBody
	status string
	end    []Path
}

func newFake(t *testing.T) *fake { return &fake{t: t, calls: map[string]*fakeCall{}} }

func (f *fake) send(method, path string, body []byte) (int, []byte, error) {
	if f.down != nil {
		return 0, nil, f.down
	}
	if method != "POST" {
		f.t.Errorf("method %s", method)
	}
	d := json.NewDecoder(bytes.NewReader(body))
	d.DisallowUnknownFields()
	if path == "/calls" {
		var b beginBody
		if err := d.Decode(&b); err != nil {
			f.t.Errorf("%v: %s", err, body)
		}
		for what, id := range map[string]string{"call": b.CallID, "subtask": b.Subtask} {
			if id != "" && !legalID(id) {
				f.t.Errorf("%s ID %q", what, id)
			}
		}
		if f.calls[b.CallID] != nil {
			return 409, []byte(`{"error":"call_exists","detail":"x"}`), nil
		}
		c := &fakeCall{beginBody: b, status: "open"}
		f.calls[b.CallID] = c
		f.order = append(f.order, c)
		return 201, fmt.Appendf(nil, `{"call_id":%q,"others":[%s]}`, b.CallID, f.others), nil
	}
	var b struct {
		Status string `json:"status"`
		Paths  []Path `json:"paths"`
	}
	if err := d.Decode(&b); err != nil {
		f.t.Errorf("%v: %s", err, body)
	}
	id := strings.TrimSuffix(strings.TrimPrefix(path, "/calls/"), "/end")
	c := f.calls[id]
	if c == nil {
		return 404, []byte(`{"error":"call_not_found","detail":"x"}`), nil
	}
	if c.status == "open" {
		c.status, c.end = b.Status, b.Paths
	}
	return 200, fmt.Appendf(nil, `{"call_id":%q,"overwrote":[%s],"undo":"umbra undo --call %s"}`, id, f.over, id), nil
}

// text lists the calls: subtask, tool, status.
func (f *fake) text() string {
	var list []string
	for _, c := range f.order {
		list = append(list, fmt.Sprintf("%s/%s:%s", c.Subtask, c.Tool, c.status))
	}
	return strings.Join(list, " ")
}

func (f *fake) runner(agent string) *Runner {
	now := time.Date(2026, 11, 23, 0, 0, 0, 0, time.UTC)
	return &Runner{Agent: agent, State: filepath.Join(f.t.TempDir(), "hooks"), Context: true, Send: f.send,
		Now: func() time.Time { now = now.Add(time.Microsecond); return now }}
}

// feed runs events, each a line, and returns what they print.
func feed(t *testing.T, r *Runner, lines string) string {
	t.Helper()
	var out strings.Builder
	for line := range strings.Lines(lines) {
		if strings.TrimSpace(line) == "" {
			continue
		}
		text, err := r.Run([]byte(strings.ReplaceAll(line, "$WS", "/ws")))
		if err != nil {
			t.Fatalf("%v: %s", err, line)
		}
		out.Write(text)
	}
	return out.String()
}

func file(t *testing.T, name string) string {
	t.Helper()
	raw, err := os.ReadFile("testdata/" + name)
	need.NoError(t, err)
	return string(raw)
}

// short cuts the agents' long IDs.
func short(s string) string {
	return strings.NewReplacer(
		"01a20568-37dc-7b12-b1d2-216f2f626e0b", "alice", "01a20568-37ff-7840-9fbb-20be7168055b", "bob",
		"general-purpose-call_main_4_0", "alice", "general-purpose-call_main_4_1", "bob", "run_shell_command", "shell").Replace(s)
}

func TestRunRecorded(t *testing.T) {
	for _, c := range []struct{ agent, file, want string }{
		{"codex", "codex.jsonl", "/Bash:ok /apply_patch:ok /apply_patch:ok /apply_patch:failed /Bash:ok"},
		{"codex", "codex-subagents.jsonl", "alice/Bash:ok /Bash:ok bob/apply_patch:ok"},
		{"gemini-cli", "gemini.jsonl", "/shell:ok /write_file:ok /replace:ok /shell:ok"},
		{"qwen-code", "qwen.jsonl", "/shell:ok /write_file:ok /edit:failed /shell:ok alice/shell:ok bob/write_file:ok"},
	} {
		f := newFake(t)
		r := f.runner(c.agent)
		feed(t, r, file(t, c.file))
		if got := short(f.text()); got != c.want {
			t.Errorf("%s:\n%s\nwant\n%s", c.file, got, c.want)
		}
		for _, call := range f.order {
			if call.Prompt == "" || call.Cwd != "/ws" || call.Agent != c.agent || !strings.HasPrefix(call.CallID, c.agent+"-") {
				t.Errorf("%s: %+v", c.file, call)
			}
		}
	}
}

// TestRunOpenAtOnce has three calls of one session open, as recorded.
func TestRunOpenAtOnce(t *testing.T) {
	f := newFake(t)
	r := f.runner("codex")
	most := 0
	for line := range strings.Lines(file(t, "codex-subagents.jsonl")) {
		feed(t, r, line)
		most = max(most, strings.Count(f.text(), ":open"))
	}
	if most != 3 {
		t.Errorf("%d calls were open at once, want 3", most)
	}
}

const claudeHead = `{"session_id":"s1","cwd":"$WS","prompt_id":"p1","hook_event_name":`

func claude(event, rest string) string { return claudeHead + `"` + event + `"` + rest + "}\n" }

func TestClaudeCode(t *testing.T) {
	bash := func(event, id string) string {
		return claude(event, `,"tool_name":"Bash","tool_input":{"command":"x"},"tool_use_id":"`+id+`"`)
	}
	sub := func(event, id string) string {
		return claude(event, `,"agent_id":"a1","tool_name":"Bash","tool_input":{"command":"x"},"tool_use_id":"`+id+`"`)
	}
	for _, c := range []struct{ name, events, want string }{
		{"pair", bash("PreToolUse", "u1") + bash("PostToolUse", "u1"), "/Bash:ok"},
		{"failure", bash("PreToolUse", "u1") + bash("PostToolUseFailure", "u1"), "/Bash:failed"},
		{"interrupt", bash("PreToolUse", "u1") + claude("PostToolUseFailure", `,"tool_name":"Bash","is_interrupt":true,"tool_use_id":"u1"`), "/Bash:cancelled"},
		{"denied", bash("PreToolUse", "u1") + bash("PermissionDenied", "u1"), "/Bash:cancelled"},
		{"parallel", bash("PreToolUse", "u1") + bash("PreToolUse", "u2") + bash("PostToolUse", "u2"), "/Bash:open /Bash:ok"},
		{"batch", bash("PreToolUse", "u1") + sub("PreToolUse", "u2") + claude("PostToolBatch", ""), "/Bash:cancelled a1/Bash:open"},
		{"stop", bash("PreToolUse", "u1") + sub("PreToolUse", "u2") + claude("Stop", ""), "/Bash:cancelled a1/Bash:cancelled"},
		{"prompt", bash("PreToolUse", "u1") + claude("UserPromptSubmit", `,"prompt":"go"`), "/Bash:cancelled"},
		{"running sub-agent", claude("SubagentStart", `,"agent_id":"a1"`) + sub("PreToolUse", "u2") + claude("Stop", ""), "a1/Bash:open"},
		{"sub-agent's end", bash("PreToolUse", "u1") + sub("PreToolUse", "u2") + claude("SubagentStop", `,"agent_id":"a1"`), "/Bash:open a1/Bash:cancelled"},
		{"session's end", claude("SubagentStart", `,"agent_id":"a1"`) + sub("PreToolUse", "u2") + claude("SessionEnd", ""), "a1/Bash:cancelled"},
		{"resumed", bash("PreToolUse", "u1") + claude("SessionStart", `,"source":"resume"`), "/Bash:cancelled"},
		{"compaction", bash("PreToolUse", "u1") + claude("SessionStart", `,"source":"compact"`), "/Bash:open"},
		{"same id again", bash("PreToolUse", "u1") + bash("PostToolUse", "u1") + bash("PreToolUse", "u1") + bash("PostToolUse", "u1"), "/Bash:ok /Bash:ok"},
		{"reader", claude("PreToolUse", `,"tool_name":"Read","tool_input":{"file_path":"a"},"tool_use_id":"u1"`) + claude("PreToolUse", `,"tool_name":"Task","tool_use_id":"u2"`), ""},
		{"lost begin", bash("PostToolUse", "u1"), ""},
		{"unknown", claude("Later", `,"more":[1]`), ""},
	} {
		f := newFake(t)
		feed(t, f.runner("claude-code"), c.events)
		if got := f.text(); got != c.want {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
	}
}

func TestClaudeCodePaths(t *testing.T) {
	f := newFake(t)
	feed(t, f.runner("claude-code"),
		claude("PreToolUse", `,"tool_name":"Write","tool_input":{"file_path":"/ws/a","content":"b\n"},"tool_use_id":"u1"`)+
			claude("PreToolUse", `,"tool_name":"NotebookEdit","tool_input":{"notebook_path":"n.ipynb"},"tool_use_id":"u2"`)+
			claude("PreToolUse", `,"tool_name":"Bash","tool_input":{"command":"ls"},"tool_use_id":"u3"`))
	want := [][]Path{{{"/ws/a", sum("b\n")}}, {{"/ws/n.ipynb", ""}}, nil}
	for i, c := range f.order {
		if !slices.Equal(c.Paths, want[i]) || c.OnlyPaths != (want[i] != nil) {
			t.Errorf("%s: %+v %v", c.Tool, c.Paths, c.OnlyPaths)
		}
	}
	if f.order[2].CommandSHA256 != sum("ls") || f.order[0].CommandSHA256 != "" {
		t.Errorf("command digests %q, %q", f.order[2].CommandSHA256, f.order[0].CommandSHA256)
	}
}

const cursorHead = `{"conversation_id":"c1","generation_id":"g1","workspace_roots":["/ws"],"hook_event_name":`

func cursor(event, rest string) string { return cursorHead + `"` + event + `"` + rest + "}\n" }

func TestCursor(t *testing.T) {
	shell := `,"tool_name":"Shell","tool_input":{"command":"x"},"tool_use_id":"u1"`
	write := `,"tool_name":"Write","tool_input":{"file_path":"/ws/a"},"tool_use_id":"u2"`
	child := func(event, rest string) string {
		return strings.ReplaceAll(cursor(event, rest), `"c1"`, `"k1"`)
	}
	for _, c := range []struct{ name, events, want string }{
		{"shell", cursor("beforeShellExecution", `,"command":"x"`) + cursor("afterShellExecution", `,"command":"x"`), "/Shell:ok"},
		{"both", cursor("preToolUse", shell) + cursor("beforeShellExecution", `,"command":"x"`) + cursor("afterShellExecution", `,"command":"x"`) + cursor("postToolUse", shell), "/Shell:ok"},
		{"both, other order", cursor("beforeShellExecution", `,"command":"x"`) + cursor("preToolUse", shell) + cursor("afterShellExecution", `,"command":"x"`) + cursor("postToolUseFailure", shell), "/Shell:failed"},
		{"write", cursor("preToolUse", write) + cursor("afterFileEdit", `,"file_path":"/ws/b"`) + cursor("postToolUse", write), "/Write:ok"},
		{"stop", cursor("preToolUse", write) + cursor("stop", `,"status":"aborted"`), "/Write:cancelled"},
		{"sub-agent", cursor("subagentStart", `,"subagent_id":"k1"`) + child("preToolUse", write) + child("postToolUse", write), "k1/Write:ok"},
	} {
		f := newFake(t)
		feed(t, f.runner("cursor"), c.events)
		if got := f.text(); got != c.want {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
			continue
		}
		call := f.order[0]
		if call.Session != "c1" || call.Prompt != "g1" || call.Cwd != "/ws" {
			t.Errorf("%s: %+v", c.name, call)
		}
		if c.name == "write" && !slices.Equal(call.end, []Path{{Path: "/ws/b"}}) {
			t.Errorf("paths at the end: %+v", call.end)
		}
	}
}

func TestCopilot(t *testing.T) {
	for _, events := range []string{
		`{"sessionId":"s","timestamp":5,"cwd":"/ws","prompt":"go"}
{"sessionId":"s","timestamp":5,"cwd":"/ws","toolName":"bash","toolArgs":"{\"command\":\"x\"}"}
{"sessionId":"s","timestamp":6,"cwd":"/ws","toolName":"bash","toolArgs":"{\"command\":\"x\"}","toolResult":{"resultType":"denied"}}`,
		`{"hook_event_name":"UserPromptSubmit","session_id":"s","timestamp":"5","cwd":"/ws","prompt":"go"}
{"hook_event_name":"PreToolUse","session_id":"s","timestamp":"5","cwd":"/ws","tool_name":"bash","tool_input":{"command":"x"}}
{"hook_event_name":"PostToolUse","session_id":"s","timestamp":"6","cwd":"/ws","tool_name":"bash","tool_input":{"command":"x"},"tool_result":{"result_type":"denied"}}`,
	} {
		f := newFake(t)
		feed(t, f.runner("copilot"), events)
		if got := f.text(); got != "/bash:cancelled" || f.order[0].Prompt != "turn-5" {
			t.Errorf("%s, %+v", got, f.order[0])
		}
	}
	f := newFake(t)
	r := f.runner("copilot")
	r.Event = "preToolUse"
	feed(t, r, `{"timestamp":5,"cwd":"/ws","toolName":"create","toolArgs":{"path":"a","file_text":"x"}}`)
	if got := f.text(); got != "/create:open" || !slices.Equal(f.order[0].Paths, []Path{{"/ws/a", sum("x")}}) {
		t.Errorf("%s, %+v", got, f.order[0])
	}
}

// TestGeminiPairs begins equal tools twice: the ends belong to them in order.
func TestGeminiPairs(t *testing.T) {
	const tool = `,"session_id":"s","cwd":"/ws","tool_name":"run_shell_command","tool_input":{"command":"x"}}`
	f := newFake(t)
	r := f.runner("gemini-cli")
	feed(t, r, strings.Repeat(`{"hook_event_name":"BeforeTool"`+tool+"\n", 2)+`{"hook_event_name":"AfterTool"`+tool)
	if got := f.text(); got != "/run_shell_command:ok /run_shell_command:open" {
		t.Error(got)
	}
	feed(t, r, `{"hook_event_name":"AfterTool"`+tool+"\n"+`{"hook_event_name":"AfterTool"`+tool)
	if got := f.text(); got != "/run_shell_command:ok /run_shell_command:ok" {
		t.Error(got)
	}
}

// TestSilentServer: a call that did not begin is not open, and an end without an
// answer is sent again.
func TestSilentServer(t *testing.T) {
	bash := func(event, id string) string {
		return claude(event, `,"tool_name":"Bash","tool_input":{"command":"x"},"tool_use_id":"`+id+`"`)
	}
	f := newFake(t)
	r := f.runner("claude-code")
	try := func(line string, want error) {
		t.Helper()
		if out, err := r.Run([]byte(line)); !errors.Is(err, want) || len(out) > 0 {
			t.Errorf("%s, %v", out, err)
		}
	}
	f.down = fmt.Errorf("%w: refused", ErrUnreachable)
	try(bash("PreToolUse", "u1"), ErrUnreachable)
	f.down = nil
	try(bash("PostToolUse", "u1"), nil)
	try(bash("PreToolUse", "u2"), nil)
	f.down = errors.New("no answer")
	try(bash("PostToolUse", "u2"), f.down)
	try(claude("PostToolBatch", ""), f.down)
	f.down = nil
	if got := f.text(); got != "/Bash:open" {
		t.Error(got)
	}
	try(claude("Stop", ""), nil)
	if got := f.text(); got != "/Bash:ok" {
		t.Error(got)
	}
}

func TestContext(t *testing.T) {
	const other = `{"path":"a\n.txt","operation":"modify","task_id":"codex-1","source":"call","lines":"1-2,5-5"},{"path":"b","operation":"delete","task_id":null,"actor":null,"source":"external","lines":null}`
	const over = `{"path":"c","task_id":null,"actor":"ann","source":"external"}`
	type out struct {
		Specific struct {
			Event   string `json:"hookEventName"`
			Context string `json:"additionalContext"`
		} `json:"hookSpecificOutput"`
		Context string `json:"additional_context"`
	}
	for _, c := range []struct{ agent, begin, end, event string }{
		{"claude-code", claude("PreToolUse", `,"tool_name":"Bash","tool_use_id":"u"`), claude("PostToolUse", `,"tool_name":"Bash","tool_use_id":"u"`), "PostToolUse"},
		{"codex", claude("PreToolUse", `,"tool_name":"Bash","tool_use_id":"u"`), claude("PostToolUse", `,"tool_name":"Bash","tool_use_id":"u"`), "PostToolUse"},
		{"qwen-code", claude("PreToolUse", `,"tool_name":"edit","tool_use_id":"u"`), claude("PostToolUseFailure", `,"tool_name":"edit","tool_use_id":"u"`), "PostToolUseFailure"},
		{"gemini-cli", claude("BeforeTool", `,"tool_name":"edit"`), claude("AfterTool", `,"tool_name":"edit"`), "AfterTool"},
		{"cursor", cursor("preToolUse", `,"tool_name":"Shell","tool_use_id":"u"`), cursor("postToolUse", `,"tool_name":"Shell","tool_use_id":"u"`), ""},
	} {
		f := newFake(t)
		f.others, f.over = other, over
		r := f.runner(c.agent)
		if text := feed(t, r, c.begin); text != "" {
			t.Errorf("%s: begin printed %s", c.agent, text)
		}
		text := feed(t, r, c.end)
		var o out
		if err := json.Unmarshal([]byte(text), &o); err != nil {
			t.Errorf("%s: %v: %s", c.agent, err, text)
			continue
		}
		context := o.Specific.Context + o.Context
		if o.Specific.Event != c.event || (o.Context != "") != (c.agent == "cursor") {
			t.Errorf("%s: %s", c.agent, text)
		}
		for _, part := range []string{`"a\n.txt" lines 1-2,5-5 (modify by task codex-1)`, "b (delete by the user", "c (last written by ann)", "umbra undo --call"} {
			if !strings.Contains(context, part) {
				t.Errorf("%s: %q is missing in %q", c.agent, part, context)
			}
		}
		// The same is not passed twice, and nothing with the context off.
		f.others, f.over = "", ""
		if text := feed(t, r, c.begin+c.end); text != "" {
			t.Errorf("%s: %s", c.agent, text)
		}
		f.others, f.over = other, over
		r.Context = false
		if text := feed(t, r, c.begin+c.end); text != "" {
			t.Errorf("%s: %s", c.agent, text)
		}
	}
}

func TestGeneric(t *testing.T) {
	f := newFake(t)
	r := f.runner(Generic)
	begin := func(session, id string) string {
		t.Helper()
		out := feed(t, r, `{"phase":"begin","agent":"mine","agent_session":"`+session+`","cwd":"/ws","call_id":"`+id+`","tool":"write","tool_input":{"path":"a"}}`)
		var a struct {
			ID string `json:"call_id"`
		}
		if err := json.Unmarshal([]byte(out), &a); err != nil || a.ID == "" {
			t.Fatalf("%v: %s", err, out)
		}
		return a.ID
	}
	one, two := begin("s1", "1"), begin("s2", "1")
	if one == two {
		t.Error("equal IDs of two sessions give one call")
	}
	if c := f.calls[one]; !c.OnlyPaths || !slices.Equal(c.Paths, []Path{{Path: "/ws/a"}}) {
		t.Errorf("%+v", c)
	}
	if _, err := r.Run([]byte(`{"phase":"end","call_id":"1"}`)); !errors.Is(err, ErrInput) {
		t.Errorf("an end that fits two calls: %v", err)
	}
	feed(t, r, `{"phase":"end","call_id":"1","agent":"mine","agent_session":"s1","status":"failed"}`)
	feed(t, r, `{"phase":"end","call_id":"1","status":"ok"}`)
	three := begin("s1", "2")
	feed(t, r, `{"phase":"end","call_id":"`+three+`","status":"ok"}`)
	begin("s1", "3")
	feed(t, r, `{"phase":"stop","agent":"mine","agent_session":"s1"}`)
	if got := f.text(); got != "/write:failed /write:ok /write:ok /write:cancelled" {
		t.Error(got)
	}
	for _, bad := range []string{`{}`, `[]`, `null`, `{"phase":"begin","call_id":"1"}`, `{"phase":"end"}`, `{"phase":"end","call_id":"a/b"}`, `{"phase":"stop"}`} {
		if _, err := r.Run([]byte(bad)); !errors.Is(err, ErrInput) {
			t.Errorf("%s: %v", bad, err)
		}
	}
}

func TestStateFiles(t *testing.T) {
	f := newFake(t)
	r := f.runner("claude-code")
	feed(t, r, claude("PreToolUse", `,"tool_name":"Bash","tool_use_id":"u"`))
	name := filepath.Join(r.State, sessionName("claude-code", "s1"))
	if err := os.WriteFile(name, []byte(`{"calls":[{"id`), 0o600); err != nil { // torn
		t.Fatal(err)
	}
	feed(t, r, claude("PostToolUse", `,"tool_name":"Bash","tool_use_id":"u"`)+claude("SessionEnd", ""))
	if got := f.text(); got != "/Bash:ok" {
		t.Error(got)
	}
	if _, err := os.Stat(name); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the state of an ended session is kept: %v", err)
	}
	old := filepath.Join(r.State, "old.json")
	need.NoError(t, os.WriteFile(old, nil, 0o600))
	need.NoError(t, os.Chtimes(old, time.Time{}, r.Now().Add(-maxIdle-time.Hour)))
	feed(t, r, claude("SessionStart", `,"source":"startup"`))
	if _, err := os.Stat(old); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("old state is kept: %v", err)
	}
}

func TestLegalized(t *testing.T) {
	for in, want := range map[string]string{"": "", "a.b": "a.b", "a b/c": "a-b-c", "..x": "x--x", "é": "x--", "a.lock": "a-lock", strings.Repeat("a", 200): strings.Repeat("a", 128)} {
		if got := legalized(in); got != want {
			t.Errorf("%q: %q, want %q", in, got, want)
		}
	}
}

// FuzzRun feeds two events to each agent: no input may break the process, and
// what is sent is well formed.
func FuzzRun(f *testing.F) {
	f.Add(0, []byte(claude("PreToolUse", `,"tool_name":"Bash","tool_use_id":"u"`)), []byte(claude("Stop", "")))
	f.Add(1, []byte(cursor("preToolUse", `,"tool_name":"Shell"`)), []byte(cursor("subagentStart", `,"subagent_id":"x"`)))
	f.Add(2, []byte(`{"phase":"begin","cwd":"/"}`), []byte(`{"phase":"end","call_id":"x"}`))
	f.Fuzz(func(t *testing.T, n int, a, b []byte) {
		names := Agents()
		r := &Runner{Agent: names[((n%len(names))+len(names))%len(names)], State: t.TempDir(), Context: true, Now: time.Now}
		r.Send = func(_, path string, body []byte) (int, []byte, error) {
			if !json.Valid(body) || strings.ContainsAny(path, " \r\n?#%") {
				t.Fatalf("%s %s", path, body)
			}
			return 200, []byte(`{"others":[{"path":"x"}],"overwrote":[{}]}`), nil
		}
		for _, in := range [][]byte{a, b} {
			if out, err := r.Run(in); err == nil && len(out) > 0 && !json.Valid(out) {
				t.Fatalf("%q", out)
			}
		}
	})
}
