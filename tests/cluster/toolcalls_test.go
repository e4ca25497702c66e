package cluster

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"umbra/tests/harness"
)

// toolClient is an MCP client with a session at one node.
type toolClient struct {
	t       *testing.T
	s       *harness.Server
	path    string
	session string
	token   string // empty: the server's
	last    int
}

func newToolClient(t *testing.T, s *harness.Server, path string, token ...string) *toolClient {
	t.Helper()
	c := &toolClient{t: t, s: s, path: path, token: strings.Join(token, "")}
	res := c.send("initialize", object("protocolVersion", "2025-06-18", "capabilities", object(), "clientInfo", object("name", "t", "version", "1"))).Expect(http.StatusOK)
	c.session = res.Header.Get("Mcp-Session-Id")
	return c
}

func (c *toolClient) send(method string, params any, headers ...string) *harness.Response {
	c.t.Helper()
	headers = append(headers, "Accept: application/json, text/event-stream", "Content-Type: application/json")
	if c.session != "" {
		headers = append(headers, "Mcp-Session-Id: "+c.session, "Mcp-Protocol-Version: 2025-06-18")
	}
	if c.token != "" {
		headers = append(headers, "Authorization: Bearer "+c.token)
	}
	c.last++
	raw, err := json.Marshal(object("jsonrpc", "2.0", "id", c.last, "method", method, "params", params))
	if err != nil {
		c.t.Fatal(err)
	}
	return c.s.Do("POST", c.path, raw, headers...)
}

// call calls a tool, and returns its text.
func (c *toolClient) call(name string, args any, headers ...string) (text string, res *harness.Response) {
	c.t.Helper()
	res = c.send("tools/call", object("name", name, "arguments", args, "_meta", object("progressToken", 1)), headers...).Expect(http.StatusOK)
	var m struct {
		Result struct {
			Content []struct{ Text string }
			IsError bool `json:"isError"`
		}
		Error json.RawMessage
	}
	body := string(res.Body)
	if i := strings.LastIndex(body, "data: "); i >= 0 {
		body = body[i+len("data: "):]
	}
	if err := json.Unmarshal([]byte(body), &m); err != nil || len(m.Result.Content) != 1 || m.Result.IsError {
		c.t.Errorf("%s: %v %s", name, err, res.Body)
		return "", res
	}
	return m.Result.Content[0].Text, res
}

