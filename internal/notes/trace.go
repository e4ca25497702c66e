package notes

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"slices"
	"time"
	"unicode/utf8"

	"umbra/internal/buildinfo"
)

// TraceRef is the notes ref of Agent Trace records. The format leaves the place
// open; this one is in use.
const TraceRef = "refs/notes/agent-trace"

// TraceType is the media type of a record, TraceVersion that of its format.
const (
	TraceType    = "application/vnd.agent-trace.record+json"
	TraceVersion = "0.1.0"
)

// maxModel bounds a model's id, in characters (the format's schema).
const maxModel = 250

// Trace is an Agent Trace record.
type Trace struct {
	Version   string            `json:"version"`
	ID        string            `json:"id"`
	Timestamp string            `json:"timestamp"`
	VCS       TraceVCS          `json:"vcs"`
	Tool      map[string]string `json:"tool"`
	Files     []TraceFile       `json:"files"`
	Metadata  map[string]string `json:"metadata"`
}

// TraceVCS names the commit in which the lines are counted.
type TraceVCS struct {
	Type     string `json:"type"`
	Revision string `json:"revision"`
}

// TraceFile is a file of a record.
type TraceFile struct {
	Path          string              `json:"path"`
	Conversations []TraceConversation `json:"conversations"`
}

// TraceConversation are the lines of one contributor.
type TraceConversation struct {
	Contributor TraceContributor `json:"contributor"`
	Ranges      []TraceRange     `json:"ranges"`
}

// TraceContributor says what wrote the lines: "ai" or "unknown".
type TraceContributor struct {
	Type  string `json:"type"`
	Model string `json:"model_id,omitempty"`
}

// TraceRange is a run of lines from 1, both included.
type TraceRange struct {
	Start int `json:"start_line"`
	End   int `json:"end_line"`
}

// NewTrace makes a record without files. The seed makes its id: the same record has
// the same one.
func NewTrace(seed, revision string, when time.Time) *Trace {
	return &Trace{Version: TraceVersion, ID: uuidOf(sha256.Sum256([]byte(seed))), Timestamp: when.UTC().Format(time.RFC3339Nano),
		VCS: TraceVCS{"git", revision}, Tool: map[string]string{"name": "umbra", "version": buildinfo.Version()}, Files: []TraceFile{}, Metadata: map[string]string{}}
}

// Add adds lines to those of their contributor.
func (f *TraceFile) Add(ai bool, model string, start, end int) {
	who := TraceContributor{Type: "unknown", Model: model}
	if ai {
		who.Type = "ai"
	}
	if len([]rune(model)) > maxModel {
		who.Model = ""
	}
	k := slices.IndexFunc(f.Conversations, func(v TraceConversation) bool { return v.Contributor == who })
	if k < 0 {
		k = len(f.Conversations)
		f.Conversations = append(f.Conversations, TraceConversation{Contributor: who})
	}
	list := &f.Conversations[k].Ranges
	if n := len(*list); n > 0 && (*list)[n-1].End+1 == start {
		(*list)[n-1].End = end
		return
	}
	*list = append(*list, TraceRange{start, end})
}

// AgentTrace returns a commit's record. Lines of no task are left out, and files whose
// names are not UTF-8, since the format has no way to write them.
func AgentTrace(c *Commit) ([]byte, error) {
	out := NewTrace("commit "+c.ID, c.ID, c.When)
	tasks, agents := make(map[string]bool), make(map[string]bool)
	for i := range c.Files {
		f := TraceFile{Path: c.Files[i].Path}
		if !utf8.ValidString(f.Path) {
			continue
		}
		for _, r := range c.Files[i].Runs {
			if r.Writer.Task == "" {
				continue
			}
			f.Add(r.Writer.agentic(), r.Writer.Model, r.Start, r.End)
			tasks[r.Writer.Task] = true
			if r.Writer.Agent != "" {
				agents[r.Writer.Agent] = true
			}
		}
		if len(f.Conversations) > 0 {
			out.Files = append(out.Files, f)
		}
	}
	for key, set := range map[string]map[string]bool{"task_id": tasks, "agent": agents} {
		if len(set) == 1 {
			for v := range set {
				out.Metadata[key] = v
			}
		}
	}
	data, err := json.Marshal(out)
	return append(data, '\n'), err
}

// uuidOf makes a UUID of version 8 (RFC 9562) of a hash.
func uuidOf(sum [sha256.Size]byte) string {
	sum[6], sum[8] = sum[6]&0x0f|0x80, sum[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", sum[:4], sum[4:6], sum[6:8], sum[8:10], sum[10:16])
}
