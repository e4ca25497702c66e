package cluster

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"umbra/internal/cluster/clustertest"
	"umbra/tests/harness"
)

// placed says what a route's requests are about, and how one looks.
type placed struct {
	// about is what an answer is about: one workspace, or none (no workspace, or
	// several).
	about about
	// writes says that a request makes a commit.
	writes bool
	ask    func(p *places) ask
}

type about int

const (
	none  about = iota
	one         // a request is about one workspace: the owner answers
	makes       // any node answers, about a workspace that it finds or follows
)

// ask is a request. workspace is the one that it is about where it is not places.ws.
type ask struct {
	target    string
	body      any
	headers   []string
	workspace string
}

// places is what the requests are about: a workspace with a task, a session and a
// toolset, all at the first node.
type places struct {
	t                          *testing.T
	nodes                      []*harness.Server
	ws, task, session, toolset string
	folder, folderWS           string // the session's
	other                      string // a toolset on another workspace
	commit                     string
	made                       int
	client                     *http.Client
}

func (p *places) name() string {
	p.made++
	return fmt.Sprint("x", p.made)
}

func (p *places) fill(target string) string {
	return strings.NewReplacer("{task}", p.task, "{ws}", p.ws, "{session}", p.session, "{toolset}", p.toolset, "{commit}", p.commit, "{folder}", p.folder, "{other}", p.other).Replace(target)
}

// first asks the owner of everything.
func (p *places) first(method, target string, body any, headers ...string) *harness.Response {
	p.t.Helper()
	return p.nodes[0].Do(method, p.fill(target), body, headers...)
}

// file makes one through the task.
func (p *places) file() string {
	p.t.Helper()
	name := p.name()
	p.first("PUT", "/tasks/{task}/content?path="+name, []byte("old\n")).Expect(http.StatusCreated)
	return name
}

// another makes a task on a workspace of its own, with one change.
func (p *places) another() (made task, commit string) {
	p.t.Helper()
	p.first("POST", "/tasks", object("goal", "g", "kind", "virtual", "namespace", []string{p.name()})).Expect(http.StatusCreated).JSON(&made)
	var w wrote
	p.first("PUT", "/tasks/"+made.ID+"/content?path=f", []byte("x\n"), "X-Subtask-Id: s1").Expect(http.StatusCreated).JSON(&w)
	return made, w.Commit
}

func object(pairs ...any) map[string]any {
	o := map[string]any{}
	for i := 0; i < len(pairs); i += 2 {
		o[pairs[i].(string)] = pairs[i+1]
	}
	return o
}

// at is a request without a body, send one with, and onTask, onCall, onFork ask of
// something new.
func at(target string) func(*places) ask {
	return func(p *places) ask { return ask{target: p.fill(target)} }
}

func send(target string, body any, headers ...string) func(*places) ask {
	return func(p *places) ask { return ask{target: p.fill(target), body: body, headers: headers} }
}

func sendNew(target string, body func(p *places) any) func(*places) ask {
	return func(p *places) ask { return ask{target: p.fill(target), body: body(p)} }
}

func onTask(rest string, body any) func(*places) ask {
	return func(p *places) ask {
		made, _ := p.another()
		return ask{target: "/tasks/" + made.ID + rest, body: body, workspace: made.Workspace}
	}
}

func onCall(rest string) func(*places) ask {
	return func(p *places) ask {
		var call struct {
			ID string `json:"call_id"`
		}
		p.first("POST", "/calls", object("agent", "a", "agent_session", "s", "workspace_id", p.ws)).Expect(http.StatusCreated).JSON(&call)
		return ask{target: "/calls/" + call.ID + rest}
	}
}

func onLayer(rest string) func(*places) ask {
	return func(p *places) ask {
		var layer struct {
			ID string `json:"layer"`
		}
		p.first("POST", "/layers", object("agent", "a", "agent_session", "s", "cwd", p.folder)).Expect(http.StatusCreated).JSON(&layer)
		return ask{target: "/layers/" + layer.ID + rest, workspace: p.folderWS}
	}
}

func onFork(rest string) func(*places) ask {
	return func(p *places) ask {
		var made struct {
			Forks []struct {
				ID string `json:"id"`
			} `json:"forks"`
		}
		res := p.first("POST", "/workspaces/{ws}/forks", object("kind", "virtual")).Expect(http.StatusCreated).JSON(&made)
		if len(made.Forks) != 1 {
			p.t.Fatalf("%s", res.Body)
		}
		fork := made.Forks[0].ID
		var on task
		p.first("POST", "/tasks", object("goal", "g", "workspace_id", fork)).Expect(http.StatusCreated).JSON(&on)
		p.first("PUT", "/tasks/"+on.ID+"/content?path="+p.name(), []byte("x")).Expect(http.StatusCreated)
		p.first("PATCH", "/tasks/"+on.ID, object("status", "completed")).Expect(http.StatusOK)
		return ask{target: "/workspaces/" + fork + rest, workspace: fork}
	}
}

