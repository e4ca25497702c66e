package tests

import (
	"encoding/json"
	"strings"
	"testing"

	"umbra/tests/harness"
)

// TestJSONOfVerbs: what a verb prints with --json is JSON, on standard output alone. An
// error is one line on standard error, with --json too, and leaves nothing else behind.
func TestJSONOfVerbs(t *testing.T) {
	t.Parallel()
	p := newProject(t, map[string]string{"a": "one\n"})
	k := p.task(t)
	k.put(t, "a", "two\n", "X-Subtask-Id", "sub").want(t, 200)
	env := []string{"UMBRA_DATA_DIR=" + p.DataDir, "HOME=" + t.TempDir()}
	ws := " -w " + k.str("workspace_id")
	for _, line := range []string{
		"log" + ws, "show 1 --task " + k.ID, "diff --task " + k.ID, "summary --task " + k.ID, "blame a" + ws, "why a:1" + ws,
		"tasks", "workspaces", "turns" + ws, "undo" + ws, "redo" + ws, "revert --dry-run --task " + k.ID, "restore a@head --dry-run" + ws,
		"review --task " + k.ID, "policy check a" + ws, "task start another goal" + ws, "task end " + k.ID, "forks" + ws, "fork --kind virtual" + ws,
		"verify", "gc --dry-run", "du --by task", "doctor", "token list", "backup " + t.TempDir(), "exec --layers", "init --dry-run", "licenses umbra", "version",
	} {
		status, out, errOut := harness.Run(t, env, append(strings.Fields(line), "--json")...)
		if line == "doctor" && harness.Nodes() > 0 && status == 1 {
			status = 0 // a test's cluster has no standby
		}
		if status != 0 || !json.Valid([]byte(out)) {
			t.Errorf("umbra %s: status %d, %.200q %s", line, status, out, errOut)
		}
	}
	for _, line := range []string{
		"log -w nothing", "show 99 --task " + k.ID, "diff --task nothing", "summary --task nothing", "revert --task nothing", "blame nothing" + ws,
		"review --task nothing", "task end nothing", "merge nothing", "verify nothing", "purge " + k.str("workspace_id") + " nothing", "token remove nothing",
		"restore nothing", "export nothing --repo . --branch b", "tasks --limit x", "tasks extra",
	} {
		status, out, errOut := harness.Run(t, env, append(strings.Fields(line), "--json")...)
		if status == 0 || out != "" && !json.Valid([]byte(out)) || out == "" && (!strings.HasPrefix(errOut, "umbra: ") || strings.Count(errOut, "\n") != 1) {
			t.Errorf("umbra %s: status %d, %.200q %q", line, status, out, errOut)
		}
	}
}
