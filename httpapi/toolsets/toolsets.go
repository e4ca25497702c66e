// Package toolsets is the toolsets dialect (contracts/toolsets.md): mounts given
// to an agent, the tools that follow in the formats of model APIs, their calls,
// and the map for the prompt. It says nothing of its own about files or tools;
// that is internal/toolset's.
package toolsets

import (
	_ "embed"
	"net/http"
	"strings"
	"time"

	"github.com/gin-gonic/gin"

	"umbra/httpapi"
	"umbra/httpapi/wire"
	"umbra/internal/errs"
	"umbra/internal/task"
	"umbra/internal/toolset"
	"umbra/internal/toolset/tool"
)

//go:embed openapi.yaml
var document []byte

// Dialect is the toolsets dialect.
type Dialect struct {
	toolsets *toolset.Service
	maxCall  int64
}

// New makes the dialect; a call's body may have maxCall bytes.
func New(s *toolset.Service, maxCall int64) *Dialect { return &Dialect{s, maxCall} }

// OpenAPI gives the dialect's part of the document.
func (d *Dialect) OpenAPI() []byte { return document }

// Register adds the dialect's routes.
func (d *Dialect) Register(r *httpapi.Router) {
	r = r.With(wire.WithFields(httpapi.CommonShape()))
	add := func(method, pattern string, h httpapi.Handler, rt httpapi.Route) {
		rt.Method, rt.Pattern, rt.Handler, rt.Authorize = method, pattern, h, d.authorize
		r.Handle(rt)
	}
	const one = "/toolsets/{id}"
	where := httpapi.AboutWhere("id", func(id string) (string, error) { return d.toolsets.Where(id), nil })
	add("POST", "/toolsets", d.create, httpapi.Route{About: d.aboutMounts, Access: httpapi.AccessWrite, Body: httpapi.BodyJSON, Changes: true})
	add("GET", "/toolsets", d.list, httpapi.Route{About: httpapi.AboutNone})
	add("GET", one, d.get, httpapi.Route{About: httpapi.AboutNone})
	add("DELETE", one, d.remove, httpapi.Route{About: httpapi.AboutNone, Access: httpapi.AccessWrite})
	add("PUT", one+"/mounts", d.setMounts, httpapi.Route{About: d.aboutMounts, Access: httpapi.AccessWrite, Body: httpapi.BodyJSON})
	add("GET", one+"/tools?format", d.tools, httpapi.Route{About: httpapi.AboutNone})
	add("GET", one+"/filesystem-map", d.fileSystemMap, httpapi.Route{About: httpapi.AboutNone})
	add("GET", one+"/turn?format", d.turn, httpapi.Route{About: where})
	// Some tools only read: the call asks for more where it changes something.
	add("POST", one+"/call", d.call, httpapi.Route{About: d.aboutCall, Body: httpapi.BodyJSON, MaxBody: d.maxCall, Changes: true})
}

// aboutMounts is the place of a request that mounts directories: the node of one.
func (d *Dialect) aboutMounts(c *gin.Context) (httpapi.Place, error) {
	var body struct {
		Mounts []struct {
			Store struct {
				Root string `json:"root"`
			} `json:"store"`
		} `json:"mounts"`
	}
	if !httpapi.PeekJSON(c, &body) {
		return httpapi.Place{}, nil // the handler says what is wrong with it
	}
	var roots []string
	for _, m := range body.Mounts {
		if m.Store.Root != "" {
			roots = append(roots, m.Store.Root)
		}
	}
	return httpapi.AtDirectory(c, d.toolsets.DirectoryAt, roots...)
}

// sees reports which workspaces the caller may know of.
func sees(c *gin.Context) task.Sees { return httpapi.CallerOf(c).Sees }

// authorize refuses toolsets on workspaces that the caller may not see.
func (d *Dialect) authorize(c *gin.Context) error {
	id, err := httpapi.Param(c, "id")
	if err != nil || id == "" {
		return nil
	}
	return d.toolsets.Visible(id, sees(c))
}

