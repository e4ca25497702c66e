package agents

import (
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"umbra/internal/need"
	"umbra/internal/state"
)

// TestServerOfMCPEnds: without a server the first session's MCP entry becomes it, and
// ends with that session, while a command of another session runs. The next hook starts
// a server; each change is that of the session that made it, and no call stays open.
func TestServerOfMCPEnds(t *testing.T) {
	s := newScene(t, map[string]string{"base.txt": "old\n"}, "codex")
	s.Stop()
	t.Cleanup(func() { s.endStarted(t) })
	signs := t.TempDir()
	wait := func(sign string) string {
		return "until [ -e " + filepath.Join(signs, sign) + " ]; do sleep 0.05; done; "
	}
	sign := func(name string) string { return "; touch " + filepath.Join(signs, name) + "; " }
	run := func(command string) step {
		return step{calls: []toolCall{{name: "exec_command", args: map[string]any{"cmd": command, "yield_time_ms": 60_000}}}}
	}
	m := newModel(t, map[string]map[string][]step{"codex": {
		"first": {run("echo a > a1.txt" + sign("began") + wait("open"))},
		"second": {run("true" + sign("open") + wait("gone") + "echo b > b1.txt"), run("echo b > b2.txt"),
			patch("*** Add File: b3.txt\n+b\n")},
	}}, nil)
	s.settings(t, m)
	s.run(t, "umbra", "init", "--user", "--yes", "--autostart", "--agent", "codex", s.dir)
	ended := map[string]chan string{"first": make(chan string, 1), "second": make(chan string, 1)}
	begin := func(script string) {
		status, out := s.startScript(t, m, "codex", script, 2*time.Minute)
		if status != 0 {
			t.Errorf("%s: status %d", script, status)
		}
		ended[script] <- out
	}
	go begin("first")
	s.run(t, "sh", "-c", wait("began"))
	before, held, err := state.FindHolder(filepath.Join(s.home, ".local", "share", "umbra"))
	if err != nil || !held {
		t.Fatalf("no process has the data directory: %v", err)
	}
	go begin("second")
	first := <-ended["first"]
	need.NoError(t, os.WriteFile(filepath.Join(signs, "gone"), nil, 0o600))
	second := <-ended["second"]
	after, held, err := state.FindHolder(filepath.Join(s.home, ".local", "share", "umbra"))
	if err != nil || !held || after.PID == before.PID {
		t.Errorf("%+v has the data directory, %+v had it: %v", after, before, err)
	}

	var turns []struct {
		Session string `json:"agent_session"`
		Ended   *string
		Files   []struct{ Path, Certainty string }
	}
	need.NoError(t, json.Unmarshal([]byte(s.run(t, "umbra", "turns", "--json")), &turns))
	made := map[string]string{}
	for _, turn := range turns {
		if turn.Ended == nil {
			t.Errorf("a call of %s stayed open", turn.Session)
		}
		for _, f := range turn.Files {
			made[f.Path] += f.Certainty + " " + turn.Session + ";"
		}
	}
	a, b := codexSession(first), codexSession(second)
	want := map[string]string{"a1.txt": "window " + a + ";", "b1.txt": "window " + b + ";", "b2.txt": "window " + b + ";", "b3.txt": "exact " + b + ";"}
	if len(turns) != 2 || !maps.Equal(made, want) {
		t.Errorf("%v\nwant %v\n%s\n%s", made, want, first, second)
	}
}

// codexSession is the ID of the session that Codex prints.
func codexSession(out string) string {
	_, rest, _ := strings.Cut(out, "session id: ")
	id, _, _ := strings.Cut(rest, "\n")
	return id
}
