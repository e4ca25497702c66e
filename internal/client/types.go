package client

import (
	"encoding/json"
	"time"

	"umbra/internal/wspath"
)

// Workspace is one of GET /workspaces.
type Workspace struct {
	ID       string   `json:"id"`
	Root     *string  `json:"root"` // nil: virtual
	Kind     string   `json:"kind"`
	GitDir   string   `json:"git_dir"` // on the server's machine
	Head     *string  `json:"head"`
	State    string   `json:"state"`
	Tasks    int      `json:"tasks"`
	Warnings []string `json:"warnings"`
	ForkOf   string   `json:"fork_of"` // "": no fork
}

// Task is one of GET /tasks.
type Task struct {
	ID          string    `json:"task_id"`
	Goal        string    `json:"goal"`
	Workspace   *string   `json:"workspace"`
	WorkspaceID string    `json:"workspace_id"`
	Status      string    `json:"status"`
	Base        string    `json:"base"`
	Head        string    `json:"head"`
	Changes     uint64    `json:"changes"`
	Created     time.Time `json:"created"`
	Updated     time.Time `json:"updated"`
}

// Entry is one entry of a changelog. Names are as bytes, whatever encoding they
// traveled in.
type Entry struct {
	ID        *uint64
	Seq       uint64
	TaskID    string
	SubtaskID string
	When      time.Time
	Operation string
	Path      string
	NewPath   string // of a rename
	Commit    string
	Actor     string
	Source    string
	Reverts   []uint64
}

// UnmarshalJSON reads the wire form.
func (e *Entry) UnmarshalJSON(raw []byte) error {
	var w struct {
		ID        *uint64   `json:"id"`
		Seq       uint64    `json:"seq"`
		TaskID    string    `json:"task_id"`
		SubtaskID string    `json:"subtask_id"`
		Timestamp time.Time `json:"timestamp"`
		Operation string    `json:"operation"`
		Path      string    `json:"path"`
		Encoding  string    `json:"path_encoding"`
		NewPath   string    `json:"new_path"`
		Commit    string    `json:"commit"`
		Actor     string    `json:"actor"`
		Source    string    `json:"source"`
		Reverts   []uint64  `json:"reverts"`
	}
	if err := json.Unmarshal(raw, &w); err != nil {
		return err
	}
	*e = Entry{ID: w.ID, Seq: w.Seq, TaskID: w.TaskID, SubtaskID: w.SubtaskID, When: w.Timestamp, Operation: w.Operation,
		Path: Bytes(w.Path, w.Encoding), NewPath: Bytes(w.NewPath, w.Encoding), Commit: w.Commit, Actor: w.Actor, Source: w.Source, Reverts: w.Reverts}
	return nil
}

// Bytes gives the bytes of a name, or of a patch, that traveled in an encoding
// (contracts/README.md). A text that is not in its encoding is given as it is.
func Bytes(text, encoding string) string {
	if encoding == wspath.EncodingPercent {
		if raw, err := wspath.DecodePercent(text); err == nil {
			return raw
		}
	}
	return text
}

// Summary is what a task comes to, file by file.
type Summary struct {
	TaskID string        `json:"task_id"`
	Files  []SummaryFile `json:"files"`
}

// SummaryFile is one file of a summary. Names are as bytes.
type SummaryFile struct {
	Path, From           string // From: of a rename
	Status               string
	Additions, Deletions int
	Binary, Mixed        bool
	Subtasks             []string
}

// UnmarshalJSON reads the wire form.
func (f *SummaryFile) UnmarshalJSON(raw []byte) error {
	var w struct {
		Path         string   `json:"path"`
		Encoding     string   `json:"path_encoding"`
		From         string   `json:"from"`
		FromEncoding string   `json:"from_encoding"`
		Status       string   `json:"status"`
		Additions    int      `json:"additions"`
		Deletions    int      `json:"deletions"`
		Binary       bool     `json:"binary"`
		Mixed        bool     `json:"mixed"`
		Subtasks     []string `json:"subtasks"`
	}
	if err := json.Unmarshal(raw, &w); err != nil {
		return err
	}
	*f = SummaryFile{Path: Bytes(w.Path, w.Encoding), From: Bytes(w.From, w.FromEncoding), Status: w.Status,
		Additions: w.Additions, Deletions: w.Deletions, Binary: w.Binary, Mixed: w.Mixed, Subtasks: w.Subtasks}
	return nil
}

// Reverted is what a revert did, or would do. In an error's body only the
// conflicts are.
type Reverted struct {
	Commit    *string        `json:"commit"`
	Entries   int            `json:"entries_reverted"`
	Files     []RevertedFile `json:"files"`
	Conflicts []Conflict     `json:"conflicts"`
	External  []Left         `json:"external"`
	Shared    []Left         `json:"shared"`
	DryRun    bool           `json:"dry_run"`
	Plan      *string        `json:"plan"`
}

// RevertedFile is what happens to one file.
type RevertedFile struct {
	Path     string `json:"path"`
	Encoding string `json:"path_encoding"`
	Action   string `json:"action"`
	Source   string `json:"source"`
}

// Left is a change that a revert leaves, since it may be another's.
type Left struct {
	Path     string    `json:"path"`
	Encoding string    `json:"path_encoding"`
	Entry    uint64    `json:"entry"`
	At       time.Time `json:"at"`
}

// Conflict is a file that cannot be undone cleanly, and who changed it.
type Conflict struct {
	Path      string `json:"path"`
	Encoding  string `json:"path_encoding"`
	Reason    string `json:"reason"`
	Entry     uint64 `json:"entry"`
	ChangedBy struct {
		Commit  *string `json:"commit"`
		Task    *string `json:"task_id"`
		Subtask *string `json:"subtask_id"`
		Actor   *string `json:"actor"`
	} `json:"changed_by"`
}

// Commit is one commit of a workspace.
type Commit struct {
	ID        string    `json:"commit"`
	Parent    *string   `json:"parent"`
	Seq       uint64    `json:"seq"`
	When      time.Time `json:"timestamp"`
	Subject   string    `json:"subject"`
	TaskID    *string   `json:"task_id"`
	SubtaskID *string   `json:"subtask_id"`
	Actor     string    `json:"actor"`
	Source    string    `json:"source"`
	RequestID *string   `json:"request_id"`
	Reverts   []string  `json:"reverts"`
	Entries   []Entry   `json:"entries"`
}

// Verified is what a verification of one workspace found.
type Verified struct {
	Workspace string   `json:"workspace"`
	Root      *string  `json:"root"`
	Head      *string  `json:"head"`
	Objects   int      `json:"objects"`
	Commits   int      `json:"commits"`
	Hashes    int      `json:"hashes"`
	Problems  []string `json:"problems"`
	Disk      string   `json:"disk"` // same, differs, missing, none
	Differs   []struct {
		Path     string `json:"path"`
		Encoding string `json:"path_encoding"`
		Reason   string `json:"reason"`
	} `json:"differs"`
}