// who returns who requests a change of mounts.
func who(c *gin.Context) toolset.Who {
	caller := httpapi.CallerOf(c)
	return toolset.Who{Actor: httpapi.TagsOf(c).Actor, RequestID: httpapi.RequestID(c), Sees: caller.Sees,
		Allow: func(root string, known bool) error {
			if known && caller.Token != "" && caller.Sees(root) {
				return nil
			}
			return caller.MayOpen(root)
		}}
}

// store is where a mount's files are.
type store struct {
	Type      string   `json:"type"`
	Root      *string  `json:"root,omitempty"`
	Namespace []string `json:"namespace,omitempty"`
}

type mountBody struct {
	Prefix      string `json:"prefix"`
	Scope       string `json:"scope"`
	Store       store  `json:"store"`
	WorkspaceID string `json:"workspaceId,omitempty"`
}

type createBody struct {
	Mounts *[]mountBody `json:"mounts"`
	TaskID *string      `json:"taskId"`
	Idle   *int64       `json:"idleSeconds"`
	Lazy   bool         `json:"lazyTasks"`
}

// specs reads a body's mounts.
func (b *createBody) specs() ([]toolset.Spec, error) {
	if b.Mounts == nil {
		return nil, required("mounts")
	}
	out := make([]toolset.Spec, len(*b.Mounts))
	for i, m := range *b.Mounts {
		out[i] = toolset.Spec{Prefix: m.Prefix, Scope: m.Scope, Type: m.Store.Type, Namespace: m.Store.Namespace}
		if m.Store.Root != nil {
			out[i].Root = *m.Store.Root
		}
	}
	return out, nil
}

func required(field string) error {
	return errs.New(errs.Invalid, "invalid_field", "%s is required.", field).With("field", field)
}

func malformed(field string) error {
	return errs.New(errs.Invalid, "invalid_field", "%s must be 1 to 128 letters, digits, dots, underscores or hyphens, begin with a letter or digit, be without \"..\" and not end in \".lock\".", field).With("field", field)
}

// body is a toolset in an answer.
type body struct {
	ID     string            `json:"id"`
	TaskID *string           `json:"taskId"`
	Mounts []mountBody       `json:"mounts"`
	Tasks  map[string]string `json:"tasks"`
	Tools  []string          `json:"tools"`
	MCP    string            `json:"mcp"`
	Time   string            `json:"createdAt"`
	Idle   *int64            `json:"idleSeconds,omitempty"`
}

func bodyOf(t *toolset.Toolset) body {
	out := body{ID: t.ID, TaskID: wire.Text(t.TaskID), Mounts: make([]mountBody, len(t.Mounts)), Tasks: t.Tasks, Tools: tool.Names(t.Tools),
		MCP: "/mcp/" + t.ID, Time: wire.Stamp(t.Created)}
	if t.Idle > 0 {
		seconds := int64(t.Idle / time.Second)
		out.Idle = &seconds
	}
	for i, m := range t.Mounts {
		out.Mounts[i] = mountBody{Prefix: m.Prefix, Scope: string(m.Scope), Store: store{Type: string(m.Kind), Root: wire.Text(m.Root), Namespace: m.Namespace},
			WorkspaceID: m.Workspace}
	}
	return out
}

