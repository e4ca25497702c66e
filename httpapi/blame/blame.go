// Package blame is the HTTP surface of blame: whose a line is, and in which turn
// it was written (contracts/review.md).
package blame

import (
	_ "embed"
	"net/http"
	"strconv"
	"strings"

	"github.com/gin-gonic/gin"

	"umbra/gitstore"
	"umbra/httpapi"
	"umbra/httpapi/wire"
	"umbra/internal/blame"
	"umbra/internal/checkpoint"
	"umbra/internal/clock"
	"umbra/internal/errs"
	"umbra/internal/history"
	"umbra/internal/project"
	"umbra/internal/workspace"
	"umbra/internal/wspath"
)

//go:embed openapi.yaml
var document []byte

// Dialect is the route of blame.
type Dialect struct {
	workspaces *workspace.Manager
	cache      *blame.Cache
}

// New makes the dialect.
func New(m *workspace.Manager, cache *blame.Cache) *Dialect {
	return &Dialect{workspaces: m, cache: cache}
}

// OpenAPI returns the dialect's part of the document.
func (d *Dialect) OpenAPI() []byte { return document }

// Register adds the dialect's routes.
func (d *Dialect) Register(r *httpapi.Router) {
	r.With(wire.WithFields(httpapi.TaskShape())).Handle(httpapi.Route{Method: "GET", Pattern: "/workspaces/{ws}/blame", Handler: d.blame})
}

const (
	limitDefault = 1000
	limitMax     = 10_000
)

type body struct {
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
	TaskID         *string      `json:"task_id"`
	SubtaskID      *string      `json:"subtask_id"`
	Actor          *string      `json:"actor"`
	Agent          *string      `json:"agent"`
	Model          *string      `json:"model"`
	CallID         *string      `json:"call_id"`
	Certainty      *string      `json:"certainty"`
	Source         string       `json:"source"`
	At             string       `json:"at"`
	Via            *string      `json:"via,omitempty"`
	Project        *projectBody `json:"project,omitempty"`
}

type projectBody struct {
	Commit string `json:"commit"`
	Author string `json:"author"`
	At     string `json:"at"`
}

func (d *Dialect) blame(c *gin.Context) error {
	id, err := httpapi.Param(c, "ws")
	if err != nil {
		return err
	}
	rec, ok := d.workspaces.Record(id)
	if !ok || !httpapi.CallerOf(c).Sees(rec.Root) {
		return errs.New(errs.NotFound, "workspace_not_found", "There is no such workspace.")
	}
	q, err := queryOf(c)
	if err != nil {
		return err
	}
	ctx := c.Request.Context()
	w, err := d.workspaces.Get(ctx, rec.ID)
	if err != nil {
		return err
	}
	defer w.Release()
	at, err := d.at(c, w, q.at)
	if err != nil {
		return err
	}
	f, err := d.cache.Of(ctx, w, at, q.path, blame.Options{IgnoreWhitespace: q.ignore})
	if err != nil {
		return err
	}
	first, last, err := q.within(len(f.Lines))
	if err != nil {
		return err
	}
	out := body{At: f.At.String(), Lines: len(f.Lines), Ranges: []rangeBody{}}
	out.Path, out.PathEncoding = wspath.EncodeJSON(f.Path)
	var repo *project.Repo
	if q.project && w.Root() != "" {
		repo = project.Open(w.Root())
	}
	ranges, err := f.Ranges(ctx, w, first, last, repo)
	if err != nil {
		return err
	}
	if len(ranges) > q.limit {
		ranges = ranges[:q.limit]
		out.Next = wire.Text(strconv.Itoa(ranges[q.limit-1].End + 1))
	}
	for i := range ranges {
		out.Ranges = append(out.Ranges, rangeOf(&ranges[i]))
	}
	httpapi.JSON(c, http.StatusOK, out)
	return nil
}

