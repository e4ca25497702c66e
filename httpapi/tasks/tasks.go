// Package tasks is the tasks dialect (contracts/tasks.md): routes, wire types
// and handlers. It says nothing of its own about files, history or tasks; that
// is internal/task's and internal/workspace's.
package tasks

import (
	_ "embed"
	"net/http"

	"github.com/gin-gonic/gin"

	"umbra/httpapi"
	"umbra/httpapi/wire"
	"umbra/internal/areas"
	"umbra/internal/history"
	"umbra/internal/task"
)

//go:embed openapi.yaml
var document []byte

// Limits of the dialect's bodies, in bytes; 0 means the frame's JSON limit.
type Limits struct {
	Write int64 // PUT of a file
	Batch int64 // POST of a batch
}

// Dialect is the tasks dialect.
type Dialect struct {
	tasks   *task.Service
	history *history.Cache
	limits  Limits
}

// New makes the dialect.
func New(s *task.Service, cache *history.Cache, limits Limits) *Dialect {
	return &Dialect{tasks: s, history: cache, limits: limits}
}

// OpenAPI gives the dialect's part of the document.
func (d *Dialect) OpenAPI() []byte { return document }

// Register adds the dialect's routes.
func (d *Dialect) Register(r *httpapi.Router) {
	r = r.With(wire.WithFields(httpapi.TaskShape()))
	add := func(method, pattern string, h httpapi.Handler, rt httpapi.Route) {
		rt.Method, rt.Pattern, rt.Handler, rt.Authorize = method, pattern, h, wire.TaskVisible(d.tasks)
		r.Handle(rt)
	}
	one := wire.AboutTask(d.tasks)
	write := func(body httpapi.BodyKind, limit int64) httpapi.Route {
		return httpapi.Route{Access: httpapi.AccessWrite, Body: body, MaxBody: limit, Changes: true, About: one}
	}
	remove := write(httpapi.BodyNone, 0)
	read := httpapi.Route{About: one}
	history := httpapi.Route{About: one, Follow: httpapi.FollowReads}
	add("POST", "/tasks", d.create, httpapi.Route{Access: httpapi.AccessWrite, Body: httpapi.BodyJSON, Changes: true, About: d.aboutNew})
	add("GET", "/tasks?status&workspace&after&limit", d.list, httpapi.Route{About: httpapi.AboutNone})
	add("GET", "/tasks/{id}", d.get, read)
	add("PATCH", "/tasks/{id}", d.patch, httpapi.Route{About: one, Access: httpapi.AccessWrite, Body: httpapi.BodyJSON})
	add("DELETE", "/tasks/{id}", d.remove, httpapi.Route{About: one, Access: httpapi.AccessWrite})

	add("GET", "/tasks/{id}/content?path&at&offset&limit", d.readContent, history)
	add("PUT", "/tasks/{id}/content?path", d.writeContent, write(httpapi.BodyRaw, d.limits.Write))
	add("DELETE", "/tasks/{id}/content?path&recursive&force", d.deleteContent, remove)
	add("POST", "/tasks/{id}/move", d.move, write(httpapi.BodyJSON, 0))
	add("POST", "/tasks/{id}/batch", d.batch, write(httpapi.BodyJSON, d.limits.Batch))

	add("GET", "/tasks/{id}/changes?subtask_id&path&after&limit", d.changes, history)
	add("GET", "/tasks/{id}/changes/{n}/before", d.before, history)
	add("GET", "/tasks/{id}/files?subtask_id", d.files, history)
	add("GET", "/tasks/{id}/files/{path...}/diff?from&to&subtask_id&context", d.diffFile, history)
	add("GET", "/tasks/{id}/diff?path&from&to&subtask_id&context", d.diffAll, history)
	// A dry run is reading: the handlers ask for more.
	undo := httpapi.Route{About: one, Body: httpapi.BodyOptionalJSON, Changes: true}
	add("POST", "/tasks/{id}/files/{path...}/revert", d.revertFile, undo)
	add("POST", "/tasks/{id}/revert", d.revertTask, undo)
	add("POST", "/tasks/{id}/subtasks/{sid}/revert", d.revertSubtask, undo)
	add("POST", "/tasks/{id}/changes/{n}/revert", d.revertChange, undo)

	add("GET", "/tasks/{id}/stream?after", d.stream, httpapi.Route{Stream: true, About: one})

	for _, a := range areas.All() {
		base := "/tasks/{id}/" + string(a)
		add("GET", base, d.listArea(a), read)
		add("GET", base+"/{path...}", d.readArea(a), read)
		add("PUT", base+"/{path...}", d.writeArea(a), write(httpapi.BodyRaw, d.limits.Write))
		add("DELETE", base+"/{path...}?recursive", d.deleteArea(a), remove)
	}
}

// sees reports which workspaces the caller may know of.
func sees(c *gin.Context) task.Sees { return httpapi.CallerOf(c).Sees }

// open opens the task that the route names. The caller releases it.
func (d *Dialect) open(c *gin.Context) (*task.Ref, error) {
	return wire.OpenTask(c, d.tasks.Get, false)
}

// openToRead is open for a route that reports what the task did, and nothing else.
func (d *Dialect) openToRead(c *gin.Context) (*task.Ref, error) {
	return wire.OpenTask(c, d.tasks.Read, false)
}

// openForChange is open for a route that changes something.
func (d *Dialect) openForChange(c *gin.Context) (*task.Ref, error) {
	return wire.OpenTask(c, d.tasks.Get, true)
}

// using runs a handler with the route's task.
func using(open func(*gin.Context) (*task.Ref, error), h func(*gin.Context, *task.Ref) error) httpapi.Handler {
	return func(c *gin.Context) error {
		r, err := open(c)
		if err != nil {
			return err
		}
		defer r.Release()
		return h(c, r)
	}
}

func noContent(c *gin.Context) {
	c.Status(http.StatusNoContent)
	c.Writer.WriteHeaderNow()
}
