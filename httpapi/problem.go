package httpapi

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"strconv"
	"strings"
	"unicode"

	"github.com/gin-gonic/gin"

	"umbra/internal/errs"
)

// statusOf is the one table from what went wrong to the answer's status.
// Dialects name the few kinds that differ in their Shape.
func statusOf(k errs.Kind) int {
	switch k {
	case errs.Invalid, errs.BadPath:
		return http.StatusBadRequest
	case errs.NotFound:
		return http.StatusNotFound
	case errs.Conflict:
		return http.StatusConflict
	case errs.Precondition:
		return http.StatusPreconditionFailed
	case errs.TooLarge:
		return http.StatusRequestEntityTooLarge
	case errs.Unprocessable:
		return http.StatusUnprocessableEntity
	case errs.Forbidden:
		return http.StatusForbidden
	case errs.NoSpace:
		return http.StatusInsufficientStorage
	case errs.Unavailable, errs.Canceled:
		return http.StatusServiceUnavailable
	case errs.Gone:
		return http.StatusGone
	default:
		return http.StatusInternalServerError
	}
}

// Problem is an error on its way to the client. Middleware makes one where no
// errs.Kind fits (401, 405, 408, 415, 429); everything else is made from an
// error by its kind.
type Problem struct {
	Status int
	Kind   errs.Kind
	Code   string         // stable, lower_snake_case
	Detail string         // a sentence that the client may read
	Fields map[string]any // more members of the body
	Header http.Header    // Allow, Retry-After, WWW-Authenticate …
	Err    error          // the cause, for the log
}

// Error gives code and sentence.
func (p *Problem) Error() string { return p.Code + ": " + p.Detail }

// Unwrap gives the cause.
func (p *Problem) Unwrap() error { return p.Err }

// Shape is how a dialect renders an error.
type Shape struct {
	// Status overrides the table for some kinds.
	Status map[errs.Kind]int
	// Body makes the JSON body.
	Body func(c *gin.Context, p *Problem) any
}

// CommonShape is {"error":code,"detail":sentence,"request_id":…} with the
// error's own fields.
func CommonShape() Shape {
	return Shape{Body: func(c *gin.Context, p *Problem) any { return commonBody(c, p) }}
}

// APIShape is {"error":sentence}, which everything under /api/ answers.
func APIShape() Shape {
	return Shape{Body: func(_ *gin.Context, p *Problem) any { return map[string]any{"error": p.Detail} }}
}

// TaskShape is the common shape with "task_id": the error's own, else the path
// parameter {id}, else the tagging header, else null.
func TaskShape() Shape {
	return Shape{Body: func(c *gin.Context, p *Problem) any {
		body := commonBody(c, p)
		if _, has := body["task_id"]; has {
			return body
		}
		body["task_id"] = nil
		if id, err := Param(c, "id"); err == nil && ValidID(id) {
			body["task_id"] = id
		} else if tags := TagsOf(c); tags.TaskID != "" {
			body["task_id"] = tags.TaskID
		}
		return body
	}}
}

func commonBody(c *gin.Context, p *Problem) map[string]any {
	body := map[string]any{}
	maps.Copy(body, p.Fields)
	body["error"], body["detail"], body["request_id"] = p.Code, p.Detail, RequestID(c)
	return body
}

// problemOf makes the Problem of an error.
func problemOf(err error, shape Shape) *Problem {
	if p, ok := errors.AsType[*Problem](err); ok {
		return p
	}
	var e *errs.Error
	if !errors.As(errs.Wrap(err, ""), &e) {
		e = &errs.Error{Err: err}
	}
	p := &Problem{Status: statusOf(e.Kind), Kind: e.Kind, Code: errs.CodeOf(e), Detail: e.Detail, Fields: e.Fields, Err: err}
	if s, ok := shape.Status[e.Kind]; ok {
		p.Status = s
	}
	if e.Kind == errs.Internal {
		// A bug's text may name anything: it is for the log alone.
		p.Code, p.Detail, p.Fields = "internal_error", "Something went wrong inside the server.", nil
	}
	if p.Detail == "" {
		p.Detail = strings.ToUpper(p.Code[:1]) + strings.ReplaceAll(p.Code[1:], "_", " ") + "."
	}
	if p.Status == http.StatusServiceUnavailable && p.Header == nil {
		p.Header = http.Header{"Retry-After": {"1"}}
		if p.Code == "node_down" { // the machine has to be brought back
			p.Header.Set("Retry-After", "30")
		}
	}
	return p
}

// Fail renders an error in the shape of the request's route and ends the chain.
// What broke the request's body (too large, too slow) wins over err, which then
// is only its echo. Once an answer has begun the error is only logged.
func Fail(c *gin.Context, err error) {
	f := factsOf(c)
	shape := f.shape()
	if cause := f.body.failure(); cause != nil {
		err = cause
	}
	p := problemOf(err, shape)
	f.failed(p)
	c.Abort()
	if c.Writer.Written() {
		return
	}
	maps.Copy(c.Writer.Header(), p.Header)
	if f.body.unread() {
		c.Header("Connection", "close")
	}
	if f.received != nil {
		c.Header(ErrorHeader, p.Code)
	}
	body, err := encode(shape.Body(c, p))
	if err != nil {
		// A field of the error cannot be JSON: a bug, rendered without the fields.
		f.log.LogAttrs(c.Request.Context(), slog.LevelError, "error not rendered", slog.String("error", err.Error()))
		body, _ = encode(map[string]any{"error": p.Code, "detail": p.Detail, "request_id": f.requestID})
	}
	writeJSON(c, p.Status, body)
}

// JSON writes v as the answer's body, with a final newline and without escaping
// what HTML would need. A v that is no JSON is a bug, and a 500.
func JSON(c *gin.Context, status int, v any) {
	body, err := encode(v)
	if err != nil {
		Fail(c, errs.Wrap(err, ""))
		return
	}
	writeJSON(c, status, body)
}

// EncodeJSON gives what JSON would answer, for who keeps it.
func EncodeJSON(v any) ([]byte, error) { return encode(v) }

// WriteJSON answers with what EncodeJSON gave.
func WriteJSON(c *gin.Context, status int, body []byte) { writeJSON(c, status, body) }

func encode(v any) ([]byte, error) {
	var body bytes.Buffer
	enc := json.NewEncoder(&body)
	enc.SetEscapeHTML(false)
	err := enc.Encode(v)
	return body.Bytes(), err
}

func writeJSON(c *gin.Context, status int, body []byte) {
	h := c.Writer.Header()
	h.Set("Content-Type", "application/json; charset=utf-8")
	// Set, so that the whole answer is out with a flush.
	h.Set("Content-Length", strconv.Itoa(len(body)))
	c.Status(status)
	if c.Request.Method == http.MethodHead {
		c.Writer.WriteHeaderNow()
		return
	}
	_, _ = c.Writer.Write(body) // a client that is gone needs no answer
}

// printable makes a client's text fit for a sentence or a log line.
func printable(s string, limit int) string {
	var b strings.Builder
	for _, r := range s {
		if b.Len() >= limit {
			b.WriteString("…")
			break
		}
		if unicode.IsPrint(r) && r != unicode.ReplacementChar {
			b.WriteRune(r)
		} else {
			fmt.Fprintf(&b, "\\x%02x", r)
		}
	}
	return b.String()
}
