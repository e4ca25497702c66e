// Package hook reads the JSON that coding agents pass to their hooks and turns
// it into calls on a server: Parse maps one event, Run begins and ends calls.
//
// An agent waits for the process that runs this. So the package imports only
// parts of the standard library that initialize early and cheaply: not net, not
// net/http (see package early).
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
	"slices"
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
	Ignored       Kind = iota // no meaning for calls
	Begin                     // a tool is about to start
	End                       // a tool has ended
	Turn                      // the user gave a prompt
	Request                   // the main agent asks its model: its tools have ended
	Batch                     // all tools of one answer of the model have ended
	Edited                    // a file was edited by the tool that is running (Cursor)
	SubagentStart             // a sub-agent starts
	SubagentStop              // a sub-agent ended: its open calls end
	Stop                      // the agent's turn ended: its open calls end
	SessionStart              // a session starts or is resumed: no call can be open
	SessionEnd                // the session ended: all its open calls end
)

// Path is a file that an editing tool is about to change.
type Path struct {
	Path   string `json:"path"`             // absolute if the event has a cwd
	SHA256 string `json:"sha256,omitempty"` // lower-case hex; empty if the input does not have all of the content
}

// Event is one hook event.
type Event struct {
	Kind     Kind
	Name     string // as the agent calls the event
	Agent    string
	Session  string
	Parent   string // of a sub-agent's session, where it has one of its own (Cursor)
	Cwd      string
	Model    string
	Tool     string
	Turn     string // turn or prompt ID; empty if the agent has none
	At       string // the event's time as the agent writes it; may be empty
	Subagent string // sub-agent ID; empty outside a sub-agent
	// Transcript is the file in which the agent keeps the session; may be empty.
	Transcript string
	// ToolUseID is the agent's own call ID, and CallID the one for the server,
	// unique across agents, sessions and sub-agents. Both are empty if the agent
	// sends no call ID; Pair is then equal for the begin and the end of one call,
	// and for repeated calls with equal input.
	ToolUseID string
	CallID    string
	Pair      string
	Failed    bool // the tool reported a failure (End only)
	Denied    bool // the tool was not run, or was interrupted (End only)
	// Paths are the files that an editing tool declares. OnlyPaths is true
	// if the tool changes no other file.
	Paths     []Path
	OnlyPaths bool
	// CommandSHA256 is the digest of a shell tool's command, lower-case hex.
	CommandSHA256 string
	// shell and input are set for a shell whose command may be replaced.
	shell string
	input map[string]json.RawMessage
}

// Subtask returns the sub-agent of the event, or else its turn. It may be empty.
func (e *Event) Subtask() string {
	if e.Subagent != "" {
		return e.Subagent
	}
	return e.Turn
}

// text is a JSON string; a value of another type reads as empty, since agents
// use some field names for several things.
type text string

// UnmarshalJSON implements json.Unmarshaler.
func (t *text) UnmarshalJSON(raw []byte) error {
	var s string
	if json.Unmarshal(raw, &s) == nil {
		*t = text(s)
	}
	return nil
}

// payload has the fields of all agents that are used here.
type payload struct {
	Event     text            `json:"hook_event_name"`
	Session   text            `json:"session_id"`
	Cwd       text            `json:"cwd"`
	Model     text            `json:"model"`
	TurnID    text            `json:"turn_id"`
	PromptID  text            `json:"prompt_id"`
	AgentID   text            `json:"agent_id"`
	Prompt    json.RawMessage `json:"prompt"`
	Tool      text            `json:"tool_name"`
	ToolUseID text            `json:"tool_use_id"`
	Input     json.RawMessage `json:"tool_input"`
	Time      json.RawMessage `json:"timestamp"`
	Source    text            `json:"source"`
	// Transcript may be null.
	Transcript text            `json:"transcript_path"`
	Interrupt  json.RawMessage `json:"is_interrupt"`

	cursorPayload
	copilotPayload
}

