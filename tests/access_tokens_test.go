package tests

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"umbra/internal/need"
	"umbra/tests/harness"
)

// tokenVerb runs umbra token on a data directory.
func tokenVerb(t *testing.T, dataDir string, args ...string) (status int, out, errOut string) {
	t.Helper()
	return harness.Run(t, nil, append([]string{"token"}, append(args, "--data-dir", dataDir)...)...)
}

func mustToken(t *testing.T, dataDir string, args ...string) string {
	t.Helper()
	status, out, errOut := tokenVerb(t, dataDir, args...)
	if status != 0 {
		t.Fatalf("umbra token %v: %d %s", args, status, errOut)
	}
	return strings.TrimSpace(out)
}

// statusAs is what a caller is answered to a request without a body.
func statusAs(t *testing.T, s *harness.Server, secret, method, target string) int {
	t.Helper()
	var header []string
	if secret != "" {
		header = append(header, "Authorization: Bearer "+secret)
	}
	return s.Do(method, target, nil, header...).Status
}

// Tokens come and go while the server runs, and what is on stays on.
func TestTokenVerbActsAtOnce(t *testing.T) {
	s := harness.Start(t, harness.Options{})
	if got := statusAs(t, s, "", "GET", "/workspaces"); got != 200 {
		t.Fatal(got)
	}
	open := s.Do("POST", "/tasks", map[string]any{"goal": "g", "workspace": t.TempDir()}).Expect(201)
	anonymous := s.Stream("/tasks/" + open.Text("task_id") + "/stream")

	first := mustToken(t, s.DataDir, "add", "first", "--scope", "read")
	if !strings.HasPrefix(first, "umbra_") || strings.ContainsAny(first, " \n") {
		t.Errorf("the token is %q", first)
	}
	if raw, err := os.ReadFile(filepath.Join(s.DataDir, "state.db")); harness.Nodes() == 0 && err != nil || strings.Contains(string(raw), first) {
		t.Error("the token stands in the data directory", err)
	}
	s.AwaitToken(first, true)
	for secret, want := range map[string]int{"": 401, "x": 401, first: 200} {
		if got := statusAs(t, s, secret, "GET", "/workspaces"); got != want {
			t.Errorf("%q: %d, want %d", secret, got, want)
		}
	}
	for _, ok := anonymous.Next(); ok; _, ok = anonymous.Next() {
		// It ends: who listens has no token.
	}
	status, _, errOut := tokenVerb(t, s.DataDir, "add", "first", "--scope", "write")
	if status != 1 || !strings.Contains(errOut, `"first"`) {
		t.Errorf("a second of the name: %d %s", status, errOut)
	}
	var made struct{ Token, Name, Scope string }
	if err := json.Unmarshal([]byte(mustToken(t, s.DataDir, "add", "second", "--scope", "write", "--json")), &made); err != nil || made.Name != "second" || made.Scope != "write" {
		t.Fatal(made, err)
	}
	s.AwaitToken(made.Token, true)
	list := mustToken(t, s.DataDir, "list")
	if !strings.Contains(list, "first") || !strings.Contains(list, "second") || strings.Contains(list, first) || strings.Contains(list, made.Token) {
		t.Errorf("the list is %s", list)
	}

	stream := s.Stream("/tasks/"+open.Text("task_id")+"/stream", "Authorization: Bearer "+made.Token)
	mustToken(t, s.DataDir, "remove", "second")
	s.AwaitToken(made.Token, false)
	if got := statusAs(t, s, made.Token, "GET", "/workspaces"); got != 401 {
		t.Errorf("a removed token: %d", got)
	}
	for _, ok := stream.Next(); ok; _, ok = stream.Next() {
		// Its stream ends.
	}
	if got := statusAs(t, s, first, "GET", "/workspaces"); got != 200 {
		t.Errorf("the other one: %d", got)
	}
	s.Stop()
	s.Restart()
	if got := statusAs(t, s, first, "GET", "/workspaces"); got != 200 {
		t.Errorf("after a restart: %d", got)
	}
	status, _, errOut = tokenVerb(t, s.DataDir, "off")
	if status != 1 {
		t.Errorf("off with a token left: %d %s", status, errOut)
	}
	if out := mustToken(t, s.DataDir, "remove", "first"); !strings.Contains(out, "only the owner") {
		t.Errorf("removing the last says %q", out)
	}
	s.AwaitToken(first, false)
	if status, _, _ := tokenVerb(t, s.DataDir, "remove", "first"); status != 1 {
		t.Errorf("removing it again: %d", status)
	}
	for range 2 {
		for _, secret := range []string{"", first, made.Token} {
			if got := statusAs(t, s, secret, "GET", "/workspaces"); got != 401 {
				t.Errorf("with no token left %q gets %d", secret, got)
			}
		}
		// The owner's own verbs get in.
		if status, _, errOut := harness.Run(t, nil, "workspaces", "--data-dir", s.DataDir); status != 0 {
			t.Errorf("the owner's verb: %d %s", status, errOut)
		}
		s.Stop()
		s.Restart()
	}
	mustToken(t, s.DataDir, "off")
	s.AwaitToken("", true)
	if got := statusAs(t, s, "", "GET", "/workspaces"); got != 200 {
		t.Errorf("after they were turned off: %d", got)
	}
}

