package tests

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
)

// ask is a request that the owner could make.
type ask struct {
	target string
	body   any
	header []string
}

// reach says who may what on a route.
type reach struct {
	// kind: public (no token), read and write (of something in here), undo (the
	// same as write, but what is not seen is told first), list (each sees its own),
	// free (nothing of anybody's), code, codeList and codeWrite (of the code
	// workspace), open (makes something on a new folder in here), openRead (on a
	// known one), rebind (something in here, to a folder), owner.
	kind  string
	write bool // needs the scope write, where the kind does not say
	ask   func(g *guarded) ask
	// fine is the status where the caller may; 0: any but 401, 403 and 404.
	fine int
}

func at(target string) func(*guarded) ask {
	return func(g *guarded) ask { return ask{target: g.fill(target)} }
}

func send(target string, body any, header ...string) func(*guarded) ask {
	return func(g *guarded) ask { return ask{g.fill(target), body, header} }
}

// fill puts the ids of what lies in here into a pattern.
func (g *guarded) fill(target string) string {
	return strings.NewReplacer("{task}", g.task, "{ws}", g.ws, "{session}", g.session, "{toolset}", g.toolset, "{commit}", g.commit,
		"{file}", marker+".txt", "{marker}", marker).Replace(target)
}

func members(pairs ...any) map[string]any {
	o := map[string]any{}
	for i := 0; i < len(pairs); i += 2 {
		o[pairs[i].(string)] = pairs[i+1]
	}
	return o
}

const taskFile = "/tasks/{task}/content?path="

// onCall asks of a call that is open.
func onCall(rest string) func(*guarded) ask {
	return func(g *guarded) ask {
		_, ws, _ := g.newTask()
		id := g.asOwner("POST", "/calls", members("agent", "a", "agent_session", "s", "workspace_id", ws)).Expect(201).Text("call_id")
		return ask{target: "/calls/" + id + rest}
	}
}

// onLayer asks of a layer that nothing was written to.
func onLayer(rest string) func(*guarded) ask {
	return func(g *guarded) ask {
		id := g.asOwner("POST", "/layers", members("agent", "a", "agent_session", "s", "cwd", g.folder)).Expect(201).Text("layer")
		return ask{target: "/layers/" + id + rest}
	}
}

