// Package files is the part of the tasks dialect that clients and framework
// adapters build on (contracts/clients.md): sorted listings, stat, search, glob,
// and the edits that need more than a write. What it answers is
// internal/taskfiles' work.
package files

import (
	_ "embed"
	"net/http"

	"github.com/gin-gonic/gin"

	"umbra/httpapi"
	"umbra/httpapi/wire"
	"umbra/internal/errs"
	"umbra/internal/history"
	"umbra/internal/task"
	"umbra/internal/textsearch"
	"umbra/internal/workspace"
	"umbra/internal/wspath"
)

//go:embed openapi.yaml
var document []byte

// Dialect is the files routes.
type Dialect struct {
	tasks   *task.Service
	history *history.Cache
	write   int64

	searching textsearch.Slots
}

// New makes the dialect; the body of an edit or append may have write bytes.
func New(s *task.Service, cache *history.Cache, write int64) *Dialect {
	return &Dialect{tasks: s, history: cache, write: write, searching: textsearch.NewSlots()}
}

// OpenAPI returns the dialect's part of the document.
func (d *Dialect) OpenAPI() []byte { return document }

// Register adds the dialect's routes.
func (d *Dialect) Register(r *httpapi.Router) {
	r = r.With(wire.WithFields(httpapi.TaskShape()))
	add := func(method, name string, h func(*gin.Context, *task.Ref) error, rt httpapi.Route) {
		rt.Method, rt.Pattern, rt.Authorize = method, "/tasks/{id}/"+name, wire.TaskVisible(d.tasks)
		rt.Handler = d.using(h, rt.Changes)
		r.Handle(rt)
	}
	one := wire.AboutTask(d.tasks)
	write := func(body httpapi.BodyKind, limit int64) httpapi.Route {
		return httpapi.Route{About: one, Access: httpapi.AccessWrite, Body: body, MaxBody: limit, Changes: true}
	}
	read := httpapi.Route{About: one}
	add("GET", "list?path&recursive&after&limit", d.list, read)
	add("GET", "stat?path&follow", d.stat, read)
	add("GET", "search?pattern&literal&ignore_case&path&glob&context&max&max_per_file", d.search, read)
	add("GET", "glob?pattern&path&max", d.glob, read)
	add("POST", "edit", d.edit, write(httpapi.BodyJSON, d.write))
	add("POST", "append?path", d.append, write(httpapi.BodyRaw, d.write))
	add("POST", "mkdir", d.mkdir, write(httpapi.BodyJSON, 0))
	add("POST", "copy", d.copy, write(httpapi.BodyJSON, 0))
	add("POST", "symlink", d.symlink, write(httpapi.BodyJSON, 0))
}

// using runs a handler with the route's task.
func (d *Dialect) using(h func(*gin.Context, *task.Ref) error, changes bool) httpapi.Handler {
	return func(c *gin.Context) error {
		r, err := wire.OpenTask(c, d.tasks.Get, changes)
		if err != nil {
			return err
		}
		defer r.Release()
		return h(c, r)
	}
}

type target = wire.Target

func required(field string) error {
	return errs.New(errs.Unprocessable, "validation_failed", "%s is required.", field).With("field", field)
}

// bodyTarget reads a path of a JSON body.
func bodyTarget(field string, value *string, encoding string, opts ...wspath.Option) (target, error) {
	if value == nil {
		return target{}, required(field)
	}
	return wire.ParseTarget(*value, encoding, opts...)
}

// workspaceOnly refuses a path in the task's own directories.
func workspaceOnly(t target) error {
	if !t.InArea() {
		return nil
	}
	return errs.New(errs.Unprocessable, "not_in_workspace", "This route works on paths of the workspace only.").With("field", "path")
}

// limit reads a number of results: over the most is the most, under 1 is a 400.
func limit(c *gin.Context, name string, byDefault, most int64) (int, error) {
	n, err := httpapi.QueryInt(c, name, byDefault, 1, 1<<53)
	return int(min(n, most)), err
}

// written answers a change of one path, as PUT of content does.
type written struct {
	wire.Written
	// Of single routes:
	Occurrences    *int    `json:"occurrences,omitempty"`
	Created        *bool   `json:"created,omitempty"`
	Target         *string `json:"target,omitempty"`
	TargetEncoding string  `json:"target_encoding,omitempty"`
}

func writtenOf(res *workspace.Result) written { return written{Written: wire.WrittenOf(res)} }

func answer(c *gin.Context, status int, w written) {
	if w.ETag != nil {
		c.Header("ETag", *w.ETag)
	}
	httpapi.JSON(c, status, w)
}

// apply does one operation for the task, and settles the request's key.
func (d *Dialect) apply(c *gin.Context, r *task.Ref, op workspace.Op) (*workspace.Result, error) {
	key, err := wire.KeyHash(c)
	if err != nil {
		return nil, err
	}
	res, err := d.tasks.Apply(c.Request.Context(), r, workspace.Request{By: wire.By(c, key), Ops: []workspace.Op{op}})
	if err != nil {
		return nil, err
	}
	wire.SettleKey(c, res.Replayed, !res.Commit.IsZero())
	return res, nil
}

// applyAt is like apply, also where the task's own directories have the path.
func (d *Dialect) applyAt(c *gin.Context, r *task.Ref, t target, op workspace.Op) (w written, created bool, err error) {
	if t.InArea() {
		op.MaxEdit = d.write
		did, err := d.tasks.ApplyInArea(c.Request.Context(), r, t.AreaOp(op))
		if err != nil {
			return w, false, err
		}
		return written{Written: wire.AreaWritten(did)}, did.Created, nil
	}
	res, err := d.apply(c, r, op)
	if err != nil {
		return w, false, err
	}
	return writtenOf(res), res.Ops[0].Created, nil
}

func statusOf(created bool) int {
	if created {
		return http.StatusCreated
	}
	return http.StatusOK
}
