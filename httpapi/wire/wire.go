// Package wire is the JSON that more than one dialect answers with: a task, a
// changelog entry, an event, a list of what is not recorded (contracts/tasks.md).
//
// It is no dialect, and imports none.
package wire

import (
	"encoding/json"
	"time"

	"umbra/gitstore/message"
	"umbra/gitstore/object"
	"umbra/internal/claims"
	"umbra/internal/task"
	"umbra/internal/workspace"
	"umbra/internal/wspath"
)

// Stamp is a time as bodies have it: RFC 3339, UTC, with "Z".
func Stamp(t time.Time) string { return t.UTC().Format(time.RFC3339Nano) }

type Task struct {
	TaskID      string          `json:"task_id"`
	Goal        string          `json:"goal"`
	Kind        string          `json:"kind"`
	Workspace   *string         `json:"workspace"`
	WorkspaceID string          `json:"workspace_id"`
	Base        string          `json:"base"`
	Head        string          `json:"head"`
	Status      task.Status     `json:"status"`
	Pinned      bool            `json:"pinned"`
	BaseDropped bool            `json:"base_dropped"`
	Metadata    json.RawMessage `json:"metadata"`
	Only        []string        `json:"only,omitempty"`
	Allow       []string        `json:"allow,omitempty"`
	Hold        bool            `json:"hold,omitempty"`
	Warnings    []string        `json:"warnings"`
	Ref         string          `json:"ref"`
	GitDir      string          `json:"git_dir"`
	Scratch     string          `json:"scratch"`
	Artifacts   string          `json:"artifacts"`
	Created     string          `json:"created"`
	Updated     string          `json:"updated"`
	Changes     uint64          `json:"changes"`
	Subtasks    []Subtask       `json:"subtasks"`
}

type Subtask struct {
	ID      string `json:"id"`
	Changes uint64 `json:"changes"`
	First   uint64 `json:"first"`
	Last    uint64 `json:"last"`
}

// ShadowRef is the ref that holds the workspace's whole history.
const ShadowRef = "refs/umbra/head"

func TaskOf(v *task.View) Task {
	o := Task{TaskID: v.ID, Goal: v.Goal, Kind: v.Kind, WorkspaceID: v.WorkspaceID, Base: v.Base.String(), Head: v.Head.String(),
		Status: v.Status, Pinned: v.Pinned, BaseDropped: v.BaseDropped, Metadata: v.Metadata, Only: v.Only, Allow: v.Allow, Hold: v.Hold, Warnings: v.Warnings, Ref: ShadowRef, GitDir: v.GitDir,
		Scratch: v.Scratch, Artifacts: v.Artifacts, Created: Stamp(v.Created), Updated: Stamp(v.Updated), Changes: v.Changes,
		Subtasks: make([]Subtask, len(v.Subtasks))}
	if v.Root != "" {
		o.Workspace = &v.Root
	}
	if len(o.Metadata) == 0 {
		o.Metadata = json.RawMessage("{}")
	}
	if o.Warnings == nil {
		o.Warnings = []string{}
	}
	for i, s := range v.Subtasks {
		o.Subtasks[i] = Subtask(s)
	}
	return o
}

// Entry is one changelog entry. Those of scratch and artifacts, which only a
// batch's answer has, and those of a dry run have no numbers and no commit.
type Entry struct {
	ID             *uint64           `json:"id"`
	Seq            *uint64           `json:"seq"`
	TaskID         *string           `json:"task_id"`
	Timestamp      string            `json:"timestamp"`
	SubtaskID      *string           `json:"subtask_id"`
	Operation      message.Operation `json:"operation"`
	Path           string            `json:"path"`
	PathEncoding   string            `json:"path_encoding,omitempty"`
	NewPath        *string           `json:"new_path"`
	BeforeSnapshot *string           `json:"before_snapshot"`
	AfterHash      *string           `json:"after_hash"`
	Mode           *string           `json:"mode"`
	Commit         *string           `json:"commit"`
	Actor          string            `json:"actor"`
	Reverts        []*uint64         `json:"reverts"`
	RevertsEntries []EntryRef        `json:"reverts_entries,omitempty"`
	Source         message.Source    `json:"source"`
	Message        *string           `json:"message"`
	// Of a change that a call made (contracts/calls.md).
	CallID    *string           `json:"call_id"`
	Tool      *string           `json:"tool"`
	Model     *string           `json:"model,omitempty"`
	PromptID  *string           `json:"prompt_id,omitempty"`
	Certainty *claims.Certainty `json:"certainty"`
	Claimants Names             `json:"claimants"`
	Policy    []string          `json:"policy,omitempty"` // the rules that it is against
}