// reaches is every route of the server, and who may what there.
var reaches = map[string]reach{
	"GET /":             {kind: "public", ask: at("/"), fine: 200},
	"GET /ui/{name}":    {kind: "public", ask: at("/ui/none"), fine: 404}, // the page's own files
	"GET /healthz":      {kind: "public", ask: at("/healthz"), fine: 200},
	"GET /readyz":       {kind: "public", ask: at("/readyz"), fine: 200},
	"GET /docs":         {kind: "public", ask: at("/docs"), fine: 200},
	"GET /openapi.json": {kind: "public", ask: at("/openapi.json"), fine: 200},
	"GET /health":       {kind: "free", ask: at("/health"), fine: 200},
	"GET /metrics":      {kind: "whole", ask: at("/metrics"), fine: 200},

	"GET /workspaces":      {kind: "list", ask: at("/workspaces"), fine: 200},
	"GET /workspaces/{ws}": {kind: "read", ask: at("/workspaces/{ws}"), fine: 200},
	"PATCH /workspaces/{ws}": {kind: "rebind", fine: 200, ask: func(g *guarded) ask {
		_, ws, dir := g.newTask()
		return ask{target: "/workspaces/" + ws, body: members("root", dir)}
	}},
	"DELETE /workspaces/{ws}": {kind: "write", fine: 204, ask: func(g *guarded) ask {
		task, ws, _ := g.newTask()
		g.asOwner("PATCH", "/tasks/"+task, members("status", "completed")).Expect(200)
		return ask{target: "/workspaces/" + ws}
	}},
	"POST /workspaces/{ws}/sync":                 {kind: "read", ask: at("/workspaces/{ws}/sync"), fine: 200},
	"GET /workspaces/{ws}/log":                   {kind: "read", ask: at("/workspaces/{ws}/log"), fine: 200},
	"GET /workspaces/{ws}/log/search":            {kind: "read", ask: at("/workspaces/{ws}/log/search?pattern=x"), fine: 200},
	"GET /workspaces/{ws}/search":                {kind: "read", ask: at("/workspaces/{ws}/search?pattern=x"), fine: 200},
	"GET /workspaces/{ws}/commits/{commit}":      {kind: "read", ask: at("/workspaces/{ws}/commits/{commit}"), fine: 200},
	"GET /workspaces/{ws}/commits/{commit}/diff": {kind: "read", ask: at("/workspaces/{ws}/commits/{commit}/diff"), fine: 200},
	"POST /workspaces/{ws}/verify":               {kind: "write", ask: at("/workspaces/{ws}/verify"), fine: 200},
	"GET /workspaces/{ws}/checkpoints":           {kind: "read", ask: at("/workspaces/{ws}/checkpoints"), fine: 200},
	"GET /workspaces/{ws}/compare":               {kind: "read", ask: at("/workspaces/{ws}/compare?with=head"), fine: 200},
	"POST /workspaces/{ws}/merge": {kind: "undo", fine: 422, ask: func(g *guarded) ask {
		return ask{target: g.fill("/workspaces/{ws}/merge")}
	}},
	"POST /workspaces/{ws}/rebase": {kind: "undo", fine: 422, ask: func(g *guarded) ask {
		return ask{target: g.fill("/workspaces/{ws}/rebase")}
	}},
	"GET /workspaces/{ws}/forks": {kind: "read", ask: at("/workspaces/{ws}/forks"), fine: 200},
	"POST /workspaces/{ws}/forks": {kind: "write", fine: 201, ask: func(g *guarded) ask {
		return ask{target: g.fill("/workspaces/{ws}/forks"), body: members("kind", "virtual")}
	}},
	"POST /workspaces/{ws}/checkpoints": {kind: "write", fine: 201, ask: func(g *guarded) ask {
		return ask{target: g.fill("/workspaces/{ws}/checkpoints"), body: members("name", "c"+strings.Trim(g.name(), "/."))}
	}},
	"DELETE /workspaces/{ws}/checkpoints/{name}": {kind: "write", fine: 204, ask: func(g *guarded) ask {
		_, ws, _ := g.newTask()
		g.asOwner("POST", "/workspaces/"+ws+"/checkpoints", members("name", "gone")).Expect(201)
		return ask{target: "/workspaces/" + ws + "/checkpoints/gone"}
	}},
	"GET /workspaces/{ws}/blame": {kind: "read", ask: at("/workspaces/{ws}/blame?path={file}"), fine: 200},
	"POST /workspaces/{ws}/policy/check": {kind: "read", fine: 200, ask: func(g *guarded) ask {
		return ask{target: g.fill("/workspaces/{ws}/policy/check"), body: members("paths", []string{"a"})}
	}},
	"GET /workspaces/{ws}/coverage": {kind: "read", ask: at("/workspaces/{ws}/coverage"), fine: 200},
	"GET /workspaces/{ws}/stream":   {kind: "read", ask: at("/workspaces/{ws}/stream"), fine: 200},

	"POST /tasks": {kind: "open", fine: 201, ask: func(g *guarded) ask {
		return ask{target: "/tasks", body: members("goal", "g", "workspace", g.newFolder())}
	}},
	"GET /tasks":      {kind: "list", ask: at("/tasks?limit=1000"), fine: 200},
	"GET /tasks/{id}": {kind: "read", ask: at("/tasks/{task}"), fine: 200},
	"PATCH /tasks/{id}": {kind: "write", fine: 200,
		ask: send("/tasks/{task}", members("metadata", members("a", 1)))},
	"DELETE /tasks/{id}": {kind: "write", fine: 204, ask: func(g *guarded) ask {
		task, _, _ := g.newTask()
		g.asOwner("PATCH", "/tasks/"+task, members("status", "completed")).Expect(200)
		return ask{target: "/tasks/" + task}
	}},
	"GET /tasks/{id}/content": {kind: "read", ask: at(taskFile + "{file}"), fine: 200},
	"PUT /tasks/{id}/content": {kind: "write", fine: 201, ask: func(g *guarded) ask {
		return ask{target: g.fill(taskFile) + g.name(), body: []byte("x")}
	}},
	"DELETE /tasks/{id}/content": {kind: "write", fine: 200, ask: func(g *guarded) ask {
		return ask{target: g.fill(taskFile) + g.file()}
	}},
	"POST /tasks/{id}/move": {kind: "write", fine: 200, ask: func(g *guarded) ask {
		return ask{target: g.fill("/tasks/{task}/move"), body: members("from", g.file(), "to", g.name())}
	}},
	"POST /tasks/{id}/batch": {kind: "write", fine: 200, ask: func(g *guarded) ask {
		return ask{target: g.fill("/tasks/{task}/batch"), body: members("operations", []any{members("op", "write", "path", g.name(), "content", "x")})}
	}},
	"GET /tasks/{id}/list":   {kind: "read", ask: at("/tasks/{task}/list"), fine: 200},
	"GET /tasks/{id}/stat":   {kind: "read", ask: at("/tasks/{task}/stat?path={file}"), fine: 200},
	"GET /tasks/{id}/search": {kind: "read", ask: at("/tasks/{task}/search?pattern=x"), fine: 200},
	"GET /tasks/{id}/glob":   {kind: "read", ask: at("/tasks/{task}/glob?pattern=*"), fine: 200},
	"POST /tasks/{id}/edit": {kind: "write", fine: 200, ask: func(g *guarded) ask {
		return ask{target: g.fill("/tasks/{task}/edit"), body: members("path", g.file(), "old_string", "old", "new_string", "old")}
	}},
	"POST /tasks/{id}/append": {kind: "write", fine: 201, ask: func(g *guarded) ask {
		return ask{target: g.fill("/tasks/{task}/append?path=") + g.name(), body: []byte("x")}
	}},
	"POST /tasks/{id}/mkdir": {kind: "write", fine: 201, ask: func(g *guarded) ask {
		return ask{target: g.fill("/tasks/{task}/mkdir"), body: members("path", g.name())}
	}},
	"POST /tasks/{id}/copy": {kind: "write", fine: 200, ask: func(g *guarded) ask {
		return ask{target: g.fill("/tasks/{task}/copy"), body: members("from", g.file(), "to", g.name())}
	}},
	"POST /tasks/{id}/symlink": {kind: "write", fine: 201, ask: func(g *guarded) ask {
		return ask{target: g.fill("/tasks/{task}/symlink"), body: members("path", g.name(), "target", g.file())}
	}},
	"GET /tasks/{id}/changes": {kind: "read", ask: at("/tasks/{task}/changes"), fine: 200},
	"GET /tasks/{id}/changes/{n}/before": {kind: "read", fine: 200, ask: func(g *guarded) ask {
		task, _, _ := g.newTask()
		g.asOwner("PUT", "/tasks/"+task+"/content?path=f", []byte("newer")).Expect(200)
		return ask{target: "/tasks/" + task + "/changes/2/before"}
	}},
	"GET /tasks/{id}/files":                {kind: "read", ask: at("/tasks/{task}/files"), fine: 200},
	"GET /tasks/{id}/files/{path...}/diff": {kind: "read", ask: at("/tasks/{task}/files/{file}/diff"), fine: 200},
	"GET /tasks/{id}/hunks":                {kind: "read", ask: at("/tasks/{task}/hunks"), fine: 200},
	"POST /tasks/{id}/review": {kind: "undo", fine: 200, ask: func(g *guarded) ask {
		task, _, _ := g.newTask()
		return ask{target: "/tasks/" + task + "/review", body: members("accept_rest", true)}
	}},
	"GET /tasks/{id}/trace": {kind: "read", ask: at("/tasks/{task}/trace"), fine: 200},
	"GET /tasks/{id}/diff":  {kind: "read", ask: at("/tasks/{task}/diff"), fine: 200},
	"POST /tasks/{id}/files/{path...}/revert": {kind: "undo", fine: 200, ask: func(g *guarded) ask {
		task, _, _ := g.newTask()
		return ask{target: "/tasks/" + task + "/files/f/revert"}
	}},
	"POST /tasks/{id}/revert": {kind: "undo", fine: 200, ask: func(g *guarded) ask {
		task, _, _ := g.newTask()
		return ask{target: "/tasks/" + task + "/revert"}
	}},
	"POST /tasks/{id}/subtasks/{sid}/revert": {kind: "undo", fine: 200, ask: func(g *guarded) ask {
		task, _, _ := g.newTask()
		return ask{target: "/tasks/" + task + "/subtasks/s1/revert"}
	}},
	"POST /tasks/{id}/changes/{n}/revert": {kind: "undo", fine: 200, ask: func(g *guarded) ask {
		task, _, _ := g.newTask()
		return ask{target: "/tasks/" + task + "/changes/1/revert"}
	}},
	"POST /workspaces/{ws}/commits/{commit}/revert": {kind: "undo", fine: 200, ask: func(g *guarded) ask {
		task, _, _ := g.newTask()
		made := g.asOwner("PUT", "/tasks/"+task+"/content?path=undone", []byte("x")).Expect(201)
		at := g.asOwner("GET", "/tasks/"+task, nil).Expect(200)
		return ask{target: "/workspaces/" + at.Text("workspace_id") + "/commits/" + made.Text("commit") + "/revert"}
	}},
	"POST /workspaces/{ws}/restore": {kind: "undo", fine: 200, ask: func(g *guarded) ask {
		return ask{target: g.fill("/workspaces/{ws}/restore"), body: members("to", "head", "paths", []string{g.file()})}
	}},
	"POST /workspaces/{ws}/revert": {kind: "undo", fine: 200, ask: func(g *guarded) ask {
		return ask{target: g.fill("/workspaces/{ws}/revert"), body: members("actor", "nobody")}
	}},
	"POST /calls": {kind: "open", fine: 201, ask: func(g *guarded) ask {
		return ask{target: "/calls", body: members("agent", "a", "agent_session", "s", "cwd", g.newFolder())}
	}},
	"POST /tasks/{id}/exec": {kind: "write", fine: 403, ask: func(g *guarded) ask {
		return ask{target: g.fill("/tasks/{task}/exec"), body: members("command", "true")} // off in this server
	}},
	"POST /layers": {kind: "open", fine: 201, ask: func(g *guarded) ask {
		return ask{target: "/layers", body: members("agent", "a", "agent_session", "s", "cwd", g.newFolder())}
	}},
	"GET /layers": {kind: "list", fine: 200, ask: func(g *guarded) ask {
		g.asOwner("POST", "/layers", members("agent", "a", "agent_session", "s", "cwd", g.folder)).Expect(201)
		return ask{target: "/layers"}
	}},
	"POST /layers/{layer}/apply": {kind: "write", fine: 200, ask: onLayer("/apply")},
	"DELETE /layers/{layer}":     {kind: "write", fine: 204, ask: onLayer("")},
	"GET /calls": {kind: "list", fine: 200, ask: func(g *guarded) ask {
		g.asOwner("POST", "/calls", members("agent", "a", "agent_session", "s", "workspace_id", g.ws, "tool", marker)).Expect(201)
		return ask{target: "/calls"}
	}},
	"GET /calls/{call}":                      {kind: "read", fine: 200, ask: onCall("")},
	"POST /calls/{call}/end":                 {kind: "write", fine: 200, ask: onCall("/end")},
	"POST /calls/{call}/touch":               {kind: "write", fine: 200, ask: onCall("/touch")},
	"POST /calls/{call}/revert":              {kind: "undo", fine: 200, ask: onCall("/revert")},
	"GET /tasks/{id}/stream":                 {kind: "read", ask: at("/tasks/{task}/stream"), fine: 200},
	"GET /tasks/{id}/scratch":                {kind: "read", ask: at("/tasks/{task}/scratch"), fine: 200},
	"GET /tasks/{id}/scratch/{path...}":      {kind: "read", ask: at("/tasks/{task}/scratch/{marker}"), fine: 200},
	"PUT /tasks/{id}/scratch/{path...}":      {kind: "write", ask: send("/tasks/{task}/scratch/a", []byte("x"))},
	"DELETE /tasks/{id}/scratch/{path...}":   {kind: "write", ask: inArea("scratch")},
	"GET /tasks/{id}/artifacts":              {kind: "read", ask: at("/tasks/{task}/artifacts"), fine: 200},
	"GET /tasks/{id}/artifacts/{path...}":    {kind: "read", ask: at("/tasks/{task}/artifacts/{marker}"), fine: 200},
	"PUT /tasks/{id}/artifacts/{path...}":    {kind: "write", ask: send("/tasks/{task}/artifacts/a", []byte("x"))},
	"DELETE /tasks/{id}/artifacts/{path...}": {kind: "write", ask: inArea("artifacts")},
	"GET /tasks/{id}/bundle":                 {kind: "read", ask: at("/tasks/{task}/bundle"), fine: 200},
	"GET /tasks/{id}/patches":                {kind: "read", ask: at("/tasks/{task}/patches"), fine: 200},

	"GET /git/":                        {kind: "list", ask: at("/git/"), fine: 200},
	"GET /git/{repo}/info/refs":        {kind: "read", ask: at("/git/{ws}.git/info/refs?service=git-upload-pack"), fine: 200},
	"POST /git/{repo}/git-upload-pack": {kind: "read", ask: send("/git/{ws}.git/git-upload-pack", []byte("0000"), "Content-Type: application/x-git-upload-pack-request"), fine: 200},
	// Nobody may push, whatever there is.
	"POST /git/{repo}/git-receive-pack": {kind: "free", ask: at("/git/{ws}.git/git-receive-pack"), fine: 403},

	"POST /api/sessions":     {kind: "openRead", fine: 201, ask: func(g *guarded) ask { return ask{target: "/api/sessions", body: members("workspaceRoot", g.folder)} }},
	"GET /api/sessions":      {kind: "list", ask: at("/api/sessions"), fine: 200},
	"GET /api/sessions/{id}": {kind: "read", ask: at("/api/sessions/{session}"), fine: 200},
	"DELETE /api/sessions/{id}": {kind: "write", fine: 204, ask: func(g *guarded) ask {
		id := g.asOwner("POST", "/api/sessions", members("workspaceRoot", g.folder)).Expect(201).Text("sessionId")
		return ask{target: "/api/sessions/" + id}
	}},
	"GET /api/sessions/{id}/fs":          {kind: "read", ask: at("/api/sessions/{session}/fs"), fine: 200},
	"GET /api/sessions/{id}/fs/stat":     {kind: "read", ask: at("/api/sessions/{session}/fs/stat?path={file}"), fine: 200},
	"GET /api/sessions/{id}/fs/list":     {kind: "read", ask: at("/api/sessions/{session}/fs/list?path=."), fine: 200},
	"GET /api/sessions/{id}/fs/tree":     {kind: "read", ask: at("/api/sessions/{session}/fs/tree?path=."), fine: 200},
	"GET /api/sessions/{id}/fs/read":     {kind: "read", ask: at("/api/sessions/{session}/fs/read?path={file}"), fine: 200},
	"GET /api/sessions/{id}/fs/download": {kind: "read", ask: at("/api/sessions/{session}/fs/download?path={file}"), fine: 200},
	"POST /api/sessions/{id}/fs/write":   {kind: "write", ask: inSession("write", "path", "NEW", "content", "x")},
	"POST /api/sessions/{id}/fs/upload":  {kind: "write", ask: inSession("upload", "path", "NEW", "content", "x")},
	"PUT /api/sessions/{id}/fs/upload": {kind: "write", ask: func(g *guarded) ask {
		return ask{target: g.fill("/api/sessions/{session}/fs/upload?path=") + g.name(), body: []byte("x")}
	}},
	"POST /api/sessions/{id}/fs/replace": {kind: "write", ask: inSession("replace", "path", "FILE", "old_string", "old", "new_string", "new")},
	"POST /api/sessions/{id}/fs/mkdir":   {kind: "write", ask: inSession("mkdir", "path", "NEW")},
	"POST /api/sessions/{id}/fs/move":    {kind: "write", ask: inSession("move", "from", "FILE", "to", "NEW")},
	"POST /api/sessions/{id}/fs/copy":    {kind: "write", ask: inSession("copy", "from", "FILE", "to", "NEW")},
	"POST /api/sessions/{id}/fs/symlink": {kind: "write", ask: inSession("symlink", "path", "NEW", "target", "FILE")},
	"DELETE /api/sessions/{id}/fs/file": {kind: "write", ask: func(g *guarded) ask {
		return ask{target: g.fill("/api/sessions/{session}/fs/file?path=") + g.file()}
	}},
	"DELETE /api/sessions/{id}/fs/dir": {kind: "write", ask: func(g *guarded) ask {
		dir := g.name()
		g.asOwner("POST", g.fill("/api/sessions/{session}/fs/mkdir"), members("path", dir)).Expect(201)
		return ask{target: g.fill("/api/sessions/{session}/fs/dir?path=") + dir}
	}},

	"POST /toolsets": {kind: "open", fine: 201, ask: func(g *guarded) ask {
		return ask{target: "/toolsets", body: mountsBody(physical("/a", "READ_WRITE", g.newFolder()))}
	}},
	"GET /toolsets":      {kind: "list", ask: at("/toolsets"), fine: 200},
	"GET /toolsets/{id}": {kind: "read", ask: at("/toolsets/{toolset}"), fine: 200},
	"DELETE /toolsets/{id}": {kind: "write", fine: 204, ask: func(g *guarded) ask {
		id := g.asOwner("POST", "/toolsets", mountsBody(physical("/a", "READ_WRITE", g.folder))).Expect(201).Text("id")
		return ask{target: "/toolsets/" + id}
	}},
	"PUT /toolsets/{id}/mounts": {kind: "write", fine: 200, ask: func(g *guarded) ask {
		return ask{target: g.fill("/toolsets/{toolset}/mounts"), body: mountsBody(physical("/"+marker, "READ_WRITE", g.folder))}
	}},
	"GET /toolsets/{id}/tools":          {kind: "read", ask: at("/toolsets/{toolset}/tools"), fine: 200},
	"GET /toolsets/{id}/filesystem-map": {kind: "read", ask: at("/toolsets/{toolset}/filesystem-map"), fine: 200},
	"GET /toolsets/{id}/turn":           {kind: "read", ask: at("/toolsets/{toolset}/turn"), fine: 200},
	"POST /toolsets/{id}/call":          {kind: "read", ask: send("/toolsets/{toolset}/call", members("name", "list_directory", "arguments", members("path", "/"))), fine: 200},

	// The toolset that the settings mount: none, which everybody sees.
	"POST /mcp":        {kind: "free", ask: send("/mcp", mcpPing, mcpHeaders...), fine: 200},
	"GET /mcp":         {kind: "free", ask: send("/mcp", nil, mcpHeaders...)},
	"DELETE /mcp":      {kind: "free", ask: send("/mcp", nil, mcpHeaders...)},
	"POST /mcp/{id}":   {kind: "read", ask: send("/mcp/{toolset}", mcpPing, mcpHeaders...), fine: 200},
	"GET /mcp/{id}":    {kind: "read", ask: send("/mcp/{toolset}", nil, mcpHeaders...)},
	"DELETE /mcp/{id}": {kind: "read", ask: send("/mcp/{toolset}", nil, mcpHeaders...)},

	"PUT /workspace": {kind: "codeWrite", fine: 200, ask: func(g *guarded) ask {
		return ask{target: "/workspace", body: members("codeId", g.name(), "code", "1")}
	}},
	"POST /workspace/batch": {kind: "codeWrite", fine: 200, ask: func(g *guarded) ask {
		return ask{target: "/workspace/batch", body: members("files", []any{members("codeId", g.name(), "code", "1")})}
	}},
	"GET /workspace":                   {kind: "codeList", ask: at("/workspace"), fine: 200},
	"GET /workspace/{codeId}":          {kind: "code", ask: at("/workspace/{marker}"), fine: 200},
	"GET /workspace/{codeId}/versions": {kind: "code", ask: at("/workspace/{marker}/versions"), fine: 200},
	"DELETE /workspace/{codeId}": {kind: "code", write: true, fine: 200, ask: func(g *guarded) ask {
		id := g.name()
		g.asOwner("PUT", "/workspace", members("codeId", id, "code", "1")).Expect(200)
		return ask{target: "/workspace/" + id}
	}},
	"POST /execute":         {kind: "codeRun", write: true, ask: send("/execute", members("code", "console.log(1)")), fine: 200},
	"POST /lint":            {kind: "free", ask: send("/lint", members("code", "let a = 1;\n")), fine: 200},
	"POST /scripts/execute": {kind: "free", write: true, ask: send("/scripts/execute", members("script", "return 1")), fine: 200},
	"GET /scripts/sdk":      {kind: "free", ask: at("/scripts/sdk"), fine: 200},
}

