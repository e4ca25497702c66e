package hook

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// ErrUnreachable is wrapped by errors of a Send that reached no server: the
// request was not sent.
var ErrUnreachable = errors.New("no server")

// Runner handles the events of one agent. Its fields are set once; Run may be
// called by several processes at once for the same session.
type Runner struct {
	Agent string
	// Event names the event where the agent's input does not; may be empty.
	Event string
	// State is the directory where open calls are kept between processes.
	State string
	// Context is whether the model is given what others changed.
	Context bool
	// Exec is how a shell's command calls umbra exec, so that it runs in a layer; nil:
	// shells run as they are.
	Exec []string
	// Send sends a JSON body and returns the answer's status and body. Errors:
	// ErrUnreachable, or another one if the server may have got the request.
	Send func(method, path string, body []byte) (status int, answer []byte, err error)
	Now  func() time.Time
}

// ServerError is an answer that is not a success.
type ServerError struct {
	Status int
	Code   string
	Detail string
}

// Error returns the server's sentence.
func (e *ServerError) Error() string {
	if e.Code == "" {
		return "the server answered " + strconv.Itoa(e.Status)
	}
	return fmt.Sprintf("the server answered %d %s: %s", e.Status, e.Code, e.Detail)
}

// Run handles one event. out is what the agent reads on standard output; it is
// empty if there is an error. The error may be joined from several.
func (r *Runner) Run(input []byte) (out []byte, err error) {
	if r.Agent == Generic {
		return r.generic(input)
	}
	e, err := r.parse(input)
	if err != nil || e.Session == "" {
		return nil, err
	}
	r.heard(r.Agent)
	if e.Kind == Ignored && e.Agent != "codex" { // see orphans
		return nil, nil
	}
	p := &step{r: r, e: e}
	p.file = sessionName(e.Agent, e.Session)
	// Without state, agents with call IDs still work.
	stateErr := p.plan()
	if stateErr != nil && p.begin != nil && e.CallID == "" {
		return nil, stateErr // this call could never be ended
	}
	return p.send()
}

// parse reads the event. A hook runs in its agent's directory.
func (r *Runner) parse(input []byte) (*Event, error) {
	dir, err := os.Getwd()
	if err != nil {
		dir = "" // it was removed
	}
	return Parse(r.Agent, input, Origin{Event: r.Event, Dir: dir})
}

// step is the work of one event: first the session's state is brought up to date
// (plan), then the server is called (send).
type step struct {
	r      *Runner
	e      *Event
	file   string
	ends   []openCall // Done is set
	main   int        // index in ends of the call that the event itself ended; -1: none
	begin  *openCall
	others []change // to be passed to the model
	over   bool     // the session ended
}

// plan updates the state and decides what to send.
func (p *step) plan() error {
	r, e := p.r, p.e
	p.main = -1
	if err := p.adopt(); err != nil {
		return err
	}
	done := false
	err := update(r.State, p.file, func(s *sessionState) {
		done = true
		p.apply(s)
		// The calls to be ended stay until they are: this process may be killed.
		s.Calls = append(slices.Clone(p.ends), s.Calls...)
	})
	if !done { // no state can be kept
		p.apply(new(sessionState))
	}
	if e.Kind == SessionStart {
		sweep(r.State, r.Now())
	}
	return err
}

// adopt maps a sub-agent that has a session of its own to its parent.
func (p *step) adopt() error {
	r, e := p.r, p.e
	if e.Agent != "cursor" {
		return nil
	}
	if e.Kind == SubagentStart && e.Subagent != "" && e.Subagent != e.Session {
		parent := orElse(e.Parent, e.Session)
		return update(r.State, sessionName(r.Agent, e.Subagent), func(s *sessionState) { s.Parent = parent })
	}
	parent := ""
	err := update(r.State, p.file, func(s *sessionState) { parent = s.Parent })
	if parent != "" {
		e.Subagent, e.Session = e.Session, parent
		p.file = sessionName(r.Agent, parent)
	}
	return err
}