func TestTokenVerbWithoutAServer(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data") // made by the verb
	secret := mustToken(t, dir, "add", "ci", "--scope", "read")
	if st, err := os.Stat(dir); err != nil || st.Mode().Perm() != 0o700 {
		t.Error(st, err)
	}
	// Tokens that were added are enough for an address that others can reach.
	s := harness.Start(t, harness.Options{DataDir: dir, Listen: "0.0.0.0:0"})
	if got := s.Do("GET", "/workspaces", nil, "Authorization: Bearer "+secret, "Host: localhost").Status; got != 200 {
		t.Error(got)
	}
	if status, _, errOut := tokenVerb(t, dir, "list", "--server", s.URL, "--token", secret); status != 2 {
		// --server and --data-dir exclude each other.
		t.Error(status, errOut)
	}
	mustToken(t, dir, "remove", "ci")
	if status, _, errOut := harness.Run(t, []string{"UMBRA_LISTEN=0.0.0.0:0"}, "token", "off", "--data-dir", dir); status != 1 && !strings.Contains(errOut, "needs tokens") {
		t.Error(status, errOut)
	}
	if got := s.Do("GET", "/workspaces", nil, "Host: localhost").Status; got != 401 {
		t.Error(got)
	}
	s.Stop()
	if got := mustToken(t, dir, "list"); !strings.Contains(got, "only the owner") {
		t.Error(got)
	}
	mustToken(t, dir, "off")
	status, _, errOut := harness.Run(t, nil, "serve", "--data-dir", dir, "--listen", "0.0.0.0:0")
	if status != 2 || !strings.Contains(errOut, "not a loopback address") {
		t.Errorf("an open door: %d %s", status, errOut)
	}
}

func TestTokenVerbWrongUse(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	for _, args := range [][]string{
		{"add", "x"}, {"add", "x", "--scope", "all"}, {"add", "--scope", "read"}, {"add", "x", "y", "--scope", "read"}, {"add", "a<b", "--scope", "read"},
		{"add", "", "--scope", "read"}, {"add", "x", "--scope", "read", "--expires", "soon"}, {"add", "x", "--scope", "read", "--expires", "-1h"},
		{"add", "x", "--scope", "read", "--expires", "0s"}, {"remove"}, {"list", "x"}, {"frob"},
	} {
		if status, out, errOut := tokenVerb(t, dir, args...); status != 2 || out != "" {
			t.Errorf("%v: %d %q %s", args, status, out, errOut)
		}
	}
	config := filepath.Join(t.TempDir(), "c.yaml")
	need.NoError(t, os.WriteFile(config, fmt.Appendf(nil, "auth: {tokens: [{name: fixed, scope: read, sha256: '%064d'}]}\n", 1), 0o600))
	if status, _, errOut := tokenVerb(t, dir, "remove", "fixed", "--config", config); status != 1 || !strings.Contains(errOut, "settings") {
		t.Errorf("one of the settings: %d %s", status, errOut)
	}
	if out := mustToken(t, dir, "list", "--config", config, "--json"); !strings.Contains(out, `"settings":true`) {
		t.Error(out)
	}
}

