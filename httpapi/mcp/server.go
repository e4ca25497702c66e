package mcp

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"mime"
	"net/url"
	"path"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"umbra/httpapi"
	"umbra/internal/errs"
	"umbra/internal/toolset"
	"umbra/internal/toolset/mount"
	"umbra/internal/witness"
)

// The resources: files by their logical paths, and the map.
const (
	scheme      = "umbra://"
	mapURI      = scheme + "filesystem-map"
	filePattern = scheme + "/{+path}"
)

// newServer makes the server of an endpoint. Everything that depends on the mounts
// is made at each request; tools are set, so that the SDK announces their changes.
func (e *endpoint) newServer() *sdk.Server {
	accept := func(context.Context, *sdk.SubscribeRequest) error { return nil }
	leave := func(context.Context, *sdk.UnsubscribeRequest) error { return nil }
	s := sdk.NewServer(&sdk.Implementation{Name: "umbra", Title: "umbra workspaces", Version: e.d.o.Version}, &sdk.ServerOptions{
		SubscribeHandler: accept, UnsubscribeHandler: leave,
		Capabilities: &sdk.ServerCapabilities{Tools: &sdk.ToolCapabilities{ListChanged: true},
			Resources: &sdk.ResourceCapabilities{ListChanged: true, Subscribe: true}},
		GetSessionID: func() string { return e.d.run + rand.Text() },
	})
	s.AddResource(&sdk.Resource{URI: mapURI, Name: "filesystem-map", Title: "Filesystem map", MIMEType: "text/plain",
		Description: "What is mounted where, and what may be done there."}, e.readResource)
	s.AddResourceTemplate(&sdk.ResourceTemplate{URITemplate: filePattern, Name: "file", Title: "File",
		Description: "A file that may be read, by its path: umbra:///project/a.txt."}, e.readResource)
	s.AddTool(&sdk.Tool{Name: anyTool, InputSchema: json.RawMessage(`{"type":"object"}`)}, e.callTool)
	s.AddReceivingMiddleware(e.middleware)
	return s
}

// refresh makes the server offer the toolset's current tools, and notifies
// listeners; without always only if the mounts have changed.
func (e *endpoint) refresh(always bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	t, err := e.d.o.Toolsets.Get(e.id, nil)
	if err != nil || !always && t.Map == e.shown {
		return
	}
	e.shown = t.Map
	gone := e.named
	e.named = map[string]bool{}
	for i := range t.Tools {
		tl := &t.Tools[i]
		e.named[tl.Name] = true
		delete(gone, tl.Name)
		destructive, open := tl.Hints.Destructive, tl.Hints.OpenWorld
		e.server.AddTool(&sdk.Tool{Name: tl.Name, Title: tl.Title, Description: tl.Description, InputSchema: tl.Schema(),
			Annotations: &sdk.ToolAnnotations{Title: tl.Title, ReadOnlyHint: tl.Hints.ReadOnly, DestructiveHint: &destructive,
				IdempotentHint: tl.Hints.Idempotent, OpenWorldHint: &open}}, e.callTool)
	}
	for name := range gone {
		e.server.RemoveTools(name)
	}
	// A client that disconnected is no error.
	_ = e.server.ResourceUpdated(context.Background(), &sdk.ResourceUpdatedNotificationParams{URI: mapURI})
}

// anyTool is a tool that no list shows: calls of tools that are not there go to
// it, and are answered with a message to the model.
const anyTool = "any"

// asked is what a request named before the SDK was given a name that it knows.
type asked struct{}

// middleware changes what the SDK would answer from what was set: the
// instructions are those of now, a tool that is not there is a message to the
// model, a file's URI may be written in any way, and what is not offered
// (prompts) is not answered.
func (e *endpoint) middleware(next sdk.MethodHandler) sdk.MethodHandler {
	return func(ctx context.Context, method string, req sdk.Request) (sdk.Result, error) {
		switch {
		case method == "tools/call":
			if r, ok := req.(*sdk.CallToolRequest); ok && r.Params != nil {
				ctx = context.WithValue(ctx, asked{}, r.Params.Name)
				if !e.has(r.Params.Name) {
					r.Params.Name = anyTool
				}
			}
		case method == "resources/read":
			if r, ok := req.(*sdk.ReadResourceRequest); ok && r.Params != nil {
				ctx = context.WithValue(ctx, asked{}, r.Params.URI)
				r.Params.URI = canonicalURI(r.Params.URI)
			}
		case method == "tools/list":
			e.refresh(false) // a change of mounts may not have reached it yet
		case strings.HasPrefix(method, "prompts/"):
			return nil, &jsonrpc.Error{Code: jsonrpc.CodeMethodNotFound, Message: "there are no prompts"}
		}
		res, err := next(ctx, method, req)
		if err != nil {
			return nil, err
		}
		switch res := res.(type) {
		case *sdk.ListToolsResult:
			res.Tools = slices.DeleteFunc(res.Tools, func(t *sdk.Tool) bool { return t.Name == anyTool })
		case *sdk.InitializeResult:
			res.Instructions, err = e.fileMap(req)
		case *sdk.DiscoverResult:
			res.Instructions, err = e.fileMap(req)
		}
		return res, err
	}
}

// has reports whether the server has a tool of its own.
func (e *endpoint) has(name string) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.named[name]
}

// canonicalURI writes a file's URI as the template takes it.
func canonicalURI(uri string) string {
	rest, ours := strings.CutPrefix(uri, scheme+"/")
	name, err := url.PathUnescape(rest)
	if !ours || err != nil {
		return uri
	}
	parts := strings.Split(name, "/")
	for i := range parts {
		parts[i] = url.PathEscape(parts[i])
	}
	return scheme + "/" + strings.Join(parts, "/")
}