func (p *step) apply(s *sessionState) {
	e := p.e
	p.fill(s)
	p.ends = append(p.ends, s.take(func(c *openCall) bool { return c.Done != "" })...)
	p.orphans(s)
	p.ran(s)
	// mine reports whether a call is of the agent that the event is about.
	mine := func(c *openCall) bool {
		if e.Subagent != "" {
			return c.Subagent == e.Subagent
		}
		return c.Subagent == "" || !slices.Contains(s.Subagents, c.Subagent)
	}
	switch e.Kind {
	case Begin:
		p.applyBegin(s)
	case End:
		p.applyEnd(s)
	case Edited:
		p.applyEdited(s)
	case Turn, Stop:
		p.end("cancelled", s.take(mine)...)
	case Request:
		p.end("cancelled", s.take(func(c *openCall) bool { return c.Subagent == "" })...)
	case Batch:
		p.end("cancelled", s.take(func(c *openCall) bool { return c.Subagent == e.Subagent })...)
	case SubagentStart:
		if e.Subagent != "" && !slices.Contains(s.Subagents, e.Subagent) {
			s.Subagents = append(s.Subagents, e.Subagent)
		}
	case SubagentStop:
		if e.Subagent != "" {
			s.Subagents = slices.DeleteFunc(s.Subagents, func(id string) bool { return id == e.Subagent })
			p.end("cancelled", s.take(func(c *openCall) bool { return c.Subagent == e.Subagent })...)
		}
	case SessionStart, SessionEnd:
		p.over = e.Kind == SessionEnd
		s.Subagents, s.Others = nil, nil
		p.end("cancelled", s.take(func(*openCall) bool { return true })...)
	}
}

// fill completes the event with what earlier ones said.
func (p *step) fill(s *sessionState) {
	e := p.e
	switch {
	case e.Kind == Turn && e.Turn == "":
		at := e.At
		if at == "" {
			at = strconv.FormatInt(p.r.Now().UnixMilli(), 10)
		}
		s.Turn = "turn-" + legalized(at)
		e.Turn = s.Turn
	case e.Turn == "":
		e.Turn = s.Turn
	}
	if e.Kind == SessionStart && e.Model != "" {
		s.Model = e.Model
	}
	if e.Model == "" {
		e.Model = s.Model
	}
	// Qwen Code does not say which sub-agent uses a tool.
	if e.Agent == "qwen-code" && e.Kind == Begin && e.Subagent == "" && len(s.Subagents) == 1 {
		e.Subagent = s.Subagents[0]
	}
}

// orphans ends Codex's calls that have no event after PreToolUse. Those are
// patches that did not apply: no other tool of the same agent runs next to a
// patch. And shells that Codex refused to run: several shells may be open at
// once, but one whose result is in the transcript has ended.
func (p *step) orphans(s *sessionState) {
	e := p.e
	if e.Agent != "codex" {
		return
	}
	p.end("failed", s.take(func(c *openCall) bool {
		return c.Tool == "apply_patch" && c.Subagent == e.Subagent && (e.Kind != End || c.ToolUseID != e.ToolUseID)
	})...)
	var shells []string
	for _, c := range s.Calls {
		if c.Command != "" && c.ToolUseID != "" && c.Subagent == e.Subagent && (e.Kind != End || c.ToolUseID != e.ToolUseID) {
			shells = append(shells, c.ToolUseID)
		}
	}
	if done := answered(e.Transcript, shells); done != nil {
		p.end("cancelled", s.take(func(c *openCall) bool {
			return c.Command != "" && c.Subagent == e.Subagent && done[c.ToolUseID]
		})...)
	}
}