func inArea(area string) func(*places) ask {
	return func(p *places) ask {
		target := p.fill("/tasks/{task}/") + area + "/" + p.name()
		p.first("PUT", target, []byte("x")).Expect(http.StatusCreated)
		return ask{target: target}
	}
}

// folderFile makes a file in the session's workspace, which may be one of a new
// directory: below is its path there.
func (p *places) folderFile(below string) string {
	p.t.Helper()
	name := p.name()
	p.first("POST", "/api/sessions/{session}/fs/write", object("path", name+below, "content", "old\n")).Expect(http.StatusCreated)
	return name
}

func inFolder(target string) func(*places) ask {
	return func(p *places) ask { return ask{target: p.fill(target), workspace: p.folderWS} }
}

// inSession: NEW is replaced by a new name, FILE by that of a new file.
func inSession(op string, pairs ...any) func(*places) ask {
	return func(p *places) ask {
		body := object(pairs...)
		for k, v := range body {
			switch v {
			case "NEW":
				body[k] = p.name()
			case "FILE":
				body[k] = p.folderFile("")
			}
		}
		return ask{target: p.fill("/api/sessions/{session}/fs/") + op, body: body, workspace: p.folderWS}
	}
}

var mcpPing = json.RawMessage(`{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28",` +
	`"io.modelcontextprotocol/clientInfo":{"name":"t","version":"1"},"io.modelcontextprotocol/clientCapabilities":{}}}}`)

var mcpHeaders = []string{"Accept: application/json, text/event-stream", "Mcp-Protocol-Version: 2026-07-28", "Mcp-Method: tools/list"}

