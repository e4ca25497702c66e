package tests

import (
	"strings"
	"testing"

	"umbra/tests/harness"
)

// TestToolsetScript runs scripts as a model does: the same answer as over HTTP,
// a failure as a message.
func TestToolsetScript(t *testing.T) {
	s := harness.Start(t, harness.Options{Args: []string{"--output-dir", t.TempDir()}})
	a := newAgent(t, s, physical("/p", "READ_WRITE", folder(t, nil)))
	got := jsonOf(t, a.gives("execute_script", "script", `print("hi") return { n = 1 + 1, path = file.save("a.txt", "x") }`))
	result, _ := got["result"].(map[string]any)
	if result["n"] != 2.0 || len(got["files_written"].([]any)) != 1 || got["task_id"] == nil {
		t.Errorf("%v", got)
	}
	if status, text := a.call("execute_script", "script", `error("no")`); status != "error" || !strings.Contains(text, `"runtime_error"`) {
		t.Errorf("%s %s", status, text)
	}
	if status, text := a.call("execute_script", "script", "return 1", "timeout_ms", 0); status != "error" || !strings.Contains(text, "timeout_ms") {
		t.Errorf("%s %s", status, text)
	}
	off := harness.Start(t, harness.Options{Config: "mcp: {execute_script: false}\n"})
	b := newAgent(t, off, physical("/p", "READ_WRITE", folder(t, nil)))
	if strings.Contains(b.toolNames(), "execute_script") {
		t.Errorf("turned off: %s", b.toolNames())
	}
}
