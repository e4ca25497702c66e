package tasks

import (
	"strconv"

	"github.com/gin-gonic/gin"

	"umbra/httpapi"
	"umbra/httpapi/wire"
	"umbra/internal/errs"
	"umbra/internal/revert"
	"umbra/internal/task"
	"umbra/internal/wspath"
)

// revertTask reverts a whole task, or with a path in the body one file of it.
func (d *Dialect) revertTask(c *gin.Context) error {
	var body struct {
		wire.Revert
		Path         *string `json:"path" null:"refused"`
		PathEncoding string  `json:"path_encoding"`
	}
	if err := wire.DecodeRevert(c, &body, &body.Revert); err != nil {
		return err
	}
	scope := revert.Scope{}
	if body.Path != nil {
		p, err := wspath.FromJSON(*body.Path, body.PathEncoding, wspath.AllowTrailingSlash)
		if err != nil {
			return err
		}
		scope.Path = string(p)
	}
	return d.revert(c, scope, &body.Revert)
}

func (d *Dialect) revertFile(c *gin.Context) error {
	raw, err := httpapi.Param(c, "path")
	if err != nil {
		return err
	}
	p, err := wspath.Parse(raw, wspath.AllowTrailingSlash)
	if err != nil {
		return err
	}
	return d.revertPart(c, revert.Scope{Path: string(p)})
}

func (d *Dialect) revertSubtask(c *gin.Context) error {
	sub, err := httpapi.Param(c, "sid")
	if err != nil {
		return err
	}
	if !task.ValidID(sub) {
		return errs.New(errs.NotFound, "subtask_not_found", "The task has no subtask of that name.")
	}
	return d.revertPart(c, revert.Scope{Subtask: sub})
}

func (d *Dialect) revertChange(c *gin.Context) error {
	raw, err := httpapi.Param(c, "n")
	if err != nil {
		return err
	}
	n, err := strconv.ParseUint(raw, 10, 63)
	if err != nil || n == 0 {
		return errs.New(errs.NotFound, "change_not_found", "The task has no such change.")
	}
	return d.revertPart(c, revert.Scope{Change: n})
}

// revertPart reverts what the URL names.
func (d *Dialect) revertPart(c *gin.Context, scope revert.Scope) error {
	var body struct{ wire.Revert }
	if err := wire.DecodeRevert(c, &body, &body.Revert); err != nil {
		return err
	}
	return d.revert(c, scope, &body.Revert)
}

func (d *Dialect) revert(c *gin.Context, scope revert.Scope, body *wire.Revert) error {
	req, err := body.Request(c, scope)
	if err != nil {
		return err
	}
	return using(d.openForChange, func(c *gin.Context, r *task.Ref) error {
		req.Task = r.Task.ID
		res, err := revert.Do(c.Request.Context(), r.Workspace, d.history, *req)
		return wire.AnswerRevert(c, req, res, err)
	})(c)
}
