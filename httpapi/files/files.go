// Package files is the part of the tasks dialect that clients and framework
// adapters build on (contracts/clients.md): sorted listings, stat, search, glob,
// and the edits that need more than a write. What it answers is
// internal/taskfiles' work.
package files

import (
	_ "embed"
	"net/http"
	"strings"

	"github.com/gin-gonic/gin"

	"umbra/gitstore/object"
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
		rt.Method, rt.Pattern, rt.Authorize = method, "/tasks/{id}/"+name, d.authorize
		rt.Handler = d.using(h, rt.Changes)
		r.Handle(rt)
	}
	one := wire.AboutTask(d.tasks)
	write := func(body httpapi.BodyKind, limit int64) httpapi.Route {
		return httpapi.Route{About: one, Access: httpapi.AccessWrite, Body: body, MaxBody: limit, Changes: true}
	}
	read := httpapi.Route{About: one}
	add("GET", "list", d.list, read)
	add("GET", "stat", d.stat, read)
	add("GET", "search", d.search, read)
	add("GET", "glob", d.glob, read)
	add("POST", "edit", d.edit, write(httpapi.BodyJSON, d.write))
	add("POST", "append", d.append, write(httpapi.BodyRaw, d.write))
	add("POST", "mkdir", d.mkdir, write(httpapi.BodyJSON, 0))
	add("POST", "copy", d.copy, write(httpapi.BodyJSON, 0))
	add("POST", "symlink", d.symlink, write(httpapi.BodyJSON, 0))
}

// authorize refuses tasks on workspaces that the caller may not see.
func (d *Dialect) authorize(c *gin.Context) error {
	id, err := httpapi.Param(c, "id")
	if err != nil || id == "" {
		return nil
	}
	return d.tasks.Visible(id, httpapi.CallerOf(c).Sees)
}

// using runs a handler with the route's task. The task of a route that changes
// something is the change's, and a header may not name another.
func (d *Dialect) using(h func(*gin.Context, *task.Ref) error, changes bool) httpapi.Handler {
	return func(c *gin.Context) error {
		id, err := httpapi.Param(c, "id")
		if err != nil {
			return err
		}
		if tagged := httpapi.TagsOf(c).TaskID; changes && tagged != "" && tagged != id {
			return errs.New(errs.Invalid, "task_id_mismatch", "X-Task-Id names another task than the URL.").With("field", "X-Task-Id")
		}
		if !task.ValidID(id) {
			return errs.New(errs.NotFound, "task_not_found", "The task does not exist.")
		}
		r, err := d.tasks.Get(c.Request.Context(), id, httpapi.CallerOf(c).Sees)
		if err != nil {
			return err
		}
		defer r.Release()
		return h(c, r)
	}
}

// target is what a path of a request names: a path of the workspace, or, with
// an area, one in a directory of the task's own.
type target struct {
	path wspath.Path
	area task.Area // empty: the workspace
	dir  bool      // written with a slash at its end: it must be a directory
}

func (t target) inArea() bool { return t.area != "" }

func (t target) areaPath() task.AreaPath { return task.AreaPath{Area: t.area, Path: t.path} }

func (t target) kind() workspace.Kind {
	if t.dir {
		return workspace.KindDir
	}
	return workspace.KindNone
}

// JSON returns the path as bodies show it, and its path_encoding.
func (t target) JSON() (path, encoding string) {
	switch {
	case !t.inArea():
		return t.path.JSON()
	case t.path.IsRoot():
		return string(t.area) + "://", ""
	}
	return t.areaPath().URI()
}

func parseTarget(path, encoding string, opts ...wspath.Option) (target, error) {
	area, rest, ok := task.SplitURI(path)
	if !ok {
		rest = path
	}
	p, err := wspath.FromJSON(rest, encoding, opts...)
	if err != nil {
		return target{}, err
	}
	return target{path: p, area: area, dir: strings.HasSuffix(rest, "/")}, nil
}