// TestToolCallsStay: calls of sessions at several nodes are carried out by the owner of the
// workspace, which none of them takes.
func TestToolCallsStay(t *testing.T) {
	r := newRig(t)
	r.run(nil, 0, "init", "--lease", "2s")
	nodes := []*harness.Server{r.serve("n1"), r.serve("n2"), r.serve("n3")}
	var set struct {
		ID    string `json:"id"`
		Mount []struct {
			Workspace string `json:"workspaceId"`
		} `json:"mounts"`
	}
	mount := func(prefix, namespace string) map[string]any {
		return object("prefix", prefix, "scope", "READ_WRITE", "store", object("type", "virtual", "namespace", []string{namespace}))
	}
	// Two toolsets have a session each, at n1 and n2. Their workspaces are at n1 and n3.
	nodes[0].Do("POST", "/toolsets", object("mounts", []any{mount("/a", "a"), mount("/b", "b")})).Expect(http.StatusCreated).JSON(&set)
	a, b := set.Mount[0].Workspace, set.Mount[1].Workspace
	near := newToolClient(t, nodes[0], "/mcp/"+set.ID)
	var other struct {
		ID string `json:"id"`
	}
	nodes[1].Do("POST", "/toolsets", object("mounts", []any{mount("/c", "c")})).Expect(http.StatusCreated).JSON(&other)
	away := newToolClient(t, nodes[1], "/mcp/"+other.ID)
	nodes[1].Do("PUT", "/toolsets/"+other.ID+"/mounts", object("mounts", []any{mount("/a", "a"), mount("/b", "b"), mount("/c", "c")})).Expect(http.StatusOK)
	nodes[0].Do("POST", "/toolsets", object("mounts", []any{mount("/a", "a")})).Expect(http.StatusCreated)
	nodes[2].Do("POST", "/toolsets", object("mounts", []any{mount("/b", "b")})).Expect(http.StatusCreated)
	owners := func() (out string) {
		for _, ws := range []string{a, b} {
			out += nodes[1].Do("GET", "/workspaces/"+ws, nil).Expect(http.StatusOK).Header.Get("Umbra-Owner") + " "
		}
		return out
	}
	before := owners()
	if !strings.HasPrefix(near.session, "n1.") || !strings.HasPrefix(away.session, "n2.") || !strings.HasPrefix(before, `"n1"`) || !strings.Contains(before, `"n3"`) {
		t.Fatalf("sessions %s and %s, owners %s", near.session, away.session, before)
	}
	clients := []*toolClient{near, away}
	seq := map[string]string{}
	for i := range 3 {
		for j, c := range clients {
			for _, dir := range []string{"/a/", "/b/"} {
				name := fmt.Sprint(dir, i, "-", j)
				_, res := c.call("write_file", object("path", name, "content", "<"+name+">\n"), fmt.Sprint("Idempotency-Key: k", name))
				if !strings.Contains(before, res.Header.Get("Umbra-Owner")) || res.Header.Get("Umbra-Owner") == "" {
					t.Errorf("the owner is %q", res.Header.Get("Umbra-Owner"))
				}
				if res.Header.Get("Umbra-Seq") == "" || res.Header.Get("Umbra-Seq") == seq[dir] {
					t.Errorf("a write's Umbra-Seq is %q, after %q", res.Header.Get("Umbra-Seq"), seq[dir])
				}
				seq[dir] = res.Header.Get("Umbra-Seq")
				again := *c
				again.last-- // the same request
				if _, res := again.call("write_file", object("path", name, "content", "<"+name+">\n"), fmt.Sprint("Idempotency-Key: k", name)); res.Header.Get("Idempotent-Replay") != "true" || res.Header.Get("Umbra-Seq") != seq[dir] {
					t.Errorf("the request again: %v", res.Header)
				}
				if text, _ := clients[(j+1)%len(clients)].call("read_file", object("path", name)); !strings.Contains(text, "<"+name+">") {
					t.Errorf("%s: %q", name, text)
				}
				c.s = nodes[(i+j)%3] // the session works at each node
			}
		}
		nodes[i].Do("POST", "/toolsets/"+set.ID+"/call", object("name", "write_file", "arguments", object("path", "/b/h", "content", fmt.Sprint(i)))).Expect(http.StatusOK)
	}
	if now := owners(); now != before {
		t.Errorf("the owners were %s and are %s", before, now)
	}
	// A large body, and a file as a resource.
	large := strings.Repeat("0123456789<>&\n", 100_000)
	away.call("write_file", object("path", "/a/large", "content", large))
	if res := away.send("resources/read", object("uri", "umbra:///a/large")).Expect(http.StatusOK); len(res.Body) < len(large) || strings.Contains(string(res.Body), `"error"`) {
		t.Errorf("the resource: %.300s", res.Body)
	}
	if res := away.send("resources/read", object("uri", "umbra:///a/none")).Expect(http.StatusOK); !strings.Contains(string(res.Body), "-32002") && !strings.Contains(string(res.Body), "not found") {
		t.Errorf("no resource: %s", res.Body)
	}
	// A path that is not UTF-8 names no file, and not another one.
	away.call("write_file", object("path", "/a/\ufffd", "content", "another file\n"))
	if res := away.send("resources/read", object("uri", "umbra:///a/%FF")).Expect(http.StatusOK); !strings.Contains(string(res.Body), `"error"`) {
		t.Errorf("a path that is not UTF-8: %s", res.Body)
	}
	if now := owners(); now != before {
		t.Errorf("the owners were %s and are %s", before, now)
	}
	// The owner of /a is killed: a call of the session at n2 waits until its node has the workspace.
	nodes[0].Kill()
	away.s = nodes[1]
	away.call("write_file", object("path", "/a/after", "content", "after\n"), "Idempotency-Key: after")
	if text, res := away.call("read_file", object("path", "/a/after")); !strings.Contains(text, "after") || !strings.HasPrefix(res.Header.Get("Umbra-Owner"), `"n2"`) {
		t.Errorf("after the kill: %q, owner %s", text, res.Header.Get("Umbra-Owner"))
	}
}