// mcpPing is a request of the protocol's revision without sessions.
var mcpPing = json.RawMessage(`{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28",` +
	`"io.modelcontextprotocol/clientInfo":{"name":"t","version":"1"},"io.modelcontextprotocol/clientCapabilities":{}}}}`)

var mcpHeaders = []string{"Accept: application/json, text/event-stream", "Mcp-Protocol-Version: " + newest, "Mcp-Method: tools/list"}

func inArea(area string) func(*guarded) ask {
	return func(g *guarded) ask {
		target := g.fill("/tasks/{task}/") + area + "/" + g.name()
		g.asOwner("PUT", target, []byte("x")).Expect(201)
		return ask{target: target}
	}
}

// inSession is an operation of a session; NEW stands for a new name, FILE for a
// new file's.
func inSession(op string, pairs ...any) func(*guarded) ask {
	return func(g *guarded) ask {
		body := members(pairs...)
		for k, v := range body {
			switch v {
			case "NEW":
				body[k] = g.name()
			case "FILE":
				body[k] = g.file()
			}
		}
		return ask{target: g.fill("/api/sessions/{session}/fs/") + op, body: body}
	}
}

// accessCallers are who asks, with what each may.
var accessCallers = []struct {
	name          string
	known         bool // the token holds
	write, rooted bool
	here          bool // sees what lies in here
}{
	{name: "nobody"}, {name: "bad"}, {name: "late"},
	{name: "read elsewhere", known: true, rooted: true},
	{name: "write elsewhere", known: true, rooted: true, write: true},
	{name: "read here", known: true, rooted: true, here: true},
	{name: "read all", known: true, here: true},
	{name: "write here", known: true, rooted: true, write: true, here: true},
	{name: "write all", known: true, write: true, here: true},
	{name: "owner", known: true, write: true, here: true},
}