// Names is a list that is never null.
type Names []string

// MarshalJSON writes the list.
func (n Names) MarshalJSON() ([]byte, error) {
	if n == nil {
		return []byte("[]"), nil
	}
	return json.Marshal([]string(n))
}

// EntryRef names an entry that need not be of the same task.
type EntryRef struct {
	TaskID *string `json:"task_id"`
	ID     uint64  `json:"id"` // without a task: the commit's seq
}

func EntryOf(e *workspace.ChangeEntry) Entry {
	out := Entry{TaskID: Text(e.TaskID), Timestamp: Stamp(e.When), SubtaskID: Text(e.SubtaskID), Operation: e.Operation,
		BeforeSnapshot: Snapshot(e.Before), AfterHash: Text(e.AfterHash), Actor: e.Actor, Source: e.Source, Message: Text(e.Message)}
	if !e.Commit.IsZero() { // a dry run makes none
		commit := e.Commit.String()
		out.Seq, out.Commit = &e.Seq, &commit
	}
	if e.ID != 0 {
		out.ID = &e.ID
	}
	if e.Mode != 0 {
		mode := e.Mode.String()
		out.Mode = &mode
	}
	out.Path, out.NewPath, out.PathEncoding = bothPaths(e.Path, e.NewPath)
	out.CallID, out.Tool, out.Model, out.PromptID = Text(e.CallID), Text(e.Tool), Text(e.Model), Text(e.Prompt)
	if e.Certainty != "" {
		out.Certainty = &e.Certainty
	}
	out.Claimants, out.Policy = e.Claimants, e.Policy
	foreign := false
	for _, ref := range e.Reverts {
		if ref.Task == "" {
			out.Reverts = append(out.Reverts, nil)
		} else {
			out.Reverts = append(out.Reverts, &ref.ID)
		}
		out.RevertsEntries = append(out.RevertsEntries, EntryRef{TaskID: Text(ref.Task), ID: ref.ID})
		foreign = foreign || ref.Task != e.TaskID
	}
	if !foreign {
		out.RevertsEntries = nil
	}
	return out
}

// bothPaths encodes an entry's paths alike: they share one path_encoding.
func bothPaths(path, newPath string) (p string, np *string, encoding string) {
	p, encoding = wspath.EncodeJSON(path)
	if newPath == "" {
		return p, nil, encoding
	}
	n, nenc := wspath.EncodeJSON(newPath)
	switch {
	case encoding == nenc:
	case encoding == "":
		p, encoding = escapePercent(p), nenc
	default:
		n = escapePercent(n)
	}
	return p, &n, encoding
}

// escapePercent gives a name that is UTF-8 the form that one has that is not.
func escapePercent(s string) string {
	out := make([]byte, 0, len(s)+2)
	for i := range len(s) {
		if s[i] == '%' {
			out = append(out, "%25"...)
		} else {
			out = append(out, s[i])
		}
	}
	return string(out)
}

func EntriesOf(list []workspace.ChangeEntry) []Entry {
	out := make([]Entry, len(list))
	for i := range list {
		out[i] = EntryOf(&list[i])
	}
	return out
}

func Text(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

// Snapshot names a blob as bodies do, null for none.
func Snapshot(id object.ID) *string {
	if id.IsZero() {
		return nil
	}
	s := "git:" + id.String()
	return &s
}

// Skip is a path that is not recorded, and why.
type Skip struct {
	Path         string `json:"path"`
	PathEncoding string `json:"path_encoding,omitempty"`
	Reason       string `json:"reason"`
}

// SkipsOf gives them their wire form, never null.
func SkipsOf(list []workspace.Skip) []Skip {
	out := make([]Skip, len(list))
	for i, s := range list {
		out[i].Path, out[i].PathEncoding = wspath.EncodeJSON(s.Path)
		out[i].Reason = s.Reason
	}
	return out
}
