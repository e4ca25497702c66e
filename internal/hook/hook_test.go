package hook

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"os"
	"slices"
	"strings"
	"testing"

	"umbra/internal/need"
)

// recorded returns the events that a real agent sent in one run.
func recorded(t *testing.T, agent, file string) []*Event {
	t.Helper()
	text, err := os.ReadFile("testdata/" + file)
	need.NoError(t, err)
	var list []*Event
	for line := range bytes.Lines(text) {
		if len(bytes.TrimSpace(line)) == 0 {
			continue
		}
		e, err := Parse(agent, bytes.ReplaceAll(line, []byte("$WS"), []byte("/ws")), Origin{})
		if err != nil {
			t.Fatalf("%s: %v: %s", file, err, line)
		}
		list = append(list, e)
	}
	return list
}

func TestRecordedRuns(t *testing.T) {
	for _, c := range []struct {
		agent, file              string
		begins, unended, editing int
	}{
		{"codex", "codex.jsonl", 5, 1, 3},           // a patch that did not apply has no end
		{"codex", "codex-subagents.jsonl", 3, 0, 1}, // spawn_agent needs no call
		{"gemini-cli", "gemini.jsonl", 4, 0, 2},
		{"qwen-code", "qwen.jsonl", 6, 0, 3},
	} {
		open, begins, editing := map[string]int{}, 0, 0
		for _, e := range recorded(t, c.agent, c.file) {
			id := e.CallID + e.Pair
			switch e.Kind {
			case Begin:
				begins++
				open[id]++
				if e.OnlyPaths {
					editing++
				}
				for _, p := range e.Paths {
					if !strings.HasPrefix(p.Path, "/ws/") {
						t.Errorf("%s: path %q is not absolute", c.file, p.Path)
					}
				}
			case End:
				if open[id] == 0 {
					t.Errorf("%s: end of %s without its begin", c.file, e.Tool)
				}
				open[id]--
			}
		}
		unended := 0
		for _, n := range open {
			unended += n
		}
		if begins != c.begins || unended != c.unended || editing != c.editing {
			t.Errorf("%s: %d begins, %d without end, %d editing; want %d, %d, %d", c.file, begins, unended, editing, c.begins, c.unended, c.editing)
		}
	}
}

func TestSubagentsAreSubtasks(t *testing.T) {
	seen := map[string]bool{}
	for _, e := range recorded(t, "codex", "codex-subagents.jsonl") {
		if e.Kind == Begin && e.Subagent != "" {
			seen[e.Subtask()] = true
		}
	}
	if len(seen) != 2 {
		t.Errorf("%d sub-agents began calls, want 2", len(seen))
	}
}

func TestQwenTurnNeedsPrompt(t *testing.T) {
	turns := 0
	for _, e := range recorded(t, "qwen-code", "qwen.jsonl") {
		if e.Kind == Turn {
			turns++
		}
	}
	if turns != 1 {
		t.Errorf("%d turns, want 1", turns)
	}
}

func TestPatchPathsAndContent(t *testing.T) {
	p := &Event{}
	p.patch("*** Begin Patch\r\n*** Update File: a b\r\n*** Move to: c\r\n@@\n+*** Add File: no\n*** Delete File: d\n*** Update File: c\n*** Add File: e\n+one\n+two\n*** Add File: f\n*** End Patch")
	const empty = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
	want := []Path{{Path: "a b"}, {Path: "c"}, {Path: "d"}, {Path: "e", SHA256: sum("one\ntwo\n")}, {Path: "f", SHA256: empty}}
	if !slices.Equal(p.Paths, want) {
		t.Errorf("paths %+v, want %+v", p.Paths, want)
	}
	e, err := Parse("claude-code", []byte(`{"session_id":"s","cwd":"/w","hook_event_name":"PreToolUse","tool_name":"Write","tool_use_id":"1","tool_input":{"file_path":"x","content":""}}`), Origin{})
	if err != nil || len(e.Paths) != 1 || e.Paths[0] != (Path{"/w/x", "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"}) {
		t.Errorf("%+v, %v", e, err)
	}
}

func sum(s string) string {
	b := sha256.Sum256([]byte(s))
	return hex.EncodeToString(b[:])
}

func TestEqualIDsOfTwoSessionsDiffer(t *testing.T) {
	id := func(session string) string {
		e, err := Parse("codex", []byte(`{"session_id":"`+session+`","hook_event_name":"PreToolUse","tool_name":"Bash","tool_use_id":"call_1"}`), Origin{})
		need.NoError(t, err)
		return e.CallID
	}
	if id("a") == id("b") {
		t.Error("equal IDs of two sessions give one call ID")
	}
}

func TestBadInput(t *testing.T) {
	for _, text := range []string{``, `[]`, `{`, `{"hook_event_name":1}`, `{"hook_event_name":"PreToolUse","tool_name":"Bash"}`, `{"hook_event_name":"PreToolUse","session_id":"s"}`} {
		if _, err := Parse("codex", []byte(text), Origin{}); !errors.Is(err, ErrInput) {
			t.Errorf("%s: %v", text, err)
		}
	}
	if _, err := Parse("codxe", []byte(`{}`), Origin{}); !errors.Is(err, ErrAgent) {
		t.Error(err)
	}
	if e, err := Parse("codex", []byte(`{"hook_event_name":"Later","more":[1]}`), Origin{}); err != nil || e.Kind != Ignored {
		t.Error(e, err)
	}
	if _, err := ReadInput(strings.NewReader(strings.Repeat(" ", MaxInput+1))); !errors.Is(err, ErrTooLarge) {
		t.Error(err)
	}
}

func FuzzParse(f *testing.F) {
	f.Add("codex", []byte(`{"session_id":"s","hook_event_name":"PreToolUse","tool_name":"apply_patch","tool_input":{"command":"*** Add File: a"}}`))
	f.Add("gemini-cli", []byte(`{"session_id":"s","hook_event_name":"AfterTool","tool_name":"replace","tool_input":{"file_path":"a"}}`))
	f.Fuzz(func(t *testing.T, agent string, text []byte) {
		e, err := Parse(agent, text, Origin{})
		if (e == nil) == (err == nil) {
			t.Fatal("an event and an error, or neither")
		}
		if err == nil && (e.Kind == Begin || e.Kind == End) {
			if (e.CallID == "") == (e.Pair == "") {
				t.Fatal("exactly one of CallID and Pair must be set")
			}
			if e.CallID != "" && !legalID(e.CallID) {
				t.Fatalf("call ID %q", e.CallID)
			}
		}
	})
}