// at is the commit that is asked about: one that is named, or the newest, once
// what is on disk is recorded.
func (d *Dialect) at(c *gin.Context, w *workspace.Workspace, name string) (*gitstore.Commit, error) {
	if name != "" {
		return checkpoint.Resolve(c.Request.Context(), w, name)
	}
	_, err := w.Reconcile(c.Request.Context(), workspace.SyncOptions{Attribute: true}, clock.Boot())
	if err != nil && errs.CodeOf(err) != "workspace_missing" {
		return nil, err
	}
	return history.Find(c.Request.Context(), w.Store(), "head")
}

func rangeOf(r *blame.Range) rangeBody {
	out := rangeBody{Start: r.Start, End: r.End, Commit: r.Origin.Commit.String(), OriginLine: r.OriginLine, TaskID: wire.Text(r.Who.Task),
		SubtaskID: wire.Text(r.Who.Subtask), Actor: wire.Text(r.Who.Actor), Agent: wire.Text(r.Who.Agent), Model: wire.Text(r.Who.Model),
		CallID: wire.Text(r.Who.Call), Certainty: wire.Text(r.Who.Certainty), Source: r.Who.Source, At: wire.Stamp(r.Who.At)}
	out.OriginPath, out.OriginEncoding = wspath.EncodeJSON(r.Origin.Path)
	if r.Via != nil {
		out.Via = wire.Text(r.Via.Commit.String())
	}
	if p := r.Project; p != nil {
		out.Project = &projectBody{Commit: p.Commit, Author: p.Author, At: wire.Stamp(p.When)}
	}
	return out
}

// query is what a request asks for.
type query struct {
	path        wspath.Path
	at          string
	first, last int // 0: not given
	after       int
	limit       int
	ignore      bool
	project     bool
}

func queryOf(c *gin.Context) (q query, err error) {
	raw, given, err := httpapi.Query(c, "path")
	if err != nil {
		return q, err
	}
	if !given {
		return q, errs.New(errs.Invalid, "missing_parameter", "path is required.").With("field", "path")
	}
	if q.path, err = wspath.Parse(raw, wspath.AllowRoot, wspath.AllowTrailingSlash); err != nil {
		return q, err
	}
	if q.at, _, err = httpapi.Query(c, "at"); err != nil {
		return q, err
	}
	lines, given, err := httpapi.Query(c, "lines")
	if err != nil {
		return q, err
	}
	if given {
		if q.first, q.last, err = parseLines(lines); err != nil {
			return q, err
		}
	}
	after, err := httpapi.QueryInt(c, "after", 0, 1, 1<<31)
	if err != nil {
		return q, err
	}
	limit, err := httpapi.QueryInt(c, "limit", limitDefault, 1, limitMax)
	if err != nil {
		return q, err
	}
	q.after, q.limit = int(after), int(limit)
	if q.ignore, err = httpapi.QueryBool(c, "ignore_whitespace", false); err != nil {
		return q, err
	}
	q.project, err = httpapi.QueryBool(c, "project", true)
	return q, err
}

// parseLines reads "10-30" or "10".
func parseLines(s string) (first, last int, err error) {
	from, to, several := strings.Cut(s, "-")
	first, err = strconv.Atoi(from)
	last = first
	if err == nil && several {
		last, err = strconv.Atoi(to)
	}
	if err != nil || first < 1 || last < first {
		return 0, 0, errs.New(errs.Invalid, "invalid_parameter", "lines must be a range such as 10-30, from 1.").With("field", "lines")
	}
	return first, last, nil
}

// within gives the lines to tell of a file that has so many.
func (q *query) within(n int) (first, last int, err error) {
	first, last = 1, n
	if q.first > 0 {
		if q.first > n {
			return 0, 0, errs.New(errs.Invalid, "invalid_parameter", "The file has %d lines.", n).With("field", "lines")
		}
		first, last = q.first, min(q.last, n)
	}
	return max(first, q.after), last, nil
}
