// Package hook reads the JSON that coding agents pass to their hooks and maps
// it to the begin or the end of a call. It imports nothing outside the
// standard library, since an agent waits for the process that runs it.
package hook

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"
)

// MaxInput is the size of the largest input that Read accepts, in bytes.
const MaxInput = 10 << 20

// Errors of Read and Parse. A caller that must not delay an agent logs them
// and exits with status 0; ErrAgent is wrong use.
var (
	ErrAgent    = errors.New("unknown agent")
	ErrTooLarge = errors.New("input is over 10 MiB")
	ErrInput    = errors.New("input is not the agent's JSON")
)

// Kind says what an event means for calls.
type Kind int

// Kinds of events.
const (
	Ignored      Kind = iota // no meaning for calls
	Begin                    // a tool is about to start
	End                      // a tool has ended
	Turn                     // the user gave a prompt
	SubagentStop             // a sub-agent ended: its open calls end
	SessionStop              // the turn or the session ended: its open calls end
)

// Path is a file that an editing tool is about to change.
type Path struct {
	Path   string `json:"path"`             // absolute if the event has a cwd
	SHA256 string `json:"sha256,omitempty"` // lower-case hex; empty if the input does not have all of the content
}

// Event is one hook event.
type Event struct {
	Kind     Kind
	Agent    string
	Session  string
	Cwd      string
	Model    string
	Tool     string
	Turn     string // turn or prompt ID; empty if the agent has none
	Subagent string // sub-agent ID; empty outside a sub-agent
	// CallID is unique across agents, sessions and sub-agents. It is empty
	// if the agent sends no call ID; Pair is then equal for the begin and the
	// end of one call, and for repeated calls with equal input.
	CallID string
	Pair   string
	Failed bool // the tool reported a failure (End only)
	// Paths are the files that an editing tool declares. OnlyPaths is true
	// if the tool changes no other file.
	Paths     []Path
	OnlyPaths bool
}

// Subtask returns the sub-agent of the event, or else its turn. It may be empty.
func (e *Event) Subtask() string {
	if e.Subagent != "" {
		return e.Subagent
	}
	return e.Turn
}

// payload has the fields of all agents that are used here.
type payload struct {
	Event     string          `json:"hook_event_name"`
	Session   string          `json:"session_id"`
	Cwd       string          `json:"cwd"`
	Model     string          `json:"model"`
	TurnID    string          `json:"turn_id"`
	PromptID  string          `json:"prompt_id"`
	AgentID   string          `json:"agent_id"`
	Prompt    string          `json:"prompt"`
	Tool      string          `json:"tool_name"`
	ToolUseID string          `json:"tool_use_id"`
	Input     json.RawMessage `json:"tool_input"`
}

// toolInput has the fields of the tools that change files.
type toolInput struct {
	Command  string  `json:"command"`
	File     string  `json:"file_path"`
	Notebook string  `json:"notebook_path"`
	Content  *string `json:"content"`
}

// kinds maps the event names of each agent.
var kinds = map[string]map[string]Kind{
	"claude-code": claudeKinds,
	"codex":       claudeKinds,
	"qwen-code":   claudeKinds,
	"gemini-cli": {
		"BeforeTool": Begin, "AfterTool": End, "BeforeAgent": Turn,
		"AfterAgent": SessionStop, "SessionEnd": SessionStop,
	},
}

var claudeKinds = map[string]Kind{
	"PreToolUse": Begin, "PostToolUse": End, "PostToolUseFailure": End,
	"UserPromptSubmit": Turn, "SubagentStop": SubagentStop,
	"Stop": SessionStop, "SessionEnd": SessionStop,
}

// Read reads one event of agent from r. It reads at most MaxInput bytes and one more.
func Read(agent string, r io.Reader) (*Event, error) {
	text, err := io.ReadAll(io.LimitReader(r, MaxInput+1))
	if err != nil {
		return nil, err
	}
	if len(text) > MaxInput {
		return nil, ErrTooLarge
	}
	return Parse(agent, text)
}