func (p *step) applyBegin(s *sessionState) {
	e := p.e
	if e.Agent == "cursor" && e.Tool == cursorShell {
		// Cursor has two events for the begin of one shell.
		for i := range s.Calls {
			c := &s.Calls[i]
			if c.Command == e.CommandSHA256 && (c.ToolUseID == "") != (e.ToolUseID == "") && c.Subagent == e.Subagent {
				if c.ToolUseID == "" {
					c.ToolUseID = e.ToolUseID
				}
				return
			}
		}
	}
	c := openCall{ID: e.CallID, ToolUseID: e.ToolUseID, Pair: e.Pair, Tool: e.Tool, Subagent: e.Subagent, Command: e.CommandSHA256}
	if c.ID == "" {
		c.ID = p.r.newID(e.Session)
	}
	s.take(func(had *openCall) bool { return had.ID == c.ID })
	s.Calls = append(s.Calls, c)
	p.begin = &c
}

// newID makes an ID for a call of an agent that has none.
func (r *Runner) newID(session string) string {
	return CallID(r.Agent, unique(r.Now()), session)
}

// unique differs between processes and times.
func unique(now time.Time) string {
	return "t" + strconv.FormatInt(now.UnixNano(), 36) + "-" + strconv.Itoa(os.Getpid())
}

func (p *step) applyEnd(s *sessionState) {
	e := p.e
	status := "ok"
	switch {
	case e.Denied:
		status = "cancelled"
	case e.Failed:
		status = "failed"
	}
	c, found := s.first(func(c *openCall) bool {
		if e.ToolUseID != "" {
			return c.ToolUseID == e.ToolUseID && (e.Subagent == "" || c.Subagent == e.Subagent)
		}
		return c.ToolUseID == "" && (c.Pair == e.Pair || c.Layered != "" && c.Layered == e.Pair)
	})
	switch {
	case found:
	case e.shellRan(s):
		return
	case s.unpaired(e) >= 0:
		i := s.unpaired(e)
		c = s.Calls[i]
		s.Calls = slices.Delete(s.Calls, i, i+1)
	case e.CallID != "":
		c = openCall{ID: e.CallID, Tool: e.Tool} // its begin left no state
	default:
		return
	}
	p.main = len(p.ends)
	p.end(status, c)
	p.others, s.Others = s.Others, nil
}

// shellRan notes that a shell of Cursor's has run which has an ID, and reports whether
// the event is of such a shell: its postToolUse says how it ended. A version without
// that event has it ended by the next one (see ran).
func (e *Event) shellRan(s *sessionState) bool {
	if e.Agent != "cursor" || e.ToolUseID != "" || e.Tool != cursorShell {
		return false
	}
	for i := range s.Calls {
		if c := &s.Calls[i]; c.ToolUseID != "" && !c.Ran && c.Command == e.CommandSHA256 && c.Subagent == e.Subagent {
			c.Ran = true
			return true
		}
	}
	return false
}

// ran ends shells that have run and got no event of their own after that.
func (p *step) ran(s *sessionState) {
	e := p.e
	p.end("ok", s.take(func(c *openCall) bool {
		return c.Ran && c.Subagent == e.Subagent && (e.Kind != End || e.ToolUseID != "" && e.ToolUseID != c.ToolUseID)
	})...)
}

// unpaired returns the index of the only call that an end can mean if just one of
// its two events has an ID; -1 if there is none, or several.
func (s *sessionState) unpaired(e *Event) int {
	only := -1
	for i := range s.Calls {
		c := &s.Calls[i]
		if c.Tool != e.Tool || e.Tool == "" || c.Subagent != e.Subagent || (c.ToolUseID == "") == (e.ToolUseID == "") {
			continue
		}
		if only >= 0 {
			return -1
		}
		only = i
	}
	return only
}

// applyEdited notes a file for the end of the editing tool that is running.
func (p *step) applyEdited(s *sessionState) {
	var only *openCall
	for i := range s.Calls {
		c := &s.Calls[i]
		if c.Command == "" && c.Subagent == p.e.Subagent {
			if only != nil {
				return // which one edited it is not known
			}
			only = c
		}
	}
	if only == nil {
		return
	}
	for _, path := range p.e.Paths {
		if !slices.Contains(only.Paths, path) {
			only.Paths = append(only.Paths, path)
		}
	}
}

