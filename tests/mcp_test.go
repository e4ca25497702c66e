package tests

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"umbra/internal/need"
	"umbra/tests/harness"
)

// The newest revision of the protocol, and the one before it.
const (
	newest = "2026-07-28"
	before = "2025-11-25"
)

// bothRevisions runs a test with each.
func bothRevisions(t *testing.T, fn func(t *testing.T, revision string)) {
	for _, r := range []string{newest, before} {
		t.Run(r, func(t *testing.T) { fn(t, r) })
	}
}

// mcpClient is a client and what it was told by itself.
type mcpClient struct {
	*sdk.ClientSession
	tools    chan struct{}
	updated  chan string
	progress chan *sdk.ProgressNotificationParams
}

// connect connects a client of a revision.
func connect(t *testing.T, transport sdk.Transport, revision string) *mcpClient {
	t.Helper()
	c := &mcpClient{tools: make(chan struct{}, 16), updated: make(chan string, 16), progress: make(chan *sdk.ProgressNotificationParams, 64)}
	client := sdk.NewClient(&sdk.Implementation{Name: "test", Version: "1"}, &sdk.ClientOptions{
		ToolListChangedHandler:      func(context.Context, *sdk.ToolListChangedRequest) { c.tools <- struct{}{} },
		ResourceUpdatedHandler:      func(_ context.Context, r *sdk.ResourceUpdatedNotificationRequest) { c.updated <- r.Params.URI },
		ProgressNotificationHandler: func(_ context.Context, r *sdk.ProgressNotificationClientRequest) { c.progress <- r.Params },
	})
	var err error
	if c.ClientSession, err = client.Connect(context.Background(), transport, &sdk.ClientSessionOptions{ProtocolVersion: revision}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	if got := c.InitializeResult().ProtocolVersion; got != revision {
		t.Errorf("the revision is %s", got)
	}
	return c
}

func overHTTP(s *harness.Server, id, token string) sdk.Transport {
	client := *s.Client
	client.Transport = withToken{s.Client.Transport, token}
	return &sdk.StreamableClientTransport{Endpoint: s.URL + "/mcp" + id, HTTPClient: &client, MaxRetries: -1}
}

type withToken struct {
	http.RoundTripper
	token string
}

func (w withToken) RoundTrip(r *http.Request) (*http.Response, error) {
	if w.token != "" {
		r = r.Clone(r.Context())
		r.Header.Set("Authorization", "Bearer "+w.token)
	}
	return w.RoundTripper.RoundTrip(r)
}

// call calls a tool and gives its text.
func (c *mcpClient) call(t *testing.T, name string, args map[string]any) (text string, failed bool) {
	t.Helper()
	res, err := c.CallTool(t.Context(), &sdk.CallToolParams{Name: name, Arguments: args})
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	if len(res.Content) != 1 {
		t.Fatalf("%s: %d contents", name, len(res.Content))
	}
	return res.Content[0].(*sdk.TextContent).Text, res.IsError
}

func await[T any](t *testing.T, what string, ch <-chan T) T {
	t.Helper()
	select {
	case v := <-ch:
		return v
	case <-time.After(10 * time.Second):
		t.Fatalf("%s was not told", what)
		panic("unreachable")
	}
}

// changeTools makes a change of the tools until the client is notified of one.
func (c *mcpClient) changeTools(t *testing.T, change func()) {
	t.Helper()
	for range 50 {
		change()
		select {
		case <-c.tools:
			return
		case <-time.After(100 * time.Millisecond):
		}
	}
	t.Fatal("no list_changed arrived")
}

func toolNames(t *testing.T, c *mcpClient) string {
	t.Helper()
	res, err := c.ListTools(t.Context(), nil)
	need.NoError(t, err)
	var out []string
	for _, tl := range res.Tools {
		out = append(out, tl.Name)
	}
	slices.Sort(out)
	return strings.Join(out, " ")
}

func TestMCP(t *testing.T) {
	bothRevisions(t, func(t *testing.T, revision string) {
		s := harness.Start(t, harness.Options{})
		dir := folder(t, map[string]string{"a b/ü.md": "# hi\n", "bin": "\xff\xfe", "empty": ""})
		a := newAgent(t, s, physical("/p", "READ_WRITE", dir), virtual("/wo", "WRITE_ONLY", "n"))
		c := connect(t, overHTTP(s, "/"+a.id, ""), revision)
		if got := c.InitializeResult().Instructions; got != a.fileMap() {
			t.Errorf("instructions: %s", got)
		}
		want := strings.Fields(a.toolNames())
		slices.Sort(want)
		if got := toolNames(t, c); got != strings.Join(want, " ") {
			t.Errorf("tools: %s", got)
		}
		res, err := c.ListTools(t.Context(), nil)
		need.NoError(t, err)
		for _, tl := range res.Tools {
			if an := tl.Annotations; an == nil || an.DestructiveHint == nil || an.ReadOnlyHint == *an.DestructiveHint || tl.Title == "" || tl.Description == "" {
				t.Errorf("%s: %+v", tl.Name, an)
			}
			scalar(t, tl.Name, tl.InputSchema)
		}
		if got, failed := c.call(t, "read_file", map[string]any{"path": "/p/a b/ü.md"}); got != "# hi\n" || failed {
			t.Errorf("%q", got)
		}
		if got, failed := c.call(t, "write_file", map[string]any{"path": "/p/new", "content": "x"}); got != "Wrote 1 bytes to /p/new" || failed {
			t.Errorf("%q", got)
		}
		for name, args := range map[string]map[string]any{"Tool 'rm' is not available": nil, "File not found: /p/none": {"path": "/p/none"},
			"Invalid arguments: path is required": {}, "Operation 'read' is not permitted: /wo/x is WRITE_ONLY": {"path": "/wo/x"}} {
			tool := "read_file"
			if args == nil {
				tool = "rm"
			}
			if got, failed := c.call(t, tool, args); got != "Error: "+name || !failed {
				t.Errorf("%q %v, want %q", got, failed, name)
			}
		}
		// A subtask comes with the call.
		if _, err := c.CallTool(t.Context(), &sdk.CallToolParams{Name: "write_file", Arguments: map[string]any{"path": "/p/sub", "content": "y"}, Meta: sdk.Meta{"subtaskId": "s1"}}); err != nil {
			t.Fatal(err)
		}
		if got := a.gives("task_changes"); got != "1 create /p/new\n2 create /p/sub (subtask s1)" {
			t.Errorf("%s", got)
		}
		if _, err := c.CallTool(t.Context(), &sdk.CallToolParams{Name: "read_file", Meta: sdk.Meta{"subtaskId": "a\nb"}}); err == nil {
			t.Error("a forged subtask is taken")
		}
		testResources(t, c, a)
	})
}

// scalar holds a schema that every model API takes.
func scalar(t *testing.T, name string, schema any) {
	t.Helper()
	raw, err := json.Marshal(schema)
	need.NoError(t, err)
	var o struct {
		Type       any                       `json:"type"`
		Properties map[string]map[string]any `json:"properties"`
	}
	if err := json.Unmarshal(raw, &o); err != nil || o.Type != "object" || o.Properties == nil {
		t.Errorf("%s: %s, %v", name, raw, err)
	}
	for p, s := range o.Properties {
		if _, ok := s["type"].(string); !ok {
			t.Errorf("%s.%s: %v", name, p, s)
		}
	}
	for _, word := range []string{"oneOf", "anyOf", "allOf", "null"} {
		if strings.Contains(string(raw), `"`+word+`"`) {
			t.Errorf("%s: %s", name, raw)
		}
	}
}

func testResources(t *testing.T, c *mcpClient, a *agent) {
	t.Helper()
	list, err := c.ListResources(t.Context(), nil)
	if err != nil || len(list.Resources) != 1 || list.Resources[0].URI != "umbra://filesystem-map" {
		t.Errorf("%v, %v", list, err)
	}
	templates, err := c.ListResourceTemplates(t.Context(), nil)
	if err != nil || len(templates.ResourceTemplates) != 1 {
		t.Errorf("%v, %v", templates, err)
	}
	for uri, want := range map[string]string{
		"umbra://filesystem-map":       "text/plain " + a.fileMap(),
		"umbra:///p/a%20b/%C3%BC.md":   "text/markdown # hi\n",
		"umbra:///p/a b/ü.md":          "text/markdown # hi\n",
		"umbra:///p/empty":             "text/plain ",
		"umbra:///p/bin":               "application/octet-stream blob \xff\xfe",
		"umbra:///p/none":              "Resource not found",
		"umbra:///p/%2e%2e/etc/passwd": "No workspace is mounted at /etc/passwd",
		"umbra:///wo/x":                "is not permitted",
		"file:///etc/passwd":           "Resource not found",
	} {
		res, err := c.ReadResource(t.Context(), &sdk.ReadResourceParams{URI: uri})
		got := ""
		if err != nil {
			got = err.Error()
		} else if o := res.Contents[0]; o.Blob != nil {
			got = o.MIMEType + " blob " + string(o.Blob)
		} else {
			kind, _, _ := strings.Cut(o.MIMEType, ";")
			got = kind + " " + o.Text
		}
		if got != want && (err == nil || !strings.Contains(got, want)) {
			t.Errorf("%s: %q, want %q", uri, got, want)
		}
	}
}

// A change of mounts is told to who listens, in the way of its revision.
func TestMCPChanges(t *testing.T) {
	bothRevisions(t, func(t *testing.T, revision string) {
		s := harness.Start(t, harness.Options{})
		dir := folder(t, nil)
		a := newAgent(t, s, physical("/p", "READ_ONLY", dir))
		c := connect(t, overHTTP(s, "/"+a.id, ""), revision)
		if revision == newest {
			go c.Subscribe(t.Context(), &sdk.SubscribeParams{URI: "umbra://filesystem-map"})
		} else if err := c.Subscribe(t.Context(), &sdk.SubscribeParams{URI: "umbra://filesystem-map"}); err != nil {
			t.Fatal(err)
		}
		// The stream is opened beside us: until it stands, changes are only seen in the next list.
		c.changeTools(t, func() {
			a.setMounts(physical("/p", "READ_ONLY", dir), virtual("/n", "READ_WRITE", "x")).Expect(200)
			a.setMounts(physical("/p", "READ_WRITE", dir)).Expect(200)
		})
		a.setMounts(physical("/q", "READ_WRITE", dir)).Expect(200)
		if got := await(t, "the map's change", c.updated); got != "umbra://filesystem-map" {
			t.Errorf("%s", got)
		}
		if got := toolNames(t, c); !strings.Contains(got, "move_file") {
			t.Errorf("%s", got)
		}
		// The server stops in time with listeners.
		s.Stop()
	})
}

// A client outlives a restart of the server.
func TestMCPRestart(t *testing.T) {
	bothRevisions(t, func(t *testing.T, revision string) {
		s := harness.Start(t, harness.Options{Listen: "unix:" + filepath.Join(t.TempDir(), "s")})
		a := newAgent(t, s, physical("/p", "READ_WRITE", folder(t, map[string]string{"f": "x"})))
		c := connect(t, &sdk.StreamableClientTransport{Endpoint: s.URL + "/mcp/" + a.id, HTTPClient: s.Client, DisableStandaloneSSE: true}, revision)
		c.call(t, "read_file", map[string]any{"path": "/p/f"})
		s.Stop()
		s.Restart()
		if got, failed := c.call(t, "read_file", map[string]any{"path": "/p/f"}); got != "x" || failed {
			t.Errorf("%q", got)
		}
	})
}

func TestMCPProgress(t *testing.T) {
	bothRevisions(t, func(t *testing.T, revision string) {
		s := harness.Start(t, harness.Options{})
		files := map[string]string{}
		for i := range 700 {
			files[fmt.Sprintf("d%d/f%d", i%7, i)] = fmt.Sprint("needle ", i, "\n")
		}
		a := newAgent(t, s, physical("/p", "READ_ONLY", folder(t, files)))
		c := connect(t, overHTTP(s, "/"+a.id, ""), revision)
		params := &sdk.CallToolParams{Name: "grep_files", Arguments: map[string]any{"pattern": "needle 699$"}}
		params.SetProgressToken("p1")
		res, err := c.CallTool(t.Context(), params)
		if err != nil || res.Content[0].(*sdk.TextContent).Text != "/p/d6/f699:1: needle 699" {
			t.Fatalf("%v, %v", res, err)
		}
		if p := await(t, "progress", c.progress); p.ProgressToken != "p1" || p.Total != 700 {
			t.Errorf("%+v", p)
		}
	})
}

func TestMCPDefault(t *testing.T) {
	dir := folder(t, map[string]string{"f": "x"})
	config := "mcp: {mounts: [{prefix: /project, scope: READ_ONLY, root: " + dir + "}, {prefix: /n, scope: READ_WRITE, namespace: [a]}]}"
	s := harness.Start(t, harness.Options{Config: config})
	c := connect(t, overHTTP(s, "", ""), newest)
	if got, _ := c.call(t, "read_file", map[string]any{"path": "/project/f"}); got != "x" {
		t.Errorf("%q", got)
	}
	if _, failed := c.call(t, "write_file", map[string]any{"path": "/n/f", "content": "y"}); failed {
		t.Error("not written")
	}
	r := s.Do("GET", "/toolsets/default", nil).Expect(200)
	task := r.Text("tasks./n")
	s.Do("PUT", "/toolsets/default/mounts", mountsBody()).ExpectError(409, "toolset_fixed")
	s.Do("DELETE", "/toolsets/default", nil).ExpectError(409, "toolset_fixed")
	s.Stop()
	s.Restart()
	if got, _ := connect(t, overHTTP(s, "", ""), newest).call(t, "read_file", map[string]any{"path": "/n/f"}); got != "y" {
		t.Errorf("%q", got)
	}
	if got := s.Do("GET", "/toolsets/default", nil).Expect(200).Text("tasks./n"); got != task {
		t.Errorf("another task: %s, before %s", got, task)
	}
	// Without the setting it is empty.
	e := harness.Start(t, harness.Options{})
	c = connect(t, overHTTP(e, "", ""), newest)
	if got := toolNames(t, c); got != "" || !strings.Contains(c.InitializeResult().Instructions, "(no mounted workspaces)") {
		t.Errorf("%q, %s", got, c.InitializeResult().Instructions)
	}
}

// Two toolsets' sessions are apart, and so are callers.
func TestMCPSessions(t *testing.T) {
	s := harness.Start(t, harness.Options{})
	one := newAgent(t, s, physical("/one", "READ_ONLY", folder(t, map[string]string{"f": "1"})))
	two := newAgent(t, s, physical("/two", "READ_ONLY", folder(t, map[string]string{"f": "2"})))
	accept := "Accept: application/json, text/event-stream"
	json := "Content-Type: application/json"
	init := `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}`
	r := s.Do("POST", "/mcp/"+one.id, init, accept, json).Expect(200)
	session := "Mcp-Session-Id: " + r.Header.Get("Mcp-Session-Id")
	list := `{"jsonrpc":"2.0","id":2,"method":"tools/list"}`
	s.Do("POST", "/mcp/"+one.id, list, accept, json, session).Expect(200)
	s.Do("POST", "/mcp/"+two.id, list, accept, json, session).Expect(404)
	s.Do("DELETE", "/mcp/"+one.id, nil, session).Expect(204)
	s.Do("POST", "/mcp/"+one.id, list, accept, json, session).Expect(404)
	s.Do("POST", "/mcp/none", init, accept, json).ExpectError(404, "toolset_not_found")
	s.Do("PATCH", "/mcp/"+one.id, nil).ExpectError(405, "method_not_allowed")
	s.Do("GET", "/.well-known/oauth-protected-resource", nil).ExpectError(404, "not_found")
	s.Do("POST", "/mcp/"+one.id, init, accept, json, "Host: evil.example").ExpectError(403, "host_not_allowed")
	s.Do("DELETE", "/toolsets/"+one.id, nil).Expect(204)
	s.Do("POST", "/mcp/"+one.id, init, accept, json).ExpectError(404, "toolset_not_found")
}

func TestMCPTokens(t *testing.T) {
	dir := folder(t, map[string]string{"f": "x"})
	config := fmt.Sprintf(`auth: {tokens: [{name: w, sha256: %s, scope: write, roots: [%s]}, {name: r, sha256: %s, scope: read}, {name: o, sha256: %s, scope: write, roots: [%s]}]}`,
		sha("write"), dir, sha("read"), sha("other"), t.TempDir())
	s := harness.Start(t, harness.Options{Config: config, Token: "write"})
	a := newAgent(t, s, physical("/p", "READ_WRITE", dir))
	bothRevisions(t, func(t *testing.T, revision string) {
		c := connect(t, overHTTP(s, "/"+a.id, "write"), revision)
		if got, failed := c.call(t, "write_file", map[string]any{"path": "/p/" + revision, "content": "x"}); failed {
			t.Error(got)
		}
		c = connect(t, overHTTP(s, "/"+a.id, "read"), revision)
		if got, failed := c.call(t, "read_file", map[string]any{"path": "/p/f"}); failed || got != "x" {
			t.Error(got)
		}
		if got, failed := c.call(t, "write_file", map[string]any{"path": "/p/f", "content": "y"}); !failed || got != "Error: The token may only read." {
			t.Error(got)
		}
		if got, failed := c.call(t, "revert_changes", map[string]any{"all": true, "dry_run": true}); failed {
			t.Error(got)
		}
	})
	call := map[string]any{"name": "write_file", "arguments": map[string]any{"path": "/p/f", "content": "y"}}
	s.Do("POST", "/toolsets/"+a.id+"/call", call, "Authorization: Bearer read").ExpectError(403, "forbidden")
	s.Do("POST", "/toolsets/"+a.id+"/call", call, "Authorization: Bearer other").ExpectError(404, "toolset_not_found")
	s.Do("GET", "/toolsets/"+a.id, nil, "Authorization: Bearer other").ExpectError(404, "toolset_not_found")
	s.Do("POST", "/mcp/"+a.id, "{}", "Authorization: Bearer other", "Content-Type: application/json").ExpectError(404, "toolset_not_found")
	s.Do("POST", "/mcp/"+a.id, "{}", "Authorization: Bearer nobody", "Content-Type: application/json").ExpectError(401, "unauthorized")
	s.Do("POST", "/toolsets", mountsBody(physical("/p", "READ_ONLY", dir)), "Authorization: Bearer other").ExpectError(403, "workspace_not_allowed")
	s.Do("POST", "/toolsets", mountsBody(virtual("/p", "READ_ONLY", "x"))).ExpectError(403, "workspace_not_allowed")
	s.Do("POST", "/toolsets", mountsBody(), "Authorization: Bearer read").ExpectError(403, "forbidden")
	s.Do("PUT", "/toolsets/"+a.id+"/mounts", mountsBody(), "Authorization: Bearer read").ExpectError(403, "forbidden")
	// The actor is the token's name.
	var log struct{ Entries []map[string]any }
	s.Do("GET", "/tasks/"+s.Do("GET", "/toolsets/"+a.id, nil).Text("taskId")+"/changes", nil).Expect(200).JSON(&log)
	if len(log.Entries) != 2 || log.Entries[0]["actor"] != "w" {
		t.Errorf("%v", log.Entries)
	}
	if _, err := os.Stat(dir + "/" + newest); err != nil {
		t.Error(err)
	}
}