// cursorPayload has Cursor's own fields.
type cursorPayload struct {
	Conversation text            `json:"conversation_id"`
	Generation   text            `json:"generation_id"`
	Roots        json.RawMessage `json:"workspace_roots"`
	Command      text            `json:"command"`
	File         text            `json:"file_path"`
	SubagentID   text            `json:"subagent_id"`
	ParentID     text            `json:"parent_conversation_id"`
	Failure      text            `json:"failure_type"`
}

// copilotPayload has the fields of Copilot CLI's camelCase form.
type copilotPayload struct {
	EventName   text            `json:"hookEventName"`
	SessionID   text            `json:"sessionId"`
	ToolName    text            `json:"toolName"`
	ToolArgs    json.RawMessage `json:"toolArgs"`
	ToolResult  json.RawMessage `json:"toolResult"`
	SnakeResult json.RawMessage `json:"tool_result"`
	Error       json.RawMessage `json:"error"`
	Reason      text            `json:"reason"`
}

// kinds maps the event names of each agent.
var kinds = map[string]map[string]Kind{
	"claude-code": claudeKinds,
	"codex":       claudeKinds,
	"qwen-code":   claudeKinds,
	"gemini-cli": {
		"BeforeTool": Begin, "AfterTool": End, "BeforeAgent": Turn,
		"AfterAgent": Stop, "SessionStart": SessionStart, "SessionEnd": SessionEnd,
	},
	"cursor": {
		"preToolUse": Begin, "postToolUse": End, "postToolUseFailure": End,
		"beforeShellExecution": Begin, "afterShellExecution": End, "afterFileEdit": Edited,
		"beforeSubmitPrompt": Turn, "stop": Stop, "sessionStart": SessionStart, "sessionEnd": SessionEnd,
		"subagentStart": SubagentStart, "subagentStop": SubagentStop,
	},
	"copilot": copilotKinds,
}

var claudeKinds = map[string]Kind{
	"PreToolUse": Begin, "PostToolUse": End, "PostToolUseFailure": End, "PermissionDenied": End,
	"PostToolBatch": Batch, "UserPromptSubmit": Turn, "SubagentStart": SubagentStart, "SubagentStop": SubagentStop,
	"Stop": Stop, "StopFailure": Stop, "SessionStart": SessionStart, "SessionEnd": SessionEnd,
}

// copilotKinds has both spellings: the host decides which a hook gets.
var copilotKinds = map[string]Kind{
	"preToolUse": Begin, "postToolUse": End, "postToolUseFailure": End, "userPromptSubmitted": Turn,
	"agentStop": Stop, "sessionStart": SessionStart, "sessionEnd": SessionEnd,
	"PreToolUse": Begin, "PostToolUse": End, "PostToolUseFailure": End, "UserPromptSubmit": Turn, "UserPromptSubmitted": Turn,
	"Stop": Stop, "AgentStop": Stop, "SessionStart": SessionStart, "SessionEnd": SessionEnd,
	"SubagentStart": SubagentStart, "SubagentStop": SubagentStop,
}

// Agents returns the names that Parse and Run accept, sorted; Generic is one of
// them, and only for Run.
func Agents() []string {
	list := []string{Generic}
	for name := range kinds {
		list = append(list, name)
	}
	slices.Sort(list)
	return list
}

// ReadInput reads what an agent sends, and at most MaxInput bytes and one more.
func ReadInput(r io.Reader) ([]byte, error) {
	text, err := io.ReadAll(io.LimitReader(r, MaxInput+1))
	if err != nil {
		return nil, err
	}
	if len(text) > MaxInput {
		return nil, ErrTooLarge
	}
	return text, nil
}

// Origin is what is known of an event without its input.
type Origin struct {
	Event string // its name, where the input does not have one; may be empty
	Dir   string // the agent's working directory, absolute; may be empty
}

