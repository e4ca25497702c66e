package hook

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// worktreeLimit bounds the making of a fork's directory: the agent waits for it.
const worktreeLimit = 5 * time.Minute

// worktree is an event by which Claude Code asks for a directory of its own for an
// agent, or gives it back.
type worktree struct {
	Event text `json:"hook_event_name"`
	Name  text `json:"name"`
	Cwd   text `json:"cwd"`
	Path  text `json:"worktree_path"`
}

// worktreeOf reads such an event; nil for any other.
func worktreeOf(agent string, input []byte) *worktree {
	var w worktree
	// A field of another type is taken for absent.
	if agent != "claude-code" || json.Unmarshal(input, &w) != nil || w.Event != "WorktreeCreate" && w.Event != "WorktreeRemove" {
		return nil
	}
	return &w
}

// known is a workspace, as far as it matters here.
type known struct {
	ID   string  `json:"id"` // letters, digits and hyphens
	Root *string `json:"root"`
	Of   string  `json:"fork_of"`
}

// run makes or deletes a fork. out is the path of a new one's directory. A fork whose
// changes were never merged stays.
func (w *worktree) run(r *Runner) (out []byte, err error) {
	var list struct {
		Workspaces []known `json:"workspaces"`
	}
	if err := r.ask("GET", "/workspaces", nil, &list); err != nil {
		return nil, err
	}
	if w.Event == "WorktreeRemove" {
		for _, k := range list.Workspaces {
			if k.Of != "" && k.Root != nil && *k.Root == filepath.Clean(string(w.Path)) {
				return nil, r.ask("DELETE", "/workspaces/"+k.ID, nil, nil)
			}
		}
		return nil, fmt.Errorf("%s is not the directory of a fork", w.Path)
	}
	here, err := os.Getwd()
	if err != nil {
		here = "" // it was removed
	}
	cwd := directory(string(w.Cwd), here)
	var parent *known
	for i, k := range list.Workspaces {
		if k.Root != nil && within(cwd, *k.Root) && (parent == nil || len(*k.Root) > len(*parent.Root)) {
			parent = &list.Workspaces[i]
		}
	}
	if parent == nil {
		return nil, fmt.Errorf("%s is in no workspace of the server", cwd)
	}
	body, err := json.Marshal(map[string]string{"kind": "copy", "name": plainName(string(w.Name))})
	if err != nil {
		return nil, err
	}
	var made struct {
		Forks []known `json:"forks"`
	}
	if err := r.ask("POST", "/workspaces/"+parent.ID+"/forks", body, &made); err != nil {
		return nil, err
	}
	if len(made.Forks) != 1 || made.Forks[0].Root == nil {
		return nil, errors.New("the server's answer has no directory")
	}
	return []byte(*made.Forks[0].Root + "\n"), nil
}

func within(path, dir string) bool {
	return path == dir || strings.HasPrefix(path, strings.TrimSuffix(dir, "/")+"/")
}

// plainName makes a fork's name of what the agent calls its worktree.
func plainName(name string) string {
	name = strings.Trim(strings.Map(func(c rune) rune {
		if c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '-' || c == '_' {
			return c
		}
		return '-'
	}, name), "-")
	if len(name) > 64 {
		name = name[:64]
	}
	if name == "" {
		name = "worktree"
	}
	return name
}

// ask sends a request and reads a successful answer.
func (r *Runner) ask(method, path string, body []byte, dst any) error {
	status, answer, err := r.Send(method, path, body)
	if err != nil {
		return err
	}
	if status/100 != 2 {
		e := &ServerError{Status: status}
		var said struct{ Error, Detail string }
		if json.Unmarshal(answer, &said) == nil {
			e.Code, e.Detail = said.Error, said.Detail
		}
		return e
	}
	if dst == nil {
		return nil
	}
	return json.Unmarshal(answer, dst)
}