func TestTokenExpires(t *testing.T) {
	s := harness.Start(t, harness.Options{})
	mustToken(t, s.DataDir, "add", "other", "--scope", "read")
	// Long enough for the next lines, short enough to be waited for.
	short := mustToken(t, s.DataDir, "add", "short", "--scope", "write", "--root", s.DataDir+"/..", "--expires", "3s")
	folder := filepath.Join(filepath.Dir(s.DataDir), "w")
	need.NoError(t, os.Mkdir(folder, 0o755))
	task := s.Do("POST", "/tasks", map[string]any{"goal": "g", "workspace": folder}, "Authorization: Bearer "+short).Expect(201).Text("task_id")
	stream := s.Stream("/tasks/"+task+"/stream", "Authorization: Bearer "+short)
	for _, ok := stream.Next(); ok; _, ok = stream.Next() {
		// It ends when the token's time is over.
	}
	if got := statusAs(t, s, short, "GET", "/tasks/"+task); got != 401 {
		t.Errorf("an expired token: %d", got)
	}
	if out := mustToken(t, s.DataDir, "list"); !strings.Contains(out, "expired") {
		t.Error(out)
	}
}

// The server's own workspaces, and virtual ones, are nobody's whose token has
// roots, wherever those lie.
func TestRootedTokensSeeNothingOfTheServersOwn(t *testing.T) {
	g := newGuarded(t)
	g.tokenAdd("write top", "write", "--root", g.top)
	ids := map[string]string{}
	var list struct {
		Workspaces []struct {
			ID, Kind string
			Root     *string
		}
	}
	g.asOwner("GET", "/workspaces", nil).Expect(200).JSON(&list)
	for _, w := range list.Workspaces {
		switch {
		// In a cluster the server's own are virtual, too.
		case strings.HasPrefix(w.ID, "umbra-code-"):
			ids["code"] = w.ID
		case strings.HasPrefix(w.ID, "umbra-output-"):
			ids["output"] = w.ID
		case w.Kind == "virtual":
			ids["virtual"] = w.ID
		case w.Root != nil && *w.Root == g.top+"/code":
			ids["code"] = w.ID
		case w.Root != nil && *w.Root == g.top+"/output":
			ids["output"] = w.ID
		}
	}
	if len(ids) != 3 {
		t.Fatalf("the workspaces are %v", ids)
	}
	as := func(who, method, target string, body any, header ...string) *harness.Response {
		t.Helper()
		return g.Do(method, target, body, append(header, "Authorization: Bearer "+g.secrets[who])...)
	}
	for _, who := range []string{"read top", "write top"} {
		for _, target := range []string{"/workspaces", "/git/", "/tasks", "/tasks?workspace=" + ids["code"]} {
			text := string(as(who, "GET", target, nil).Expect(200).Body)
			for kind, id := range ids {
				if strings.Contains(text, id) {
					t.Errorf("%s sees the %s workspace in %s", who, kind, target)
				}
			}
		}
		if n := strings.Count(string(as(who, "GET", "/workspaces", nil).Body), `"git_dir"`); n != 1 {
			t.Errorf("%s sees %d workspaces", who, n)
		}
		for kind, id := range ids {
			for _, target := range []string{"/workspaces/" + id, "/workspaces/" + id + "/log", "/workspaces/" + id + "/coverage", "/git/" + id + ".git/info/refs?service=git-upload-pack"} {
				if got := as(who, "GET", target, nil).Status; got != 404 {
					t.Errorf("%s asks for the %s workspace by %s: %d", who, kind, target, got)
				}
			}
			if got := as(who, "POST", "/workspaces/"+id+"/sync", nil).Status; got != 404 {
				t.Errorf("%s syncs the %s workspace: %d", who, kind, got)
			}
		}
		if got := as(who, "GET", "/tasks/"+g.virtualTsk, nil).Status; got != 404 {
			t.Errorf("%s sees a virtual task: %d", who, got)
		}
		for _, dir := range []string{"/code", "/output"} {
			if got := as(who, "POST", "/api/sessions", map[string]any{"workspaceRoot": g.top + dir}).Status; got != 403 {
				t.Errorf("%s opens a session on %s: %d", who, dir, got)
			}
		}
	}
	for what, body := range map[string]map[string]any{"/tasks": {"goal": "g", "kind": "virtual", "namespace": []string{"x"}},
		"/toolsets": mountsBody(virtual("/a", "READ_ONLY", "x"))} {
		if got := as("write top", "POST", what, body).Status; got != 403 {
			t.Errorf("POST %s of something virtual: %d", what, got)
		}
	}
	// A script runs, and has no file; a program reads nothing of the code workspace.
	r := as("write top", "POST", "/scripts/execute", map[string]any{"script": "return file == nil"}).Expect(200)
	if r.Field("result") != true {
		t.Errorf("a script has file: %s", r.Body)
	}
	r = as("write top", "POST", "/execute", map[string]any{"code": "console.log(await Deno.readTextFile('" + marker + ".ts'))"})
	if r.Status == 200 || strings.Contains(string(r.Body), "console.log(1)") {
		t.Errorf("a program reads the code workspace: %d %s", r.Status, r.Body)
	}
	r = as("write top", "POST", "/lint", map[string]any{"code": "import './" + marker + ".ts';\n"}).Expect(200)
	if !strings.Contains(string(r.Body), "unresolved-import") {
		t.Errorf("a check tells what is in the code workspace: %s", r.Body)
	}
	// What it does elsewhere is its own.
	as("write top", "POST", "/tasks", map[string]any{"goal": "g", "workspace": g.elsewhere}).Expect(201)
}