// Parse maps one event of agent. Unknown events are Ignored and unknown fields
// are skipped. Errors wrap ErrAgent or ErrInput; they never quote the input.
func Parse(agent string, text []byte) (*Event, error) {
	names, ok := kinds[agent]
	if !ok {
		return nil, ErrAgent
	}
	var p payload
	if err := json.Unmarshal(text, &p); err != nil {
		return nil, ErrInput
	}
	e := &Event{
		Kind: names[p.Event], Agent: agent, Session: p.Session, Cwd: p.Cwd,
		Model: p.Model, Tool: p.Tool, Turn: p.TurnID, Subagent: p.AgentID,
	}
	if e.Turn == "" {
		e.Turn = p.PromptID
	}
	if e.Kind == Ignored {
		return e, nil
	}
	if e.Session == "" {
		return nil, fmt.Errorf("%w: session_id is missing", ErrInput)
	}
	switch e.Kind {
	case Turn:
		// Qwen Code sends the event before each request, and only the first has the prompt.
		if agent == "qwen-code" && p.Prompt == "" {
			e.Kind = Ignored
		}
	case Begin, End:
		if e.Tool == "" {
			return nil, fmt.Errorf("%w: tool_name is missing", ErrInput)
		}
		e.Failed = p.Event == "PostToolUseFailure"
		e.identify(&p)
		e.declare(p.Input)
	}
	return e, nil
}

// identify sets CallID or Pair.
func (e *Event) identify(p *payload) {
	if p.ToolUseID != "" {
		e.CallID = e.Agent + "-" + digest(e.Session, e.Subagent, p.ToolUseID)
		return
	}
	// An agent may order the keys of the same input differently in its two events.
	input := string(p.Input)
	var v any
	d := json.NewDecoder(bytes.NewReader(p.Input))
	d.UseNumber()
	if d.Decode(&v) == nil {
		if sorted, err := json.Marshal(v); err == nil {
			input = string(sorted)
		}
	}
	e.Pair = digest(e.Session, e.Subagent, e.Tool, input)
}

// digest returns 32 hex digits for a list of strings.
func digest(parts ...string) string {
	h := sha256.New()
	for _, s := range parts {
		fmt.Fprintf(h, "%d:%s", len(s), s)
	}
	return hex.EncodeToString(h.Sum(nil)[:16])
}

// declare sets the paths of an editing tool. A tool with an input of another
// shape declares nothing, so that its changes are judged as those of a shell.
func (e *Event) declare(raw json.RawMessage) {
	var in toolInput
	if json.Unmarshal(raw, &in) != nil {
		return
	}
	switch e.Tool {
	case "apply_patch":
		for _, name := range patchPaths(in.Command) {
			e.add(name, nil)
		}
	case "Write", "write_file":
		e.add(in.File, in.Content)
	case "Edit", "MultiEdit", "edit", "replace":
		e.add(in.File, nil)
	case "NotebookEdit":
		e.add(in.Notebook, nil)
	}
	e.OnlyPaths = len(e.Paths) > 0
}

func (e *Event) add(name string, content *string) {
	if name == "" {
		return
	}
	if !filepath.IsAbs(name) && filepath.IsAbs(e.Cwd) {
		name = filepath.Join(e.Cwd, name)
	}
	p := Path{Path: name}
	if content != nil {
		sum := sha256.Sum256([]byte(*content))
		p.SHA256 = hex.EncodeToString(sum[:])
	}
	e.Paths = append(e.Paths, p)
}

// patchPaths returns the files that a Codex patch names, each once, in order.
func patchPaths(patch string) []string {
	var list []string
	seen := map[string]bool{}
	for line := range strings.Lines(patch) {
		line = strings.TrimRight(line, "\r\n")
		for _, head := range []string{"*** Add File: ", "*** Update File: ", "*** Delete File: ", "*** Move to: "} {
			name, ok := strings.CutPrefix(line, head)
			if ok && name != "" && !seen[name] {
				seen[name] = true
				list = append(list, name)
			}
		}
	}
	return list
}
