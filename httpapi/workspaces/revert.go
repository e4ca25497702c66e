package workspaces

import (
	"github.com/gin-gonic/gin"

	"umbra/gitstore/message"
	"umbra/httpapi"
	"umbra/httpapi/wire"
	"umbra/internal/errs"
	"umbra/internal/history"
	"umbra/internal/revert"
	"umbra/internal/task"
	"umbra/internal/workspace"
	"umbra/internal/wspath"
)

// maxSelected bounds the paths of one revert.
const maxSelected = 10_000

// revertCommit undoes one commit, of whatever source.
func (d *Dialect) revertCommit(c *gin.Context) error {
	var body struct {
		wire.Revert
		TaskID *string `json:"task_id"`
	}
	if _, err := d.id(c); err != nil { // before what the caller may do
		return err
	}
	if err := wire.DecodeRevert(c, &body, &body.Revert); err != nil {
		return err
	}
	name, err := httpapi.Param(c, "commit")
	if err != nil {
		return err
	}
	return d.using(c, func(w *workspace.Workspace) error {
		found, err := history.Find(c.Request.Context(), w.Store(), name)
		if err != nil {
			return err
		}
		scope := revert.Scope{Commit: &revert.Commit{ID: found.ID.String()[:12], Seq: found.Seq, Source: found.Message.Source}}
		own := ""
		if found.Message.Source == message.Revert {
			own = found.Message.TaskID
		}
		return d.revert(c, w, scope, &body.Revert, body.TaskID, own)
	})
}

// revertWhere undoes what a condition selects.
func (d *Dialect) revertWhere(c *gin.Context) error {
	var body struct {
		wire.Revert
		TaskID       *string  `json:"task_id"`
		Actor        *string  `json:"actor" null:"refused"`
		Agent        *string  `json:"agent" null:"refused"`
		Source       *string  `json:"source" null:"refused"`
		Since        *string  `json:"since" null:"refused"`
		Until        *string  `json:"until" null:"refused"`
		Paths        []string `json:"paths" null:"refused"`
		PathEncoding string   `json:"path_encoding"`
	}
	if _, err := d.id(c); err != nil { // before what the caller may do
		return err
	}
	if err := wire.DecodeRevert(c, &body, &body.Revert); err != nil {
		return err
	}
	if body.Actor == nil && body.Agent == nil && body.Source == nil && body.Since == nil && body.Until == nil && len(body.Paths) == 0 {
		return errs.New(errs.Unprocessable, "validation_failed", "At least one of actor, agent, source, since, until and paths is required.").With("field", "actor")
	}
	var err error
	where := &revert.Where{}
	for _, x := range []struct {
		name string
		from *string
		to   *string
	}{{"actor", body.Actor, &where.Actor}, {"agent", body.Agent, &where.Agent}} {
		if x.from == nil {
			continue
		}
		if !httpapi.ValidActor(*x.from) {
			return errs.New(errs.Invalid, "invalid_field", "%s must be 1 to 128 printable characters without < and >.", x.name).With("field", x.name)
		}
		*x.to = *x.from
	}
	if body.Source != nil {
		if where.Source = message.Source(*body.Source); !where.Source.Valid() {
			return errs.New(errs.Invalid, "invalid_field", "source must be api, script, external, revert or another source of the changelog.").With("field", "source")
		}
	}
	if where.Since, err = wire.Time("since", body.Since); err != nil {
		return err
	}
	if where.Until, err = wire.Time("until", body.Until); err != nil {
		return err
	}
	if body.Since != nil && body.Until != nil && !where.Since.Before(where.Until) {
		return errs.New(errs.Invalid, "invalid_field", "since must be before until.").With("field", "since")
	}
	if len(body.Paths) > maxSelected {
		return errs.New(errs.Unprocessable, "validation_failed", "paths has more than %d members.", maxSelected).With("field", "paths")
	}
	for _, raw := range body.Paths {
		p, err := wspath.FromJSON(raw, body.PathEncoding, wspath.AllowTrailingSlash)
		if err != nil {
			return err
		}
		where.Paths = append(where.Paths, string(p))
	}
	return d.using(c, func(w *workspace.Workspace) error {
		return d.revert(c, w, revert.Scope{Where: where}, &body.Revert, body.TaskID, "")
	})
}

// revert carries out what body asks for. The revert belongs to a task if the
// body or the headers name one, which must take changes. Only the task own need not:
// it has the revert that is undone, and an ended task may be reverted.
func (d *Dialect) revert(c *gin.Context, w *workspace.Workspace, scope revert.Scope, body *wire.Revert, taskID *string, own string) error {
	req, err := body.Request(c, scope)
	if err != nil {
		return err
	}
	may, release, err := d.tagged(c, w, taskID, &req.By)
	if err != nil {
		return err
	}
	defer release()
	if !req.DryRun && (own == "" || req.By.TaskID != own) {
		req.May = may
	}
	res, err := revert.Do(c.Request.Context(), w, d.history, *req)
	return wire.AnswerRevert(c, req, res, err)
}

// tagged settles which task a change of the workspace belongs to: that of the
// body or the header, else none. may reports whether it takes changes.
func (d *Dialect) tagged(c *gin.Context, w *workspace.Workspace, taskID *string, by *workspace.By) (may func() error, release func(), err error) {
	id := httpapi.TagsOf(c).TaskID
	if taskID != nil {
		if !task.ValidID(*taskID) {
			return nil, nil, errs.New(errs.Invalid, "invalid_task_id", "task_id is not a valid task id.").With("field", "task_id")
		}
		if id != "" && id != *taskID {
			return nil, nil, errs.New(errs.Invalid, "task_id_mismatch", "X-Task-Id names another task than task_id.").With("field", "task_id")
		}
		id = *taskID
	}
	if id == "" {
		return nil, func() {}, nil
	}
	ref, err := d.tasks.Get(c.Request.Context(), id, httpapi.CallerOf(c).Sees)
	if err != nil {
		return nil, nil, err
	}
	if ref.ID() != w.ID() {
		ref.Release()
		return nil, nil, errs.New(errs.Conflict, "task_other_workspace", "The task is on another workspace.").With("task_id", id)
	}
	by.TaskID = id
	return func() error { return d.tasks.MayWrite(ref) }, ref.Release, nil
}
