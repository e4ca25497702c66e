package tests

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"umbra/internal/need"
	"umbra/tests/harness"
)

// marker stands in every name, text and goal of the folder that only some of the
// callers may know of.
const marker = "zq7marker"

// guarded is a server with tokens, two folders, and the server's own workspaces.
type guarded struct {
	*harness.Server
	t                     *testing.T
	top, here, elsewhere  string
	folder                string            // the workspace in here
	owner                 string            // the secret of the owner's own verbs
	secrets               map[string]string // of the tokens, by name
	ws, task, commit      string            // in here
	session, toolset      string            // in here
	virtualWS, virtualTsk string
	made                  int
}

// tokenAdd adds a token as the owner does.
func (g *guarded) tokenAdd(name, scope string, more ...string) {
	g.t.Helper()
	args := append([]string{"token", "add", name, "--scope", scope, "--data-dir", g.DataDir}, more...)
	status, out, errOut := harness.Run(g.t, nil, args...)
	if status != 0 {
		g.t.Fatalf("umbra %v: %d %s", args, status, errOut)
	}
	g.secrets[name] = strings.TrimSpace(out)
	if g.Server != nil {
		g.AwaitToken(g.secrets[name], true)
	}
}

// newGuarded starts it. Tokens are added while it runs, but for the one that has
// expired, which stands in the settings.
func newGuarded(t *testing.T) *guarded {
	t.Helper()
	top, err := filepath.EvalSymlinks(t.TempDir())
	need.NoError(t, err)
	g := &guarded{t: t, top: top, here: top + "/" + marker, elsewhere: top + "/elsewhere", secrets: map[string]string{"late": "late", "bad": "bad"}}
	for _, dir := range []string{g.here, g.elsewhere} {
		need.NoError(t, os.Mkdir(dir, 0o755))
	}
	config := fmt.Sprintf("log: {format: json}\nauth: {tokens: [{name: late, scope: write, sha256: '%x', expires: 2020-01-01T00:00:00Z}]}\n", sha256.Sum256([]byte("late")))
	g.Server = harness.Start(t, harness.Options{Config: config, Args: []string{"--workspace-dir", top + "/code", "--output-dir", top + "/output"}})
	raw, err := os.ReadFile(filepath.Join(g.DataDir, "owner"))
	need.NoError(t, err)
	g.owner = strings.TrimSpace(string(raw))
	g.tokenAdd("read here", "read", "--root", g.here)
	g.tokenAdd("write here", "write", "--root", g.here)
	g.tokenAdd("read elsewhere", "read", "--root", g.elsewhere)
	g.tokenAdd("write elsewhere", "write", "--root", g.elsewhere)
	g.tokenAdd("read top", "read", "--root", top)
	g.tokenAdd("read all", "read")
	g.tokenAdd("write all", "write")

	g.folder = g.newFolder()
	made := g.asOwner("POST", "/tasks", map[string]any{"goal": marker, "workspace": g.folder}).Expect(201)
	g.task, g.ws = made.Text("task_id"), made.Text("workspace_id")
	g.commit = g.asOwner("PUT", "/tasks/"+g.task+"/content?path="+marker+".txt", []byte(marker+"\n")).Expect(201).Text("commit")
	g.asOwner("PUT", "/tasks/"+g.task+"/scratch/"+marker, []byte(marker)).Expect(201)
	g.asOwner("PUT", "/tasks/"+g.task+"/artifacts/"+marker, []byte(marker)).Expect(201)
	g.session = g.asOwner("POST", "/api/sessions", map[string]any{"workspaceRoot": g.folder}).Expect(201).Text("sessionId")
	g.toolset = g.asOwner("POST", "/toolsets", mountsBody(physical("/"+marker, "READ_WRITE", g.folder))).Expect(201).Text("id")
	virtual := g.asOwner("POST", "/tasks", map[string]any{"goal": "virtual" + marker, "kind": "virtual", "namespace": []string{marker}}).Expect(201)
	g.virtualTsk, g.virtualWS = virtual.Text("task_id"), virtual.Text("workspace_id")
	g.asOwner("PUT", "/workspace", map[string]any{"codeId": marker, "code": "console.log(1)"}).Expect(200)
	g.asOwner("POST", "/scripts/execute", map[string]any{"script": "return file.save('" + marker + "', 'x')"}).Expect(200)
	return g
}

