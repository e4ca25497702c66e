package tests

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"umbra/internal/need"
	"umbra/tests/harness"
)

// TestCallsOpenAtOnce: 1,000 calls may be open, and they stay open over a restart.
func TestCallsOpenAtOnce(t *testing.T) {
	p := &project{Server: harness.Start(t, harness.Options{Config: "exec:\n  enabled: true\n"}), dir: t.TempDir()}
	p.fill(t, map[string]string{"a": "1\n"})
	first := p.begin(t, "s", nil)
	var group sync.WaitGroup
	for worker := range 8 {
		group.Go(func() {
			for n := worker; n < 999; n += 8 {
				body := map[string]any{"agent": "codex", "agent_session": fmt.Sprint("s", n%10), "cwd": p.dir, "call_id": fmt.Sprint("c", n), "paths": []string{fmt.Sprint("f", n)}, "only_paths": true}
				if res := p.Do("POST", "/calls", body); res.Status != 201 {
					t.Errorf("call %d: %d %s", n, res.Status, res.Body)
				}
			}
		})
	}
	group.Wait()
	more := map[string]any{"agent": "codex", "agent_session": "more", "cwd": p.dir, "call_id": "more"}
	for path, body := range map[string]map[string]any{"/calls": more, "/layers": more, "/tasks/" + first.TaskID + "/exec": {"command": "true"}} {
		a := p.post(t, path, body)
		if a.fails(t, 429, "too_many_calls"); len(a.Header["Retry-After"]) == 0 {
			t.Errorf("%s: no Retry-After", path)
		}
	}
	// The same request again is answered, full or not.
	p.post(t, "/calls", map[string]any{"agent": "codex", "agent_session": "s1", "cwd": p.dir, "call_id": "c1", "paths": []string{"f1"}, "only_paths": true}).want(t, 200)
	p.Kill()
	p.Restart()
	p.post(t, "/calls", more).fails(t, 429, "too_many_calls")
	p.shell(t, "echo 1 > f1; echo 1 > f998; echo 1 > other")
	if e := p.end(t, callBegun{CallID: "c1"}, nil); e.text() != "f1 create declared" {
		t.Errorf("%s", e.text())
	}
	p.post(t, "/calls", more).want(t, 201)
	if e := p.end(t, callBegun{CallID: "c998"}, nil); e.text() != "f998 create declared" {
		t.Errorf("%s", e.text())
	}
	if e := p.end(t, first, nil); e.text() != "other create window" {
		t.Errorf("%s", e.text())
	}
}

// TestHookKilled: a hook that is killed while it waits for the server leaves nothing
// that keeps later ones from working.
func TestHookKilled(t *testing.T) {
	p := newProject(t, map[string]string{"a": "1\n"})
	dir := filepath.Join(t.TempDir(), "data")
	event := func(name, id string) string {
		return fmt.Sprintf(`{"session_id":"s","turn_id":"t","cwd":%q,"hook_event_name":%q,"tool_name":"Bash","tool_input":{"command":"x"},"tool_use_id":%q}`, p.dir, name, id)
	}
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	need.NoError(t, err)
	defer silent.Close()
	for _, name := range []string{"PreToolUse", "PostToolUse"} {
		cmd := harness.Command(t, []string{"UMBRA_DATA_DIR=" + dir, "UMBRA_SERVER=http://" + silent.Addr().String()}, "hook", "codex")
		cmd.Stdin = strings.NewReader(event(name, "killed"))
		need.NoError(t, cmd.Start())
		c, err := silent.Accept() // it waits for the answer from now on
		need.NoError(t, err)
		need.NoError(t, cmd.Process.Kill())
		_ = cmd.Wait()
		c.Close()
	}
	env := []string{"UMBRA_DATA_DIR=" + dir, "UMBRA_SERVER=" + p.URL}
	run := func(text string) {
		t.Helper()
		if status, _, errOut := hookRun(t, env, text, "codex", "--on-failure=block"); status != 0 {
			t.Errorf("status %d: %s", status, errOut)
		}
	}
	run(event("PostToolUse", "killed"))
	run(event("PreToolUse", "next"))
	p.shell(t, "echo 2 > a")
	run(event("PostToolUse", "next"))
	var list struct {
		Calls []struct {
			CallID string `json:"call_id"`
			Status string
		}
	}
	p.call(t, "GET", "/calls", nil).want(t, 200).into(t, &list)
	if len(list.Calls) != 1 || list.Calls[0].Status != "ok" || !strings.HasSuffix(list.Calls[0].CallID, "-next") {
		t.Errorf("%+v", list)
	}
	// A torn state file is an empty one.
	names, err := filepath.Glob(filepath.Join(dir, "hooks", "codex-*.json"))
	if err != nil || len(names) != 1 {
		t.Fatal(names, err)
	}
	need.NoError(t, os.WriteFile(names[0], []byte(`{"calls":[{"id":"x`), 0o600))
	run(event("PreToolUse", "after"))
	run(event("PostToolUse", "after"))
}
