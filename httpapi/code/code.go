// Package code is the code dialect (contracts/code.md): programs are saved,
// read, run and checked. What a program is and where it is kept is
// internal/code's; how one runs is internal/sandbox/js's; what a check says is
// internal/lint's.
package code

import (
	"context"
	_ "embed"
	"encoding/json"
	"log/slog"
	"math"
	"net/http"
	"time"

	"github.com/gin-gonic/gin"

	"umbra/httpapi"
	"umbra/internal/code"
	"umbra/internal/errs"
	"umbra/internal/lint"
	"umbra/internal/sandbox/js"
	"umbra/internal/task"
)

//go:embed openapi.yaml
var document []byte

// Engine runs programs.
type Engine interface {
	Run(ctx context.Context, job js.Job) (*js.Outcome, error)
	// Check gives the faults of a text that make it no program.
	Check(ctx context.Context, job js.Job) ([]js.Diagnostic, error)
}

// Options of the dialect. Output may be nil: programs have no file then.
type Options struct {
	Programs *code.Service
	Engine   Engine
	Linter   lint.Linter
	Output   Output
	Log      *slog.Logger
	// PerCode is how often a minute one codeId may be saved; 0 is off.
	PerCode int
}

// Dialect is the code dialect.
type Dialect struct {
	o    Options
	rate *httpapi.RateLimit
}

// New makes the dialect.
func New(o Options) *Dialect {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return &Dialect{o: o, rate: httpapi.NewRateLimit(o.PerCode)}
}

// OpenAPI gives the dialect's part of the document.
func (d *Dialect) OpenAPI() []byte { return document }

// maxBody bounds the body of a save.
const maxBody = 64 << 20

// Register adds the dialect's routes.
func (d *Dialect) Register(r *httpapi.Router) {
	r = r.With(shape())
	add := func(method, pattern string, h httpapi.Handler, rt httpapi.Route) {
		rt.Method, rt.Pattern, rt.Handler = method, pattern, h
		rt.AnyQuery = method != http.MethodDelete
		if pattern != "/lint" { // which touches no file
			rt.Authorize = unrooted
		}
		r.Handle(rt)
	}
	shared := func(*gin.Context) (httpapi.Place, error) {
		ws, err := d.o.Programs.Where()
		return httpapi.Place{Workspace: ws}, err
	}
	saving := func(c *gin.Context) (httpapi.Place, error) {
		ws, err := d.o.Programs.WhereSaved(httpapi.TagsOf(c).TaskID)
		return httpapi.Place{Workspace: ws}, err
	}
	save := httpapi.Route{About: saving, Access: httpapi.AccessWrite, Body: httpapi.BodyJSON, MaxBody: maxBody, Changes: true}
	add(http.MethodPut, "/workspace", d.save, save)
	add(http.MethodPost, "/workspace/batch", d.saveBatch, save)
	add(http.MethodGet, "/workspace", d.list, httpapi.Route{About: shared})
	add(http.MethodGet, "/workspace/{codeId}", d.read, httpapi.Route{About: shared})
	add(http.MethodGet, "/workspace/{codeId}/versions", d.versions, httpapi.Route{About: shared})
	add(http.MethodDelete, "/workspace/{codeId}", d.remove, httpapi.Route{About: saving, Access: httpapi.AccessWrite, Changes: true})
	run := save
	run.About = httpapi.AboutTask(d.o.Programs.WhereTask) // many need no file, and all would run on one machine
	add(http.MethodPost, "/execute", d.execute, run)
	add(http.MethodPost, "/lint", d.lint, httpapi.Route{About: httpapi.AboutNone, Body: httpapi.BodyJSON, MaxBody: maxBody})
}

// unrooted keeps out tokens with roots: the code workspace is the server's own
// and lies under none of them.
func unrooted(c *gin.Context) error {
	caller := httpapi.CallerOf(c)
	if len(caller.Roots) == 0 {
		return nil
	}
	caller.Refused("rooted_token")
	return errs.New(errs.Forbidden, "forbidden", "The token is for its own directories alone; the code workspace is not one of them.")
}

// The types of errors.
const (
	typeValidation  = "ValidationError"
	typeFile        = "FileNotFoundError"
	typeTask        = "TaskNotFoundError"
	typeConflict    = "ConflictError"
	typeRate        = "RateLimitError"
	typeUnavailable = "ServiceUnavailableError"
	typeInternal    = "InternalError"
	typeExecution   = "ExecutionError"
	typeTimeout     = "TimeoutError"
	typeAuth        = "AuthenticationError"
	typeForbidden   = "ForbiddenError"
)

