package hook

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"time"

	"umbra/internal/filelock"
)

// openCall is a call that was begun and whose end the server has not answered.
type openCall struct {
	ID        string `json:"id"`
	ToolUseID string `json:"tool_use_id,omitempty"`
	Pair      string `json:"pair,omitempty"`
	// Layered is Pair with the input that the hook gave the tool instead.
	Layered  string `json:"layered,omitempty"`
	Tool     string `json:"tool,omitempty"`
	Subagent string `json:"subagent,omitempty"`
	Command  string `json:"command,omitempty"` // SHA-256 of a shell's command
	Paths    []Path `json:"paths,omitempty"`   // to be declared at the end
	Ran      bool   `json:"ran,omitempty"`     // Cursor's shell has run; see shellRan
	// Done is the status of an end that is being sent. If the server does not answer
	// it, or the process is killed, it is sent again with the session's next event.
	Done string `json:"done,omitempty"`
}

// sessionState is what is kept of one session between the processes of its hooks.
type sessionState struct {
	Parent    string     `json:"parent,omitempty"` // the session is a sub-agent of this one
	Turn      string     `json:"turn,omitempty"`   // of an agent that has no turn IDs
	Model     string     `json:"model,omitempty"`
	Subagents []string   `json:"subagents,omitempty"` // running
	Calls     []openCall `json:"calls,omitempty"`     // in the order of their begin
	Others    []change   `json:"others,omitempty"`    // not yet passed to the model
}

// maxKept is the largest session file that is read, and maxIdle how long one is
// kept that no hook has changed.
const (
	maxKept = 4 << 20
	maxIdle = 30 * 24 * time.Hour
)

// sessionName is the file of one session in the state directory.
func sessionName(agent, id string) string { return agent + "-" + digest(id) + ".json" }

// update runs fn on the session's state under an exclusive lock and writes it
// back if fn changed it. A file that cannot be read as state is empty state.
func update(dir, name string, fn func(*sessionState)) error {
	if dir == "" {
		return errors.New("the hooks' state has no directory")
	}
	f, err := filelock.Open(filepath.Join(dir, name))
	if err != nil {
		return err
	}
	defer f.Close()
	raw, err := io.ReadAll(io.LimitReader(f, maxKept))
	if err != nil {
		return err
	}
	// A process that was killed before it could cut off the rest of a longer text left
	// that behind the state.
	var s sessionState
	if json.NewDecoder(bytes.NewReader(raw)).Decode(&s) != nil {
		s = sessionState{}
	}
	fn(&s)
	text, err := json.Marshal(&s)
	if err != nil || string(text) == string(raw) || len(raw) == 0 && string(text) == "{}" {
		return err
	}
	if _, err := f.WriteAt(text, 0); err != nil {
		return err
	}
	return f.Truncate(int64(len(text)))
}

// drop removes the file of a session in which nothing is open.
func drop(dir, name string) error {
	f, err := filelock.Open(filepath.Join(dir, name))
	if err != nil {
		return err
	}
	defer f.Close()
	raw, err := io.ReadAll(io.LimitReader(f, maxKept))
	var s sessionState
	if err != nil || json.Unmarshal(raw, &s) == nil && len(s.Calls) > 0 {
		return err
	}
	return os.Remove(f.Name())
}

// sweep removes the files of sessions that no hook has changed for maxIdle.
func sweep(dir string, now time.Time) {
	list, err := os.ReadDir(dir)
	if err != nil {
		return
	}
	for _, entry := range list {
		if filepath.Ext(entry.Name()) != ".json" {
			continue
		}
		if info, err := entry.Info(); err == nil && now.Sub(info.ModTime()) > maxIdle {
			_ = os.Remove(filepath.Join(dir, entry.Name()))
		}
	}
}

// take removes the calls that match and returns them.
func (s *sessionState) take(match func(*openCall) bool) []openCall {
	var out []openCall
	s.Calls = slices.DeleteFunc(s.Calls, func(c openCall) bool {
		if match(&c) {
			out = append(out, c)
			return true
		}
		return false
	})
	return out
}

// first removes the oldest call that matches.
func (s *sessionState) first(match func(*openCall) bool) (openCall, bool) {
	i := slices.IndexFunc(s.Calls, func(c openCall) bool { return match(&c) })
	if i < 0 {
		return openCall{}, false
	}
	c := s.Calls[i]
	s.Calls = slices.Delete(s.Calls, i, i+1)
	return c, true
}

// heardName is the file whose time is when an agent's hook last ran.
func heardName(agent string) string { return "heard-" + legalized(agent) }

// heard notes that an agent's hook runs.
func (r *Runner) heard(agent string) {
	if r.State == "" || agent == "" {
		return
	}
	name, now := filepath.Join(r.State, heardName(agent)), r.Now()
	if os.Chtimes(name, now, now) == nil {
		return
	}
	if os.MkdirAll(r.State, 0o700) == nil {
		_ = os.WriteFile(name, nil, 0o600)
	}
}

// LastHeard returns when an agent's hook last ran with a data directory; ok is
// false if it never did.
func LastHeard(dataDir, agent string) (at time.Time, ok bool) {
	v := Invocation{DataDir: dataDir}
	for _, dir := range []string{dataDir, v.fallback()} {
		if dir == "" {
			continue
		}
		if info, err := os.Stat(filepath.Join(dir, "hooks", heardName(agent))); err == nil && info.ModTime().After(at) {
			at, ok = info.ModTime(), true
		}
	}
	return at, ok
}
