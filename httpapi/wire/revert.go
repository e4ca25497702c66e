package wire

import (
	"errors"
	"net/http"
	"time"

	"github.com/gin-gonic/gin"

	"umbra/httpapi"
	"umbra/internal/errs"
	"umbra/internal/revert"
	"umbra/internal/wspath"
)

// Revert are the fields that the body of every revert takes. A route's body
// embeds it.
type Revert struct {
	OnConflict      *string `json:"on_conflict"`
	IncludeExternal bool    `json:"include_external"`
	IncludeShared   bool    `json:"include_shared"`
	DryRun          bool    `json:"dry_run" null:"refused"`
	Diff            bool    `json:"diff"`
	Plan            *string `json:"plan"`
}

// revertHints say how to ask for what a field would mean that no body takes.
var revertHints = map[string]string{
	"subtask":    "The subtask to revert is named in the path, /tasks/{id}/subtasks/{sid}/revert; the revert's own in X-Subtask-Id.",
	"subtask_id": "The subtask to revert is named in the path, /tasks/{id}/subtasks/{sid}/revert; the revert's own in X-Subtask-Id.",
	"path":       "A file of a task is reverted by /tasks/{id}/revert with path, or by /tasks/{id}/files/{path}/revert.",
	"change":     "A change is named in the path, /tasks/{id}/changes/{n}/revert.",
	"commit":     "A commit is named in the path, /workspaces/{ws}/commits/{commit}/revert.",
}

// DecodeRevert reads the body of a revert into dst, a struct that embeds
// Revert, and asks for the right to write unless it is a dry run.
func DecodeRevert(c *gin.Context, dst any, common *Revert) error {
	if err := httpapi.DecodeJSON(c, dst); err != nil {
		e, ok := errors.AsType[*errs.Error](err)
		if !ok || e.Code != "unknown_field" {
			return err
		}
		if field, ok := e.Fields["field"].(string); ok && revertHints[field] != "" {
			hinted := *e
			hinted.Detail += " " + revertHints[field]
			return &hinted
		}
		return err
	}
	if common.DryRun {
		return nil
	}
	if common.Diff {
		return httpapi.UnknownField("diff", "It is for a dry run: give \"dry_run\": true with it.", []string{"dry_run"})
	}
	return httpapi.NeedWrite(c)
}

// Request makes the request of a revert's body for a scope.
func (b *Revert) Request(c *gin.Context, scope revert.Scope) (*revert.Request, error) {
	key, err := KeyHash(c)
	if err != nil {
		return nil, err
	}
	req := &revert.Request{By: By(c, key), Scope: scope, DryRun: b.DryRun, Diff: b.Diff, IncludeExternal: b.IncludeExternal, IncludeShared: b.IncludeShared}
	if b.OnConflict != nil {
		switch req.OnConflict = revert.OnConflict(*b.OnConflict); req.OnConflict {
		case revert.Force, revert.Skip:
		case "fail":
			req.OnConflict = revert.Fail
		default:
			return nil, errs.New(errs.Invalid, "invalid_field", "on_conflict must be \"fail\", \"force\" or \"skip\".").With("field", "on_conflict")
		}
	}
	if b.Plan != nil {
		if req.Plan = *b.Plan; req.Plan == "" {
			return nil, errs.New(errs.Invalid, "invalid_plan", "plan must be the token of a dry run.").With("field", "plan")
		}
	}
	return req, nil
}

type revertFile struct {
	Path         string        `json:"path"`
	PathEncoding string        `json:"path_encoding,omitempty"`
	Action       revert.Action `json:"action"`
	Source       string        `json:"source"`
	// With diff: the patch from what the file is now to what it would be, empty
	// where that is too large.
	Diff         *string `json:"diff,omitempty"`
	DiffEncoding string  `json:"diff_encoding,omitempty"`
	Additions    *int    `json:"additions,omitempty"`
	Deletions    *int    `json:"deletions,omitempty"`
	Binary       *bool   `json:"binary,omitempty"`
	TooLarge     bool    `json:"too_large,omitempty"`
}

type changedBy struct {
	Commit    *string `json:"commit"`
	TaskID    *string `json:"task_id"`
	SubtaskID *string `json:"subtask_id"`
	Actor     *string `json:"actor"`
}

