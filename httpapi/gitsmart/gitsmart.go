// Package gitsmart serves the shadow repositories to git: smart HTTP,
// read-only (contracts/git.md, Clone and fetch; gitprotocol-http(5)), bundles
// and mailboxes of a task.
//
// Packs are made by the machine's git, in a process of its own: it knows
// protocol v2, shallow and partial clones. Before each answer pending commits
// are made visible. Where no git is installed, go-git answers what it can.
package gitsmart

import (
	"context"
	_ "embed"
	"net/http"
	"strings"

	"github.com/gin-gonic/gin"

	"umbra/httpapi"
	"umbra/httpapi/wire"
	"umbra/internal/errs"
	"umbra/internal/task"
	"umbra/internal/workspace"
	"umbra/internal/workspaces"
)

//go:embed openapi.yaml
var document []byte

// maxServing bounds how many packs are made at once; others wait their turn.
const maxServing = 8

// Dialect is git's routes.
type Dialect struct {
	workspaces *workspaces.Manager
	tasks      *task.Service
	serving    chan struct{}
}

// New makes the dialect.
func New(m *workspaces.Manager, s *task.Service) *Dialect {
	return &Dialect{workspaces: m, tasks: s, serving: make(chan struct{}, maxServing)}
}

// OpenAPI gives the dialect's part of the document.
func (d *Dialect) OpenAPI() []byte { return document }

// Register adds the dialect's routes.
func (d *Dialect) Register(r *httpapi.Router) {
	r = r.With(httpapi.CommonShape())
	add := func(method, pattern string, h httpapi.Handler, rt httpapi.Route) {
		rt.Method, rt.Pattern, rt.Handler, rt.AnyQuery = method, pattern, h, true // as git's own server
		r.Handle(rt)
	}
	git := httpapi.Route{Basic: true, About: httpapi.AboutWorkspace("repo", ".git"), Follow: httpapi.FollowClones}
	add("GET", "/git/", d.index, httpapi.Route{Basic: true, About: httpapi.AboutNone})
	add("GET", "/git/{repo}/info/refs", d.advertise, git)
	pack := git
	pack.Body, pack.MaxBody = httpapi.BodyRaw, maxRequest
	add("POST", "/git/{repo}/git-upload-pack", d.uploadPack, pack)
	add("POST", "/git/{repo}/git-receive-pack", refusePush, httpapi.Route{Basic: true, About: httpapi.AboutNone})

	tasks := r.With(httpapi.TaskShape())
	tasks.Handle(httpapi.Route{Method: "GET", Pattern: "/tasks/{id}/bundle", Handler: d.bundle, Basic: true, About: wire.AboutTask(d.tasks)})
	tasks.Handle(httpapi.Route{Method: "GET", Pattern: "/tasks/{id}/patches", Handler: d.patches, Basic: true, About: wire.AboutTask(d.tasks)})
}

type repository struct {
	ID   string `json:"id"`
	URL  string `json:"url"`
	Head string `json:"head"`
}

// index lists the repositories that the caller may clone.
func (d *Dialect) index(c *gin.Context) error {
	list := []repository{}
	scheme := "http"
	if c.Request.TLS != nil {
		scheme = "https"
	}
	err := d.workspaces.Each(func(rec workspaces.Record) bool {
		if httpapi.CallerOf(c).Sees(rec.Place()) {
			list = append(list, repository{ID: rec.ID, URL: scheme + "://" + c.Request.Host + "/git/" + rec.ID + ".git", Head: "refs/heads/shadow"})
		}
		return true
	})
	if err != nil {
		return errs.Wrap(err, "")
	}
	httpapi.JSON(c, http.StatusOK, map[string]any{"repositories": list})
	return nil
}

// open gives the route's workspace with everything visible to git. The caller
// releases it.
func (d *Dialect) open(c *gin.Context) (*workspace.Workspace, error) {
	name, err := httpapi.Param(c, "repo")
	if err != nil {
		return nil, err
	}
	id := strings.TrimSuffix(name, ".git")
	rec, ok, err := d.workspaces.Lookup(id)
	if err != nil {
		return nil, err
	}
	if !ok || !httpapi.CallerOf(c).Sees(rec.Place()) {
		return nil, errs.New(errs.NotFound, "repository_not_found", "The repository does not exist.")
	}
	w, err := d.workspaces.Get(c.Request.Context(), id)
	if err != nil {
		return nil, err
	}
	if err := w.Store().Publish(c.Request.Context()); err != nil {
		w.Release()
		return nil, err
	}
	return w, nil
}

// turn waits until one more pack may be made.
func (d *Dialect) turn(ctx context.Context) (done func(), err error) {
	select {
	case d.serving <- struct{}{}:
		return func() { <-d.serving }, nil
	case <-ctx.Done():
		return nil, errs.Wrap(context.Cause(ctx), "")
	}
}

func refusePush(*gin.Context) error { return errPush() }

func errPush() error {
	return errs.New(errs.Forbidden, "read_only", "The history is written by the server alone: it can be cloned and fetched, not pushed to.")
}