func (g *guarded) asOwner(method, target string, body any, headers ...string) *harness.Response {
	g.t.Helper()
	return g.First().Do(method, target, body, append(headers, "Authorization: Bearer "+g.owner)...)
}

// name gives a new one, with the marker.
func (g *guarded) name() string {
	g.made++
	return fmt.Sprintf("%s-%d", marker, g.made)
}

// newFolder makes a folder in here.
func (g *guarded) newFolder() string {
	g.t.Helper()
	dir := filepath.Join(g.here, g.name())
	need.NoError(g.t, os.Mkdir(dir, 0o755))
	return dir
}

// newTask makes a task on a new folder in here, with one change.
func (g *guarded) newTask() (task, ws, dir string) {
	g.t.Helper()
	dir = g.newFolder()
	made := g.asOwner("POST", "/tasks", map[string]any{"goal": marker, "workspace": dir}).Expect(201)
	task = made.Text("task_id")
	g.asOwner("PUT", "/tasks/"+task+"/content?path=f", []byte(marker), "X-Subtask-Id: s1").Expect(201)
	return task, made.Text("workspace_id"), dir
}

// file makes a file through the task and gives its name.
func (g *guarded) file() string {
	g.t.Helper()
	name := g.name()
	g.asOwner("PUT", "/tasks/"+g.task+"/content?path="+name, []byte("old "+name+"\n")).Expect(201)
	return name
}

// peek sends a request and gives the answer's head, and at most the first bytes
// of its body, so that streams can be asked too.
func (g *guarded) peek(method, target string, body any, headers []string) (status int, text string) {
	g.t.Helper()
	var reader io.Reader
	isJSON := false
	switch b := body.(type) {
	case nil:
	case []byte:
		reader = strings.NewReader(string(b))
	default:
		raw, err := json.Marshal(b)
		need.NoError(g.t, err)
		reader, isJSON = strings.NewReader(string(raw)), true
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	at := g.URL
	if slices.Contains(headers, "Authorization: Bearer "+g.owner) {
		at = g.First().URL // whose owner it is
	}
	req, err := http.NewRequestWithContext(ctx, method, at+target, reader)
	need.NoError(g.t, err)
	if isJSON {
		req.Header.Set("Content-Type", "application/json")
	}
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		req.Header.Set(name, value)
	}
	res, err := g.Client.Do(req)
	if err != nil {
		g.t.Fatalf("%s %s: %v", method, target, err)
	}
	defer res.Body.Close()
	if strings.HasPrefix(res.Header.Get("Content-Type"), "text/event-stream") {
		return res.StatusCode, ""
	}
	raw, err := io.ReadAll(res.Body)
	if err != nil {
		g.t.Fatalf("%s %s: %v", method, target, err)
	}
	return res.StatusCode, string(raw)
}

// denials gives the audit lines so far, by request id.
func (g *guarded) denials() map[string]denial {
	out := map[string]denial{}
	for line := range strings.SplitSeq(g.Log.String(), "\n") {
		var d denial
		if json.Unmarshal([]byte(line), &d) == nil && d.Audit && d.Message == "denied" {
			out[d.ID] = d
		}
	}
	return out
}

type denial struct {
	Message string `json:"msg"`
	Audit   bool   `json:"audit"`
	Token   string `json:"token"`
	Route   string `json:"route"`
	Reason  string `json:"reason"`
	ID      string `json:"request_id"`
}

// within is how soon something must have happened that needs no call.
const within = 10 * time.Second
