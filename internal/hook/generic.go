package hook

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
)

// Generic is the agent whose hooks send the server's own bodies, with
// "phase":"begin" or "end" (or "stop", which ends what a session has open).
const Generic = "generic"

// genericName is the file that holds the open calls of one ID of callers, of all
// sessions that use it.
func genericName(id string) string { return Generic + "-" + digest(id) + ".json" }

// generic handles one document of the agent Generic and returns the server's
// answer. A begin may have "tool_input": paths are read from it as from an
// agent's, and it is not sent.
func (r *Runner) generic(input []byte) ([]byte, error) {
	var body map[string]json.RawMessage
	if err := json.Unmarshal(input, &body); err != nil || body == nil {
		return nil, ErrInput
	}
	field := func(name string) string { return scalar(body[name]) }
	phase, agent, session, id := field("phase"), field("agent"), field("agent_session"), field("call_id")
	delete(body, "phase")
	r.heard(agent)
	switch phase {
	case "begin":
		return r.genericBegin(body, agent, session, id)
	case "end":
		return r.genericEnd(body, agent, session, id)
	case "stop":
		if agent == "" || session == "" {
			return nil, fmt.Errorf("%w: a stop needs agent and agent_session", ErrInput)
		}
		return r.genericStop(agent, session, field("subtask_id"))
	}
	return nil, fmt.Errorf(`%w: phase is "begin", "end" or "stop"`, ErrInput)
}

func (r *Runner) genericBegin(body map[string]json.RawMessage, agent, session, id string) ([]byte, error) {
	if raw, ok := body["tool_input"]; ok {
		e := &Event{Tool: scalar(body["tool"]), Cwd: scalar(body["cwd"])}
		if harmless(e.Tool, raw) {
			return nil, nil
		}
		e.declare(raw)
		delete(body, "tool_input")
		set := func(name string, v any, given bool) {
			if _, had := body[name]; !had && given {
				body[name], _ = json.Marshal(v)
			}
		}
		set("paths", e.Paths, len(e.Paths) > 0)
		set("only_paths", true, e.OnlyPaths)
		set("command_sha256", e.CommandSHA256, e.CommandSHA256 != "")
	}
	full := id
	if id != "" && agent != "" && session != "" {
		full = genericID(agent, session, id)
		body["call_id"], _ = json.Marshal(full)
	}
	if _, ok := body["cwd"]; !ok && body["workspace_id"] == nil {
		return nil, fmt.Errorf("%w: a begin needs cwd or workspace_id", ErrInput)
	}
	c := openCall{ID: full, ToolUseID: id, Subagent: scalar(body["subtask_id"])}
	change := func(fn func(*sessionState)) (err error) {
		if id != "" {
			err = update(r.State, genericName(id), fn)
		}
		if err == nil && agent != "" && session != "" {
			err = update(r.State, sessionName(Generic+"-"+legalized(agent), session), fn)
		}
		return err
	}
	remove := func(s *sessionState) { s.take(func(had *openCall) bool { return had.ID == c.ID }) }
	add := func(s *sessionState) {
		remove(s)
		s.Calls = append(s.Calls, c)
	}
	if c.ID != "" { // before: this process may be killed
		if err := change(add); err != nil {
			return nil, err
		}
	}
	answer, err := r.call("/calls", body)
	var refused *ServerError
	if errors.As(err, &refused) && refused.Code != "call_exists" || errors.Is(err, ErrUnreachable) {
		return nil, errors.Join(err, change(remove))
	}
	if err != nil {
		return nil, err
	}
	var ok struct {
		ID string `json:"call_id"`
	}
	if json.Unmarshal(answer, &ok) == nil && ok.ID != "" && ok.ID != c.ID {
		c.ID = ok.ID
		if err := change(add); err != nil {
			return nil, err
		}
	}
	return line(answer), nil
}

func genericID(agent, session, id string) string {
	return CallID(legalized(agent)[:min(len(legalized(agent)), 64)], id, session)
}

func (r *Runner) genericEnd(body map[string]json.RawMessage, agent, session, id string) ([]byte, error) {
	if id == "" {
		return nil, fmt.Errorf("%w: an end needs call_id", ErrInput)
	}
	full := id
	if agent != "" && session != "" {
		full = genericID(agent, session, id)
	}
	several := false
	// The caller may give its own ID, with or without the session, or the one that
	// the begin answered.
	stateErr := update(r.State, genericName(id), func(s *sessionState) {
		if agent != "" && session != "" {
			return
		}
		switch len(s.Calls) {
		case 0:
		case 1:
			full = s.Calls[0].ID
		default:
			several = true
		}
	})
	if several {
		return nil, fmt.Errorf("%w: several sessions have an open call of this ID; give agent and agent_session", ErrInput)
	}
	if !legalID(full) {
		return nil, fmt.Errorf("%w: call_id", ErrInput)
	}
	for name := range body {
		if !slices.Contains([]string{"status", "exit_code", "paths"}, name) {
			delete(body, name)
		}
	}
	answer, err := r.call("/calls/"+full+"/end", body)
	if refused := (*ServerError)(nil); err != nil && !errors.As(err, &refused) {
		return nil, err // a stop ends it
	}
	ended := func(s *sessionState) { s.take(func(c *openCall) bool { return c.ID == full }) }
	if stateErr == nil && update(r.State, genericName(id), ended) == nil {
		_ = drop(r.State, genericName(id))
	}
	if agent != "" && session != "" {
		_ = update(r.State, sessionName(Generic+"-"+legalized(agent), session), ended)
	}
	if err != nil {
		return nil, err
	}
	return line(answer), nil
}

// genericStop ends what a session has open; with a subtask only what that has.
func (r *Runner) genericStop(agent, session, subtask string) ([]byte, error) {
	var open []openCall
	name := sessionName(Generic+"-"+legalized(agent), session)
	err := update(r.State, name, func(s *sessionState) {
		for _, c := range s.Calls {
			if subtask == "" || c.Subagent == subtask {
				open = append(open, c)
			}
		}
	})
	if err != nil {
		return nil, err
	}
	for _, c := range open {
		c.Done = "cancelled"
		if _, err := r.endCall(c); err != nil {
			if refused := (*ServerError)(nil); !errors.As(err, &refused) || refused.Status != 404 { // its begin did not reach the server
				return nil, err
			}
		}
		ended := func(s *sessionState) { s.take(func(had *openCall) bool { return had.ID == c.ID }) }
		if c.ToolUseID != "" {
			_ = update(r.State, genericName(c.ToolUseID), ended)
		}
		if err := update(r.State, name, ended); err != nil {
			return nil, err
		}
	}
	return nil, drop(r.State, name)
}

// line ends a JSON answer with one line end.
func line(answer []byte) []byte {
	for len(answer) > 0 && answer[len(answer)-1] == '\n' {
		answer = answer[:len(answer)-1]
	}
	return append(answer, '\n')
}