// callerOf gives the facts of the HTTP request that a message came by.
func callerOf(req sdk.Request) *caller {
	extra := req.GetExtra()
	if extra == nil || extra.TokenInfo == nil {
		return nil
	}
	k, _ := extra.TokenInfo.Extra[callerKey].(*caller)
	return k
}

func (e *endpoint) fileMap(req sdk.Request) (string, error) {
	t, err := e.d.o.Toolsets.Get(e.id, callerOf(req).sees())
	return t.Map, wireError(err)
}

// wireError renders an error that is not the model's: the request's, or the
// server's.
func wireError(err error) error {
	if err == nil {
		return nil
	}
	code, text := int64(jsonrpc.CodeInternalError), "Something went wrong inside the server."
	if e, ok := errors.AsType[*errs.Error](errs.Wrap(err, "")); ok && e.Kind != errs.Internal {
		code, text = jsonrpc.CodeInvalidParams, e.Detail
	}
	return &jsonrpc.Error{Code: code, Message: text}
}

// callTool carries a tool's call out; what a model got wrong is a result.
func (e *endpoint) callTool(ctx context.Context, req *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
	name, _ := ctx.Value(asked{}).(string)
	c := toolset.Call{Name: name, Args: req.Params.Arguments, ReadOnly: true}
	k := callerOf(req)
	if k != nil {
		c.TaskID, c.SubtaskID, c.Actor, c.RequestID, c.Key, c.Begin = k.tags.TaskID, k.tags.SubtaskID, k.tags.Actor, k.requestID, k.key, k.begin
		c.ReadOnly, c.Sees = k.who.Scope < httpapi.ScopeWrite, k.who.Sees
	}
	c.Client = clientOf(req, k)
	if c.Actor == "" {
		c.Actor = c.Client.Name
	}
	if sub, given := req.Params.Meta["subtaskId"]; given {
		id, ok := sub.(string)
		if !ok || !httpapi.ValidID(id) {
			return nil, &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: "_meta.subtaskId is malformed"}
		}
		c.SubtaskID = id
	}
	if token := req.Params.GetProgressToken(); token != nil {
		c.Progress = func(done, total int64, what string) {
			// A client that does not take it gets the answer all the same.
			_ = req.Session.NotifyProgress(ctx, &sdk.ProgressNotificationParams{ProgressToken: token, Progress: float64(done), Total: float64(total), Message: what})
		}
	}
	if k != nil {
		ctx = witness.In(ctx, k.ctx)
	}
	a, err := e.call(ctx, k, c)
	if err != nil {
		if errs.Is(err, errs.Forbidden) {
			if k != nil && c.ReadOnly {
				k.who.Refused("read_only_token")
			}
			return message("Error: The token may only read.", true), nil
		}
		return nil, wireError(err)
	}
	if k != nil && k.idem != nil {
		if a.Replayed {
			k.idem.Replayed()
		}
		if !a.Commit.IsZero() {
			k.idem.InHistory()
		}
		if a.Unsettled {
			k.idem.Unsettled()
		}
	}
	return message(a.Text, a.Failed), nil
}

// clientOf says which client calls. What it calls itself is taken only where it
// may be an actor.
func clientOf(req *sdk.CallToolRequest, k *caller) toolset.Client {
	var c toolset.Client
	if info := req.ClientInfo(); info != nil && httpapi.ValidActor(info.Name) {
		c.Name = info.Name
	}
	if k != nil {
		c.Token, c.Session = k.who.Token, k.session
	}
	return c
}

func message(text string, failed bool) *sdk.CallToolResult {
	return &sdk.CallToolResult{Content: []sdk.Content{&sdk.TextContent{Text: text}}, IsError: failed}
}

// readResource gives a file that may be read, or the map.
func (e *endpoint) readResource(ctx context.Context, req *sdk.ReadResourceRequest) (*sdk.ReadResourceResult, error) {
	uri, _ := ctx.Value(asked{}).(string)
	if uri == mapURI {
		text, err := e.fileMap(req)
		if err != nil {
			return nil, err
		}
		return contents(&sdk.ResourceContents{URI: uri, MIMEType: "text/plain", Text: text}), nil
	}
	rest, ours := strings.CutPrefix(uri, scheme+"/")
	name, err := url.PathUnescape(rest)
	if !ours || err != nil {
		return nil, sdk.ResourceNotFoundError(uri)
	}
	k := callerOf(req)
	if k != nil {
		ctx = witness.In(ctx, k.ctx)
	}
	f, err := e.read(ctx, k, "/"+name)
	if m, ok := errors.AsType[mount.Message](err); ok {
		if strings.HasPrefix(string(m), "File not found: ") {
			return nil, sdk.ResourceNotFoundError(uri)
		}
		return nil, &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: string(m)}
	}
	if err != nil {
		return nil, wireError(err)
	}
	kind := mime.TypeByExtension(path.Ext(f.Path))
	if !utf8.Valid(f.Data) {
		if kind == "" || strings.HasPrefix(kind, "text/") {
			kind = "application/octet-stream"
		}
		return contents(&sdk.ResourceContents{URI: uri, MIMEType: kind, Blob: f.Data}), nil
	}
	if kind == "" {
		kind = "text/plain"
	}
	return contents(&sdk.ResourceContents{URI: uri, MIMEType: kind, Text: string(f.Data)}), nil
}

func contents(c *sdk.ResourceContents) *sdk.ReadResourceResult {
	return &sdk.ReadResourceResult{Contents: []*sdk.ResourceContents{c}}
}