// Parse maps one event of agent. Unknown events are Ignored and unknown fields
// are skipped; a field of another type than expected is taken for absent. Errors
// wrap ErrAgent or ErrInput; they never quote the input.
func Parse(agent string, input []byte, from Origin) (*Event, error) {
	names, ok := kinds[agent]
	if !ok {
		return nil, ErrAgent
	}
	var p payload
	if err := json.Unmarshal(input, &p); err != nil {
		return nil, ErrInput
	}
	if agent == "cursor" {
		p.fromCursor()
	}
	p.Cwd = text(directory(string(p.Cwd), from.Dir))
	if agent == "copilot" {
		p.fromCopilot(from.Event)
	}
	if p.Event == "" {
		p.Event = text(from.Event)
	}
	e := &Event{
		Kind: names[string(p.Event)], Name: string(p.Event), Agent: agent, Session: string(p.Session), Cwd: string(p.Cwd),
		Model: string(p.Model), Tool: string(p.Tool), Turn: string(p.TurnID), Subagent: string(p.AgentID), At: scalar(p.Time),
		Transcript: string(p.Transcript),
	}
	if e.Turn == "" {
		e.Turn = string(p.PromptID)
	}
	if e.Name == "" && agent != "copilot" { // whose form without names has events that look alike
		return nil, fmt.Errorf("%w: hook_event_name is missing", ErrInput)
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
		if agent == "qwen-code" && scalar(p.Prompt) == "" {
			e.Kind = Request
		}
	case Begin, End:
		return e, e.tool(&p)
	case Edited:
		e.add(string(p.File), nil)
	case SubagentStart, SubagentStop:
		if e.Subagent == "" {
			e.Subagent = string(p.SubagentID)
		}
		e.Parent = string(p.ParentID)
	case SessionStart:
		if p.Source == "compact" { // within a turn
			e.Kind = Ignored
		}
	}
	return e, nil
}

// ofTool reports whether an event is of a tool, or is of unknown kind; event is its
// name where the input has none.
func ofTool(agent, event string, input []byte) bool {
	var p payload
	_ = json.Unmarshal(input, &p)
	for _, name := range []text{p.Event, p.EventName, text(event)} {
		if kind, ok := kinds[agent][string(name)]; ok {
			return kind == Begin || kind == End
		}
	}
	return true
}

// directory returns where the agent works: what its input says, relative to dir.
func directory(said, dir string) string {
	switch {
	case filepath.IsAbs(said) && strings.IndexByte(said, 0) < 0:
		return said
	case said == "" || dir == "" || strings.IndexByte(said, 0) >= 0:
		return dir
	}
	return filepath.Join(dir, said)
}

// tool reads what a tool's begin and end have.
func (e *Event) tool(p *payload) error {
	if e.Tool == "" && (e.Kind == Begin || p.ToolUseID == "") {
		return fmt.Errorf("%w: tool_name is missing", ErrInput)
	}
	if harmless(e.Tool, p.Input) {
		e.Kind = Ignored
		return nil
	}
	e.Failed = strings.EqualFold(e.Name, "PostToolUseFailure")
	e.Denied = e.Name == "PermissionDenied" || string(p.Interrupt) == "true" || p.Failure == "permission_denied"
	switch result(p) {
	case "failure", "error":
		e.Failed = true
	case "denied":
		e.Denied = true
	}
	e.identify(p.Input, string(p.ToolUseID))
	e.declare(p.Input)
	e.isolate(p.Input)
	return nil
}

// identify sets the IDs or Pair.
func (e *Event) identify(raw json.RawMessage, id string) {
	if id != "" {
		e.ToolUseID = id
		e.CallID = CallID(e.Agent, e.ToolUseID, e.Session, e.Turn, e.Subagent)
		return
	}
	e.Pair = e.pair(raw)
}

// pair is equal for the begin and the end of one call without an ID.
func (e *Event) pair(raw json.RawMessage) string {
	// An agent may order the keys of the same input differently in its two events.
	input := string(raw)
	var v any
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	if d.Decode(&v) == nil {
		if sorted, err := json.Marshal(v); err == nil {
			input = string(sorted)
		}
	}
	return digest(e.Session, e.Subagent, e.Tool, input)
}

// CallID returns the server's call ID for an agent's own: it holds the agent, a
// digest of the session (and of what else scopes the ID) and the ID.
func CallID(agent, id string, scope ...string) string {
	head := agent + "-" + digest(scope...)[:12] + "-"
	if len(head)+len(id) > maxID || !legalID("x"+id) {
		id = digest(id)
	}
	return head + id
}

