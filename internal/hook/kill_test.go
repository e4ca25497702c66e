package hook

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"umbra/internal/need"
)

// killed is what a process that is killed leaves: the panic ends Run where the kill
// would.
type killed struct{}

// runKilled handles events, and is killed at one request: before the server gets it,
// or after. It reports whether there was such a request.
func runKilled(t *testing.T, f *fake, r *Runner, events []string, at int, after bool) (hit bool) {
	t.Helper()
	n := 0
	r.Send = func(method, path string, body []byte) (int, []byte, error) {
		n++
		if n-1 != at {
			return f.send(method, path, body)
		}
		hit = true
		if after {
			f.send(method, path, body)
		}
		panic(killed{})
	}
	for _, e := range events {
		func() {
			defer func() {
				if x := recover(); x != nil {
					if _, ok := x.(killed); !ok {
						panic(x)
					}
				}
			}()
			// The generic form reports an end whose begin the server does not have.
			if _, err := r.Run([]byte(e)); err != nil && r.Agent != Generic {
				t.Errorf("killed at %d: %v: %s", at, err, e)
			}
		}()
	}
	return hit
}

// TestKilledAtEachStep: a hook that is killed, whether the server has got its request
// or not, leaves no call open for longer than until the session's next event. Each end
// has the status that its event said.
func TestKilledAtEachStep(t *testing.T) {
	tool := func(event, id string) string {
		return claude(event, `,"tool_name":"Bash","tool_input":{"command":"x"},"tool_use_id":"`+id+`"`)
	}
	generic := func(phase, id string) string {
		return `{"phase":"` + phase + `","agent":"mine","agent_session":"s"` + map[bool]string{true: `,"call_id":"` + id + `"`}[id != ""] +
			map[bool]string{true: `,"cwd":"/ws"`}[phase == "begin"] + "}"
	}
	runs := map[string][]string{
		"claude-code": {tool("PreToolUse", "u1"), tool("PreToolUse", "u2"), tool("PostToolUse", "u1"), tool("PostToolUseFailure", "u2"),
			tool("PreToolUse", "u3"), tool("PostToolUse", "u3"), claude("Stop", ""), claude("SessionEnd", "")},
		Generic: {generic("begin", "1"), generic("begin", "2"), generic("end", "1"), generic("stop", "")},
	}
	for _, agent := range []string{"codex", "qwen-code", "gemini-cli"} {
		name := map[string]string{"codex": "codex-subagents", "qwen-code": "qwen", "gemini-cli": "gemini"}[agent]
		for line := range strings.Lines(file(t, name+".jsonl")) {
			runs[agent] = append(runs[agent], strings.ReplaceAll(line, "$WS", "/ws"))
		}
	}
	for agent, events := range runs {
		whole := newFake(t)
		runKilled(t, whole, whole.runner(agent), events, -1, false)
		if agent == Generic { // what the agent sends again
			events = append(events, events[len(events)-1])
		} else if agent == "codex" || agent == "qwen-code" || agent == "gemini-cli" {
			var last struct {
				Session string `json:"session_id"`
			}
			need.NoError(t, json.Unmarshal([]byte(events[len(events)-1]), &last))
			events = append(slices.Clone(events), fmt.Sprintf(`{"session_id":%q,"hook_event_name":"SessionEnd","cwd":"/ws"}`, last.Session))
		} else {
			events = append(events, events[len(events)-1])
		}
		for _, after := range []bool{false, true} {
			at := 0
			for ; ; at++ {
				f := newFake(t)
				if !runKilled(t, f, f.runner(agent), events, at, after) {
					break
				}
				for _, c := range f.order {
					if c.status == "open" {
						t.Errorf("%s, killed at request %d (after it: %v): %s is open", agent, at, after, c.CallID)
					}
					if w := whole.calls[c.CallID]; w != nil && w.status != c.status && agent != Generic {
						t.Errorf("%s, killed at request %d (after it: %v): %s is %s, not %s", agent, at, after, c.CallID, c.status, w.status)
					}
				}
			}
			if at < len(whole.order) {
				t.Errorf("%s: killed at %d requests", agent, at)
			}
		}
	}
}

// TestKilledWhileWriting: of a state whose end is that of a longer one the open calls
// are known.
func TestKilledWhileWriting(t *testing.T) {
	f := newFake(t)
	r := f.runner("claude-code")
	bash := `,"tool_name":"Bash","tool_input":{"command":"x"},"tool_use_id":"u1"`
	feed(t, r, claude("PreToolUse", bash))
	names, err := filepath.Glob(filepath.Join(r.State, "claude-code-*.json"))
	if err != nil || len(names) != 1 {
		t.Fatal(names, err)
	}
	raw, err := os.ReadFile(names[0])
	need.NoError(t, err)
	need.NoError(t, os.WriteFile(names[0], append(raw, `"tool":"Bash"}]}`...), 0o600))
	feed(t, r, claude("Stop", ""))
	if got := f.text(); got != "/Bash:cancelled" {
		t.Error(got)
	}
}