func (p *step) end(status string, calls ...openCall) {
	for _, c := range calls {
		c.Done = status
		p.ends = append(p.ends, c)
	}
}

// ended is what the server answers to an end.
type ended struct {
	Overwrote []change `json:"overwrote"`
	Policy    []change `json:"policy"`
	TakenBack *string  `json:"taken_back"`
	Undo      string   `json:"undo"`
	Context   *bool    `json:"hooks_context"`
}

// send calls the server, and brings the state in line with what it answered.
func (p *step) send() (out []byte, err error) {
	var errs []error
	var main ended
	sent := p.ends
	for i, c := range p.ends {
		answer, err := p.r.endCall(c)
		var refused *ServerError
		switch {
		case errors.As(err, &refused):
			if refused.Status != 404 { // its begin did not reach the server
				errs = append(errs, err)
			}
		case err != nil:
			errs = append(errs, err)
			sent = p.ends[:i]
		case i == p.main:
			_ = json.Unmarshal(answer, &main)
		}
		if len(sent) == i {
			break
		}
	}
	keep := p.sendBegin(&errs, len(sent) < len(p.ends))
	if err := p.settle(sent, keep); err != nil {
		errs = append(errs, err)
	}
	if keep.input != nil {
		return p.e.rewrite(keep.input), errors.Join(errs...)
	}
	if len(errs) > 0 || p.main < 0 || !p.r.Context || main.Context != nil && !*main.Context {
		return nil, errors.Join(errs...)
	}
	return p.e.answer(advice(p.others, &main)), nil
}

// settle writes what send learned: ends that the server has, a begun call that is
// not open, what others changed. Ends that it does not have are sent again with the
// session's next event.
func (p *step) settle(sent []openCall, b begun) error {
	if len(sent) == 0 && !b.drop && b.id == "" && len(b.others) == 0 && !p.over && b.layered == "" {
		return nil
	}
	err := update(p.r.State, p.file, func(s *sessionState) {
		s.take(func(c *openCall) bool {
			return c.Done != "" && slices.ContainsFunc(sent, func(x openCall) bool { return x.ID == c.ID })
		})
		for i := range s.Calls {
			c := &s.Calls[i]
			if p.begin == nil || c.Done != "" || c.ID != p.begin.ID {
				continue
			}
			if b.id != "" {
				c.ID = b.id
			}
			if b.layered != "" {
				c.Layered = b.layered
			}
		}
		if b.drop {
			s.take(func(c *openCall) bool { return (c.ID == p.begin.ID || c.ID == b.id) && c.Done == "" })
		}
		s.Others = merge(b.others, s.Others)
	})
	if err == nil && p.over {
		err = drop(p.r.State, p.file)
	}
	return err
}

// begun is what came of a begin.
type begun struct {
	drop   bool   // it is not open
	id     string // its ID, if another than was planned
	others []change
	// input is what the tool is to run instead, and layered the call's Layered.
	input   json.RawMessage
	layered string
}

// sendBegin begins the call, unless the server was found silent.
func (p *step) sendBegin(errs *[]error, silent bool) (b begun) {
	if p.begin == nil {
		return b
	}
	if silent {
		return begun{drop: true}
	}
	id := p.begin.ID
	answer, err := p.r.beginCall(p.e, id)
	var refused *ServerError
	if errors.As(err, &refused) && refused.Code == "call_exists" {
		// The agent used the same ID again.
		id = CallID(p.r.Agent, unique(p.r.Now()), p.e.Session)
		answer, err = p.r.beginCall(p.e, id)
	}
	if err != nil {
		*errs = append(*errs, err)
		// Without an answer it may be open all the same: its end is sent then.
		b.drop = errors.As(err, &refused) || errors.Is(err, ErrUnreachable)
		return b
	}
	var ok struct {
		ID     string   `json:"call_id"`
		Others []change `json:"others"`
	}
	_ = json.Unmarshal(answer, &ok)
	if ok.ID != "" {
		id = ok.ID
	}
	if id != p.begin.ID {
		b.id = id
	}
	if p.r.Context {
		b.others = ok.Others
	}
	if p.r.Exec != nil {
		if b.input = p.e.layered(p.r.Exec, id); b.input != nil && p.e.Pair != "" {
			b.layered = p.e.pair(b.input)
		}
	}
	return b
}

