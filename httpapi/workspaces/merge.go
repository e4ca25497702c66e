package workspaces

import (
	"errors"
	"net/http"
	"strings"

	"github.com/gin-gonic/gin"

	"umbra/gitstore/diff"
	"umbra/httpapi"
	"umbra/httpapi/wire"
	"umbra/internal/errs"
	"umbra/internal/fork"
	"umbra/internal/merge"
	"umbra/internal/task"
	"umbra/internal/workspace"
	"umbra/internal/workspaces"
	"umbra/internal/wspath"
)

type mergeBody struct {
	Into         *string  `json:"into"`
	Tasks        []string `json:"tasks" null:"refused"`
	Subtasks     []string `json:"subtasks" null:"refused"`
	Paths        []string `json:"paths" null:"refused"`
	Hunks        []string `json:"hunks" null:"refused"`
	PathEncoding string   `json:"path_encoding"`
	As           *string  `json:"as"`
	TaskID       *string  `json:"task_id"`
	Again        bool     `json:"again"`
	DryRun       bool     `json:"dry_run" null:"refused"`
	Plan         *string  `json:"plan"`
	OnConflict   *string  `json:"on_conflict"`
}

type mergeWho struct {
	Commit    *string `json:"commit"`
	TaskID    *string `json:"task_id"`
	SubtaskID *string `json:"subtask_id"`
	Actor     *string `json:"actor"`
	Source    *string `json:"source"`
	At        *string `json:"at"`
}

type mergeConflict struct {
	Path         string    `json:"path"`
	PathEncoding string    `json:"path_encoding,omitempty"`
	Here         string    `json:"here,omitempty"`
	HereEncoding string    `json:"here_encoding,omitempty"`
	Reason       string    `json:"reason"`
	Ours         *mergeWho `json:"ours"`
	Theirs       *mergeWho `json:"theirs"`
}

func whoOf(w merge.Who) *mergeWho {
	if w.Commit.IsZero() {
		return nil
	}
	return &mergeWho{Commit: wire.Text(w.Commit.String()), TaskID: wire.Text(w.TaskID), SubtaskID: wire.Text(w.SubtaskID), Actor: wire.Text(w.Actor),
		Source: wire.Text(string(w.Source)), At: wire.Text(wire.Stamp(w.At))}
}

// request translates a body.
func (b *mergeBody) request(c *gin.Context) (req merge.Request, err error) {
	req = merge.Request{Tasks: b.Tasks, Subtasks: b.Subtasks, As: merge.Replay, OnConflict: merge.Refuse, Again: b.Again, DryRun: b.DryRun, By: wire.By(c, "")}
	oneOf := func(field string, value *string, into *string, allowed ...string) error {
		if value == nil {
			return nil
		}
		for _, a := range allowed {
			if *value == a {
				*into = a
				return nil
			}
		}
		return errs.New(errs.Invalid, "invalid_"+field, "%s must be %s or %s.", field, allowed[0], allowed[1]).With("field", field)
	}
	if err := oneOf("as", b.As, &req.As, merge.Replay, merge.Squash); err != nil {
		return req, err
	}
	if err := oneOf("on_conflict", b.OnConflict, &req.OnConflict, merge.Refuse, merge.Skip); err != nil {
		return req, err
	}
	if b.Plan != nil {
		if req.Plan = *b.Plan; req.Plan == "" {
			return req, errs.New(errs.Invalid, "invalid_plan", "plan must be the token of a dry run.").With("field", "plan")
		}
	}
	for field, list := range map[string][]string{"tasks": b.Tasks, "subtasks": b.Subtasks, "paths": b.Paths, "hunks": b.Hunks} {
		if list != nil && (len(list) == 0 || len(list) > maxSelected) {
			return req, errs.New(errs.Unprocessable, "validation_failed", "%s must have 1 to %d members.", field, maxSelected).With("field", field)
		}
	}
	if b.Hunks != nil && len(b.Tasks)+len(b.Subtasks)+len(b.Paths) > 0 {
		return req, errs.New(errs.Unprocessable, "validation_failed", "hunks name exactly what is merged; tasks, subtasks and paths exclude them.").With("field", "hunks")
	}
	for _, raw := range b.Paths {
		p, err := wspath.FromJSON(raw, b.PathEncoding, wspath.AllowRoot, wspath.AllowTrailingSlash)
		if err != nil {
			return req, err
		}
		req.Paths = append(req.Paths, p)
	}
	id := httpapi.TagsOf(c).TaskID
	if b.TaskID != nil {
		if !task.ValidID(*b.TaskID) {
			return req, errs.New(errs.Invalid, "invalid_task_id", "task_id is not a valid task id.").With("field", "task_id")
		}
		if id != "" && id != *b.TaskID {
			return req, errs.New(errs.Invalid, "task_id_mismatch", "X-Task-Id names another task than task_id.").With("field", "task_id")
		}
		id = *b.TaskID
	}
	req.By.TaskID = id
	return req, nil
}