func (d *Dialect) create(c *gin.Context) error {
	var b createBody
	if err := httpapi.DecodeJSON(c, &b); err != nil {
		return err
	}
	specs, err := b.specs()
	if err != nil {
		return err
	}
	o := toolset.CreateOptions{Mounts: specs, TaskID: httpapi.TagsOf(c).TaskID, Lazy: b.Lazy, Who: who(c)}
	if b.TaskID != nil {
		if !httpapi.ValidID(*b.TaskID) {
			return malformed("taskId")
		}
		if o.TaskID != "" && o.TaskID != *b.TaskID {
			return errs.New(errs.Invalid, "task_id_mismatch", "X-Task-Id names another task than the body.").With("field", "taskId")
		}
		o.TaskID = *b.TaskID
	}
	if o.IdempotencyKey, err = wire.KeyHash(c); err != nil {
		return err
	}
	if b.Idle != nil {
		if *b.Idle < 1 || *b.Idle > int64(toolset.MaxIdle/time.Second) {
			return errs.New(errs.Invalid, "invalid_field", "idleSeconds must be 1 to 86400.").With("field", "idleSeconds")
		}
		o.Idle = time.Duration(*b.Idle) * time.Second
	}
	t, replayed, err := d.toolsets.Create(c.Request.Context(), o)
	if err != nil {
		return err
	}
	wire.SettleKey(c, replayed, true)
	c.Header("Location", "/toolsets/"+t.ID)
	httpapi.JSON(c, http.StatusCreated, bodyOf(&t))
	return nil
}

func (d *Dialect) list(c *gin.Context) error {
	all, err := d.toolsets.List(sees(c))
	if err != nil {
		return err
	}
	out := make([]body, len(all))
	for i := range all {
		out[i] = bodyOf(&all[i])
	}
	httpapi.JSON(c, http.StatusOK, map[string]any{"toolsets": out})
	return nil
}

// find gives the toolset that the route names.
func (d *Dialect) find(c *gin.Context) (toolset.Toolset, error) {
	id, err := httpapi.Param(c, "id")
	if err != nil {
		return toolset.Toolset{}, err
	}
	return d.toolsets.Get(id, sees(c))
}

func (d *Dialect) get(c *gin.Context) error {
	t, err := d.find(c)
	if err != nil {
		return err
	}
	httpapi.JSON(c, http.StatusOK, bodyOf(&t))
	return nil
}

func (d *Dialect) remove(c *gin.Context) error {
	id, err := httpapi.Param(c, "id")
	if err != nil {
		return err
	}
	if err := d.toolsets.Delete(c.Request.Context(), id, who(c)); err != nil {
		return err
	}
	c.Status(http.StatusNoContent)
	c.Writer.WriteHeaderNow()
	return nil
}

func (d *Dialect) setMounts(c *gin.Context) error {
	var b createBody
	if err := httpapi.DecodeJSON(c, &b); err != nil {
		return err
	}
	specs, err := b.specs()
	if err != nil {
		return err
	}
	id, err := httpapi.Param(c, "id")
	if err != nil {
		return err
	}
	t, err := d.toolsets.SetMounts(c.Request.Context(), id, specs, who(c))
	if err != nil {
		return err
	}
	httpapi.JSON(c, http.StatusOK, bodyOf(&t))
	return nil
}

func (d *Dialect) tools(c *gin.Context) error {
	_, list, err := d.findTools(c)
	if err != nil {
		return err
	}
	httpapi.JSON(c, http.StatusOK, map[string]any{"tools": list})
	return nil
}

// findTools returns a toolset, and its tools in the format of the request's query.
func (d *Dialect) findTools(c *gin.Context) (toolset.Toolset, any, error) {
	format, given, err := httpapi.Query(c, "format")
	if err != nil {
		return toolset.Toolset{}, nil, err
	}
	if !given {
		format = string(tool.MCP)
	}
	t, err := d.find(c)
	if err != nil {
		return t, nil, err
	}
	list, ok := tool.In(tool.Format(format), t.Tools)
	if !ok {
		err = errs.New(errs.Invalid, "invalid_parameter", "format must be mcp, openai, anthropic or langchain.").With("field", "format")
	}
	return t, list, err
}

func (d *Dialect) fileSystemMap(c *gin.Context) error {
	t, err := d.find(c)
	if err != nil {
		return err
	}
	c.Header("Cache-Control", "no-store")
	c.DataFromReader(http.StatusOK, int64(len(t.Map)), "text/plain; charset=utf-8", strings.NewReader(t.Map), nil)
	return nil
}
