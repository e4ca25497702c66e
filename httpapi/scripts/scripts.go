// Package scripts is the scripts dialect (contracts/scripts.md): an agent's
// script runs and saves files. What a script is and may do is internal/script's.
package scripts

import (
	"context"
	_ "embed"
	"encoding/json"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/gin-gonic/gin"

	"umbra/gitstore/message"
	"umbra/httpapi"
	"umbra/httpapi/wire"
	"umbra/internal/errs"
	"umbra/internal/sandbox/luau"
	"umbra/internal/script"
	"umbra/internal/wspath"
)

//go:embed openapi.yaml
var document []byte

// Dialect is the scripts dialect.
type Dialect struct{ scripts *script.Service }

// New makes the dialect.
func New(s *script.Service) *Dialect { return &Dialect{scripts: s} }

// OpenAPI gives the dialect's part of the document.
func (d *Dialect) OpenAPI() []byte { return document }

// Register adds the dialect's routes.
func (d *Dialect) Register(r *httpapi.Router) {
	r.Handle(httpapi.Route{Method: http.MethodPost, Pattern: "/scripts/execute", Handler: d.execute, About: httpapi.AboutTask(d.scripts.Where),
		Access: httpapi.AccessWrite, AnyQuery: true, Body: httpapi.BodyJSON, Changes: true})
	r.Handle(httpapi.Route{Method: http.MethodGet, Pattern: "/scripts/sdk", Handler: d.sdk, AnyQuery: true, About: httpapi.AboutNone})
}

type executeBody struct {
	Script    *string `json:"script"`
	TimeoutMS *int64  `json:"timeout_ms"`
	Language  *string `json:"language"`
}

func invalid(field, detail string) error {
	e := errs.New(errs.Invalid, "invalid_parameter", "")
	e.Detail = detail
	return e.With("field", field)
}

func (b *executeBody) request() (script.Request, error) {
	switch {
	case b.Script == nil:
		return script.Request{}, invalid("script", "script is required.")
	case b.TimeoutMS != nil && (*b.TimeoutMS < 1 || *b.TimeoutMS > script.MaxTimeout.Milliseconds()):
		return script.Request{}, invalid("timeout_ms", "timeout_ms must be 1 to 300000.")
	case b.Language != nil && *b.Language != "luau":
		return script.Request{}, invalid("language", "language must be luau.")
	}
	req := script.Request{Script: *b.Script}
	if b.TimeoutMS != nil {
		req.Timeout = time.Duration(*b.TimeoutMS) * time.Millisecond
	}
	return req, nil
}

func (d *Dialect) execute(c *gin.Context) error {
	var body executeBody
	if err := httpapi.DecodeLenient(c, &body); err != nil {
		return err
	}
	req, err := body.request()
	if err != nil {
		return err
	}
	if req.Begin, err = httpapi.Once(c, "script"); err != nil {
		return err
	}
	// The frame's record answers a request sent twice: what one execution saves
	// are many commits, so no single one carries the key.
	by := wire.By(c, "")
	by.Source = message.Script
	req.Owner = script.Owner{By: by, Task: httpapi.TagsOf(c).TaskID, Sees: httpapi.CallerOf(c).Sees}
	ctx, done := untilStopped(c)
	defer done()
	res, err := d.scripts.Execute(ctx, req)
	if err != nil {
		return err
	}
	status := http.StatusOK
	if res.Err != nil {
		status = http.StatusUnprocessableEntity
		if err := httpapi.IdempotencyOf(c).NotBegun(); err != nil { // such an answer is not kept
			return err
		}
	}
	httpapi.JSON(c, status, AnswerOf(res))
	return nil
}

// stopPatience is how long a script may go on when the server stops.
const stopPatience = 8 * time.Second

// untilStopped ends with the request, or some seconds after the server began to
// stop.
func untilStopped(c *gin.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(c.Request.Context())
	stopping := httpapi.Stopping(c)
	var watch sync.WaitGroup
	watch.Go(func() {
		select {
		case <-ctx.Done():
			return
		case <-stopping:
		}
		timer := time.NewTimer(stopPatience)
		defer timer.Stop()
		select {
		case <-ctx.Done():
		case <-timer.C:
			cancel(errs.New(errs.Unavailable, "stopping", "The server stops."))
		}
	})
	return ctx, func() { cancel(nil); watch.Wait() }
}

// Answer is the body of an execution's answer.
type Answer struct {
	Result json.RawMessage `json:"result,omitempty"` // absent where the script failed
	Error  *Failure        `json:"error,omitempty"`
	Logs   []string        `json:"logs"`
	Stats  Stats           `json:"stats"`
	Files  []File          `json:"files_written"`
	TaskID *string         `json:"task_id"`
}

// Failure is why a script failed.
type Failure struct {
	Type    luau.ErrorType `json:"type"`
	Message string         `json:"message"`
	Line    int            `json:"line,omitempty"`
}

// Stats are what an execution took.
type Stats struct {
	Calls    int   `json:"api_calls"`
	Duration int64 `json:"duration_ms"`
}

// File is one file that was saved.
type File struct {
	Name         string  `json:"name"`
	Path         string  `json:"path"`
	PathEncoding string  `json:"path_encoding,omitempty"`
	Bytes        int64   `json:"bytes"`
	Commit       *string `json:"commit"`
}

// AnswerOf makes the answer of a result.
func AnswerOf(r *script.Result) Answer {
	a := Answer{Logs: r.Logs, Stats: Stats{Calls: r.Stats.Calls, Duration: r.Stats.Duration.Milliseconds()}, Files: []File{}}
	if a.Logs == nil {
		a.Logs = []string{}
	}
	if r.Err != nil {
		a.Error = &Failure{Type: r.Err.Type, Message: r.Err.Message, Line: r.Err.Line}
	} else {
		a.Result = r.Value
	}
	for _, f := range r.Files {
		out := File{Bytes: f.Bytes}
		out.Path, out.PathEncoding = wspath.EncodeJSON(f.Path)
		out.Name = f.Name
		if out.PathEncoding != "" {
			// Both are written alike; the folder before the name is text or not.
			out.Name = out.Path[len(out.Path)-len(percent(f.Name)):]
		}
		if !f.Commit.IsZero() {
			commit := f.Commit.String()
			out.Commit = &commit
		}
		a.Files = append(a.Files, out)
	}
	if r.Task != "" {
		a.TaskID = &r.Task
	}
	return a
}

// percent writes a name as EncodeJSON writes one that is not UTF-8.
func percent(name string) string {
	encoded, _ := wspath.EncodeJSON(name + "\xff")
	return strings.TrimSuffix(encoded, "%FF")
}

func (d *Dialect) sdk(c *gin.Context) error {
	c.Header("X-Content-Type-Options", "nosniff")
	c.Data(http.StatusOK, "text/plain; charset=utf-8", []byte(d.scripts.Declarations()))
	return nil
}
