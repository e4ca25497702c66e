package render

import (
	"time"
)

// Blamed is a run of lines that one commit wrote.
type Blamed struct {
	Start      int       `json:"start"`
	End        int       `json:"end"`
	Commit     string    `json:"commit"`
	OriginPath string    `json:"origin_path"`
	TaskID     string    `json:"task_id"`
	SubtaskID  string    `json:"subtask_id"`
	Actor      string    `json:"actor"`
	Agent      string    `json:"agent"`
	Model      string    `json:"model"`
	CallID     string    `json:"call_id"`
	Tool       string    `json:"tool"`
	Certainty  string    `json:"certainty"`
	Source     string    `json:"source"`
	At         time.Time `json:"at"`
	Via        string    `json:"via"`
	Project    *struct {
		Commit string    `json:"commit"`
		Author string    `json:"author"`
		At     time.Time `json:"at"`
	} `json:"project"`
}

// Who names the author of a range in a few words.
func (r *Blamed) Who() string {
	switch {
	case r.Project != nil:
		return r.Project.Author
	case r.Agent != "" && r.SubtaskID != "":
		return r.Agent + "/" + r.SubtaskID
	case r.Agent != "":
		return r.Agent
	case r.Actor != "":
		return r.Actor
	}
	return r.Source
}

// UndoCommand is the command that undoes a range's change; empty for the baseline.
func (r *Blamed) UndoCommand() string {
	switch {
	case r.Source == "baseline":
		return ""
	case r.CallID != "" && r.TaskID != "":
		return "umbra undo --call " + r.CallID
	}
	return "umbra revert " + Short(r.Commit)
}
