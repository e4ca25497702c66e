package tasks

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"net/http"

	"github.com/gin-gonic/gin"

	"umbra/httpapi"
	"umbra/httpapi/wire"
	"umbra/internal/errs"
	"umbra/internal/task"
	"umbra/internal/workspaces"
)

type createBody struct {
	Goal      string `json:"goal"`
	Workspace string `json:"workspace"`
	// WorkspaceID names a known workspace of any kind, in place of workspace.
	WorkspaceID *string `json:"workspace_id"`
	TaskID      *string `json:"task_id"`
	// Only and Allow are patterns as in .gitignore.
	Only      []string        `json:"only"`
	Allow     []string        `json:"allow"`
	Hold      bool            `json:"hold"`
	Kind      *string         `json:"kind"`
	Namespace []string        `json:"namespace"`
	Metadata  json.RawMessage `json:"metadata"`
	Force     bool            `json:"force"`
}

func (d *Dialect) create(c *gin.Context) error {
	var body createBody
	if err := httpapi.DecodeJSON(c, &body); err != nil {
		return err
	}
	if body.Kind != nil && *body.Kind != workspaces.PhysicalKind && *body.Kind != workspaces.VirtualKind {
		return errs.New(errs.Unprocessable, "validation_failed", "kind must be \"physical\" or \"virtual\".").With("field", "kind")
	}
	o := task.CreateOptions{Goal: body.Goal, Root: body.Workspace, Metadata: notNull(body.Metadata), Force: body.Force, Namespace: body.Namespace, Only: body.Only, AllowPaths: body.Allow, Hold: body.Hold,
		Virtual: body.Kind != nil && *body.Kind == workspaces.VirtualKind, Sees: sees(c),
		Actor: httpapi.TagsOf(c).Actor, RequestID: httpapi.RequestID(c), Allow: httpapi.CallerOf(c).MayOpen}
	if body.TaskID != nil {
		if !task.ValidID(*body.TaskID) {
			return invalidID("task_id")
		}
		o.ID = *body.TaskID
	}
	var err error
	if o.IdempotencyKey, err = wire.KeyHash(c); err != nil {
		return err
	}
	made, err := d.createAs(c, &body, o)
	if err != nil {
		return err
	}
	defer made.Release()
	wire.SettleKey(c, made.Replayed, true)
	v, err := d.tasks.View(c.Request.Context(), made.Ref)
	if err != nil {
		return err
	}
	v.Warnings = union(v.Warnings, made.Warnings)
	c.Header("Location", "/tasks/"+v.ID)
	httpapi.JSON(c, http.StatusCreated, wire.TaskOf(v))
	return nil
}

// aboutNew is a new task's place: the workspace of an id, a namespace or a directory
// that exists.
func (d *Dialect) aboutNew(c *gin.Context) (httpapi.Place, error) {
	var body struct {
		Workspace   string   `json:"workspace"`
		WorkspaceID string   `json:"workspace_id"`
		Namespace   []string `json:"namespace"`
	}
	if !httpapi.PeekJSON(c, &body) {
		return httpapi.Place{}, nil // the handler says what is wrong with it
	}
	ws, err := d.tasks.WhereNew(cmp.Or(body.WorkspaceID, body.Workspace), body.Namespace)
	if ws != "" || err != nil || body.Workspace == "" {
		return httpapi.Place{Workspace: ws}, err
	}
	return httpapi.AtDirectory(c, d.tasks.DirectoryAt, body.Workspace)
}

// createAs starts a task on a directory, a namespace, or the workspace of an id,
// which may also be in place of the directory.
func (d *Dialect) createAs(c *gin.Context, body *createBody, o task.CreateOptions) (*task.Made, error) {
	id := ""
	if body.WorkspaceID != nil {
		if id = *body.WorkspaceID; body.Workspace != "" || body.Namespace != nil {
			return nil, errs.New(errs.Unprocessable, "validation_failed", "workspace_id excludes workspace and namespace.").With("field", "workspace_id")
		}
	} else if _, known := d.tasks.Workspace(body.Workspace, o.Sees); known {
		id = body.Workspace
	}
	if id == "" && body.WorkspaceID == nil {
		return d.tasks.Create(c.Request.Context(), o)
	}
	rec, known := d.tasks.Workspace(id, o.Sees)
	if !known {
		return nil, errs.New(errs.NotFound, "workspace_not_found", "The workspace does not exist.").With("field", "workspace_id")
	}
	if body.Kind != nil && *body.Kind != rec.Kind {
		return nil, errs.New(errs.Unprocessable, "validation_failed", "kind is not that of the workspace.").With("field", "kind")
	}
	return d.tasks.CreateOf(c.Request.Context(), rec.ID, o)
}

