package tasks

import (
	"net/http"

	"github.com/gin-gonic/gin"

	"umbra/httpapi"
	"umbra/httpapi/wire"
	"umbra/internal/history"
	"umbra/internal/task"
	"umbra/internal/wspath"
)

// summaryFile is one line of the changed-files summary.
type summaryFile struct {
	Path         string         `json:"path"`
	PathEncoding string         `json:"path_encoding,omitempty"`
	From         *string        `json:"from,omitempty"`
	FromEncoding string         `json:"from_encoding,omitempty"`
	Status       history.Status `json:"status"`
	Additions    int            `json:"additions"`
	Deletions    int            `json:"deletions"`
	Binary       bool           `json:"binary"`
	Before       *string        `json:"before"`
	After        *string        `json:"after"`
	Mixed        bool           `json:"mixed"`
	Shared       bool           `json:"shared"`
	Subtasks     []string       `json:"subtasks"`
}

type summaryRename struct {
	From         string `json:"from"`
	FromEncoding string `json:"from_encoding,omitempty"`
	To           string `json:"to"`
	ToEncoding   string `json:"to_encoding,omitempty"`
	Modified     bool   `json:"modified"`
}

type summaryBody struct {
	TaskID   string          `json:"task_id"`
	Created  []string        `json:"created"`
	Modified []string        `json:"modified"`
	Deleted  []string        `json:"deleted"`
	Renamed  []summaryRename `json:"renamed"`
	Files    []summaryFile   `json:"files"`
}

// summary gives what the task's work comes to, or that of the one subtask that
// the request names.
func (d *Dialect) summary(c *gin.Context, r *task.Ref) (*history.Summary, error) {
	sub, given, err := httpapi.Query(c, "subtask_id")
	switch {
	case err != nil:
		return nil, err
	case !given:
		return d.history.Summary(c.Request.Context(), r.Workspace, r.Task.ID)
	case !task.ValidID(sub):
		return nil, invalidID("subtask_id")
	}
	return d.history.SubtaskSummary(c.Request.Context(), r.Workspace, r.Task.ID, sub)
}

func (d *Dialect) files(c *gin.Context) error {
	return using(d.openToRead, func(c *gin.Context, r *task.Ref) error {
		encode := func(sum *history.Summary) ([]byte, error) { return httpapi.EncodeJSON(summaryOf(r.Task.ID, sum)) }
		var body []byte
		if _, given, err := httpapi.Query(c, "subtask_id"); err != nil {
			return err
		} else if given {
			sum, err := d.summary(c, r)
			if err != nil {
				return err
			}
			if body, err = encode(sum); err != nil {
				return err
			}
		} else if body, err = d.history.Encoded(c.Request.Context(), r.Workspace, r.Task.ID, encode); err != nil {
			return err
		}
		httpapi.WriteJSON(c, http.StatusOK, body)
		return nil
	})(c)
}

func summaryOf(id string, sum *history.Summary) summaryBody {
	body := summaryBody{TaskID: id, Created: []string{}, Modified: []string{}, Deleted: []string{},
		Renamed: []summaryRename{}, Files: make([]summaryFile, len(sum.Files))}
	for i := range sum.Files {
		f := &sum.Files[i]
		w := &body.Files[i]
		*w = summaryFile{Status: f.Status, Additions: f.Additions, Deletions: f.Deletions, Binary: f.Binary, Mixed: f.Mixed, Shared: f.Shared,
			Before: wire.Snapshot(f.Before.ID), After: wire.Snapshot(f.After.ID), Subtasks: f.Subtasks}
		if w.Subtasks == nil {
			w.Subtasks = []string{}
		}
		w.Path, w.PathEncoding = wspath.EncodeJSON(f.Path)
		switch f.Status {
		case history.Created:
			body.Created = append(body.Created, w.Path)
		case history.Modified:
			body.Modified = append(body.Modified, w.Path)
		case history.Deleted:
			body.Deleted = append(body.Deleted, w.Path)
		case history.Renamed:
			from, enc := wspath.EncodeJSON(f.From)
			w.From, w.FromEncoding = &from, enc
			body.Renamed = append(body.Renamed, summaryRename{From: from, FromEncoding: enc, To: w.Path, ToEncoding: w.PathEncoding,
				Modified: !f.Before.Same(f.After)})
		}
	}
	return body
}
