// Package mcp serves toolsets over the Model Context Protocol, streamable HTTP:
// one endpoint a toolset, by the official SDK. It says nothing of its own about
// files or tools; that is internal/toolset's.
//
// Each revision of the protocol has its own way to notify a client of changes:
// from 2026-07-28 on there are no sessions, and a client listens by a request
// (subscriptions/listen); before, it listens on a session's stream. So each
// endpoint has two handlers of the SDK, a stateless one for requests of the
// newest revision and one with sessions for the others, and both serve the same
// server. A session that another run of the program began is served without its
// stream, so that a client outlives a restart.
package mcp

import (
	"bytes"
	"context"
	"crypto/rand"
	_ "embed"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/gin-gonic/gin"
	"github.com/modelcontextprotocol/go-sdk/auth"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"umbra/httpapi"
	"umbra/internal/errs"
	"umbra/internal/task"
	"umbra/internal/toolset"
)

//go:embed openapi.yaml
var document []byte

// sessionIdle is how long a session that sends nothing is kept.
const sessionIdle = 24 * time.Hour

// sessionless is the first revision without sessions.
const sessionless = "2026-07-28"

// Options of a Dialect.
type Options struct {
	Toolsets *toolset.Service
	Node     string          // of a cluster, whose sessions its other nodes send here; empty: none
	AtOwner  httpapi.AtOwner // nil without a cluster
	Version  string          // of the program
	MaxBody  int64           // bytes of a request
}

// Dialect is the MCP dialect.
type Dialect struct {
	o    Options
	run  string // begins the ids of this run's sessions
	stop func()

	mu        sync.Mutex
	endpoints map[string]*endpoint // by toolset
}

// New makes the dialect; Close ends it.
func New(o Options) *Dialect {
	run := rand.Text()[:8] + "."
	if o.Node != "" {
		run = o.Node + "." + run // neither has a dot
	}
	d := &Dialect{o: o, run: run, endpoints: map[string]*endpoint{}}
	d.stop = o.Toolsets.Watch(d.changed)
	return d
}

// Close ends all sessions.
func (d *Dialect) Close() {
	d.stop()
	d.mu.Lock()
	all := d.endpoints
	d.endpoints = map[string]*endpoint{}
	d.mu.Unlock()
	for _, e := range all {
		e.close()
	}
}

// OpenAPI gives the dialect's part of the document.
func (d *Dialect) OpenAPI() []byte { return document }

// Register adds the dialect's routes.
func (d *Dialect) Register(r *httpapi.Router) {
	for _, pattern := range []string{"/mcp", "/mcp/{id}"} {
		add := func(method string, rt httpapi.Route) {
			rt.Method, rt.Pattern, rt.Handler, rt.Authorize, rt.AnyQuery = method, pattern, d.serve, d.authorize, true
			r.Handle(rt)
		}
		// Some tools only read: the call asks for more where it changes something.
		add("POST", httpapi.Route{About: d.about, Body: httpapi.BodyRaw, MaxBody: d.o.MaxBody, Changes: true})
		add("GET", httpapi.Route{About: d.about, Stream: true})
		add("DELETE", httpapi.Route{About: d.about})
	}
	if d.o.AtOwner != nil {
		r.Handle(httpapi.Route{Method: http.MethodPost, Pattern: ownerPath, Handler: d.serveForOwner, Internal: true, About: httpapi.AboutNone,
			Body: httpapi.BodyJSON, MaxBody: d.o.MaxBody + maxFacts})
	}
}

// about is a request's place: the node of its session, else the owner of the workspace that
// a call is about.
func (d *Dialect) about(c *gin.Context) (httpapi.Place, error) {
	h := c.Request.Header
	if session := h.Get("Mcp-Session-Id"); session != "" && h.Get("Mcp-Protocol-Version") < sessionless {
		name, _, _ := strings.Cut(session, ".")
		return httpapi.Place{Node: name}, nil
	}
	id := toolset.DefaultID
	if c.FullPath() != "/mcp" {
		var err error
		if id, err = httpapi.Param(c, "id"); err != nil {
			return httpapi.Place{}, err
		}
	}
	var call struct {
		Params struct {
			Name      string
			Arguments json.RawMessage
		}
	}
	httpapi.PeekJSON(c, &call) // of what it cannot decode the SDK says what is wrong
	ws, _ := d.o.Toolsets.Place(id, call.Params.Name, call.Params.Arguments)
	return httpapi.Place{Workspace: ws}, nil
}

func (d *Dialect) authorize(c *gin.Context) error {
	id, err := httpapi.Param(c, "id")
	if err != nil || id == "" {
		return nil
	}
	return d.o.Toolsets.Visible(id, httpapi.CallerOf(c).Sees)
}

// find gives the id of the toolset that the route names, or of the default one.
func (d *Dialect) find(c *gin.Context) (id string, err error) {
	if c.FullPath() == "/mcp" {
		if id, err = d.o.Toolsets.Default(c.Request.Context()); err != nil {
			return "", err
		}
	} else if id, err = httpapi.Param(c, "id"); err != nil {
		return "", err
	}
	_, err = d.o.Toolsets.Get(id, httpapi.CallerOf(c).Sees)
	return id, err
}

