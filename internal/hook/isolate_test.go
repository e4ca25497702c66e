package hook

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"umbra/internal/need"
)

// rewritten is the command that an answer gives a tool, and the decision with it.
func rewritten(t *testing.T, out string) (command, decision string, fields map[string]any) {
	t.Helper()
	var a struct {
		Specific struct {
			Name     string         `json:"hookEventName"`
			Decision string         `json:"permissionDecision"`
			Updated  map[string]any `json:"updatedInput"`
			Input    map[string]any `json:"tool_input"`
		} `json:"hookSpecificOutput"`
	}
	if err := json.Unmarshal([]byte(out), &a); err != nil {
		t.Fatalf("%v: %q", err, out)
	}
	if fields = a.Specific.Updated; fields == nil {
		fields = a.Specific.Input
	}
	command, _ = fields["command"].(string)
	return command, a.Specific.Decision, fields
}

func TestIsolate(t *testing.T) {
	const line = `echo "it's" > 'a b'; echo $HOME`
	quotedLine, _ := json.Marshal(line)
	event := func(name, tool, more string) string {
		return `{"session_id":"s","cwd":"/w","hook_event_name":"` + name + `","tool_name":"` + tool + `","tool_use_id":"u","tool_input":{"command":` + string(quotedLine) + `,"timeout":5` + more + `}}`
	}
	for agent, name := range map[string]string{"claude-code": "PreToolUse", "codex": "PreToolUse", "qwen-code": "PreToolUse", "gemini-cli": "BeforeTool", "copilot": "PreToolUse"} {
		f := newFake(t)
		r := f.runner(agent)
		r.Exec = []string{"/opt/my umbra", "exec", "--data-dir=/d"}
		tool := "Bash"
		if strings.HasSuffix(agent, "-cli") || agent == "qwen-code" {
			tool = "run_shell_command"
		}
		command, decision, fields := rewritten(t, feed(t, r, event(name, tool, "")))
		want := `'/opt/my umbra' exec --data-dir=/d --call=` + f.order[0].CallID + ` -- "${BASH:-${ZSH_NAME:-sh}}" -c 'echo "it'\''s" > '\''a b'\''; echo $HOME'`
		if command != want || fields["timeout"] != float64(5) {
			t.Errorf("%s: %v\nwant %s", agent, fields, want)
		}
		if agent == "codex" && decision != "allow" || agent != "codex" && decision != "" {
			t.Errorf("%s: the decision is %q", agent, decision)
		}
		if c := f.order[0]; c.CommandSHA256 == "" || c.OnlyPaths {
			t.Errorf("%s: %+v", agent, c)
		}
	}
	for _, x := range [][3]string{
		{"claude-code", event("PreToolUse", "Bash", `,"run_in_background":true`), "in the background"},
		{"qwen-code", event("PreToolUse", "run_shell_command", `,"is_background":true`), "in the background"},
		{"claude-code", strings.Replace(event("PreToolUse", "Bash", ""), string(quotedLine), `"umbra undo --yes"`, 1), "umbra itself"},
		{"claude-code", strings.Replace(event("PreToolUse", "Bash", ""), string(quotedLine), `"cd x && umbra exec -- true"`, 1), "umbra exec"},
		{"claude-code", event("PreToolUse", "mcp__x__run", ""), "a tool that is no shell"},
		{"claude-code", event("PostToolUse", "Bash", ""), "an end"},
		{"copilot", `{"sessionId":"s","cwd":"/w","toolName":"bash","toolArgs":{"command":"x"}}`, "the camelCase form"},
		{"cursor", `{"conversation_id":"s","hook_event_name":"beforeShellExecution","command":"x","cwd":"/w"}`, "Cursor"},
	} {
		f := newFake(t)
		r := f.runner(x[0])
		r.Exec = []string{"umbra", "exec"}
		if out := feed(t, r, x[1]); out != "" {
			t.Errorf("%s: %s", x[2], out)
		}
	}
	// Without a call there is no layer, and the command stays as it is.
	f := newFake(t)
	f.down = ErrUnreachable
	r := f.runner("claude-code")
	r.Exec = []string{"umbra", "exec"}
	if out, err := r.Run([]byte(event("PreToolUse", "Bash", ""))); err == nil || len(out) != 0 {
		t.Errorf("without a server: %q %v", out, err)
	}
}

// An agent without call IDs may show its own input or the new one at the end.
func TestIsolatePairs(t *testing.T) {
	for _, own := range []bool{true, false} {
		f := newFake(t)
		r := f.runner("gemini-cli")
		r.Exec = []string{"umbra", "exec"}
		event := func(name, command string) string {
			raw, _ := json.Marshal(map[string]any{"session_id": "s", "cwd": "/w", "hook_event_name": name, "tool_name": "run_shell_command", "tool_input": map[string]string{"command": command}})
			return string(raw)
		}
		command, _, _ := rewritten(t, feed(t, r, event("BeforeTool", "make")))
		if own {
			command = "make"
		}
		feed(t, r, event("AfterTool", command))
		if f.order[0].status != "ok" {
			t.Errorf("own %v: the call is %s", own, f.order[0].status)
		}
	}
}

// The shell reads the new command as what the agent wrote.
func TestIsolatedCommandIsTheSame(t *testing.T) {
	need.Tool(t, "bash")
	fake := filepath.Join(t.TempDir(), "umb'ra")
	if err := os.WriteFile(fake, []byte("#!/bin/sh\nwhile [ \"$1\" != -- ]; do shift; done\nshift\nexec \"$@\"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	const line = "printf '%s|' \"it's\" \\\\ $((1+1)) \"$X\"\nfor i in a \"b c\"; do echo \"$i\"; done"
	for shell, name := range map[string]string{"bash": "bash", "sh": ""} {
		e := &Event{shell: line, input: map[string]json.RawMessage{}}
		var in struct{ Command string }
		need.NoError(t, json.Unmarshal(e.layered([]string{fake, "exec"}, "c"), &in))
		got := output(t, shell, in.Command)
		if want := output(t, shell, line); got != want {
			t.Errorf("%s: %q, want %q", shell, got, want)
		}
		e.shell = "echo ${BASH_VERSION:+bash}"
		need.NoError(t, json.Unmarshal(e.layered([]string{fake, "exec"}, "c"), &in))
		if got := strings.TrimSpace(output(t, shell, in.Command)); name != "" && got != name {
			t.Errorf("%s ran the command in %q", shell, got)
		}
	}
}

func output(t *testing.T, shell, line string) string {
	t.Helper()
	cmd := exec.Command(shell, "-c", line)
	cmd.Env = append(os.Environ(), "X=a  b")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v: %s", line, err, out)
	}
	return string(out)
}