// aboutMerge is the directory that is merged into, if it is one: what is merged comes to its
// node. Else it is the workspace that is merged.
func (d *Dialect) aboutMerge(c *gin.Context) (httpapi.Place, error) {
	var body struct {
		Into string `json:"into"`
	}
	httpapi.PeekJSON(c, &body) // of what it cannot decode the handler says what is wrong
	return d.aboutTwo(c, body.Into)
}

// aboutCompare is like aboutMerge, of what is compared.
func (d *Dialect) aboutCompare(c *gin.Context) (httpapi.Place, error) {
	with, _, err := httpapi.Query(c, "with")
	if err != nil {
		return httpapi.Place{}, err
	}
	return d.aboutTwo(c, with)
}

func (d *Dialect) aboutTwo(c *gin.Context, other string) (httpapi.Place, error) {
	id, err := httpapi.Param(c, "ws")
	if err == nil && other != "" {
		if r, ok := d.workspaces.Record(other); ok && r.Kind != workspaces.VirtualKind && httpapi.CallerOf(c).Sees(r.Place()) {
			id = other
		}
	}
	return httpapi.Place{Workspace: id}, err
}

// mergeFork merges a fork into its parent, or another workspace of its family.
func (d *Dialect) mergeFork(c *gin.Context) error {
	return d.merging(c, func(w *workspace.Workspace, b *mergeBody, req merge.Request) (*merge.Result, string, error) {
		into := ""
		if b.Into != nil {
			into = *b.Into
		}
		return d.forks.Merge(c.Request.Context(), w, into, b.Hunks, httpapi.CallerOf(c).Sees, req)
	})
}

// rebaseFork brings the parent's news into a fork.
func (d *Dialect) rebaseFork(c *gin.Context) error {
	return d.merging(c, func(w *workspace.Workspace, b *mergeBody, req merge.Request) (*merge.Result, string, error) {
		if b.Into != nil {
			return nil, "", errs.New(errs.Invalid, "unknown_field", "A rebase has no into: it brings the parent's changes into this workspace.").With("field", "into")
		}
		if b.Hunks != nil {
			return nil, "", errs.New(errs.Unprocessable, "validation_failed", "A rebase does not take hunks.").With("field", "hunks")
		}
		return d.forks.Rebase(c.Request.Context(), w, httpapi.CallerOf(c).Sees, req)
	})
}

func (d *Dialect) merging(c *gin.Context, do func(*workspace.Workspace, *mergeBody, merge.Request) (*merge.Result, string, error)) error {
	if _, err := d.id(c); err != nil { // before what the caller may do
		return err
	}
	var body mergeBody
	if err := httpapi.DecodeJSON(c, &body); err != nil {
		return err
	}
	if !body.DryRun {
		if err := httpapi.NeedWrite(c); err != nil {
			return err
		}
	}
	req, err := body.request(c)
	if err != nil {
		return err
	}
	return d.using(c, func(w *workspace.Workspace) error {
		res, taskID, err := do(w, &body, req)
		if errs.CodeOf(err) == "merge_conflict" && res != nil {
			return withConflicts(err, conflictsOf(res.Conflicts))
		}
		if err != nil {
			return err
		}
		commits := make([]string, len(res.Commits))
		for i, id := range res.Commits {
			commits[i] = id.String()
		}
		httpapi.JSON(c, http.StatusOK, map[string]any{"commits": commits, "merged": res.Merged, "skipped": pathsOf(res.Skipped), "conflicts": conflictsOf(res.Conflicts),
			"files": mergedFiles(res.Files), "plan": res.Plan, "reverted": res.Reverted, "history_dropped": res.Dropped, "dry_run": req.DryRun, "task_id": wire.Text(taskID)})
		return nil
	})
}