// Members of a problem's fields that are outside of details.
const (
	fieldType = "\x00type"
	fieldTook = "\x00took"
)

type envelope struct {
	Success       bool    `json:"success"`
	Error         failure `json:"error"`
	ExecutionTime *int64  `json:"executionTime,omitempty"`
	RequestID     string  `json:"request_id"`
}

type failure struct {
	Type    string         `json:"type"`
	Message string         `json:"message"`
	Details map[string]any `json:"details"`
}

// shape is the seed's envelope.
func shape() httpapi.Shape {
	return httpapi.Shape{
		Body: func(c *gin.Context, p *httpapi.Problem) any {
			e := envelope{Error: failure{Type: typeOf(p), Message: p.Detail, Details: map[string]any{}}, RequestID: httpapi.RequestID(c)}
			for k, v := range p.Fields {
				switch k {
				case fieldType:
				case fieldTook:
					if took, ok := v.(int64); ok {
						e.ExecutionTime = &took
					}
				default:
					e.Error.Details[k] = v
				}
			}
			if p.Code == "body_too_large" {
				e.Error.Message = "Code size exceeds maximum allowed size"
				e.Error.Details = map[string]any{"maxSize": code.MaxCode}
			}
			if len(e.Error.Details) == 0 {
				e.Error.Details["reason"] = p.Detail
			}
			return e
		},
	}
}

func typeOf(p *httpapi.Problem) string {
	if t, ok := p.Fields[fieldType].(string); ok {
		return t
	}
	switch p.Status {
	case http.StatusBadRequest, http.StatusRequestEntityTooLarge, http.StatusUnsupportedMediaType:
		return typeValidation
	case http.StatusUnauthorized:
		return typeAuth
	case http.StatusForbidden:
		return typeForbidden
	case http.StatusNotFound:
		if p.Code == "task_not_found" {
			return typeTask
		}
		return typeFile
	case http.StatusRequestTimeout:
		return typeTimeout
	case http.StatusConflict, http.StatusUnprocessableEntity, http.StatusPreconditionFailed:
		return typeConflict
	case http.StatusTooManyRequests:
		return typeRate
	case http.StatusServiceUnavailable, http.StatusMisdirectedRequest:
		return typeUnavailable
	}
	return typeInternal
}

// decode reads the body's object into dst, a struct of raw members: which of
// them is wrong, and in which words, is for the handler to say.
func decode(c *gin.Context, dst any) error {
	err := httpapi.DecodeLenient(c, dst)
	if e, ok := err.(*errs.Error); ok && e.Kind == errs.Invalid {
		return code.Fault("body", nil, "Invalid JSON in request body", e.Detail)
	}
	return err
}

// pathID judges the codeId in a route's path.
func pathID(c *gin.Context) (string, error) {
	id, err := httpapi.Param(c, "codeId")
	if err != nil {
		return "", err
	}
	raw, err := json.Marshal(id)
	if err != nil {
		return "", err
	}
	return code.CheckID("", raw)
}

// notFound gives the API's sentence for a program that is not there.
func notFound(err error, id string) error {
	if errs.CodeOf(err) == "file_not_found" {
		return &errs.Error{Kind: errs.NotFound, Code: "file_not_found", Detail: "Code file not found: " + id,
			Fields: map[string]any{"codeId": id}, Err: err}
	}
	return err
}

func ms(d time.Duration) int64 { return int64(math.Round(float64(d) / float64(time.Millisecond))) }

func ok(c *gin.Context, result any) {
	httpapi.JSON(c, http.StatusOK, answer{Success: true, Result: result})
}

type answer struct {
	Success bool `json:"success"`
	Result  any  `json:"result"`
}

func sees(c *gin.Context) task.Sees { return httpapi.CallerOf(c).Sees }

// theirs reports whether the caller may know of the code workspace and the output
// directory: a token with roots knows of none of the server's own.
func theirs(c *gin.Context) bool { return httpapi.CallerOf(c).Sees("") }

// hidden answers who may not as if there were nothing.
func hidden(id string) error {
	return notFound(errs.New(errs.NotFound, "file_not_found", "Code file not found"), id)
}