// allPlaces is every route, but for those below /upkeep.
var allPlaces = map[string]placed{
	"GET /":             {ask: at("/")},
	"GET /ui/{name}":    {ask: at("/ui/none")},
	"GET /healthz":      {ask: at("/healthz")},
	"GET /readyz":       {ask: at("/readyz")},
	"GET /docs":         {ask: at("/docs")},
	"GET /openapi.json": {ask: at("/openapi.json")},
	"GET /health":       {ask: at("/health")},
	"GET /metrics":      {ask: at("/metrics")},

	"GET /workspaces":        {ask: at("/workspaces")},
	"GET /workspaces/{ws}":   {about: one, ask: at("/workspaces/{ws}")},
	"PATCH /workspaces/{ws}": {about: one, ask: send("/workspaces/{ws}", object("root", "/nowhere"))},
	"DELETE /workspaces/{ws}": {about: one, ask: func(p *places) ask {
		made, _ := p.another()
		p.first("PATCH", "/tasks/"+made.ID, object("status", "completed")).Expect(http.StatusOK)
		return ask{target: "/workspaces/" + made.Workspace, workspace: made.Workspace}
	}},
	"POST /workspaces/{ws}/sync":                 {about: one, ask: at("/workspaces/{ws}/sync")},
	"GET /workspaces/{ws}/log":                   {about: one, ask: at("/workspaces/{ws}/log")},
	"GET /workspaces/{ws}/log/search":            {about: one, ask: at("/workspaces/{ws}/log/search?pattern=x")},
	"GET /workspaces/{ws}/search":                {about: one, ask: at("/workspaces/{ws}/search?pattern=x")},
	"GET /workspaces/{ws}/commits/{commit}":      {about: one, ask: at("/workspaces/{ws}/commits/{commit}")},
	"GET /workspaces/{ws}/commits/{commit}/diff": {about: one, ask: at("/workspaces/{ws}/commits/{commit}/diff")},
	"POST /workspaces/{ws}/verify":               {about: one, ask: at("/workspaces/{ws}/verify")},
	"GET /workspaces/{ws}/checkpoints":           {about: one, ask: at("/workspaces/{ws}/checkpoints")},
	"GET /workspaces/{ws}/compare":               {about: one, ask: at("/workspaces/{ws}/compare?with=head")},
	"POST /workspaces/{ws}/merge":                {about: one, ask: onFork("/merge")},
	"POST /workspaces/{ws}/rebase":               {about: one, ask: onFork("/rebase")},
	"GET /workspaces/{ws}/forks":                 {about: one, ask: at("/workspaces/{ws}/forks")},
	"POST /workspaces/{ws}/forks":                {about: one, ask: send("/workspaces/{ws}/forks", object("kind", "virtual"))},
	"POST /workspaces/{ws}/checkpoints": {about: one, ask: sendNew("/workspaces/{ws}/checkpoints", func(p *places) any {
		return object("name", p.name())
	})},
	"DELETE /workspaces/{ws}/checkpoints/{name}": {about: one, ask: func(p *places) ask {
		name := p.name()
		p.first("POST", "/workspaces/{ws}/checkpoints", object("name", name)).Expect(http.StatusCreated)
		return ask{target: p.fill("/workspaces/{ws}/checkpoints/") + name}
	}},
	"GET /workspaces/{ws}/blame":         {about: one, ask: at("/workspaces/{ws}/blame?path=f")},
	"POST /workspaces/{ws}/policy/check": {about: one, ask: send("/workspaces/{ws}/policy/check", object("paths", []string{"a"}))},
	"GET /workspaces/{ws}/coverage":      {about: one, ask: at("/workspaces/{ws}/coverage")},
	"GET /workspaces/{ws}/stream":        {about: one, ask: at("/workspaces/{ws}/stream")},
	"POST /workspaces/{ws}/commits/{commit}/revert": {about: one, writes: true, ask: func(p *places) ask {
		made, commit := p.another()
		return ask{target: "/workspaces/" + made.Workspace + "/commits/" + commit + "/revert", workspace: made.Workspace}
	}},
	"POST /workspaces/{ws}/restore": {about: one, writes: true, ask: sendNew("/workspaces/{ws}/restore", func(p *places) any {
		name := p.name()
		p.first("PUT", "/tasks/{task}/content?path="+name, []byte("new")).Expect(http.StatusCreated)
		return object("to", p.commit, "paths", []string{name})
	})},
	"POST /workspaces/{ws}/revert": {about: one, writes: true, ask: func(p *places) ask {
		made, _ := p.another()
		p.first("PUT", "/tasks/"+made.ID+"/content?path=f", []byte("z"), "X-Actor: mallory").Expect(http.StatusOK)
		return ask{target: "/workspaces/" + made.Workspace + "/revert", body: object("actor", "mallory"), workspace: made.Workspace}
	}},

	"POST /tasks":       {about: one, ask: sendNew("/tasks", func(p *places) any { return object("goal", "g", "workspace_id", p.ws) })},
	"GET /tasks":        {ask: at("/tasks?limit=1000")},
	"GET /tasks/{id}":   {about: one, ask: at("/tasks/{task}")},
	"PATCH /tasks/{id}": {about: one, ask: send("/tasks/{task}", object("metadata", object("a", 1)))},
	"DELETE /tasks/{id}": {about: one, ask: func(p *places) ask {
		made, _ := p.another()
		p.first("PATCH", "/tasks/"+made.ID, object("status", "completed")).Expect(http.StatusOK)
		return ask{target: "/tasks/" + made.ID, workspace: made.Workspace}
	}},
	"GET /tasks/{id}/content": {about: one, ask: at("/tasks/{task}/content?path=f")},
	"PUT /tasks/{id}/content": {about: one, writes: true, ask: func(p *places) ask {
		return ask{target: p.fill("/tasks/{task}/content?path=") + p.name(), body: []byte("x")}
	}},
	"DELETE /tasks/{id}/content": {about: one, writes: true, ask: func(p *places) ask {
		return ask{target: p.fill("/tasks/{task}/content?path=") + p.file()}
	}},
	"POST /tasks/{id}/move": {about: one, writes: true, ask: sendNew("/tasks/{task}/move", func(p *places) any { return object("from", p.file(), "to", p.name()) })},
	"POST /tasks/{id}/batch": {about: one, writes: true, ask: sendNew("/tasks/{task}/batch", func(p *places) any {
		return object("operations", []any{object("op", "write", "path", p.name(), "content", "x"), object("op", "write", "path", p.name(), "content", "x")})
	})},
	"GET /tasks/{id}/list":   {about: one, ask: at("/tasks/{task}/list")},
	"GET /tasks/{id}/stat":   {about: one, ask: at("/tasks/{task}/stat?path=f")},
	"GET /tasks/{id}/search": {about: one, ask: at("/tasks/{task}/search?pattern=x")},
	"GET /tasks/{id}/glob":   {about: one, ask: at("/tasks/{task}/glob?pattern=*")},
	"POST /tasks/{id}/edit": {about: one, writes: true, ask: sendNew("/tasks/{task}/edit", func(p *places) any {
		return object("path", p.file(), "old_string", "old", "new_string", "new")
	})},
	"POST /tasks/{id}/append": {about: one, writes: true, ask: func(p *places) ask {
		return ask{target: p.fill("/tasks/{task}/append?path=") + p.name(), body: []byte("x")}
	}},
	"POST /tasks/{id}/mkdir": {about: one, writes: true, ask: sendNew("/tasks/{task}/mkdir", func(p *places) any { return object("path", p.name()) })},
	"POST /tasks/{id}/copy":  {about: one, writes: true, ask: sendNew("/tasks/{task}/copy", func(p *places) any { return object("from", p.file(), "to", p.name()) })},
	"POST /tasks/{id}/symlink": {about: one, writes: true, ask: sendNew("/tasks/{task}/symlink", func(p *places) any {
		return object("path", p.name(), "target", "f")
	})},
	"GET /tasks/{id}/changes": {about: one, ask: at("/tasks/{task}/changes")},
	"GET /tasks/{id}/changes/{n}/before": {about: one, ask: func(p *places) ask {
		made, _ := p.another()
		p.first("PUT", "/tasks/"+made.ID+"/content?path=f", []byte("newer")).Expect(http.StatusOK)
		return ask{target: "/tasks/" + made.ID + "/changes/2/before", workspace: made.Workspace}
	}},
	"GET /tasks/{id}/files":                  {about: one, ask: at("/tasks/{task}/files")},
	"GET /tasks/{id}/files/{path}/diff":      {about: one, ask: at("/tasks/{task}/files/f/diff")},
	"GET /tasks/{id}/hunks":                  {about: one, ask: at("/tasks/{task}/hunks")},
	"POST /tasks/{id}/review":                {about: one, writes: true, ask: onTask("/review", object("accept_rest", true))},
	"GET /tasks/{id}/trace":                  {about: one, ask: at("/tasks/{task}/trace")},
	"GET /tasks/{id}/diff":                   {about: one, ask: at("/tasks/{task}/diff")},
	"POST /tasks/{id}/files/{path}/revert":   {about: one, writes: true, ask: onTask("/files/f/revert", nil)},
	"POST /tasks/{id}/revert":                {about: one, writes: true, ask: onTask("/revert", nil)},
	"POST /tasks/{id}/subtasks/{sid}/revert": {about: one, writes: true, ask: onTask("/subtasks/s1/revert", nil)},
	"POST /tasks/{id}/changes/{n}/revert":    {about: one, writes: true, ask: onTask("/changes/1/revert", nil)},
	"POST /tasks/{id}/exec":                  {about: one, ask: send("/tasks/{task}/exec", object("command", "true"))},
	"GET /tasks/{id}/stream":                 {about: one, ask: at("/tasks/{task}/stream")},
	"GET /tasks/{id}/scratch":                {about: one, ask: at("/tasks/{task}/scratch")},
	"GET /tasks/{id}/scratch/{path}":         {about: one, ask: inArea("scratch")},
	"PUT /tasks/{id}/scratch/{path}":         {about: one, ask: send("/tasks/{task}/scratch/a", []byte("x"))},
	"DELETE /tasks/{id}/scratch/{path}":      {about: one, ask: inArea("scratch")},
	"GET /tasks/{id}/artifacts":              {about: one, ask: at("/tasks/{task}/artifacts")},
	"GET /tasks/{id}/artifacts/{path}":       {about: one, ask: inArea("artifacts")},
	"PUT /tasks/{id}/artifacts/{path}":       {about: one, ask: send("/tasks/{task}/artifacts/a", []byte("x"))},
	"DELETE /tasks/{id}/artifacts/{path}":    {about: one, ask: inArea("artifacts")},
	"GET /tasks/{id}/bundle":                 {about: one, ask: at("/tasks/{task}/bundle")},
	"GET /tasks/{id}/patches":                {about: one, ask: at("/tasks/{task}/patches")},

	"POST /calls":               {about: one, ask: sendNew("/calls", func(p *places) any { return object("agent", "a", "agent_session", "s", "workspace_id", p.ws) })},
	"GET /calls":                {ask: at("/calls")},
	"GET /calls/{call}":         {about: one, ask: onCall("")},
	"POST /calls/{call}/end":    {about: one, ask: onCall("/end")},
	"POST /calls/{call}/touch":  {about: one, ask: onCall("/touch")},
	"POST /calls/{call}/revert": {about: one, ask: onCall("/revert")},
	"POST /layers": {ask: func(p *places) ask {
		return ask{target: "/layers", body: object("agent", "a", "agent_session", "s", "cwd", p.folder)}
	}},
	"GET /layers":                {ask: at("/layers")},
	"POST /layers/{layer}/apply": {ask: onLayer("/apply")},
	"DELETE /layers/{layer}":     {ask: onLayer("")},

	"GET /git/":                         {ask: at("/git/")},
	"GET /git/{repo}/info/refs":         {about: makes, ask: at("/git/{ws}.git/info/refs?service=git-upload-pack")},
	"POST /git/{repo}/git-upload-pack":  {about: makes, ask: send("/git/{ws}.git/git-upload-pack", []byte("0000"), "Content-Type: application/x-git-upload-pack-request")},
	"POST /git/{repo}/git-receive-pack": {ask: at("/git/{ws}.git/git-receive-pack")},

	"POST /api/sessions":     {ask: sendNew("/api/sessions", func(p *places) any { return object("workspaceRoot", p.folder) })},
	"GET /api/sessions":      {ask: at("/api/sessions")},
	"GET /api/sessions/{id}": {about: one, ask: inFolder("/api/sessions/{session}")},
	"DELETE /api/sessions/{id}": {about: one, ask: func(p *places) ask {
		var s struct {
			ID string `json:"sessionId"`
		}
		p.first("POST", "/api/sessions", object("workspaceRoot", p.folder)).Expect(http.StatusCreated).JSON(&s)
		return ask{target: "/api/sessions/" + s.ID, workspace: p.folderWS}
	}},
	"GET /api/sessions/{id}/fs":          {about: one, ask: inFolder("/api/sessions/{session}/fs")},
	"GET /api/sessions/{id}/fs/stat":     {about: one, ask: inFolder("/api/sessions/{session}/fs/stat?path=f")},
	"GET /api/sessions/{id}/fs/list":     {about: one, ask: inFolder("/api/sessions/{session}/fs/list?path=.")},
	"GET /api/sessions/{id}/fs/tree":     {about: one, ask: inFolder("/api/sessions/{session}/fs/tree?path=.")},
	"GET /api/sessions/{id}/fs/read":     {about: one, ask: inFolder("/api/sessions/{session}/fs/read?path=f")},
	"GET /api/sessions/{id}/fs/download": {about: one, ask: inFolder("/api/sessions/{session}/fs/download?path=f")},
	"POST /api/sessions/{id}/fs/write":   {about: one, writes: true, ask: inSession("write", "path", "NEW", "content", "x")},
	"POST /api/sessions/{id}/fs/upload":  {about: one, writes: true, ask: inSession("upload", "path", "NEW", "content", "x")},
	"PUT /api/sessions/{id}/fs/upload": {about: one, writes: true, ask: func(p *places) ask {
		return ask{target: p.fill("/api/sessions/{session}/fs/upload?path=") + p.name(), body: []byte("x"), workspace: p.folderWS}
	}},
	"POST /api/sessions/{id}/fs/replace": {about: one, writes: true, ask: inSession("replace", "path", "FILE", "old_string", "old", "new_string", "new")},
	"POST /api/sessions/{id}/fs/mkdir":   {about: one, writes: true, ask: inSession("mkdir", "path", "NEW")},
	"POST /api/sessions/{id}/fs/move":    {about: one, writes: true, ask: inSession("move", "from", "FILE", "to", "NEW")},
	"POST /api/sessions/{id}/fs/copy":    {about: one, writes: true, ask: inSession("copy", "from", "FILE", "to", "NEW")},
	"POST /api/sessions/{id}/fs/symlink": {about: one, writes: true, ask: inSession("symlink", "path", "NEW", "target", "FILE")},
	"DELETE /api/sessions/{id}/fs/file": {about: one, writes: true, ask: func(p *places) ask {
		return ask{target: p.fill("/api/sessions/{session}/fs/file?path=") + p.folderFile(""), workspace: p.folderWS}
	}},
	"DELETE /api/sessions/{id}/fs/dir": {about: one, writes: true, ask: func(p *places) ask {
		return ask{target: p.fill("/api/sessions/{session}/fs/dir?path=") + p.folderFile("/f") + "&recursive=true", workspace: p.folderWS}
	}},

	"POST /toolsets":                    {ask: send("/toolsets", mountsOf("tools"))},
	"GET /toolsets":                     {ask: at("/toolsets")},
	"GET /toolsets/{id}":                {ask: at("/toolsets/{toolset}")},
	"DELETE /toolsets/{id}":             {ask: at("/toolsets/none")},
	"PUT /toolsets/{id}/mounts":         {ask: send("/toolsets/{other}/mounts", mountsOf("tools"))},
	"GET /toolsets/{id}/tools":          {ask: at("/toolsets/{toolset}/tools")},
	"GET /toolsets/{id}/filesystem-map": {ask: at("/toolsets/{toolset}/filesystem-map")},
	"GET /toolsets/{id}/turn":           {about: one, ask: at("/toolsets/{toolset}/turn")},
	"POST /toolsets/{id}/call": {about: one, writes: true, ask: sendNew("/toolsets/{toolset}/call", func(p *places) any {
		return object("name", "write_file", "arguments", object("path", "/p/"+p.name(), "content", "x"))
	})},

	"POST /mcp":        {ask: send("/mcp", mcpPing, mcpHeaders...)},
	"GET /mcp":         {ask: send("/mcp", nil, mcpHeaders...)},
	"DELETE /mcp":      {ask: send("/mcp", nil, mcpHeaders...)},
	"POST /mcp/{id}":   {ask: send("/mcp/{toolset}", mcpPing, mcpHeaders...)},
	"GET /mcp/{id}":    {ask: send("/mcp/{toolset}", nil, mcpHeaders...)},
	"DELETE /mcp/{id}": {ask: send("/mcp/{toolset}", nil, mcpHeaders...)},

	"PUT /workspace": {about: makes, writes: true, ask: sendNew("/workspace", func(p *places) any { return object("codeId", p.name(), "code", "1") })},
	"POST /workspace/batch": {about: makes, writes: true, ask: sendNew("/workspace/batch", func(p *places) any {
		return object("files", []any{object("codeId", p.name(), "code", "1")})
	})},
	"GET /workspace":                   {about: makes, ask: at("/workspace")},
	"GET /workspace/{codeId}":          {about: makes, ask: at("/workspace/code")},
	"GET /workspace/{codeId}/versions": {about: makes, ask: at("/workspace/code/versions")},
	"DELETE /workspace/{codeId}": {about: makes, writes: true, ask: func(p *places) ask {
		id := p.name()
		p.first("PUT", "/workspace", object("codeId", id, "code", "1")).Expect(http.StatusOK)
		return ask{target: "/workspace/" + id}
	}},
	"POST /execute":         {ask: send("/execute", object("code", "console.log(1)"))},
	"POST /lint":            {ask: send("/lint", object("code", "let a = 1;\n"))},
	"POST /scripts/execute": {ask: send("/scripts/execute", object("script", "return 1"))},
	"GET /scripts/sdk":      {ask: at("/scripts/sdk")},
}