// Conflict is a file that a revert cannot undo cleanly.
type Conflict struct {
	Path         string    `json:"path"`
	PathEncoding string    `json:"path_encoding,omitempty"`
	Reason       string    `json:"reason"`
	Entry        *uint64   `json:"entry"`
	ChangedBy    changedBy `json:"changed_by"`
}

type revertLeft struct {
	Path         string  `json:"path"`
	PathEncoding string  `json:"path_encoding,omitempty"`
	Entry        *uint64 `json:"entry"`
	At           string  `json:"at"`
}

type revertAnswer struct {
	Commit    *string      `json:"commit"`
	Reverted  int          `json:"entries_reverted"`
	Files     []revertFile `json:"files"`
	Conflicts []Conflict   `json:"conflicts"`
	External  []revertLeft `json:"external"`
	Shared    []revertLeft `json:"shared"`
	DryRun    bool         `json:"dry_run"`
	Plan      *string      `json:"plan"`
}

// AnswerRevert answers what revert.Do returned.
func AnswerRevert(c *gin.Context, req *revert.Request, res *revert.Result, err error) error {
	if errs.CodeOf(err) == "revert_conflict" && res != nil {
		e := errs.New(errs.Conflict, "revert_conflict", "Something else changed the same places since; nothing was changed. on_conflict \"skip\" undoes the rest, \"force\" takes the state before.")
		return e.With("conflicts", ConflictsOf(res.Conflicts)).With("external", leftOf(res.External)).With("shared", leftOf(res.Shared))
	}
	if err != nil {
		return err
	}
	SettleKey(c, res.Replayed, !res.Commit.IsZero())
	out := revertAnswer{Reverted: res.Reverted, Files: make([]revertFile, len(res.Files)), Conflicts: ConflictsOf(res.Conflicts),
		External: leftOf(res.External), Shared: leftOf(res.Shared), DryRun: req.DryRun, Plan: Text(res.Plan)}
	if !res.Commit.IsZero() {
		id := res.Commit.String()
		out.Commit = &id
	}
	for i, f := range res.Files {
		out.Files[i] = revertFile{Action: f.Action, Source: f.Source}
		out.Files[i].Path, out.Files[i].PathEncoding = wspath.EncodeJSON(f.Path)
		if p := f.Patch; p != nil {
			x := &out.Files[i]
			text, encoding := wspath.EncodeJSON(string(p.Text))
			x.Diff, x.DiffEncoding, x.Additions, x.Deletions, x.Binary, x.TooLarge = &text, encoding, &p.Additions, &p.Deletions, &p.Binary, p.TooLarge
		}
	}
	httpapi.JSON(c, http.StatusOK, out)
	return nil
}

func leftOf(list []revert.Left) []revertLeft {
	out := make([]revertLeft, len(list))
	for i, x := range list {
		out[i] = revertLeft{Entry: number(x.Entry), At: Stamp(x.At)}
		out[i].Path, out[i].PathEncoding = wspath.EncodeJSON(x.Path)
	}
	return out
}

// ConflictsOf gives conflicts their wire form, never null.
func ConflictsOf(list []revert.Conflict) []Conflict {
	out := make([]Conflict, len(list))
	for i, x := range list {
		out[i] = Conflict{Reason: x.Reason, Entry: number(x.Entry)}
		out[i].Path, out[i].PathEncoding = wspath.EncodeJSON(x.Path)
		if !x.By.Commit.IsZero() {
			id := x.By.Commit.String()
			out[i].ChangedBy = changedBy{Commit: &id, TaskID: Text(x.By.Task), SubtaskID: Text(x.By.Subtask), Actor: Text(x.By.Actor)}
		}
	}
	return out
}

// number is an entry's number, null for one without a task.
func number(n uint64) *uint64 {
	if n == 0 {
		return nil
	}
	return &n
}

// Time reads a time of a body: RFC 3339.
func Time(field string, s *string) (time.Time, error) {
	if s == nil {
		return time.Time{}, nil
	}
	t, err := time.Parse(time.RFC3339, *s)
	if err != nil {
		return t, errs.New(errs.Invalid, "invalid_field", "%s must be a time as RFC 3339 has it, such as 2026-01-31T12:00:00Z.", field).With("field", field)
	}
	return t, nil
}
