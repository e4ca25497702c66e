// Package review is the HTTP surface of reviews: a task's net difference in hunks,
// each accepted or rejected (contracts/review.md).
package review

import (
	_ "embed"
	"errors"
	"net/http"
	"slices"
	"strconv"

	"github.com/gin-gonic/gin"

	"umbra/httpapi"
	"umbra/httpapi/wire"
	"umbra/internal/errs"
	"umbra/internal/review"
	"umbra/internal/task"
	"umbra/internal/workspaces"
	"umbra/internal/wspath"
)

//go:embed openapi.yaml
var document []byte

// Dialect is the routes of reviews.
type Dialect struct {
	tasks  *task.Service
	reader *review.Reader
	holder *review.Holder

	workspaces *workspaces.Manager
}

// New makes the dialect.
func New(tasks *task.Service, reader *review.Reader, holder *review.Holder, m *workspaces.Manager) *Dialect {
	return &Dialect{tasks: tasks, reader: reader, holder: holder, workspaces: m}
}

// OpenAPI returns the dialect's part of the document.
func (d *Dialect) OpenAPI() []byte { return document }

// Register adds the dialect's routes.
func (d *Dialect) Register(r *httpapi.Router) {
	r = r.With(wire.WithFields(httpapi.TaskShape()))
	r.Handle(httpapi.Route{Method: "GET", Pattern: "/tasks/{id}/hunks?subtask&path&status&after&limit", Handler: d.using(d.hunks), About: wire.AboutTask(d.tasks), Authorize: wire.TaskVisible(d.tasks)})
	// A dry run is reading; the handler asks for more.
	r.Handle(httpapi.Route{Method: "POST", Pattern: "/tasks/{id}/review", Handler: d.using(d.review), About: wire.AboutTask(d.tasks), Authorize: wire.TaskVisible(d.tasks),
		Body: httpapi.BodyJSON, Changes: true})
	r.Handle(httpapi.Route{Method: "POST", Pattern: "/workspaces/{ws}/policy/check", Handler: d.check, About: httpapi.AboutWorkspace("ws", ""), Body: httpapi.BodyJSON})
}

func (d *Dialect) using(h func(*gin.Context, *task.Ref) error) httpapi.Handler {
	return func(c *gin.Context) error {
		r, err := wire.OpenTask(c, d.tasks.Get, true)
		if err != nil {
			return err
		}
		defer r.Release()
		return h(c, r)
	}
}

type hunkBody struct {
	ID           string        `json:"id"`
	Path         string        `json:"path"`
	PathEncoding string        `json:"path_encoding,omitempty"`
	OldPath      *string       `json:"old_path,omitempty"`
	OldStart     int           `json:"old_start"`
	OldLines     int           `json:"old_lines"`
	NewStart     int           `json:"new_start"`
	NewLines     int           `json:"new_lines"`
	Subtasks     []string      `json:"subtasks"`
	Calls        []string      `json:"calls"`
	Entries      []uint64      `json:"entries"`
	Certainty    *string       `json:"certainty"`
	Mixed        bool          `json:"mixed"`
	Held         bool          `json:"held,omitempty"` // its rejection waits
	Status       review.Status `json:"status"`
	Parts        []partBody    `json:"parts,omitempty"` // its changes, where it has several
	Text         string        `json:"text"`
	TextEncoding string        `json:"text_encoding,omitempty"`
}

// partBody is one of several changes of a hunk, which can be decided on alone.
type partBody struct {
	ID           string        `json:"id"`
	OldStart     int           `json:"old_start"`
	OldLines     int           `json:"old_lines"`
	NewStart     int           `json:"new_start"`
	NewLines     int           `json:"new_lines"`
	Status       review.Status `json:"status"`
	Text         string        `json:"text"`
	TextEncoding string        `json:"text_encoding,omitempty"`
}

const (
	limitDefault = 1000
	limitMax     = 10_000
)

func (d *Dialect) hunks(c *gin.Context, r *task.Ref) error {
	subtask, _, err := httpapi.Query(c, "subtask")
	if err != nil {
		return err
	}
	status, given, err := httpapi.Query(c, "status")
	if err != nil {
		return err
	}
	if given && !slices.Contains([]review.Status{review.Open, review.Accepted, review.Rejected}, review.Status(status)) {
		return errs.New(errs.Invalid, "invalid_parameter", "status must be open, accepted or rejected.").With("field", "status")
	}
	var under wspath.Path
	if path, given, err := httpapi.Query(c, "path"); err != nil {
		return err
	} else if given {
		if under, err = wspath.Parse(path, wspath.AllowRoot, wspath.AllowTrailingSlash); err != nil {
			return err
		}
	}
	after, err := httpapi.QueryInt(c, "after", 0, 0, 1<<31)
	if err != nil {
		return err
	}
	limit, err := httpapi.QueryInt(c, "limit", limitDefault, 1, limitMax)
	if err != nil {
		return err
	}
	v, err := d.reader.Read(c.Request.Context(), r.Workspace, r.Task.ID)
	if err != nil {
		return err
	}
	list := v.Hunks
	if review.Status(status) == review.Rejected {
		if list, err = review.RejectedOf(c.Request.Context(), r.Workspace, r.Task.ID); err != nil {
			return err
		}
	}
	held, err := d.holder.Held(r.Task.ID)
	if err != nil {
		return err
	}
	out := []hunkBody{}
	next := ""
	for i := range list {
		h := &list[i]
		if i < int(after) || given && string(h.Status) != status || subtask != "" && !slices.Contains(h.Subtasks, subtask) ||
			under != "" && !wspath.Path(h.Path).Within(under) {
			continue
		}
		if len(out) == int(limit) {
			next = strconv.Itoa(i)
			break
		}
		out = append(out, hunkOf(h))
		out[len(out)-1].Held = h.Status != review.Rejected && held[h.ID]
	}
	httpapi.JSON(c, http.StatusOK, map[string]any{"plan": v.Plan, "hunks": out, "next": wire.Text(next)})
	return nil
}

