package tasks

import (
	"net/http"
	"strconv"

	"github.com/gin-gonic/gin"

	"umbra/httpapi"
	"umbra/httpapi/wire"
	"umbra/internal/errs"
	"umbra/internal/revert"
	"umbra/internal/task"
	"umbra/internal/wspath"
)

type revertBody struct {
	Path            *string `json:"path"`
	PathEncoding    string  `json:"path_encoding"`
	OnConflict      *string `json:"on_conflict"`
	IncludeExternal *bool   `json:"include_external"`
	DryRun          bool    `json:"dry_run"`
	Plan            *string `json:"plan"`
	SubtaskID       *string `json:"subtask_id"`
}

type revertFile struct {
	Path         string        `json:"path"`
	PathEncoding string        `json:"path_encoding,omitempty"`
	Action       revert.Action `json:"action"`
	Source       string        `json:"source"`
}

type changedBy struct {
	Commit    *string `json:"commit"`
	TaskID    *string `json:"task_id"`
	SubtaskID *string `json:"subtask_id"`
	Actor     *string `json:"actor"`
}

type conflict struct {
	Path         string    `json:"path"`
	PathEncoding string    `json:"path_encoding,omitempty"`
	Reason       string    `json:"reason"`
	Entry        uint64    `json:"entry"`
	ChangedBy    changedBy `json:"changed_by"`
}

type revertAnswer struct {
	Commit    *string      `json:"commit"`
	Reverted  int          `json:"entries_reverted"`
	Files     []revertFile `json:"files"`
	Conflicts []conflict   `json:"conflicts"`
	DryRun    bool         `json:"dry_run"`
	Plan      *string      `json:"plan"`
}

func (d *Dialect) revertTask(c *gin.Context) error { return d.revert(c, revert.Scope{}) }

func (d *Dialect) revertFile(c *gin.Context) error {
	raw, err := httpapi.Param(c, "path")
	if err != nil {
		return err
	}
	p, err := wspath.Parse(raw, wspath.AllowTrailingSlash)
	if err != nil {
		return err
	}
	return d.revert(c, revert.Scope{Path: string(p)})
}

func (d *Dialect) revertSubtask(c *gin.Context) error {
	sub, err := httpapi.Param(c, "sid")
	if err != nil {
		return err
	}
	if !task.ValidID(sub) {
		return errs.New(errs.NotFound, "subtask_not_found", "The task has no subtask of that name.")
	}
	return d.revert(c, revert.Scope{Subtask: sub})
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
	return d.revert(c, revert.Scope{Change: n})
}

func (d *Dialect) revert(c *gin.Context, scope revert.Scope) error {
	var body revertBody
	if err := httpapi.DecodeJSON(c, &body); err != nil {
		return err
	}
	if !body.DryRun {
		if err := httpapi.NeedWrite(c); err != nil {
			return err
		}
	}
	req, err := revertRequest(c, scope, &body)
	if err != nil {
		return err
	}
	return using(d.openForChange, func(c *gin.Context, r *task.Ref) error {
		req.Task = r.Task.ID
		res, err := revert.Do(c, r.Workspace, d.history, *req)
		if errs.CodeOf(err) == "revert_conflict" && res != nil {
			e := errs.New(errs.Conflict, "revert_conflict", "Something else changed the same places since; nothing was changed.")
			return e.With("conflicts", conflictsOf(res.Conflicts))
		}
		if err != nil {
			return err
		}
		settleKey(c, res.Replayed, !res.Commit.IsZero())
		httpapi.JSON(c, http.StatusOK, revertAnswerOf(res, req.DryRun))
		return nil
	})(c)
}

func revertRequest(c *gin.Context, scope revert.Scope, body *revertBody) (*revert.Request, error) {
	key, err := keyHash(c)
	if err != nil {
		return nil, err
	}
	req := &revert.Request{By: by(c, key), Scope: scope, DryRun: body.DryRun}
	if body.Path != nil {
		if scope != (revert.Scope{}) {
			return nil, errs.New(errs.Invalid, "invalid_field", "The URL says already what is to be reverted.").With("field", "path")
		}
		p, err := wspath.FromJSON(*body.Path, body.PathEncoding, wspath.AllowTrailingSlash)
		if err != nil {
			return nil, err
		}
		req.Scope.Path = string(p)
	}
	if body.OnConflict != nil {
		switch req.OnConflict = revert.OnConflict(*body.OnConflict); req.OnConflict {
		case revert.Force, revert.Skip:
		case "fail":
			req.OnConflict = revert.Fail
		default:
			return nil, errs.New(errs.Invalid, "invalid_field", "on_conflict must be \"fail\", \"force\" or \"skip\".").With("field", "on_conflict")
		}
	}
	req.ExcludeExternal = body.IncludeExternal != nil && !*body.IncludeExternal
	if body.Plan != nil {
		if req.Plan = *body.Plan; req.Plan == "" {
			return nil, errs.New(errs.Invalid, "invalid_plan", "That is no plan's token.").With("field", "plan")
		}
	}
	if body.SubtaskID != nil {
		if !task.ValidID(*body.SubtaskID) {
			return nil, invalidID("subtask_id")
		}
		req.By.SubtaskID = *body.SubtaskID
	}
	return req, nil
}

func revertAnswerOf(res *revert.Result, dry bool) revertAnswer {
	out := revertAnswer{Reverted: res.Reverted, Files: make([]revertFile, len(res.Files)), Conflicts: conflictsOf(res.Conflicts), DryRun: dry,
		Plan: wire.Text(res.Plan)}
	if !res.Commit.IsZero() {
		id := res.Commit.String()
		out.Commit = &id
	}
	for i, f := range res.Files {
		out.Files[i] = revertFile{Action: f.Action, Source: f.Source}
		out.Files[i].Path, out.Files[i].PathEncoding = wspath.EncodeJSON(f.Path)
	}
	return out
}

func conflictsOf(list []revert.Conflict) []conflict {
	out := make([]conflict, len(list))
	for i, x := range list {
		out[i] = conflict{Reason: x.Reason, Entry: x.Entry}
		out[i].Path, out[i].PathEncoding = wspath.EncodeJSON(x.Path)
		if !x.By.Commit.IsZero() {
			id := x.By.Commit.String()
			out[i].ChangedBy = changedBy{Commit: &id, TaskID: wire.Text(x.By.Task), SubtaskID: wire.Text(x.By.Subtask), Actor: wire.Text(x.By.Actor)}
		}
	}
	return out
}