// TestToolCallTokens: what a token may not do at the node of a session it may not do at the owner.
func TestToolCallTokens(t *testing.T) {
	r := newRig(t)
	env := append([]string{"UMBRA_HTTP_HOSTS=0.0.0.0", "UMBRA_CLUSTER_URL=" + r.url, "UMBRA_CLUSTER_BLOBS=" + r.blobs}, r.env...)
	r.run(nil, 0, "init", "--lease", "2s")
	token := func(args ...string) string {
		status, stdout, stderr := harness.Run(t, env, append([]string{"token", "add"}, args...)...)
		if status != 0 {
			t.Fatalf("exit status %d: %s", status, stderr)
		}
		return strings.TrimSpace(stdout)
	}
	mine, theirs := token("me", "--scope", "write"), token("them", "--scope", "read")
	var nodes []*harness.Server
	for _, name := range []string{"n1", "n2"} {
		nodes = append(nodes, harness.Start(t, harness.Options{Env: env, Args: []string{"--node", name}, Listen: "0.0.0.0:0", Token: mine}))
	}
	mounts := func(namespaces ...string) map[string]any {
		var list []any
		for _, name := range namespaces {
			list = append(list, object("prefix", "/"+name, "scope", "READ_WRITE", "store", object("type", "virtual", "namespace", []string{name})))
		}
		return object("mounts", list)
	}
	var set struct {
		ID string `json:"id"`
	}
	nodes[1].Do("POST", "/toolsets", mounts("b")).Expect(http.StatusCreated).JSON(&set)
	reader, writer := newToolClient(t, nodes[1], "/mcp/"+set.ID, theirs), newToolClient(t, nodes[1], "/mcp/"+set.ID)
	nodes[1].Do("PUT", "/toolsets/"+set.ID+"/mounts", mounts("a", "b")).Expect(http.StatusOK)
	nodes[0].Do("POST", "/toolsets", mounts("a")).Expect(http.StatusCreated)
	_, res := writer.call("write_file", object("path", "/a/f", "content", "mine\n"))
	if owner := res.Header.Get("Umbra-Owner"); !strings.HasPrefix(owner, `"n1"`) || !strings.HasPrefix(writer.session, "n2.") {
		t.Fatalf("the owner is %s, the session %s", owner, writer.session)
	}
	if text, _ := reader.call("read_file", object("path", "/a/f")); !strings.Contains(text, "mine") {
		t.Errorf("a read: %q", text)
	}
	if res := reader.send("tools/call", object("name", "write_file", "arguments", object("path", "/a/f", "content", "theirs\n"))); !strings.Contains(string(res.Body), "The token may only read.") {
		t.Errorf("a write: %d %s", res.Status, res.Body)
	}
	reader.token = "none"
	if res := reader.send("tools/call", object("name", "read_file", "arguments", object("path", "/a/f"))); res.Status != http.StatusUnauthorized {
		t.Errorf("without a token: %d %s", res.Status, res.Body)
	}
	// Another's session is none of this token's.
	writer.token = theirs
	if res := writer.send("tools/call", object("name", "read_file", "arguments", object("path", "/a/f"))); res.Status/100 != 4 {
		t.Errorf("another's session: %d %s", res.Status, res.Body)
	}
}

// TestOwnerInNameOnly: a node owns workspaces as PostgreSQL says, and does not have them: a
// release was lost in a failover, or a claim was not answered. Requests and calls of other nodes
// are answered all the same.
func TestOwnerInNameOnly(t *testing.T) {
	r := newRig(t)
	r.run(nil, 0, "init", "--lease", "2s")
	r.serve("n1")
	n2 := r.serve("n2")
	db := r.pair.A.In(strings.TrimSuffix(r.url[strings.LastIndexByte(r.url, '/')+1:], "?sslmode=disable"))
	var set struct {
		ID    string `json:"id"`
		Mount []struct {
			Workspace string `json:"workspaceId"`
		} `json:"mounts"`
	}
	var mounts []any
	for _, name := range []string{"a", "b"} {
		mounts = append(mounts, object("prefix", "/"+name, "scope", "READ_WRITE", "store", object("type", "virtual", "namespace", []string{name})))
	}
	n2.Do("POST", "/toolsets", object("mounts", mounts)).Expect(http.StatusCreated).JSON(&set)
	client := newToolClient(t, n2, "/mcp/"+set.ID)
	client.call("write_file", object("path", "/a/f", "content", "one\n"))
	client.call("write_file", object("path", "/b/f", "content", "one\n"))
	n2.Stop()
	db.SQL("UPDATE workspace SET owner = (SELECT life FROM node WHERE name = 'n1' AND state <> 'dead')")
	n2.Restart()
	client = newToolClient(t, n2, "/mcp/"+set.ID)
	if text, _ := client.call("read_file", object("path", "/a/f")); !strings.Contains(text, "one") {
		t.Errorf("a call: %q", text)
	}
	n2.Do("POST", "/toolsets/"+set.ID+"/call", object("name", "write_file", "arguments", object("path", "/b/f", "content", "two\n"))).Expect(http.StatusOK)
}