// beginBody is the body of POST /calls.
type beginBody struct {
	Agent         string `json:"agent"`
	Session       string `json:"agent_session"`
	Cwd           string `json:"cwd"`
	CallID        string `json:"call_id"`
	Subtask       string `json:"subtask_id,omitempty"`
	Tool          string `json:"tool,omitempty"`
	Model         string `json:"model,omitempty"`
	Prompt        string `json:"prompt_id,omitempty"`
	CommandSHA256 string `json:"command_sha256,omitempty"`
	Paths         []Path `json:"paths,omitempty"`
	OnlyPaths     bool   `json:"only_paths,omitempty"`
}

func (r *Runner) beginCall(e *Event, id string) ([]byte, error) {
	if e.Cwd == "" {
		return nil, fmt.Errorf("%w: cwd is missing, and the hook has no directory", ErrInput)
	}
	session := e.Session
	if label(session) != session {
		session = digest(session)
	}
	return r.call("/calls", beginBody{
		Agent: e.Agent, Session: session, Cwd: e.Cwd, CallID: id, Subtask: legalized(e.Subagent),
		Tool: label(e.Tool), Model: label(e.Model), Prompt: label(e.Turn),
		CommandSHA256: e.CommandSHA256, Paths: e.Paths, OnlyPaths: e.OnlyPaths,
	})
}

func (r *Runner) endCall(c openCall) ([]byte, error) {
	return r.call("/calls/"+c.ID+"/end", struct {
		Status string `json:"status"`
		Paths  []Path `json:"paths,omitempty"`
	}{c.Done, c.Paths})
}

// call sends a POST request; an answer that is not a success is a *ServerError.
func (r *Runner) call(path string, body any) ([]byte, error) {
	raw, err := json.Marshal(body)
	if err != nil {
		return nil, err
	}
	status, answer, err := r.Send("POST", path, raw)
	if err != nil {
		return nil, err
	}
	if status < 200 || status > 299 {
		e := &ServerError{Status: status}
		var shape struct {
			Error  text `json:"error"`
			Detail text `json:"detail"`
		}
		if json.Unmarshal(answer, &shape) == nil {
			e.Code, e.Detail = string(shape.Error), string(shape.Detail)
		}
		return nil, e
	}
	return answer, nil
}

// label makes a text fit for a name: at most 256 characters, none of them a
// control character or U+FFFD, which a server refuses.
func label(s string) string {
	s = strings.Map(func(r rune) rune {
		if r < ' ' || r >= 0x7f && r < 0xa0 || r == utf8.RuneError {
			return -1
		}
		return r
	}, strings.ToValidUTF8(s, ""))
	n := 0
	for i := range s {
		if n == 256 {
			return s[:i]
		}
		n++
	}
	return s
}

// legalized makes a text an ID as the server makes a prompt's: "-" for what an ID
// cannot have, cut at 128. Empty stays empty.
func legalized(s string) string {
	if s == "" || legalID(s) {
		return s
	}
	b := []byte(s)
	for i := range b {
		if !legalID("x" + string(b[i])) {
			b[i] = '-'
		}
	}
	s = strings.ReplaceAll(string(b), "..", "--")
	if !legalID(s[:1]) {
		s = "x" + s
	}
	s = s[:min(len(s), maxID)]
	if stem, ok := strings.CutSuffix(s, ".lock"); ok {
		s = stem + "-lock"
	}
	return s
}