// mountsOf are the mounts of a toolset on a namespace.
func mountsOf(namespace string) map[string]any {
	return object("mounts", []any{object("prefix", "/p", "scope", "READ_WRITE", "store", object("type", "virtual", "namespace", []string{namespace}))})
}

// head is the head of what came back, and its body unless that is a stream.
type head struct {
	status int
	header http.Header
	body   string
}

// send sends a request to a node, and follows no redirection.
func (p *places) send(s *harness.Server, method string, a ask, headers ...string) head {
	p.t.Helper()
	var body io.Reader
	var kind string
	switch b := a.body.(type) {
	case nil:
	case []byte:
		body = strings.NewReader(string(b))
	default:
		raw, err := json.Marshal(b)
		if err != nil {
			p.t.Fatal(err)
		}
		body, kind = strings.NewReader(string(raw)), "application/json"
	}
	ctx, cancel := context.WithCancel(p.t.Context())
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, s.URL+a.target, body)
	if err != nil {
		p.t.Fatal(err)
	}
	if kind != "" {
		req.Header.Set("Content-Type", kind)
	}
	for _, h := range append(slices.Clone(a.headers), headers...) {
		name, value, _ := strings.Cut(h, ": ")
		req.Header.Set(name, value)
	}
	res, err := p.client.Do(req)
	if err != nil {
		p.t.Fatalf("%s %s: %v", method, a.target, err)
	}
	defer res.Body.Close()
	got := head{status: res.StatusCode, header: res.Header}
	if !strings.HasPrefix(res.Header.Get("Content-Type"), "text/event-stream") {
		raw, err := io.ReadAll(res.Body)
		if err != nil {
			p.t.Fatalf("%s %s: %v", method, a.target, err)
		}
		got.body = string(raw)
	}
	return got
}