func withConflicts(err error, list []mergeConflict) error {
	if e, ok := errors.AsType[*errs.Error](err); ok {
		return e.With("conflicts", list)
	}
	return err
}

func conflictsOf(list []merge.Conflict) []mergeConflict {
	out := make([]mergeConflict, len(list))
	for i, x := range list {
		out[i] = mergeConflict{Reason: x.Reason, Ours: whoOf(x.Ours), Theirs: whoOf(x.Theirs)}
		out[i].Path, out[i].PathEncoding = wspath.EncodeJSON(x.Path)
		out[i].Here, out[i].HereEncoding = wspath.EncodeJSON(x.Here)
	}
	return out
}

type pathObject struct {
	Path         string `json:"path"`
	PathEncoding string `json:"path_encoding,omitempty"`
	Action       string `json:"action,omitempty"`
}

func pathsOf(list []string) []pathObject {
	out := make([]pathObject, len(list))
	for i, p := range list {
		out[i].Path, out[i].PathEncoding = wspath.EncodeJSON(p)
	}
	return out
}

func mergedFiles(list []merge.File) []pathObject {
	out := make([]pathObject, len(list))
	for i, f := range list {
		out[i].Path, out[i].PathEncoding = wspath.EncodeJSON(f.Path)
		out[i].Action = f.Action
	}
	return out
}

type comparedFile struct {
	pathObject
	Operation string `json:"operation"`
	Additions int    `json:"additions"`
	Deletions int    `json:"deletions"`
	Binary    bool   `json:"binary"`
}

// compare answers how a workspace differs from another one, or from a moment.
func (d *Dialect) compare(c *gin.Context) error {
	with, _, err := httpapi.Query(c, "with")
	if err != nil {
		return err
	}
	q := fork.Comparing{With: with}
	raw, _, err := httpapi.Query(c, "path")
	if err != nil {
		return err
	}
	if q.Path, err = wspath.Parse(raw, wspath.AllowRoot, wspath.AllowTrailingSlash); err != nil {
		return err
	}
	around, err := httpapi.QueryInt(c, "context", diff.DefaultContext, 0, maxContext)
	if err != nil {
		return err
	}
	if q.Diff.Context = int(around); around == 0 {
		q.Diff.Context = diff.NoContext
	}
	counts, err := httpapi.QueryBool(c, "summary", false)
	if err != nil {
		return err
	}
	q.Text = !counts
	return d.using(c, func(w *workspace.Workspace) error {
		res, err := d.forks.Compare(c.Request.Context(), w, q, httpapi.CallerOf(c).Sees)
		if err != nil {
			return err
		}
		c.Writer.Header().Add("Vary", "Accept")
		if strings.Contains(c.GetHeader("Accept"), "text/x-diff") {
			c.Data(http.StatusOK, "text/x-diff; charset=utf-8", res.Diff)
			return nil
		}
		files := make([]comparedFile, len(res.Files))
		for i, f := range res.Files {
			files[i] = comparedFile{Operation: f.Operation, Additions: f.Additions, Deletions: f.Deletions, Binary: f.Binary}
			files[i].Path, files[i].PathEncoding = wspath.EncodeJSON(f.Path)
		}
		body := map[string]any{"files": files, "summary": map[string]int{"files": len(files), "additions": res.Additions, "deletions": res.Deletions}}
		if q.Text {
			text, encoding := wspath.EncodeJSON(string(res.Diff))
			if body["diff"] = text; encoding != "" {
				body["diff_encoding"] = encoding
			}
		}
		httpapi.JSON(c, http.StatusOK, body)
		return nil
	})
}