func TestReadTokenMay(t *testing.T) {
	g := newGuarded(t)
	as := func(method, target string, body any, header ...string) *harness.Response {
		t.Helper()
		return g.Do(method, target, body, append(header, "Authorization: Bearer "+g.secrets["read here"])...)
	}
	as("POST", "/workspaces/"+g.ws+"/sync", nil).Expect(200)
	as("POST", "/lint", map[string]any{"code": "let a = 1;\n"}).Expect(200)
	task := "/tasks/" + g.task
	as("POST", task+"/revert", map[string]any{"dry_run": true}).Expect(200)
	as("POST", task+"/changes/1/revert", map[string]any{"dry_run": true}).Expect(200)
	ses := as("POST", "/api/sessions", map[string]any{"workspaceRoot": g.folder}).Expect(201).Text("sessionId")
	as("GET", "/api/sessions/"+ses+"/fs/read?path="+marker+".txt", nil).Expect(200)
	as("GET", "/metrics", nil).ExpectError(403, "forbidden") // the figures are the whole server's
	for what, r := range map[string]*harness.Response{
		"sync with adopt":  as("POST", "/workspaces/"+g.ws+"/sync", map[string]any{"adopt": true}),
		"a new session":    as("POST", "/api/sessions", map[string]any{"workspaceRoot": g.newFolder()}),
		"execute":          as("POST", "/execute", map[string]any{"code": "1"}),
		"a script":         as("POST", "/scripts/execute", map[string]any{"script": "return 1"}),
		"mounts":           as("PUT", "/toolsets/"+g.toolset+"/mounts", mountsBody()),
		"a toolset":        as("POST", "/toolsets", mountsBody(physical("/a", "READ_ONLY", g.folder))),
		"a revert":         as("POST", task+"/revert", nil),
		"gc":               as("GET", "/upkeep/tokens", nil),
		"a session's file": as("POST", "/api/sessions/"+ses+"/fs/write", map[string]any{"path": "x", "content": "x"}),
	} {
		if r.Status != 403 {
			t.Errorf("%s: %d %s", what, r.Status, r.Body)
		}
	}
	// A tool that writes is refused in the model's words, and stands in the log.
	r := as("POST", "/toolsets/"+g.toolset+"/call", map[string]any{"name": "write_file", "arguments": map[string]any{"path": "/" + marker + "/x", "content": "x"}}, "X-Request-Id: tool")
	if r.Status == 200 && r.Text("status") == "success" {
		t.Errorf("a tool wrote: %s", r.Body)
	}
	g.Log.Await(func(string) bool { _, ok := g.denials()["tool"]; return ok }, within)
	if d := g.denials()["tool"]; d.Token != "read here" || d.Reason != "read_only_token" {
		t.Errorf("the log says %+v of the tool", d)
	}
}

