package blame

import (
	"crypto/sha256"
	"fmt"
	"net/http"
	"slices"

	"github.com/gin-gonic/gin"

	"umbra/gitstore/object"
	"umbra/httpapi"
	"umbra/httpapi/wire"
	"umbra/internal/blame"
	"umbra/internal/errs"
	"umbra/internal/task"
	"umbra/internal/wspath"
)

// traceType is the media type of an Agent Trace record (agent-trace.dev, 0.1.0).
const (
	traceType    = "application/vnd.agent-trace.record+json"
	traceVersion = "0.1.0"
)

type traceRecord struct {
	Version   string            `json:"version"`
	ID        string            `json:"id"`
	Timestamp string            `json:"timestamp"`
	VCS       traceVCS          `json:"vcs"`
	Tool      map[string]string `json:"tool"`
	Files     []traceFile       `json:"files"`
	Metadata  map[string]string `json:"metadata"`
}

type traceVCS struct {
	Type     string `json:"type"`
	Revision string `json:"revision"`
}

type traceFile struct {
	Path          string              `json:"path"`
	Conversations []traceConversation `json:"conversations"`
}

type traceConversation struct {
	Contributor traceContributor `json:"contributor"`
	Ranges      []traceRange     `json:"ranges"`
}

type traceContributor struct {
	Type  string `json:"type"`
	Model string `json:"model_id,omitempty"`
}

type traceRange struct {
	Start int `json:"start_line"`
	End   int `json:"end_line"`
}

// trace answers which lines of the files at a task's last commit are the task's.
func (d *Dialect) trace(c *gin.Context) error {
	id, err := httpapi.Param(c, "id")
	if err != nil {
		return err
	}
	if !task.ValidID(id) {
		return errs.New(errs.NotFound, "task_not_found", "There is no such task.")
	}
	ctx := c.Request.Context()
	r, err := d.tasks.Read(ctx, id, httpapi.CallerOf(c).Sees)
	if err != nil {
		return err
	}
	defer r.Release()
	t, err := d.history.Task(ctx, r.Workspace, id)
	if err != nil {
		return err
	}
	head, err := r.Store().ReadCommit(ctx, r.Task.Head)
	if err != nil {
		return err
	}
	agent := blame.Agent(r.Store(), id)
	sum := sha256.Sum256([]byte(id + " " + head.ID.String()))
	out := traceRecord{Version: traceVersion, ID: uuidOf(sum), Timestamp: wire.Stamp(head.When), VCS: traceVCS{"git", head.ID.String()},
		Tool: map[string]string{"name": "umbra"}, Files: []traceFile{}, Metadata: map[string]string{"task_id": id}}
	if agent != "" {
		out.Metadata["agent"] = agent
	}
	var paths []string
	for i := range t.Entries {
		e := &t.Entries[i]
		path := e.Path
		if e.NewPath != "" {
			path = e.NewPath
		}
		paths = append(paths, path)
	}
	slices.Sort(paths)
	for _, path := range slices.Compact(paths) {
		f, err := d.traceFile(c, r, head.ID, path, agent)
		if err != nil {
			return err
		}
		if len(f.Conversations) > 0 {
			out.Files = append(out.Files, f)
		}
	}
	body, err := httpapi.EncodeJSON(out)
	if err != nil {
		return err
	}
	c.Data(http.StatusOK, traceType, body)
	return nil
}

// traceFile returns the task's lines of one file, by model; none where the file is
// gone or not text.
func (d *Dialect) traceFile(c *gin.Context, r *task.Ref, at object.ID, path, agent string) (out traceFile, err error) {
	out.Path, _ = wspath.EncodeJSON(path)
	p, err := wspath.Parse(path)
	if err != nil {
		return out, nil // an empty directory's entry
	}
	a, err := d.blame.Lines(c.Request.Context(), r.Workspace, blame.Request{Path: p, At: at})
	if code := errs.CodeOf(err); err != nil && (code == "file_not_found" || code == "not_text") {
		return out, nil
	}
	if err != nil {
		return out, err
	}
	for i := range a.Ranges {
		x := &a.Ranges[i]
		if x.Task != r.Task.ID {
			continue
		}
		who := traceContributor{Type: "unknown", Model: x.Model}
		if agent != "" || x.Call != "" || x.Model != "" {
			who.Type = "ai"
		}
		k := slices.IndexFunc(out.Conversations, func(v traceConversation) bool { return v.Contributor == who })
		if k < 0 {
			k = len(out.Conversations)
			out.Conversations = append(out.Conversations, traceConversation{Contributor: who})
		}
		out.Conversations[k].Ranges = append(out.Conversations[k].Ranges, traceRange{x.Start, x.End})
	}
	return out, nil
}

// uuidOf makes a UUID of version 8 (RFC 9562) of a hash: the same record has the
// same id.
func uuidOf(sum [sha256.Size]byte) string {
	sum[6], sum[8] = sum[6]&0x0f|0x80, sum[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", sum[:4], sum[4:6], sum[6:8], sum[8:10], sum[10:16])
}
