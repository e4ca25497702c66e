package blame

import (
	"net/http"
	"slices"
	"unicode/utf8"

	"github.com/gin-gonic/gin"

	"umbra/gitstore/object"
	"umbra/httpapi"
	"umbra/httpapi/wire"
	"umbra/internal/blame"
	"umbra/internal/errs"
	"umbra/internal/notes"
	"umbra/internal/task"
	"umbra/internal/wspath"
)

// trace answers which lines of the files at a task's last commit are the task's.
func (d *Dialect) trace(c *gin.Context) error {
	r, err := wire.OpenTask(c, d.tasks.Read, false)
	if err != nil {
		return err
	}
	defer r.Release()
	ctx, id := c.Request.Context(), r.Task.ID
	t, err := d.history.Task(ctx, r.Workspace, id)
	if err != nil {
		return err
	}
	head, err := r.Store().ReadCommit(ctx, r.Task.Head)
	if err != nil {
		return err
	}
	agent := blame.Agent(r.Store(), id)
	out := notes.NewTrace(id+" "+head.ID.String(), head.ID.String(), head.When)
	out.Metadata["task_id"] = id
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
	c.Data(http.StatusOK, notes.TraceType, body)
	return nil
}

// traceFile returns the task's lines of one file, by model; none where the file is gone or
// not text, or its name is not UTF-8.
func (d *Dialect) traceFile(c *gin.Context, r *task.Ref, at object.ID, path, agent string) (out notes.TraceFile, err error) {
	out.Path = path
	p, err := wspath.Parse(path)
	if err != nil || !utf8.ValidString(path) {
		return out, nil // or an empty directory's entry
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
		out.Add(agent != "" || x.Call != "" || x.Model != "", x.Model, x.Start, x.End)
	}
	return out, nil
}