func hunkOf(h *review.Hunk) hunkBody {
	out := hunkBody{ID: h.ID, OldStart: h.OldStart, OldLines: h.OldLines, NewStart: h.NewStart, NewLines: h.NewLines, Subtasks: h.Subtasks, Calls: h.Calls,
		Entries: h.Entries, Certainty: wire.Text(string(h.Certainty)), Mixed: h.Mixed, Status: h.Status, OldPath: wire.Text(h.OldPath)}
	out.Path, out.PathEncoding = wspath.EncodeJSON(h.Path)
	out.Text, out.TextEncoding = wspath.EncodeJSON(h.Text)
	for i := range h.Parts {
		p := &h.Parts[i]
		x := partBody{ID: p.ID, OldStart: p.OldStart, OldLines: p.OldLines, NewStart: p.NewStart, NewLines: p.NewLines, Status: p.Status}
		x.Text, x.TextEncoding = wspath.EncodeJSON(p.Text)
		out.Parts = append(out.Parts, x)
	}
	if out.Subtasks == nil {
		out.Subtasks = []string{}
	}
	if out.Calls == nil {
		out.Calls = []string{}
	}
	if out.Entries == nil {
		out.Entries = []uint64{}
	}
	return out
}

func (d *Dialect) review(c *gin.Context, r *task.Ref) error {
	var body struct {
		Accept     []string `json:"accept"`
		Reject     []string `json:"reject"`
		AcceptRest bool     `json:"accept_rest"`
		RejectRest bool     `json:"reject_rest"`
		Plan       *string  `json:"plan"`
		DryRun     bool     `json:"dry_run"`
		Message    *string  `json:"message"`
	}
	if err := httpapi.DecodeJSON(c, &body); err != nil {
		return err
	}
	if !body.DryRun {
		if err := httpapi.NeedWrite(c); err != nil {
			return err
		}
	}
	if len(body.Accept)+len(body.Reject) == 0 && !body.AcceptRest && !body.RejectRest {
		return errs.New(errs.Unprocessable, "validation_failed", "One of accept, reject, accept_rest and reject_rest is required.").With("field", "accept")
	}
	key, err := wire.KeyHash(c)
	if err != nil {
		return err
	}
	req := review.Decision{By: wire.By(c, key), Task: r.Task.ID, Accept: body.Accept, Reject: body.Reject, AcceptRest: body.AcceptRest,
		RejectRest: body.RejectRest, DryRun: body.DryRun}
	if body.Plan != nil {
		if req.Plan = *body.Plan; req.Plan == "" {
			return errs.New(errs.Invalid, "invalid_plan", "plan must be that of a list of hunks.").With("field", "plan")
		}
	}
	if body.Message != nil {
		if !httpapi.ValidMessage(*body.Message) {
			return errs.New(errs.Invalid, "invalid_field", "message must be one line of 1 to 1000 printable characters.").With("field", "message")
		}
		req.By.Message = *body.Message
	}
	res, n, err := d.holder.Decide(c.Request.Context(), r.Workspace, req)
	if found, ok := errors.AsType[*review.Conflicts](err); ok {
		return errs.New(errs.Conflict, "revert_conflict", "Others changed the same places since; nothing was changed.").With("conflicts", wire.ConflictsOf(found.List))
	}
	if err != nil {
		return err
	}
	wire.SettleKey(c, res.Replayed, !res.Commit.IsZero())
	out := map[string]any{"commit": nil, "accepted": list(res.Accepted), "rejected": list(res.Rejected), "conflicts": []any{}, "files": list(res.Files)}
	if !res.Commit.IsZero() {
		out["commit"] = res.Commit.String()
	}
	status := http.StatusOK
	if n > 0 {
		out["held"] = n
		if !body.DryRun {
			status = http.StatusAccepted
		}
	}
	httpapi.JSON(c, status, out)
	return nil
}

// list is never null.
func list(names []string) []string {
	if names == nil {
		return []string{}
	}
	return names
}
