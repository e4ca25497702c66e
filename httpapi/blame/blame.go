// Package blame is the HTTP surface of blame: which commit, task and agent wrote
// each line of a file (contracts/review.md).
package blame

import (
	"bytes"
	"context"
	_ "embed"
	"encoding/base64"
	"net/http"
	"strconv"
	"strings"

	"github.com/gin-gonic/gin"

	"umbra/gitstore/object"
	"umbra/httpapi"
	"umbra/httpapi/wire"
	"umbra/internal/blame"
	"umbra/internal/checkpoint"
	"umbra/internal/errs"
	"umbra/internal/history"
	"umbra/internal/task"
	"umbra/internal/workspace"
	"umbra/internal/workspaces"
	"umbra/internal/wspath"
)

//go:embed openapi.yaml
var document []byte

// Dialect is the routes of blame.
type Dialect struct {
	workspaces *workspaces.Manager
	blame      *blame.Cache
	tasks      *task.Service
	history    *history.Cache
}

// New makes the dialect.
func New(m *workspaces.Manager, s *blame.Cache, tasks *task.Service, cache *history.Cache) *Dialect {
	return &Dialect{workspaces: m, blame: s, tasks: tasks, history: cache}
}

// OpenAPI returns the dialect's part of the document.
func (d *Dialect) OpenAPI() []byte { return document }

// Register adds the dialect's routes.
func (d *Dialect) Register(r *httpapi.Router) {
	r = r.With(wire.WithFields(httpapi.TaskShape()))
	r.Handle(httpapi.Route{Method: "GET", Pattern: "/workspaces/{ws}/blame?path&at&lines&ignore_whitespace&project&format&after&limit", Handler: d.get, About: httpapi.AboutWorkspace("ws", "")})
	r.Handle(httpapi.Route{Method: "GET", Pattern: "/tasks/{id}/trace", Handler: d.trace, About: wire.AboutTask(d.tasks)})
}

// open opens the route's workspace, if the caller may see it. The caller releases
// it.
func (d *Dialect) open(c *gin.Context) (*workspace.Workspace, error) {
	id, err := httpapi.Param(c, "ws")
	if err != nil {
		return nil, err
	}
	ctx, caller := c.Request.Context(), httpapi.CallerOf(c)
	if b, begun := d.workspaces.BegunOf(id); begun && caller.Sees(b.Root) {
		if err := b.Wait(ctx); err != nil {
			return nil, err
		}
	}
	rec, ok, err := d.workspaces.Lookup(id)
	if err != nil {
		return nil, err
	}
	if !ok || !caller.Sees(rec.Place()) {
		return nil, errs.New(errs.NotFound, "workspace_not_found", "The workspace does not exist.")
	}
	return d.workspaces.Get(ctx, rec.ID)
}

const (
	limitDefault = 1000
	limitMax     = 10_000
)

// query is what a request asks for.
type query struct {
	blame.Request
	porcelain bool
}

func (d *Dialect) get(c *gin.Context) error {
	w, err := d.open(c)
	if err != nil {
		return err
	}
	defer w.Release()
	q, at, err := parse(c)
	if err != nil {
		return err
	}
	ctx := c.Request.Context()
	if q.At.IsZero() {
		if q.At, err = commitOf(ctx, w, at); err != nil {
			return err
		}
	} else if _, err := w.Store().Own(ctx, q.At); err != nil {
		return err
	}
	a, err := d.blame.Lines(ctx, w, q.Request)
	if err != nil {
		return err
	}
	if q.porcelain {
		var out bytes.Buffer
		if err := a.Porcelain(ctx, w, &out, q.From, q.To); err != nil {
			return err
		}
		c.Data(http.StatusOK, "text/plain; charset=utf-8", out.Bytes())
		return nil
	}
	httpapi.JSON(c, http.StatusOK, answerOf(a))
	return nil
}

// commitOf returns the commit that is asked for. For the newest one what is on
// disk is recorded first.
func commitOf(ctx context.Context, w *workspace.Workspace, at string) (object.ID, error) {
	if at == "" {
		err := w.RecordThen(ctx, func() {})
		if err != nil && errs.CodeOf(err) != "workspace_missing" {
			return object.Zero, err
		}
		at = "head"
	}
	c, err := checkpoint.Resolve(ctx, w, at)
	if err != nil {
		return object.Zero, err
	}
	return c.ID, nil
}

func invalid(field, format string, args ...any) error {
	return errs.New(errs.Invalid, "invalid_parameter", format, args...).With("field", field)
}

// parse reads the query; at is the commit's name where the request is not for the
// next page of an answer.
func parse(c *gin.Context) (q query, at string, err error) {
	path, given, err := httpapi.Query(c, "path")
	if err != nil {
		return q, "", err
	}
	if !given {
		return q, "", errs.New(errs.Invalid, "missing_parameter", "path is missing.").With("field", "path")
	}
	if q.Path, err = wspath.Parse(path, wspath.AllowRoot, wspath.AllowTrailingSlash); err != nil {
		return q, "", err
	}
	if at, given, err = httpapi.Query(c, "at"); err != nil {
		return q, "", err
	}
	if given && at == "" {
		return q, "", invalid("at", "at must not be empty.")
	}
	lines, given, err := httpapi.Query(c, "lines")
	if err != nil {
		return q, "", err
	}
	if given {
		var ok bool
		if q.From, q.To, ok = parseLines(lines); !ok {
			return q, "", invalid("lines", "lines must be a range such as 10-30, counted from 1.")
		}
	}
	if q.Whitespace, err = httpapi.QueryBool(c, "ignore_whitespace", false); err != nil {
		return q, "", err
	}
	if q.Project, err = httpapi.QueryBool(c, "project", true); err != nil {
		return q, "", err
	}
	limit, err := httpapi.QueryInt(c, "limit", limitDefault, 1, limitMax)
	if err != nil {
		return q, "", err
	}
	q.Limit = int(limit)
	format, given, err := httpapi.Query(c, "format")
	if err != nil {
		return q, "", err
	}
	if given && format != "json" && format != "porcelain" {
		return q, "", invalid("format", "format must be json or porcelain.")
	}
	if q.porcelain = format == "porcelain"; q.porcelain {
		q.Project, q.Limit = false, 1
	}
	after, given, err := httpapi.Query(c, "after")
	if err != nil || !given {
		return q, at, err
	}
	id, line, ok := parseCursor(after)
	if !ok || q.porcelain || line < q.From || q.To > 0 && line > q.To {
		return q, "", errs.BadCursor()
	}
	q.At, q.From = id, line
	return q, "", nil
}

