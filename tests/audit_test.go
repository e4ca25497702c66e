package tests

import (
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"umbra/internal/need"
	"umbra/tests/harness"
)

// TestAudit does each act that an owner may have to account for, and finds one
// line of it in the log, with who did it where.
func TestAudit(t *testing.T) {
	top, err := filepath.EvalSymlinks(t.TempDir())
	need.NoError(t, err)
	project, moved := top+"/project", top+"/moved"
	need.NoError(t, os.Mkdir(project, 0o755))
	s := harness.Start(t, harness.Options{Config: "log: {format: json}\n", Args: []string{"--workspace-dir", top + "/code", "--output-dir", top + "/output"}})
	verb := func(args ...string) string {
		t.Helper()
		status, out, errOut := harness.Run(t, nil, append(args, "--data-dir", s.DataDir)...)
		if status != 0 {
			t.Fatalf("umbra %v: %d %s", args, status, errOut)
		}
		return strings.TrimSpace(out)
	}
	secret := verb("token", "add", "alice", "--scope", "write", "--root", top)
	s.AwaitToken(secret, true)
	alice := func(id string) []string {
		return []string{"Authorization: Bearer " + secret, "X-Request-Id: " + id}
	}

	made := s.Do("POST", "/tasks", map[string]any{"goal": "g", "workspace": project}, alice("q-open")...).Expect(201)
	task, ws := made.Text("task_id"), made.Text("workspace_id")
	for _, data := range []string{"one\n", "two\n"} {
		s.Do("PUT", "/tasks/"+task+"/content?path=f", []byte(data), alice("q-write")...).Expect(map[string]int{"one\n": 201, "two\n": 200}[data])
	}
	s.Do("POST", "/tasks/"+task+"/revert", map[string]any{"dry_run": true}, alice("q-dry")...).Expect(200)
	s.Do("POST", "/tasks/"+task+"/revert", map[string]any{}, alice("q-revert")...).Expect(200)
	need.NoError(t, os.Rename(project, moved))
	s.Do("PATCH", "/workspaces/"+ws, map[string]any{"root": moved}, alice("q-rebind")...).Expect(200)
	need.NoError(t, os.Rename(moved, top+"/gone"))
	need.NoError(t, os.Mkdir(moved, 0o755))
	s.Do("POST", "/workspaces/"+ws+"/sync", map[string]any{"adopt": true}, alice("q-adopt")...).Expect(200)
	verb("purge", ws, "f")
	verb("gc", ws)
	backups := 0
	if harness.Nodes() == 0 { // which refuse it
		verb("backup", filepath.Join(top, "backup"))
		backups++
	}
	verb("token", "remove", "alice")
	verb("token", "off")
	s.AwaitToken("", true)
	s.Do("POST", "/scripts/execute", map[string]any{"script": "return 1"}, "X-Request-Id: q-exec").Expect(200)
	s.Stop()

	type line struct {
		Message   string  `json:"msg"`
		Audit     bool    `json:"audit"`
		Act       string  `json:"act"`
		Token     *string `json:"token"`
		Workspace *string `json:"workspace"`
		ID        string  `json:"request_id"`
	}
	lines := map[string][]line{}
	for text := range strings.SplitSeq(s.Log.String(), "\n") {
		var l line
		if json.Unmarshal([]byte(text), &l) == nil && l.Audit && l.Act != "" {
			lines[l.Act] = append(lines[l.Act], l)
			if l.Token == nil || l.Workspace == nil || l.ID == "" {
				t.Errorf("a field is missing: %s", text)
			}
		}
	}
	for act, want := range map[string]int{"open": 1, "revert": 1, "rebind": 1, "adopt": 1, "purge": 1, "retention": 1, "backup": backups, "tokens": 3, "exec": 1} {
		if len(lines[act]) != want {
			t.Errorf("%s: %d lines, want %d; acts %v", act, len(lines[act]), want, slices.Sorted(maps.Keys(lines)))
		}
	}
	for _, act := range []string{"open", "revert", "rebind", "adopt"} {
		for _, l := range lines[act] {
			if *l.Token != "alice" || *l.Workspace != ws || l.ID != "q-"+act {
				t.Errorf("%s: by %q in %q, request %q", act, *l.Token, *l.Workspace, l.ID)
			}
		}
	}
}
