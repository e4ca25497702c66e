package tests

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"umbra/internal/need"
	"umbra/tests/harness"
)

// TestPolicy holds that nothing which the policy refuses is on the disk or in
// history, by whatever route, and that a revert is not judged.
func TestPolicy(t *testing.T) {
	p := &project{Server: harness.Start(t, harness.Options{Config: "policy:\n  protected: [\"/.github/**\", \"*.lock\"]\n  max_file_bytes: 1KiB\n"}), dir: t.TempDir()}
	p.fill(t, map[string]string{".github/ci": "x\n", "go.lock": "1\n", "a": "1\n", "d/b": "1\n"})
	k := p.task(t)
	ws := k.str("workspace_id")
	head := func() any { return p.call(t, "GET", "/workspaces/"+ws, nil).want(t, 200).obj(t)["head"] }
	before := head()
	refused := func(a *answer, rule, path string) {
		t.Helper()
		if got := a.fails(t, 403, "policy_refused"); got["rule"] != rule || got["path"] != path {
			t.Errorf("%v", got)
		}
	}
	refused(p.call(t, "PUT", k.file("go.lock"), []byte("2\n")), "protected", "go.lock")
	refused(p.call(t, "DELETE", k.file("go.lock"), nil), "protected", "go.lock")
	refused(p.call(t, "PUT", k.file(".github/new"), []byte("2\n")), "protected", ".github/new")
	refused(p.post(t, k.url("/move"), map[string]any{"from": "a", "to": "a.lock"}), "protected", "a.lock")
	refused(p.post(t, k.url("/move"), map[string]any{"from": ".github", "to": "gh"}), "protected", ".github/ci")
	refused(p.call(t, "PUT", k.file("large"), []byte(strings.Repeat("x", 1025))), "max_file_bytes", "large")
	if a := p.call(t, "PUT", "/workspace", map[string]any{"codeId": "large", "code": "let x = '" + strings.Repeat("x", 2000) + "'"}); a.Status/100 == 2 {
		t.Errorf("code: %s", a.Body)
	}
	if p.read(t, "go.lock") != "1\n" || head() != before {
		t.Error("something was changed")
	}
	p.absent(t, "large")

	// A task that was made with allow may, one with only may change nothing else.
	p.post(t, "/tasks", map[string]any{"task_id": "lock", "goal": "lock", "workspace": p.dir, "allow": []string{"/go.lock"}}).want(t, 201)
	p.call(t, "PUT", "/tasks/lock/content?path=go.lock", []byte("2\n")).want(t, 200)
	refused(p.call(t, "PUT", "/tasks/lock/content?path=d/x.lock", []byte("2\n")), "protected", "d/x.lock")
	made := p.post(t, "/tasks", map[string]any{"task_id": "docs", "goal": "docs", "workspace": p.dir, "only": []string{"/d/**"}}).want(t, 201).obj(t)
	if list, ok := made["only"].([]any); !ok || len(list) != 1 {
		t.Errorf("%v", made["only"])
	}
	p.call(t, "PUT", "/tasks/docs/content?path=d/b", []byte("2\n")).want(t, 200)
	refused(p.call(t, "PUT", "/tasks/docs/content?path=a", []byte("2\n")), "only", "a")
	p.post(t, "/tasks", map[string]any{"goal": "x", "workspace": p.dir, "only": []string{"!a"}}).fails(t, 422, "validation_failed")
	p.post(t, "/tasks/lock/revert", map[string]any{}).want(t, 200)
	if p.read(t, "go.lock") != "1\n" {
		t.Error("the revert was refused")
	}

	// A rule that is malformed stops the start.
	file := filepath.Join(t.TempDir(), "config.yaml")
	need.NoError(t, os.WriteFile(file, []byte("policy:\n  protected: [\"[a\"]\n"), 0o600))
	status, _, said := harness.Run(t, nil, "serve", "--config", file, "--data-dir", filepath.Join(t.TempDir(), "data"), "--listen", "127.0.0.1:0")
	if status == 0 || !strings.Contains(said, "malformed") {
		t.Errorf("%d %s", status, said)
	}
}