// queryTarget reads ?path=; without needed the root is the default.
func queryTarget(c *gin.Context, needed bool, opts ...wspath.Option) (t target, given bool, err error) {
	value, given, err := httpapi.Query(c, "path")
	switch {
	case err != nil:
		return target{}, false, err
	case !given && needed:
		return target{}, false, errs.New(errs.Invalid, "invalid_parameter", "The path parameter is required.").With("field", "path")
	case !given:
		return target{path: wspath.Root}, false, nil
	}
	t, err = parseTarget(value, "", opts...)
	return t, true, err
}

func required(field string) error {
	return errs.New(errs.Unprocessable, "validation_failed", "%s is required.", field).With("field", field)
}

// bodyTarget reads a path of a JSON body.
func bodyTarget(field string, value *string, encoding string, opts ...wspath.Option) (target, error) {
	if value == nil {
		return target{}, required(field)
	}
	return parseTarget(*value, encoding, opts...)
}

// workspaceOnly refuses a path in the task's own directories.
func workspaceOnly(t target) error {
	if !t.inArea() {
		return nil
	}
	return errs.New(errs.Unprocessable, "not_in_workspace", "This route works on paths of the workspace only.").With("field", "path")
}

// limit reads a number of results: over the most is the most, under 1 is a 400.
func limit(c *gin.Context, name string, byDefault, most int64) (int, error) {
	n, err := httpapi.QueryInt(c, name, byDefault, 1, 1<<53)
	return int(min(n, most)), err
}

// condition reads the request's preconditions.
func condition(c *gin.Context) (workspace.Condition, error) {
	match, err := httpapi.IfMatch(c)
	if err != nil {
		return workspace.Condition{}, err
	}
	none, err := httpapi.IfNoneMatch(c)
	if err != nil {
		return workspace.Condition{}, err
	}
	if none.Present && !none.Any {
		return workspace.Condition{}, errs.New(errs.Invalid, "bad_etag", "A change takes If-None-Match with * only.").With("field", "If-None-Match")
	}
	return workspace.Condition{Match: wire.Tags(match), NoneMatchAny: none.Any}, nil
}

// written answers a change of one path, as PUT of content does.
type written struct {
	Path            string  `json:"path"`
	PathEncoding    string  `json:"path_encoding,omitempty"`
	NewPath         *string `json:"new_path,omitempty"`
	NewPathEncoding string  `json:"new_path_encoding,omitempty"`
	Operation       *string `json:"operation"`
	ChangeID        *uint64 `json:"change_id"`
	Commit          *string `json:"commit"`
	ETag            *string `json:"etag"`
	Bytes           int64   `json:"bytes"`
	// Of single routes:
	Occurrences    *int    `json:"occurrences,omitempty"`
	Created        *bool   `json:"created,omitempty"`
	Target         *string `json:"target,omitempty"`
	TargetEncoding string  `json:"target_encoding,omitempty"`
}

func etag(id object.ID) *string {
	if id.IsZero() {
		return nil
	}
	tag := httpapi.ETag(id.String())
	return &tag
}

func writtenOf(res *workspace.Result) written {
	op := res.Ops[0]
	w := written{Operation: wire.Text(string(op.Operation)), ETag: etag(op.Blob), Bytes: op.Size}
	w.Path, w.PathEncoding = op.Path.JSON()
	if op.To != "" {
		to, enc := op.To.JSON()
		w.NewPath, w.NewPathEncoding = &to, enc
	}
	if !res.Commit.IsZero() {
		id := res.Commit.String()
		w.Commit = &id
	}
	if len(res.Entries) > 0 && res.Entries[0].ID != 0 {
		w.ChangeID = &res.Entries[0].ID
	}
	return w
}

func areaWritten(r task.AreaResult) written {
	w := written{Operation: wire.Text(r.Operation), ETag: etag(r.Blob), Bytes: r.Size}
	w.Path, w.PathEncoding = r.Path.URI()
	return w
}

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

func statusOf(created bool) int {
	if created {
		return http.StatusCreated
	}
	return http.StatusOK
}