func TestGitTakesTokens(t *testing.T) {
	g := newGuarded(t)
	git := func(secret string) (string, error) {
		url := strings.Replace(g.URL, "http://", "http://any:"+secret+"@", 1) + "/git/" + g.ws + ".git"
		return harness.TryGit(t, t.TempDir(), "ls-remote", url)
	}
	for who, want := range map[string]bool{"read here": true, "read all": true, "write here": true, "read elsewhere": false, "late": false, "bad": false} {
		out, err := git(g.secrets[who])
		if (err == nil) != want || want && !strings.Contains(out, "refs/umbra/head") {
			t.Errorf("%s: %v %s", who, err, out)
		}
	}
	r := g.Do("GET", "/git/"+g.ws+".git/info/refs?service=git-upload-pack", nil).Expect(401)
	if got := r.Header.Get("WWW-Authenticate"); !strings.HasPrefix(got, "Basic ") {
		t.Errorf("the challenge is %q", got)
	}
	mustToken(t, g.DataDir, "remove", "read here")
	g.AwaitToken(g.secrets["read here"], false)
	if out, err := git(g.secrets["read here"]); err == nil {
		t.Errorf("a removed token: %s", out)
	}
}

// MCP over HTTP and over standard input take tokens as every other route.
func TestMCPTakesTokens(t *testing.T) {
	g := newGuarded(t)
	bothRevisions(t, func(t *testing.T, revision string) {
		g.t = t
		name := "agent " + revision
		g.tokenAdd(name, "write", "--root", g.here)
		c := connect(t, overHTTP(g.Server, "/"+g.toolset, g.secrets[name]), revision)
		if text, failed := c.call(t, "list_directory", map[string]any{"path": "/"}); failed || !strings.Contains(text, marker) {
			t.Errorf("ls: %s", text)
		}
		elsewhere := &sdk.StreamableClientTransport{Endpoint: g.URL + "/mcp/" + g.toolset, MaxRetries: -1,
			HTTPClient: &http.Client{Transport: withToken{g.Client.Transport, g.secrets["write elsewhere"]}}}
		client := sdk.NewClient(&sdk.Implementation{Name: "test", Version: "1"}, nil)
		if other, err := client.Connect(t.Context(), elsewhere, &sdk.ClientSessionOptions{ProtocolVersion: revision}); err == nil {
			other.Close()
			t.Error("a token with other roots sees the toolset")
		}
		reader := connect(t, overHTTP(g.Server, "/"+g.toolset, g.secrets["read here"]), revision)
		if text, failed := reader.call(t, "write_file", map[string]any{"path": "/" + marker + "/x", "content": "x"}); !failed {
			t.Errorf("a token that may only read writes: %s", text)
		}
		mustToken(t, g.DataDir, "remove", name)
		g.AwaitToken(g.secrets[name], false)
		if _, err := c.CallTool(t.Context(), &sdk.CallToolParams{Name: "list_directory", Arguments: map[string]any{"path": "/"}}); err == nil {
			t.Error("a removed token calls tools")
		}
	})
	g.t = t
	in := strings.NewReader(`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"` + before + `","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}` + "\n")
	cmd := harness.Command(t, []string{"UMBRA_TOKEN=" + g.secrets["write here"]}, "mcp", "--server", g.URL, "--mount", "/p="+g.folder)
	cmd.Stdin = in
	if out, err := cmd.Output(); err != nil || !strings.Contains(string(out), `"serverInfo"`) {
		t.Errorf("over standard input: %v %s", err, out)
	}
	cmd = harness.Command(t, []string{"UMBRA_TOKEN=bad"}, "mcp", "--server", g.URL, "--mount", "/p="+g.folder)
	cmd.Stdin = strings.NewReader("")
	if out, err := cmd.CombinedOutput(); err == nil || !strings.Contains(string(out), "unauthorized") {
		t.Errorf("with a bad token: %v %s", err, out)
	}
}

// Where others may get in without tokens, what is the owner's stays the owner's.
func TestOwnersRoutesWhereOthersGetIn(t *testing.T) {
	s := harness.Start(t, harness.Options{Config: "auth: {peer: any}\n"})
	s.Do("GET", "/workspaces", nil).Expect(200)
	s.Do("GET", "/upkeep/tokens", nil).ExpectError(403, "owner_only")
	s.Do("POST", "/upkeep/tokens", map[string]any{"name": "x", "scope": "write"}).ExpectError(403, "owner_only")
	if out := mustToken(t, s.DataDir, "list"); !strings.Contains(out, "none is asked for") {
		t.Error(out)
	}
	s = harness.Start(t, harness.Options{})
	s.Do("GET", "/upkeep/tokens", nil).Expect(200)
	if status, out, errOut := harness.Run(t, nil, "token", "list", "--server", s.URL); status != 0 || !strings.Contains(out, "none is asked for") {
		t.Errorf("%d %s %s", status, out, errOut)
	}
}
