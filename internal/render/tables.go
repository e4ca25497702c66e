package render

import (
	"fmt"
	"strconv"
	"strings"

	"umbra/internal/client"
	"umbra/internal/term"
	"umbra/internal/turns"
)

// Fork is a fork as the server describes it.
type Fork struct {
	client.Workspace
	ForkOf  string  `json:"fork_of"`
	ForkAt  string  `json:"fork_at"`
	Name    string  `json:"name"`
	Expires *string `json:"expires_at"`
}

// Forks prints forks as a table.
func Forks(o *term.Output, list []Fork) {
	if len(list) == 0 {
		o.Printf("there are no forks\n")
		return
	}
	rows := [][]string{{"FORK", "KIND", "NAME", "DIRECTORY", "EXPIRES"}}
	for _, f := range list {
		rows = append(rows, []string{f.ID, f.Kind, Text(&f.Name), Text(f.Root), Text(f.Expires)})
	}
	o.Table(rows)
}

// maxGoal is how much of a goal is in a table.
const maxGoal = 72

// Tasks prints tasks as a table.
func Tasks(o *term.Output, list []client.Task) {
	if len(list) == 0 {
		o.Printf("no tasks\n")
		return
	}
	rows := [][]string{{"TASK", "STATUS", "CHANGES", "UPDATED", "WORKSPACE", "GOAL"}}
	for _, t := range list {
		rows = append(rows, []string{t.ID, t.Status, strconv.FormatUint(t.Changes, 10), Stamp(t.Updated), t.WorkspaceID,
			term.Cut(term.Line(t.Goal), maxGoal)})
	}
	o.Table(rows)
}

// Token is a token as the server lists it.
type Token struct {
	Name     string   `json:"name"`
	Scope    string   `json:"scope"`
	Roots    []string `json:"roots"`
	Created  *string  `json:"created"`
	Expires  *string  `json:"expires"`
	Expired  bool     `json:"expired"`
	Token    string   `json:"token"`
	Warnings []string `json:"warnings"`
}

// Tokens prints access tokens as a table.
func Tokens(o *term.Output, list []Token) {
	rows := [][]string{{"NAME", "SCOPE", "ADDED", "EXPIRES", "ROOTS"}}
	for _, t := range list {
		added, expires, roots := "settings", "never", "(all)"
		if t.Created != nil {
			added = *t.Created
		}
		switch {
		case t.Expired:
			expires = "expired"
		case t.Expires != nil:
			expires = *t.Expires
		}
		if len(t.Roots) > 0 {
			names := make([]string, len(t.Roots))
			for i, r := range t.Roots {
				names[i] = term.Name(r)
			}
			roots = strings.Join(names, " ")
		}
		rows = append(rows, []string{term.Line(t.Name), t.Scope, added, expires, roots})
	}
	o.Table(rows)
}

// Text returns an optional text for a table's cell; "-" if it is empty.
func Text(s *string) string {
	if s == nil || *s == "" {
		return "-"
	}
	return term.Line(*s)
}

// Turns prints the turns of agents as a table.
func Turns(o *term.Output, list []*turns.Turn) {
	if len(list) == 0 {
		o.Printf("no agent has worked here\n")
		return
	}
	rows := [][]string{{"WHEN", "AGENT", "SESSION", "PROMPT", "FILES", "CERTAINTY", ""}}
	for _, t := range list {
		state := ""
		switch {
		case t.Undone:
			state = "undone"
		case t.Ended == nil:
			state = "open"
		}
		prompt := t.Prompt
		if prompt == nil {
			prompt = t.Subtask
		}
		rows = append(rows, []string{t.Began.Local().Format("2006-01-02 15:04:05"), Text(t.Agent), Text(t.Session), Text(prompt), fmt.Sprint(len(t.Files)), Text(t.Certainty), state})
	}
	o.Table(rows)
}

// Workspaces prints workspaces as a table, with their warnings.
func Workspaces(o *term.Output, list []client.Workspace) {
	if len(list) == 0 {
		o.Printf("no workspaces\n")
		return
	}
	rows := [][]string{{"WORKSPACE", "STATE", "TASKS", "HEAD", "ROOT"}}
	for _, w := range list {
		head, root := "-", "("+w.Kind+")"
		if w.Head != nil {
			head = Short(*w.Head)
		}
		if w.Root != nil {
			root = term.Name(*w.Root)
		}
		rows = append(rows, []string{w.ID, w.State, strconv.Itoa(w.Tasks), head, root})
	}
	o.Table(rows)
	for _, w := range list {
		for _, text := range w.Warnings {
			o.Printf("%s %s: %s\n", o.Paint(term.Removed, "warning"), w.ID, term.Line(text))
		}
	}
}
