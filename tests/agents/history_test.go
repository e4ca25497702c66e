package agents

import (
	"net/url"
	"testing"
	"time"
)

// entry is a changelog entry, as far as these tests look.
type entry struct {
	Path      string
	NewPath   *string `json:"new_path"`
	Operation string
	TaskID    *string `json:"task_id"`
	SubtaskID *string `json:"subtask_id"`
	Source    string
	CallID    *string `json:"call_id"`
	Certainty *string
	Claimants []string
}

func (e entry) paths() []string {
	if e.NewPath != nil && *e.NewPath != "" {
		return []string{e.Path, *e.NewPath}
	}
	return []string{e.Path}
}

func (e entry) certainty() string {
	if e.Certainty == nil {
		return ""
	}
	return *e.Certainty
}

// call is a call, as far as these tests look.
type call struct {
	ID          string  `json:"call_id"`
	TaskID      string  `json:"task_id"`
	WorkspaceID string  `json:"workspace_id"`
	SubtaskID   *string `json:"subtask_id"`
	Agent       string
	Session     string `json:"agent_session"`
	Tool        string
	OnlyPaths   bool `json:"only_paths"`
	Status      string
	Begun       time.Time
	Ended       *time.Time
}

// calls returns all calls by ID.
func (s *scene) calls(t *testing.T) map[string]call {
	t.Helper()
	out := map[string]call{}
	for after := ""; ; {
		var page struct {
			Calls []call
			Next  *string
		}
		s.Do("GET", "/calls?limit=200&after="+url.QueryEscape(after), nil).Expect(200).JSON(&page)
		for _, c := range page.Calls {
			out[c.ID] = c
			s.ws = c.WorkspaceID
		}
		if page.Next == nil || *page.Next == "" {
			return out
		}
		after = *page.Next
	}
}

// log returns the workspace's entries, oldest first. calls was called before.
func (s *scene) log(t *testing.T) []entry {
	t.Helper()
	var out []entry
	for after := ""; ; {
		var page struct {
			Entries []entry
			Next    *string
		}
		target := "/workspaces/" + s.ws + "/log?limit=200"
		if after != "" {
			target += "&after=" + url.QueryEscape(after)
		}
		s.Do("GET", target, nil).Expect(200).JSON(&page)
		for _, e := range page.Entries {
			out = append([]entry{e}, out...)
		}
		if page.Next == nil || *page.Next == "" {
			return out
		}
		after = *page.Next
	}
}

// session returns the one session that the agent had.
func session(t *testing.T, calls map[string]call, agent string) string {
	t.Helper()
	id := ""
	for _, c := range calls {
		if c.Agent == agent && id != "" && id != c.Session {
			t.Errorf("%s has the sessions %s and %s", agent, id, c.Session)
		}
		if c.Agent == agent {
			id = c.Session
		}
	}
	if id == "" {
		t.Fatalf("no call of %s", agent)
	}
	return id
}