// tip returns a workspace's owner and its newest commit's number, as the owner says.
func (p *places) tip(ws string) (owner string, seq uint64) {
	p.t.Helper()
	res := p.first("GET", "/workspaces/"+ws, nil)
	if res.Status == http.StatusNotFound {
		return "", 0
	}
	seq, err := strconv.ParseUint(res.Header.Get("Umbra-Seq"), 10, 64)
	if err != nil {
		p.t.Fatalf("workspace %s: Umbra-Seq %q", ws, res.Header.Get("Umbra-Seq"))
	}
	return res.Header.Get("Umbra-Owner"), seq
}

// TestRoutes: each route on each node says which node owns the workspace that it is
// about, and which commit it reflects, and does what the headers of a cluster ask for.
func TestRoutes(t *testing.T) {
	r := newRig(t)
	r.run(nil, 0, "init", "--lease", "2s")
	p := &places{t: t, client: &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}}
	for _, name := range []string{"n1", "n2", "n3"} {
		p.nodes = append(p.nodes, harness.Start(t, harness.Options{Env: append(slices.Clone(r.env), "UMBRA_CLUSTER_PHYSICAL=true", "UMBRA_CLUSTER_PUBLIC_URL=https://"+name+".example"),
			Args: []string{"--cluster", r.url, "--blobs", r.blobs, "--node", name}}))
	}
	var made task
	p.first("POST", "/tasks", object("goal", "routes", "kind", "virtual", "namespace", []string{"routes"})).Expect(http.StatusCreated).JSON(&made)
	p.ws, p.task = made.Workspace, made.ID
	var w wrote
	p.first("PUT", "/tasks/{task}/content?path=f", []byte("f\n")).Expect(http.StatusCreated).JSON(&w)
	p.commit = w.Commit
	var session struct {
		ID string `json:"sessionId"`
	}
	p.folder = t.TempDir()
	p.first("POST", "/tasks", object("goal", "g", "workspace", p.folder)).Expect(http.StatusCreated).JSON(&made)
	p.folderWS = made.Workspace
	p.first("PUT", "/tasks/"+made.ID+"/content?path=f", []byte("f\n")).Expect(http.StatusCreated)
	if err := clustertest.Await(30*time.Second, func() (bool, error) { // its copy has an epoch soon
		owner, _ := p.tip(p.folderWS)
		return strings.Contains(owner, ";epoch="), nil
	}); err != nil {
		t.Fatal(err)
	}
	p.first("POST", "/api/sessions", object("workspaceRoot", p.folder)).Expect(http.StatusCreated).JSON(&session)
	p.session = session.ID
	var toolset struct {
		ID string `json:"id"`
	}
	p.first("POST", "/toolsets", mountsOf("tools")).Expect(http.StatusCreated).JSON(&toolset)
	p.other = toolset.ID
	p.first("POST", "/toolsets", mountsOf("routes")).Expect(http.StatusCreated).JSON(&toolset)
	p.toolset = toolset.ID
	p.first("PUT", "/workspace", object("codeId", "code", "code", "1")).Expect(http.StatusOK)

	routes := routesOf(p)
	for _, route := range routes {
		if _, known := allPlaces[route]; !known && !strings.Contains(route, " /upkeep/") {
			t.Errorf("%s: nothing says what it is about", route)
		}
	}
	for route := range allPlaces {
		if !slices.Contains(routes, route) {
			t.Errorf("%s is no route", route)
		}
	}
	for _, route := range routes {
		x, known := allPlaces[route]
		if !known {
			continue
		}
		p.check(route, x)
	}
	figures := string(p.first("GET", "/metrics", nil).Expect(http.StatusOK).Body)
	for _, want := range []string{"umbra_cluster_append_seconds_count ", "umbra_cluster_open_seconds_count ", "umbra_cluster_unsealed_bytes ", `umbra_cluster_claims_total{reason="resting"} `,
		`umbra_blob_seconds_count{op="`} {
		if i := strings.Index(figures, want); i < 0 || strings.HasPrefix(figures[i+len(want):], "0\n") {
			t.Errorf("no value of %s", want)
		}
	}
	for _, want := range []string{"umbra_cluster_unknown_total 0\n", "umbra_cluster_fenced_total 0\n", "umbra_cluster_garbage_objects ", "umbra_cluster_seal_seconds_count ", "umbra_cluster_unsealed_oldest_seconds ",
		"umbra_cluster_follower_lag_seconds ", "umbra_cluster_shared 0\n", `umbra_blob_errors_total{op="put"} 0`} {
		if !strings.Contains(figures, want) {
			t.Errorf("the node does not document %s", want)
		}
	}
}