// parseLines reads "10-30", "10", "10-" or "10,30".
func parseLines(s string) (from, to int, ok bool) {
	first, last, two := strings.Cut(strings.Replace(s, ",", "-", 1), "-")
	number := func(s string) (int, bool) {
		n, err := strconv.ParseUint(s, 10, 31)
		return int(n), err == nil && n > 0
	}
	if from, ok = number(first); !ok {
		return 0, 0, false
	}
	switch {
	case !two:
		return from, from, true
	case last == "":
		return from, 0, true
	}
	to, ok = number(last)
	return from, to, ok && to >= from
}

// A cursor is the commit and the line at which the next page begins.
func cursor(at object.ID, line int) string {
	if line == 0 {
		return ""
	}
	return base64.RawURLEncoding.EncodeToString([]byte(at.String() + "." + strconv.Itoa(line)))
}

func parseCursor(s string) (at object.ID, line int, ok bool) {
	raw, err := base64.RawURLEncoding.DecodeString(s)
	if err != nil {
		return at, 0, false
	}
	id, number, ok := strings.Cut(string(raw), ".")
	n, err := strconv.ParseUint(number, 10, 31)
	if !ok || err != nil || n == 0 {
		return at, 0, false
	}
	at, err = object.ParseID(id)
	return at, int(n), err == nil
}

type answerBody struct {
	Path         string      `json:"path"`
	PathEncoding string      `json:"path_encoding,omitempty"`
	At           string      `json:"at"`
	Lines        int         `json:"lines"`
	Ranges       []rangeBody `json:"ranges"`
	Next         *string     `json:"next"`
}

type rangeBody struct {
	Start          int          `json:"start"`
	End            int          `json:"end"`
	Commit         string       `json:"commit"`
	OriginPath     string       `json:"origin_path"`
	OriginEncoding string       `json:"origin_path_encoding,omitempty"`
	OriginLine     int          `json:"origin_line"`
	Origins        []originBody `json:"origins,omitempty"`
	TaskID         *string      `json:"task_id"`
	SubtaskID      *string      `json:"subtask_id"`
	Actor          *string      `json:"actor"`
	Agent          *string      `json:"agent"`
	Model          *string      `json:"model"`
	CallID         *string      `json:"call_id"`
	Tool           *string      `json:"tool"`
	PromptID       *string      `json:"prompt_id"`
	Certainty      *string      `json:"certainty"`
	Claimants      []string     `json:"claimants,omitempty"`
	Source         string       `json:"source"`
	At             string       `json:"at"`
	Via            *string      `json:"via,omitempty"`
	ClaimedBy      *string      `json:"claimed_by,omitempty"`
	Boundary       bool         `json:"boundary,omitempty"`
	Project        *projectBody `json:"project,omitempty"`
}

type originBody struct {
	Start      int `json:"start"`
	OriginLine int `json:"origin_line"`
	Lines      int `json:"lines"`
}

type projectBody struct {
	Commit string `json:"commit"`
	Author string `json:"author"`
	At     string `json:"at"`
}

func answerOf(a *blame.Answer) answerBody {
	out := answerBody{At: a.At.String(), Lines: a.Lines, Ranges: make([]rangeBody, len(a.Ranges)), Next: wire.Text(cursor(a.At, a.Next))}
	out.Path, out.PathEncoding = wspath.EncodeJSON(a.Path)
	for i := range a.Ranges {
		out.Ranges[i] = rangeOf(&a.Ranges[i])
	}
	return out
}

func rangeOf(r *blame.Range) rangeBody {
	out := rangeBody{Start: r.Start, End: r.End, Commit: r.Commit.String(), OriginLine: r.OriginLine, TaskID: wire.Text(r.Task), SubtaskID: wire.Text(r.Subtask),
		Actor: wire.Text(r.Actor), Agent: wire.Text(r.Agent), Model: wire.Text(r.Model), CallID: wire.Text(r.Call), Tool: wire.Text(r.Tool),
		PromptID: wire.Text(r.Prompt), Certainty: wire.Text(r.Certainty), Claimants: r.Claimants, Source: r.Source, At: wire.Stamp(r.At), Boundary: r.Boundary}
	out.OriginPath, out.OriginEncoding = wspath.EncodeJSON(r.OriginPath)
	for _, o := range r.Origins {
		out.Origins = append(out.Origins, originBody{Start: o.Start, OriginLine: o.Line, Lines: o.Lines})
	}
	if !r.Via.IsZero() {
		out.Via = wire.Text(r.Via.String())
	}
	if !r.ClaimedBy.IsZero() {
		out.ClaimedBy = wire.Text(r.ClaimedBy.String())
	}
	if p := r.Project; p != nil {
		out.Project = &projectBody{Commit: p.Commit, Author: p.Author, At: wire.Stamp(p.When)}
	}
	return out
}