// Every route of the server, asked by everybody: what the contract says of
// scopes and roots, no word of what lies outside, and each refusal in the log.
func TestAccessToEveryRoute(t *testing.T) {
	g := newGuarded(t)
	before := g.denials() // of who waited for the tokens
	routes := g.routes()
	for _, route := range routes {
		if _, ok := reaches[route]; !ok && !strings.Contains(route, " /upkeep/") {
			t.Errorf("%s: nothing says who may call it", route)
		}
	}
	for route := range reaches {
		if !slices.Contains(routes, route) {
			t.Errorf("%s is no route", route)
		}
	}
	want := map[string]denial{}
	for _, route := range routes {
		r, ok := reaches[route]
		if !ok {
			r = reach{kind: "owner", ask: at(strings.NewReplacer("{", "", "}", "").Replace(strings.SplitN(route, " ", 2)[1]))}
		}
		method, pattern, _ := strings.Cut(route, " ")
		for _, who := range accessCallers {
			if r.kind == "owner" && who.name == "owner" {
				continue // what it does is another test's
			}
			a := r.ask(g)
			id := strings.ReplaceAll(fmt.Sprintf("%s.%s", route, who.name), " ", "_")
			header := append(slices.Clone(a.header), "X-Request-Id: "+id)
			switch who.name {
			case "nobody":
			case "owner":
				header = append(header, "Authorization: Bearer "+g.owner)
			default:
				header = append(header, "Authorization: Bearer "+g.secrets[who.name])
			}
			status, text := g.peek(method, a.target, a.body, header)

			expect, reason := r.fine, ""
			refuse := func(status int, why string) { expect, reason = status, why }
			needs := r.write || slices.Contains([]string{"write", "open", "codeWrite", "rebind"}, r.kind)
			switch {
			case r.kind == "public":
			case who.name == "nobody":
				refuse(401, "token_missing")
			case who.name == "late":
				refuse(401, "token_expired")
			case !who.known:
				refuse(401, "token_unknown")
			case r.kind == "owner":
				refuse(403, "owner_only")
			case needs && !who.write:
				refuse(403, "read_only_token")
			case slices.Contains([]string{"read", "write", "undo", "rebind"}, r.kind) && !who.here:
				refuse(404, "outside_roots")
			case r.kind == "undo" && !who.write:
				refuse(403, "read_only_token")
			case r.kind == "rebind" && !who.rooted && who.name != "owner":
				refuse(403, "workspace_not_allowed")
			case r.kind == "open" && !(who.rooted && who.here) && who.name != "owner", r.kind == "openRead" && !who.here:
				refuse(403, "workspace_not_allowed")
			case slices.Contains([]string{"code", "codeList", "codeWrite", "codeRun", "whole"}, r.kind) && who.rooted:
				refuse(403, "rooted_token")
			}
			if expect != 0 && status != expect || expect == 0 && slices.Contains([]int{401, 403, 404}, status) || status >= 500 {
				t.Errorf("%s asks %s %s: %d, want %d: %.300s", who.name, method, a.target, status, expect, text)
				continue
			}
			shown := strings.Contains(text, marker) || strings.Contains(text, g.ws)
			if shown && !(who.here && reason == "") && !(r.kind == "codeList" || r.kind == "code") {
				t.Errorf("%s asks %s %s and is told of what it may not see: %.300s", who.name, method, a.target, text)
			}
			if r.kind == "list" && shown != who.here && who.known {
				t.Errorf("%s asks %s and is not told of what it may see: %.300s", who.name, a.target, text)
			}
			if r.kind == "codeList" && who.known && !who.rooted && !shown {
				t.Errorf("%s asks %s: %.300s", who.name, a.target, text)
			}
			if reason != "" {
				token := who.name
				if token == "nobody" || token == "bad" {
					token = ""
				}
				want[id] = denial{Message: "denied", Audit: true, Token: token, Route: method + " " + pattern, Reason: reason, ID: id}
			}
		}
	}
	g.Log.Await(func(string) bool { return len(g.denials()) >= len(before)+len(want) }, within)
	got := g.denials()
	for id, d := range want {
		if got[id] != d {
			t.Errorf("the log says %+v of a refusal, want %+v", got[id], d)
		}
	}
	for id, d := range got {
		if _, ok := want[id]; !ok && d.Reason != "token_missing" && before[id] != d {
			t.Errorf("the log tells of a refusal that was none: %+v", d)
		}
	}
}

// routes lists all routes as the document has them, by the router's patterns.
func (g *guarded) routes() []string {
	g.t.Helper()
	var doc struct {
		Paths map[string]map[string]json.RawMessage `json:"paths"`
	}
	g.asOwner("GET", "/openapi.json", nil).Expect(200).JSON(&doc)
	var list []string
	for path, item := range doc.Paths {
		for method := range item {
			if m := strings.ToUpper(method); slices.Contains([]string{"GET", "PUT", "POST", "DELETE", "PATCH"}, m) {
				path = strings.Replace(path, "{path}", "{path...}", 1)
				list = append(list, m+" "+path)
			}
		}
	}
	slices.Sort(list)
	return list
}
