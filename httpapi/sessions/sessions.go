// Package sessions is the sessions dialect (contracts/sessions.md): a file
// system over HTTP, with entity tags. It says nothing of its own about files,
// history or tasks; that is internal/workspace's and internal/task's.
package sessions

import (
	_ "embed"
	"slices"

	"github.com/gin-gonic/gin"

	"umbra/httpapi"
	"umbra/httpapi/wire"
	"umbra/internal/errs"
	"umbra/internal/session"
	"umbra/internal/task"
	"umbra/internal/workspace"
	"umbra/internal/workspaces"
)

//go:embed openapi.yaml
var document []byte

// Limits of the dialect's bodies, in bytes; 0 means the frame's JSON limit.
type Limits struct {
	Write  int64 // a file in a JSON body
	Upload int64 // a raw body
}

// Dialect is the sessions dialect.
type Dialect struct {
	sessions   *session.Service
	tasks      *task.Service
	workspaces *workspaces.Manager
	limits     Limits
}

// New makes the dialect.
func New(s *session.Service, t *task.Service, m *workspaces.Manager, limits Limits) *Dialect {
	return &Dialect{sessions: s, tasks: t, workspaces: m, limits: limits}
}

// OpenAPI gives the dialect's part of the document.
func (d *Dialect) OpenAPI() []byte { return document }

const base = "/api/sessions/{id}"

// Register adds the dialect's routes.
func (d *Dialect) Register(r *httpapi.Router) {
	r = r.With(shape())
	add := func(method, pattern string, h httpapi.Handler, rt httpapi.Route) {
		rt.Method, rt.Pattern, rt.Handler, rt.Authorize = method, pattern, h, d.authorize
		rt.AnyQuery = method != "DELETE"
		r.Handle(rt)
	}
	one := httpapi.AboutWhere("id", d.sessions.Where)
	read := httpapi.Route{About: one}
	// A token that may only read may open a session on what is a workspace
	// already: the handler asks for more.
	add("POST", "/api/sessions", d.create, httpapi.Route{About: d.aboutNew, Body: httpapi.BodyJSON, Changes: true})
	add("GET", "/api/sessions", d.list, httpapi.Route{About: httpapi.AboutNone})
	add("GET", base, d.using(d.get), read)
	add("DELETE", base, d.remove, httpapi.Route{About: one, Access: httpapi.AccessWrite})

	add("GET", base+"/fs", d.using(d.capabilities), read)
	add("GET", base+"/fs/stat", d.using(d.stat), read)
	add("GET", base+"/fs/list", d.using(d.listFolder), read)
	add("GET", base+"/fs/tree", d.using(d.tree), read)
	add("GET", base+"/fs/read", d.using(d.read), read)
	add("GET", base+"/fs/download", d.using(d.download), read)

	write := func(body httpapi.BodyKind, limit int64) httpapi.Route {
		return httpapi.Route{About: one, Access: httpapi.AccessWrite, Body: body, MaxBody: limit, Changes: true}
	}
	content := write(httpapi.BodyJSON, d.limits.Write)
	add("POST", base+"/fs/write", d.using(d.write), content)
	add("POST", base+"/fs/upload", d.using(d.write), content)
	add("PUT", base+"/fs/upload", d.using(d.upload), write(httpapi.BodyRaw, d.limits.Upload))
	add("POST", base+"/fs/replace", d.using(d.replace), content)
	small := write(httpapi.BodyJSON, 0)
	add("POST", base+"/fs/mkdir", d.using(d.mkdir), small)
	add("POST", base+"/fs/move", d.using(d.move), small)
	add("POST", base+"/fs/copy", d.using(d.copy), small)
	add("POST", base+"/fs/symlink", d.using(d.symlink), small)
	remove := write(httpapi.BodyNone, 0)
	add("DELETE", base+"/fs/file?path&recursive&force", d.using(d.deleteFile), remove)
	add("DELETE", base+"/fs/dir?path&recursive&force", d.using(d.deleteDir), remove)
}

// shape is {"error":sentence}, and what a delete could not record.
// An unmet condition is a conflict here, and names the current tag.
func shape() httpapi.Shape {
	return wire.WithFields(httpapi.Shape{
		Status: map[errs.Kind]int{errs.Precondition: 409},
		Body: func(c *gin.Context, p *httpapi.Problem) any {
			if tag, ok := p.Fields["etag"].(string); ok && p.Kind == errs.Precondition {
				c.Header("ETag", tag)
			}
			body := map[string]any{"error": p.Detail}
			if list, ok := p.Fields["unrecorded"]; ok {
				body["unrecorded"] = list
			}
			return body
		},
	})
}

// sees reports which workspaces the caller may know of.
func sees(c *gin.Context) task.Sees { return httpapi.CallerOf(c).Sees }

// authorize refuses sessions on folders that the caller may not see.
func (d *Dialect) authorize(c *gin.Context) error {
	id, err := httpapi.Param(c, "id")
	if err != nil || id == "" {
		return nil
	}
	return d.sessions.Visible(id, sees(c))
}

// handler answers a request on a session.
type handler func(c *gin.Context, ses session.Session) error

// using runs a handler with the route's session, which is in use until it
// returns.
func (d *Dialect) using(h handler) httpapi.Handler {
	return func(c *gin.Context) error {
		id, err := httpapi.Param(c, "id")
		if err != nil {
			return err
		}
		ses, done, err := d.sessions.Use(id, sees(c))
		if err != nil {
			return err
		}
		defer done()
		return h(c, ses)
	}
}

// open opens the session's workspace, for reading. The caller releases it.
func (d *Dialect) open(c *gin.Context, ses session.Session) (*workspace.Workspace, error) {
	return d.workspaces.Get(c.Request.Context(), ses.Workspace)
}

// taskOf opens the task that a change is to belong to: the one that the header
// names, else the session's. The caller releases it.
func (d *Dialect) taskOf(c *gin.Context, ses session.Session) (*task.Ref, error) {
	id := httpapi.TagsOf(c).TaskID
	if id == "" {
		id = ses.Task
	}
	return d.tasks.GetOn(c.Request.Context(), id, ses.Workspace, sees(c))
}

// asInvalid makes conflicts with these codes faults of the request, as this
// dialect takes them.
func asInvalid(err error, codes ...string) error {
	if e, ok := err.(*errs.Error); ok && e.Kind == errs.Conflict {
		if slices.Contains(codes, e.Code) {
			invalid := *e
			invalid.Kind = errs.Invalid
			return &invalid
		}
	}
	return err
}

// noFile are the codes of what is there and is no file.
func noFile(err error) error {
	return asInvalid(err, "is_a_directory", "not_a_directory", "special_file", "not_a_file")
}
