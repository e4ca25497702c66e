package hook

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"umbra/internal/need"
)

func TestAnswered(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "rollout.jsonl")
	lines := []string{
		`{"type":"response_item","payload":{"type":"function_call_output","call_id":"early","output":"x"}}`,
		strings.Repeat("x", transcriptTail),
		`{"type":"response_item","payload":{"type":"function_call","call_id":"open","arguments":"early"}}`,
		`{"type":"response_item","payload":{"type":"function_call_output","call_id":"done","output":"open"}}`,
		`{"type":"response_item","payload":{"type":"custom_tool_call_output","call_id":"patch"}}`,
		`{"type":"event_msg","payload":{"type":"function_call_output","call_id":"open"}}`,
		`{"type":"response_item","payload":{"type":7,"call_id":"open"}}`,
		`{"type":"response_item","payload":{"type":"function_call_output","call_id":"open"`,
	}
	need.NoError(t, os.WriteFile(path, []byte(strings.Join(lines, "\n")), 0o600))
	calls := []string{"early", "open", "done", "patch", "other"}
	if got := slices.Sorted(maps.Keys(answered(path, calls))); fmt.Sprint(got) != "[done patch]" {
		t.Errorf("answered: %v", got)
	}
	fifo := filepath.Join(dir, "fifo")
	need.NoError(t, syscall.Mkfifo(fifo, 0o600))
	for _, path := range []string{"", dir, fifo, filepath.Join(dir, "none")} {
		if got := answered(path, calls); got != nil {
			t.Errorf("%q: %v", path, got)
		}
	}
}

// TestCodexRefusedShell: a shell without an event after PreToolUse is over once
// the transcript has its result; one that still runs next to others is not.
func TestCodexRefusedShell(t *testing.T) {
	path := filepath.Join(t.TempDir(), "rollout.jsonl")
	s := &sessionState{Calls: []openCall{
		{ID: "1", ToolUseID: "refused", Tool: "Bash", Command: "c"}, {ID: "2", ToolUseID: "runs", Tool: "Bash", Command: "c"},
		{ID: "3", ToolUseID: "sub", Tool: "Bash", Command: "c", Subagent: "a"}}}
	var text string
	for _, id := range []string{"refused", "sub"} {
		text += fmt.Sprintf(`{"type":"response_item","payload":{"type":"function_call_output","call_id":%q}}`, id) + "\n"
	}
	need.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	p := &step{r: &Runner{}, e: &Event{Agent: "codex", Kind: Begin, ToolUseID: "next", Transcript: path}}
	p.orphans(s)
	if len(p.ends) != 1 || p.ends[0].ID != "1" || p.ends[0].Done != "cancelled" || len(s.Calls) != 2 {
		t.Errorf("ended %+v, open %+v", p.ends, s.Calls)
	}
}