// caller is what a call has to know of the request that it came by.
type caller struct {
	who       httpapi.Caller
	tags      httpapi.Tags
	requestID string
	key       string
	begin     func() error
	session   string // empty in revisions without sessions
	idem      *httpapi.Idempotency
	remote    string          // the client's address
	ctx       context.Context // the HTTP request's: that of a message is its session's
}

// callerKey is its key in the token info that the SDK passes on.
const callerKey = "umbra.caller"

func (d *Dialect) serve(c *gin.Context) error {
	id, err := d.find(c)
	if err != nil {
		return err
	}
	req := c.Request
	var asked json.RawMessage
	if req.Method == http.MethodPost {
		// Read here: a broken body gets the server's own error.
		body, err := httpapi.ReadBody(c)
		if err != nil {
			return err
		}
		if req.Header.Get("Mcp-Method") == "subscriptions/listen" {
			httpapi.EndInTime(c) // a stream under another name
		}
		ctx, cancel := context.WithCancel(httpapi.Staying(req.Context()))
		defer cancel()
		req = req.WithContext(ctx)
		req.Body = io.NopCloser(bytes.NewReader(body))
		if asked = idOf(body); misshapen(c, body, asked) {
			return nil
		}
	}
	k := &caller{who: httpapi.CallerOf(c), tags: httpapi.TagsOf(c), requestID: httpapi.RequestID(c), idem: httpapi.IdempotencyOf(c), remote: req.RemoteAddr, ctx: req.Context()}
	if k.idem != nil {
		if k.key, err = k.idem.KeyHash(); err != nil {
			return err
		}
		if k.begin, err = httpapi.Once(c, "script"); err != nil {
			return err
		}
	}
	e := d.endpoint(id)
	h := e.stateful
	session := req.Header.Get("Mcp-Session-Id")
	if d.o.Node != "" && session != "" && !strings.HasPrefix(session, d.run) && req.Header.Get("Mcp-Protocol-Version") < sessionless {
		return errs.New(errs.NotFound, "session_not_found", "The session's node is gone; initialize again.")
	}
	if req.Header.Get("Mcp-Protocol-Version") >= sessionless || req.Method == http.MethodPost && session != "" && !strings.HasPrefix(session, d.run) {
		h = e.stateless
	}
	k.session = session
	w := &jsonErrors{ResponseWriter: c.Writer, id: asked}
	withCaller(h, k).ServeHTTP(w, req)
	w.end()
	return nil
}

// withCaller hands a request's facts to the SDK as those of a token, which it
// carries to the very call; who the token's owner is keeps sessions apart.
func withCaller(h http.Handler, k *caller) http.Handler {
	verify := func(context.Context, string, *http.Request) (*auth.TokenInfo, error) {
		return &auth.TokenInfo{UserID: k.who.Token, Extra: map[string]any{callerKey: k}}, nil
	}
	inner := auth.RequireBearerToken(verify, &auth.RequireBearerTokenOptions{AllowMissingExpiration: true})(h)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r = r.Clone(r.Context())
		r.Header.Set("Authorization", "Bearer checked") // by the frame, before
		inner.ServeHTTP(w, r)
	})
}

// endpoint gives a toolset's endpoint, made at its first use.
func (d *Dialect) endpoint(id string) *endpoint {
	d.mu.Lock()
	defer d.mu.Unlock()
	e := d.endpoints[id]
	if e == nil {
		e = d.newEndpoint(id)
		d.endpoints[id] = e
	}
	return e
}

// changed notifies clients of a toolset's new mounts, or ends its sessions.
func (d *Dialect) changed(id string) {
	// Get may find that another node has changed it, and call this.
	_, err := d.o.Toolsets.Get(id, nil)
	d.mu.Lock()
	e := d.endpoints[id]
	if err != nil {
		delete(d.endpoints, id)
	}
	d.mu.Unlock()
	switch {
	case e == nil:
	case err != nil:
		go e.close() // closing waits for the sessions' calls
	default:
		go e.refresh(true)
	}
}

// endpoint is one toolset on the wire.
type endpoint struct {
	d                   *Dialect
	id                  string
	server              *sdk.Server
	stateful, stateless http.Handler

	mu    sync.Mutex
	named map[string]bool // tools that the server has
	shown string          // the map that belongs to them
}

func (d *Dialect) newEndpoint(id string) *endpoint {
	e := &endpoint{d: d, id: id, named: map[string]bool{}}
	e.server = e.newServer()
	e.refresh(true)
	server := func(*http.Request) *sdk.Server { return e.server }
	e.stateful = sdk.NewStreamableHTTPHandler(server, &sdk.StreamableHTTPOptions{SessionTimeout: sessionIdle,
		DisableLocalhostProtection: true, MaxRequestBodyBytes: -1}) // both are the frame's
	e.stateless = sdk.NewStreamableHTTPHandler(server, &sdk.StreamableHTTPOptions{Stateless: true,
		DisableLocalhostProtection: true, MaxRequestBodyBytes: -1})
	return e
}

func (e *endpoint) close() {
	for s := range e.server.Sessions() {
		_ = s.Close() // the client is gone, or will see
	}
}

// sees reports which workspaces a caller may know of.
func (k *caller) sees() task.Sees {
	if k == nil {
		return nil
	}
	return k.who.Sees
}
