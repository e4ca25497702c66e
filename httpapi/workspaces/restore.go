package workspaces

import (
	"net/http"

	"github.com/gin-gonic/gin"

	"umbra/httpapi"
	"umbra/httpapi/wire"
	"umbra/internal/checkpoint"
	"umbra/internal/errs"
	"umbra/internal/restore"
	"umbra/internal/workspace"
	"umbra/internal/wspath"
)

type restoredFile struct {
	Path         string         `json:"path"`
	PathEncoding string         `json:"path_encoding,omitempty"`
	Action       restore.Action `json:"action"`
}

// restorePaths brings files and directories back to their state at a commit.
func (d *Dialect) restorePaths(c *gin.Context) error {
	var body struct {
		To           *string  `json:"to"`
		Paths        []string `json:"paths" null:"refused"`
		PathEncoding string   `json:"path_encoding"`
		TaskID       *string  `json:"task_id"`
		DryRun       bool     `json:"dry_run" null:"refused"`
		Plan         *string  `json:"plan"`
	}
	if _, err := d.id(c); err != nil { // before what the caller may do
		return err
	}
	if err := httpapi.DecodeJSON(c, &body); err != nil {
		return err
	}
	if !body.DryRun {
		if err := httpapi.NeedWrite(c); err != nil {
			return err
		}
	}
	switch {
	case body.To == nil:
		return errs.New(errs.Unprocessable, "validation_failed", "to is required: a commit's id, which may be abbreviated.").With("field", "to")
	case body.Paths != nil && len(body.Paths) == 0 || len(body.Paths) > maxSelected:
		return errs.New(errs.Unprocessable, "validation_failed", "paths must have 1 to %d members.", maxSelected).With("field", "paths")
	case body.Paths == nil && !body.DryRun && body.Plan == nil:
		return errs.New(errs.Conflict, "plan_required", "To restore everything, ask with dry_run first, and give the plan that it answers.").With("field", "plan")
	}
	key, err := wire.KeyHash(c)
	if err != nil {
		return err
	}
	req := restore.Request{By: wire.By(c, key), DryRun: body.DryRun}
	if body.Plan != nil {
		if req.Plan = *body.Plan; req.Plan == "" {
			return errs.New(errs.Invalid, "invalid_plan", "plan must be the token of a dry run.").With("field", "plan")
		}
	}
	for _, raw := range body.Paths {
		p, err := wspath.FromJSON(raw, body.PathEncoding, wspath.AllowTrailingSlash)
		if err != nil {
			return err
		}
		req.Paths = append(req.Paths, p)
	}
	if body.Paths == nil {
		req.Paths = []wspath.Path{wspath.Root}
	}
	return d.using(c, func(w *workspace.Workspace) error {
		ctx := c.Request.Context()
		var err error
		if req.Commit, err = checkpoint.Resolve(ctx, w, *body.To); err != nil {
			return err
		}
		may, release, err := d.tagged(c, w, body.TaskID, &req.By)
		if err != nil {
			return err
		}
		defer release()
		if !req.DryRun {
			req.May = may
		}
		res, err := restore.Do(ctx, w, req)
		if err != nil {
			return err
		}
		wire.SettleKey(c, res.Replayed, !res.Commit.IsZero())
		files := make([]restoredFile, len(res.Files))
		for i, f := range res.Files {
			files[i].Action = f.Action
			files[i].Path, files[i].PathEncoding = wspath.EncodeJSON(f.Path)
		}
		out := map[string]any{"commit": nil, "files": files, "dry_run": req.DryRun, "plan": wire.Text(res.Plan)}
		if !res.Commit.IsZero() {
			out["commit"] = res.Commit.String()
		}
		if req.DryRun {
			out["others"], out["others_more"] = wire.EntriesOf(res.Others), res.More
		}
		httpapi.JSON(c, http.StatusOK, out)
		return nil
	})
}