// routesOf reads the routes from the document, as "METHOD pattern".
func routesOf(p *places) (routes []string) {
	p.t.Helper()
	var doc struct {
		Paths map[string]map[string]json.RawMessage `json:"paths"`
	}
	p.first("GET", "/openapi.json", nil).Expect(http.StatusOK).JSON(&doc)
	for path, methods := range doc.Paths {
		for method := range methods {
			if m := strings.ToUpper(method); slices.Contains([]string{"GET", "PUT", "POST", "PATCH", "DELETE"}, m) {
				routes = append(routes, m+" "+path)
			}
		}
	}
	slices.Sort(routes)
	if op := string(doc.Paths["/workspaces/{ws}/log"]["get"]); !strings.Contains(op, "#/components/headers/UmbraSeq") || !strings.Contains(op, "#/components/parameters/UmbraMinSeq") {
		p.t.Errorf("the document does not describe a cluster's headers: %s", op)
	}
	return routes
}

// check asks one route at each node.
func (p *places) check(route string, x placed) {
	t := p.t
	t.Helper()
	method, _, _ := strings.Cut(route, " ")
	read := method == "GET"
	for i, s := range p.nodes {
		a := x.ask(p)
		ws := a.workspace
		if ws == "" {
			ws = p.ws
		}
		owner, before := "", uint64(0)
		if x.about == one {
			owner, before = p.tip(ws)
		}
		if x.about == one && i > 0 {
			if got := p.send(s, method, a, "Umbra-Direct: 1"); got.status != http.StatusMisdirectedRequest || got.header.Get("Umbra-Owner") != owner {
				t.Errorf("%s directly at n%d: %d, owner %s: %s", route, i+1, got.status, got.header.Get("Umbra-Owner"), got.body)
			}
			if got := p.send(s, method, a, "Umbra-Redirect: 1"); got.status != http.StatusTemporaryRedirect || got.header.Get("Location") != "https://n1.example"+a.target {
				t.Errorf("%s redirected at n%d: %d, to %s: %s", route, i+1, got.status, got.header.Get("Location"), got.body)
			}
			if got := p.send(s, method, a, "Umbra-Min-Seq: x"); read && got.status != http.StatusBadRequest {
				t.Errorf("%s with a wrong Umbra-Min-Seq at n%d: %d %s", route, i+1, got.status, got.body)
			} else if !read {
				a = x.ask(p) // it was done
				owner, before = p.tip(a.workspaceOr(p.ws))
				ws = a.workspaceOr(p.ws)
			}
			if _, now := p.tip(ws); now != before {
				t.Errorf("%s at n%d: something was done", route, i+1)
			}
		}
		headers := []string{"Umbra-Strict: 1"}
		if read && x.about == one {
			headers = append(headers, "Umbra-Min-Seq: "+strconv.FormatUint(before, 10))
		}
		got := p.send(s, method, a, headers...)
		if got.status >= 500 || got.status == http.StatusMisdirectedRequest {
			t.Errorf("%s at n%d: %d %s", route, i+1, got.status, got.body)
			continue
		}
		if got.header.Get("Umbra-Stale") != "" {
			t.Errorf("%s at n%d is stale", route, i+1)
		}
		if x.about == none {
			continue
		}
		if x.writes && got.status/100 != 2 {
			t.Errorf("%s at n%d wrote nothing: %d %s", route, i+1, got.status, got.body)
		}
		says, err := strconv.ParseUint(got.header.Get("Umbra-Seq"), 10, 64)
		switch {
		case x.about == makes:
			if err != nil || got.header.Get("Umbra-Owner") == "" {
				t.Errorf("%s at n%d: %d, owner %q, commit %q", route, i+1, got.status, got.header.Get("Umbra-Owner"), got.header.Get("Umbra-Seq"))
			}
			continue
		case got.header.Get("Umbra-Owner") != owner:
			t.Errorf("%s at n%d: %d: the owner is %q, not %q", route, i+1, got.status, got.header.Get("Umbra-Owner"), owner)
		case err != nil:
			t.Errorf("%s at n%d: %d: Umbra-Seq is %q: %s", route, i+1, got.status, got.header.Get("Umbra-Seq"), got.body)
		}
		still, after := p.tip(ws)
		if still != "" && (says != after || x.writes != (after > before)) {
			t.Errorf("%s at n%d: %d: Umbra-Seq is %d; the workspace was at %d and is at %d", route, i+1, got.status, says, before, after)
		}
		if still != "" && still != owner {
			t.Errorf("%s at n%d has moved the workspace to %s", route, i+1, still)
		}
	}
}

func (a ask) workspaceOr(ws string) string {
	if a.workspace != "" {
		return a.workspace
	}
	return ws
}