// union adds to a list what it does not have yet.
func union(list, more []string) []string {
	seen := make(map[string]bool, len(list)+len(more))
	var out []string
	for _, l := range [][]string{list, more} {
		for _, s := range l {
			if !seen[s] {
				seen[s] = true
				out = append(out, s)
			}
		}
	}
	return out
}

func notNull(m json.RawMessage) json.RawMessage {
	if bytes.Equal(bytes.TrimSpace(m), []byte("null")) {
		return nil
	}
	return m
}

func invalidID(field string) error {
	return errs.New(errs.Invalid, "invalid_"+field, "%s must be 1 to 128 letters, digits, dots, underscores or hyphens, begin with a letter or digit, be without \"..\" and not end in \".lock\".", field).With("field", field)
}

const (
	tasksLimit    = 100
	tasksLimitMax = 1000
)

func (d *Dialect) list(c *gin.Context) error {
	if ids := httpapi.Part(c); ids != nil {
		return httpapi.ServePart(c, ids, d.tasks.Where, d.viewer(c))
	}
	q := task.Query{Sees: sees(c)}
	status, given, err := httpapi.Query(c, "status")
	if err != nil {
		return err
	}
	if given {
		st, ok := task.ParseStatus(status)
		if !ok {
			return errs.New(errs.Invalid, "invalid_parameter", "status must be executing, paused, completed, failed or cancelled.").With("field", "status")
		}
		q.Status = st
	}
	if q.Workspace, _, err = httpapi.Query(c, "workspace"); err != nil {
		return err
	}
	if q.After, _, err = httpapi.Query(c, "after"); err != nil {
		return err
	}
	limit, err := httpapi.QueryInt(c, "limit", tasksLimit, 1, tasksLimitMax)
	if err != nil {
		return err
	}
	q.Limit = int(limit)
	page, err := d.tasks.List(c.Request.Context(), q)
	if err != nil {
		return err
	}
	of := make([]httpapi.Piece, len(page.Tasks))
	for i, rec := range page.Tasks {
		of[i] = httpapi.Piece{ID: rec.ID, Workspace: rec.Workspace}
	}
	out, err := httpapi.Gather(c, of, d.viewer(c))
	if err != nil {
		return err
	}
	httpapi.JSON(c, http.StatusOK, map[string]any{"tasks": out, "next": wire.Text(page.Next)})
	return nil
}

// viewer makes a list's entries.
func (d *Dialect) viewer(c *gin.Context) httpapi.Entry {
	may := sees(c)
	return func(ctx context.Context, id string) (any, error) {
		r, err := d.tasks.Get(ctx, id, may)
		if err != nil {
			return nil, err
		}
		defer r.Release()
		v, err := d.tasks.View(ctx, r)
		if err != nil {
			return nil, err
		}
		return wire.TaskOf(v), nil
	}
}

func (d *Dialect) get(c *gin.Context) error {
	return using(d.open, func(c *gin.Context, r *task.Ref) error { return d.respondTask(c, r) })(c)
}

func (d *Dialect) respondTask(c *gin.Context, r *task.Ref) error {
	v, err := d.tasks.View(c.Request.Context(), r)
	if err != nil {
		return err
	}
	httpapi.JSON(c, http.StatusOK, wire.TaskOf(v))
	return nil
}

type patchBody struct {
	Status   *string         `json:"status"`
	Goal     *string         `json:"goal"`
	Metadata json.RawMessage `json:"metadata"`
	Pinned   *bool           `json:"pinned"`
}

func (d *Dialect) patch(c *gin.Context) error {
	return using(d.open, func(c *gin.Context, r *task.Ref) error {
		var body patchBody
		if err := httpapi.DecodeJSON(c, &body); err != nil {
			return err
		}
		p := task.Patch{Goal: body.Goal, Metadata: notNull(body.Metadata), Pinned: body.Pinned}
		if body.Status != nil {
			st, ok := task.ParseStatus(*body.Status)
			if !ok {
				return errs.New(errs.Unprocessable, "validation_failed", "status must be executing, paused, completed, failed or cancelled.").With("field", "status")
			}
			p.Status = &st
		}
		if err := d.tasks.Patch(c.Request.Context(), r, p, httpapi.RequestID(c)); err != nil {
			return err
		}
		return d.respondTask(c, r)
	})(c)
}

func (d *Dialect) remove(c *gin.Context) error {
	return using(d.open, func(c *gin.Context, r *task.Ref) error {
		if err := d.tasks.Delete(c.Request.Context(), r, httpapi.RequestID(c)); err != nil {
			return err
		}
		noContent(c)
		return nil
	})(c)
}
