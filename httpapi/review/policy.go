package review

import (
	"net/http"

	"github.com/gin-gonic/gin"

	"umbra/httpapi"
	"umbra/httpapi/wire"
	"umbra/internal/errs"
	"umbra/internal/policy"
	"umbra/internal/policy/check"
	"umbra/internal/wspath"
)

// Bounds of a check.
const (
	maxChecked = 10_000 // paths that are named
	maxRefused = 1000   // refusals in an answer
)

type refusedBody struct {
	Path         string  `json:"path"`
	PathEncoding string  `json:"path_encoding,omitempty"`
	Rule         string  `json:"rule"`
	Detail       string  `json:"detail"`
	Secret       *string `json:"secret,omitempty"`
	Line         int     `json:"line,omitempty"`
}

// check says what the policy would refuse. It changes nothing; what is on disk is
// recorded first.
func (d *Dialect) check(c *gin.Context) error {
	id, err := httpapi.Param(c, "ws")
	if err != nil {
		return err
	}
	ctx, caller := c.Request.Context(), httpapi.CallerOf(c)
	rec, ok, err := d.workspaces.Lookup(id)
	if err != nil {
		return err
	}
	if !ok || !caller.Sees(rec.Place()) {
		return errs.New(errs.NotFound, "workspace_not_found", "The workspace does not exist.")
	}
	var body struct {
		Paths  []string `json:"paths"`
		TaskID *string  `json:"task_id"`
	}
	if err := httpapi.DecodeJSON(c, &body); err != nil {
		return err
	}
	if len(body.Paths) > maxChecked {
		return errs.New(errs.Unprocessable, "validation_failed", "paths has more than %d members.", maxChecked).With("field", "paths")
	}
	paths := make([]wspath.Path, len(body.Paths))
	for i, p := range body.Paths {
		if paths[i], err = wspath.Parse(p, wspath.AllowRoot, wspath.AllowTrailingSlash); err != nil {
			return err
		}
	}
	w, err := d.workspaces.Get(ctx, rec.ID)
	if err != nil {
		return err
	}
	defer w.Release()
	var own policy.Task
	if body.TaskID != nil {
		t, ok := w.Store().Task(*body.TaskID)
		if !ok {
			return errs.New(errs.NotFound, "task_not_found", "The task does not exist on this workspace.")
		}
		own = policy.TaskOf(t.Info.Extra)
	}
	if err := w.RecordThen(ctx, func() {}); err != nil && errs.CodeOf(err) != "workspace_missing" {
		return err
	}
	res, err := check.Paths(ctx, w, own, paths, maxRefused)
	if err != nil {
		return err
	}
	out := make([]refusedBody, len(res.Refused))
	for i, x := range res.Refused {
		out[i] = refusedBody{Rule: x.Rule, Detail: x.Detail, Secret: wire.Text(x.Secret), Line: x.Line}
		out[i].Path, out[i].PathEncoding = wspath.EncodeJSON(x.Path)
	}
	httpapi.JSON(c, http.StatusOK, map[string]any{"checked": res.Checked, "refused": out, "more": res.More})
	return nil
}
