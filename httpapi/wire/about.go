package wire

import (
	"context"

	"github.com/gin-gonic/gin"

	"umbra/httpapi"
	"umbra/internal/errs"
	"umbra/internal/task"
)

// AboutTask is for routes with the id of a task as {id}.
func AboutTask(tasks *task.Service) httpapi.About { return httpapi.AboutWhere("id", tasks.Where) }

// TaskVisible returns the Authorize of routes with a task's id: it refuses tasks on
// workspaces that the caller may not see.
func TaskVisible(s *task.Service) func(*gin.Context) error {
	return func(c *gin.Context) error {
		id, err := httpapi.Param(c, "id")
		if err != nil || id == "" {
			return nil
		}
		return s.Visible(id, httpapi.CallerOf(c).Sees)
	}
}

// OpenTask opens the route's task by Service.Get or Read; the caller releases it. The
// task of a route that changes something is the change's, and a header may not name
// another.
func OpenTask(c *gin.Context, open func(context.Context, string, task.Sees) (*task.Ref, error), changes bool) (*task.Ref, error) {
	id, err := httpapi.Param(c, "id")
	if err != nil {
		return nil, err
	}
	if tagged := httpapi.TagsOf(c).TaskID; changes && tagged != "" && tagged != id {
		return nil, errs.New(errs.Invalid, "task_id_mismatch", "X-Task-Id names another task than the URL.").With("field", "X-Task-Id")
	}
	if !task.ValidID(id) {
		return nil, errs.New(errs.NotFound, "task_not_found", "The task does not exist.")
	}
	return open(c.Request.Context(), id, httpapi.CallerOf(c).Sees)
}