// maxID is the length of the longest ID of a task, subtask or call.
const maxID = 128

// legalID reports whether s has the form of a task's ID.
func legalID(s string) bool {
	if s == "" || len(s) > maxID || strings.Contains(s, "..") || strings.HasSuffix(s, ".lock") {
		return false
	}
	for i := range len(s) {
		switch c := s[i]; {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9':
		case i > 0 && (c == '.' || c == '_' || c == '-'):
		default:
			return false
		}
	}
	return true
}

// digest returns 32 hex digits for a list of strings.
func digest(parts ...string) string {
	h := sha256.New()
	for _, s := range parts {
		fmt.Fprintf(h, "%d:%s", len(s), s)
	}
	return hex.EncodeToString(h.Sum(nil)[:16])
}

// scalar returns a JSON string's or number's text, else "".
func scalar(raw json.RawMessage) string {
	var s string
	if json.Unmarshal(raw, &s) == nil {
		return s
	}
	var n json.Number
	if json.Unmarshal(raw, &n) == nil {
		return n.String()
	}
	return ""
}

// fromCursor gives Cursor's fields the names of the others.
func (p *payload) fromCursor() {
	if p.Conversation != "" {
		p.Session = p.Conversation
	}
	p.TurnID = p.Generation
	if p.Cwd == "" {
		var roots []string
		if json.Unmarshal(p.Roots, &roots) == nil && len(roots) > 0 {
			p.Cwd = text(roots[0])
		}
	}
	switch p.Event {
	case "beforeShellExecution", "afterShellExecution":
		// These have no call ID: the command pairs them.
		p.Tool, p.ToolUseID = cursorShell, ""
		p.Input, _ = json.Marshal(map[string]string{"command": string(p.Command)})
	}
}

// cursorShell is the name of Cursor's shell tool in preToolUse.
const cursorShell = "Shell"

// given reports whether a member is there and not null.
func given(raw json.RawMessage) bool { return len(raw) > 0 && string(raw) != "null" }

// fromCopilot gives the camelCase form of Copilot CLI the names of the others. event
// is the name that the hook was given as a flag.
func (p *payload) fromCopilot(event string) {
	if p.Event == "" {
		p.Event = p.EventName
	}
	if p.Event == "" {
		p.Event = text(event)
	}
	if p.Session == "" {
		p.Session = p.SessionID
	}
	if p.Session == "" && p.Cwd != "" {
		// Early versions send no session: there is one for each directory.
		p.Session = text("directory-" + digest(string(p.Cwd))[:12])
	}
	if p.Tool == "" {
		p.Tool = p.ToolName
	}
	if !given(p.Input) {
		p.Input = p.ToolArgs
	}
	// The arguments may be a JSON document in a string.
	var inner string
	if json.Unmarshal(p.Input, &inner) == nil && json.Valid([]byte(inner)) {
		p.Input = json.RawMessage(inner)
	}
	if p.Event == "" { // the camelCase form does not name its event
		switch {
		case p.Tool != "" && given(p.ToolResult):
			p.Event = "postToolUse"
		case p.Tool != "" && given(p.Error):
			p.Event = "postToolUseFailure"
		case p.Tool != "":
			p.Event = "preToolUse"
		case given(p.Prompt):
			p.Event = "userPromptSubmitted"
		case p.Reason != "":
			p.Event = "sessionEnd"
		}
	}
}

// result returns how Copilot says that a tool ended.
func result(p *payload) string {
	var camel struct {
		Type text `json:"resultType"`
	}
	var snake struct {
		Type text `json:"result_type"`
	}
	if json.Unmarshal(p.ToolResult, &camel) == nil && camel.Type != "" {
		return string(camel.Type)
	}
	_ = json.Unmarshal(p.SnakeResult, &snake)
	return string(snake.Type)
}

func (e *Event) add(name string, content *string) {
	if name == "" || strings.IndexByte(name, 0) >= 0 { // no file has such a name
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
	for i, had := range e.Paths {
		if had.Path == name { // a path named twice: what it holds at the end is not in the input
			e.Paths[i].SHA256 = ""
			return
		}
	}
	e.Paths = append(e.Paths, p)
}
