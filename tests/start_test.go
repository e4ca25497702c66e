package tests

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"umbra/internal/need"
	"umbra/tests/harness"
)

// greeting waits for what a person is told after the ready line.
func greeting(t *testing.T, s *harness.Server) string {
	t.Helper()
	text, ok := s.Log.Await(func(text string) bool { return strings.Contains(text, "msg=listening") }, 10*time.Second)
	if !ok {
		t.Fatalf("no greeting: %q", text)
	}
	return text
}

// curl runs the command that the greeting tells to try.
func curl(t *testing.T, greeting string, env ...string) []byte {
	t.Helper()
	need.Tool(t, "curl")
	m := regexp.MustCompile(`(?m)^  try +(curl .*)$`).FindStringSubmatch(greeting)
	if m == nil {
		t.Fatalf("nothing to try in %q", greeting)
	}
	cmd := exec.Command("sh", "-c", m[1])
	cmd.Env = append(os.Environ(), env...)
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s: %v", m[1], err)
	}
	return out
}

func TestGreeting(t *testing.T) {
	s := harness.Start(t, harness.Options{})
	text := greeting(t, s)
	for _, want := range []string{"web UI     " + s.URL + "/\n", "API        " + s.URL + "/docs\n", "MCP        " + s.URL + "/mcp\n", "git        " + s.URL + "/git/\n"} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is not in %q", want, text)
		}
	}
	if out := curl(t, text); strings.TrimSpace(string(out)) != `{"workspaces":[]}` {
		t.Errorf("the curl answers %s", out)
	}
	if got := s.Stdout(); got != "umbra listening on "+s.Address+"\n" {
		t.Errorf("standard output is %q", got)
	}
}

// A log of JSON stays one: the addresses are a line of it.
func TestGreetingInJSON(t *testing.T) {
	s := harness.Start(t, harness.Options{Config: "log: {format: json}"})
	text, _ := s.Log.Await(func(text string) bool { return strings.Contains(text, `"listening"`) }, 10*time.Second)
	var ready map[string]any
	for line := range strings.SplitSeq(strings.TrimSpace(text), "\n") {
		var entry map[string]any
		if err := json.Unmarshal([]byte(line), &entry); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		if entry["msg"] == "ready" {
			ready = entry
		}
	}
	if ready["ui"] != s.URL+"/" || ready["api"] != s.URL+"/docs" || ready["mcp"] != s.URL+"/mcp" || ready["git"] != s.URL+"/git/" {
		t.Errorf("the line is %v", ready)
	}
}

func TestGreetingElsewhere(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "a socket")
	s := harness.Start(t, harness.Options{Listen: "unix:" + socket})
	if out := curl(t, greeting(t, s)); !strings.Contains(string(out), "workspaces") {
		t.Errorf("over a socket the curl answers %s", out)
	}
	everywhere := harness.Start(t, harness.Options{Listen: "0.0.0.0:0", Token: "secret",
		Config: "auth: {tokens: [{name: me, sha256: 2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b, scope: write}]}"})
	if out := curl(t, greeting(t, everywhere), "UMBRA_TOKEN=secret"); !strings.Contains(string(out), "workspaces") {
		t.Errorf("with a token the curl answers %s", out)
	}
}

// umbra serve DIR has the folder recorded before it is ready.
func TestServeFolder(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "it's mine")
	p := &project{dir: dir}
	need.NoError(t, os.MkdirAll(dir, 0o777))
	p.fill(t, map[string]string{"a.txt": "a\n", "d/b.txt": "b\n"})
	s := harness.Start(t, harness.Options{Args: []string{dir}})
	text := greeting(t, s)
	var list struct {
		Workspaces []struct {
			ID, Root string
			Head     *string
		}
	}
	get(t, s, "/workspaces", &list)
	if len(list.Workspaces) != 1 || list.Workspaces[0].Root != dir || list.Workspaces[0].Head == nil {
		t.Fatalf("workspaces: %+v", list)
	}
	if id := list.Workspaces[0].ID; !strings.Contains(text, id) || !strings.Contains(text, s.URL+"/git/"+id+".git\n") {
		t.Errorf("%s is not in %q", id, text)
	}
	var task struct {
		Workspace string
		Status    string
	}
	if err := json.Unmarshal(curl(t, text), &task); err != nil || task.Workspace != dir || task.Status != "executing" {
		t.Errorf("the curl made %+v: %v", task, err)
	}
	// Once more: it is the same workspace.
	s.Stop()
	s.Restart()
	get(t, s, "/workspaces", &list)
	if len(list.Workspaces) != 1 {
		t.Errorf("after a restart: %+v", list)
	}
}

func get(t *testing.T, s *harness.Server, path string, dst any) {
	t.Helper()
	res, err := s.Client.Get(s.URL + path)
	need.NoError(t, err)
	defer res.Body.Close()
	raw, err := io.ReadAll(res.Body)
	if err = errors.Join(err, json.Unmarshal(raw, dst)); err != nil || res.StatusCode != http.StatusOK {
		t.Fatalf("%s: %s %v\n%s", path, res.Status, err, raw)
	}
}

// What cannot be a workspace stops the start, as wrong use does.
func TestServeFolderRefused(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	need.NoError(t, os.WriteFile(file, nil, 0o666))
	home := t.TempDir()
	for folder, want := range map[string]string{
		filepath.Join(home, "none"): "does not exist",
		file:                        "is not a directory",
		"/":                         "workspace_too_wide",
	} {
		data := filepath.Join(t.TempDir(), "data")
		status, out, errOut := harness.Run(t, nil, "serve", "--data-dir", data, "--listen", "127.0.0.1:0", folder)
		if status != 2 || out != "" || !strings.Contains(errOut, want) {
			t.Errorf("serve %s: status %d, %q, %q", folder, status, out, errOut)
		}
	}
	if status, _, _ := harness.Run(t, nil, "serve", "a", "b"); status != 2 {
		t.Errorf("two folders: status %d", status)
	}
}

// demoRun is what umbra demo --json tells.
type demoRun struct {
	Workspace, Root string
	Task            string `json:"task_id"`
	Steps           []struct{ Actor, Subtask, Does string }
	Server          string
}

func runDemo(t *testing.T, temp string, args ...string) demoRun {
	t.Helper()
	status, out, errOut := harness.Run(t, []string{"TMPDIR=" + temp}, append([]string{"demo", "--json"}, args...)...)
	var run demoRun
	if err := json.Unmarshal([]byte(out), &run); status != 0 || err != nil {
		t.Fatalf("demo: status %d: %v\n%s\n%s", status, err, out, errOut)
	}
	return run
}

// The demo plays its story, on a running server or none, and cleans up.
func TestDemo(t *testing.T) {
	temp, err := filepath.EvalSymlinks(t.TempDir())
	need.NoError(t, err)
	s := harness.Start(t, harness.Options{})
	first := runDemo(t, temp, "--data-dir", s.DataDir)
	if first.Server != s.URL {
		t.Errorf("the server is %s and not %s", first.Server, s.URL)
	}
	var actors []string
	for _, step := range first.Steps {
		actors = append(actors, step.Actor)
	}
	if want := []string{"ada", "ada", "ada", "bob", "you", "umbra", "umbra", "ada"}; !slices.Equal(actors, want) {
		t.Errorf("actors %q", actors)
	}
	// The failed idea is gone, the person's edit and the first agent's work are there.
	cart, err := os.ReadFile(filepath.Join(first.Root, "src/cart.ts"))
	if err != nil || bytes.Contains(cart, []byte("cache")) || !bytes.Contains(cart, []byte("nothing in it is reserved")) || !bytes.Contains(cart, []byte("withTax")) {
		t.Errorf("%v\n%s", err, cart)
	}
	if _, err := os.Stat(filepath.Join(first.Root, "src/cache.ts")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("src/cache.ts: %v", err)
	}
	var changes struct {
		Entries []struct{ Source, Operation string }
	}
	get(t, s, "/tasks/"+first.Task+"/changes", &changes)
	var sources []string
	for _, e := range changes.Entries {
		sources = append(sources, e.Source)
	}
	if !slices.Contains(sources, "external") || !slices.Contains(sources, "revert") {
		t.Errorf("sources %q", sources)
	}

	// Without a server, on the same data directory.
	s.Stop()
	second := runDemo(t, temp, "--data-dir", s.DataDir)
	if second.Server != "" || second.Workspace == first.Workspace {
		t.Errorf("without a server: %+v", second)
	}
	status, out, errOut := harness.Run(t, []string{"TMPDIR=" + temp}, "demo", "--clean", "--data-dir", s.DataDir)
	if status != 0 || !strings.Contains(out, first.Workspace) || !strings.Contains(out, second.Workspace) {
		t.Errorf("demo --clean: status %d\n%s\n%s", status, out, errOut)
	}
	left, err := filepath.Glob(temp + "/umbra-demo-*")
	if err != nil || len(left) > 0 {
		t.Errorf("left: %q, %v", left, err)
	}
	repositories, _ := filepath.Glob(s.DataDir + "/workspaces/*")
	if len(repositories) > 0 {
		t.Errorf("left: %q", repositories)
	}
	if status, out, _ := harness.Run(t, nil, "demo", "--clean", "--json", "--data-dir", s.DataDir); status != 0 || strings.TrimSpace(out) != `{"removed":[]}` {
		t.Errorf("nothing to clean: status %d, %q", status, out)
	}
}

// A demo that starts a server serves until it is told to stop; where its address
// is taken, at another one.
func TestDemoStays(t *testing.T) {
	temp, data := t.TempDir(), filepath.Join(t.TempDir(), "data")
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	need.NoError(t, err)
	defer taken.Close()
	cmd := harness.Command(t, []string{"TMPDIR=" + temp, "UMBRA_LISTEN=" + taken.Addr().String()}, "demo", "--stay", "--data-dir", data)
	out := harness.NewOutput()
	var errOut bytes.Buffer
	cmd.Stdout, cmd.Stderr = out, &errOut
	need.NoError(t, cmd.Start())
	defer cmd.Process.Kill()
	text, ok := out.Await(func(text string) bool { return strings.Contains(text, "until Ctrl-C") }, 30*time.Second)
	m := regexp.MustCompile(`(http://127\.0\.0\.1:\d+)/`).FindStringSubmatch(text)
	if !ok || m == nil {
		t.Fatalf("%q\n%s", text, &errOut)
	}
	res, err := http.Get(m[1] + "/healthz")
	if err != nil || res.StatusCode != http.StatusOK {
		t.Fatalf("%v %v", res, err)
	}
	res.Body.Close()
	http.DefaultClient.CloseIdleConnections()
	need.NoError(t, cmd.Process.Signal(syscall.SIGINT))
	if err := cmd.Wait(); err != nil {
		t.Errorf("after Ctrl-C: %v\n%s", err, &errOut)
	}
}

// Completions and manual pages are made, and the ids of a running server's tasks
// and workspaces are offered.
func TestCompletionAndManual(t *testing.T) {
	s := harness.Start(t, harness.Options{})
	p := &project{Server: s, dir: t.TempDir()}
	p.fill(t, map[string]string{"a": "a\n"})
	k := p.task(t)
	k.put(t, "a", "b\n", "X-Subtask-Id", "the-subtask")
	for _, args := range [][]string{
		{"log", "--task", ""}, {"diff", "--task=" + k.ID[:2]},
	} {
		status, out, errOut := harness.Run(t, nil, append([]string{"__complete", args[0], "--data-dir", s.DataDir}, args[1:]...)...)
		if status != 0 || !strings.Contains(out, k.ID+"\t") {
			t.Errorf("%q: status %d\n%s\n%s", args, status, out, errOut)
		}
	}
	status, out, _ := harness.Run(t, nil, "__complete", "revert", "--data-dir", s.DataDir, "--task", k.ID, "--subtask", "")
	if status != 0 || !strings.HasPrefix(out, "the-subtask\t1 change\n") {
		t.Errorf("subtasks: status %d\n%s", status, out)
	}
	fork := s.Do("POST", "/workspaces/"+k.str("workspace_id")+"/forks", map[string]any{"kind": "virtual"}).Expect(201).Field("forks").([]any)[0].(map[string]any)["id"].(string)
	for _, c := range []struct {
		line []string
		want string
	}{
		{[]string{"merge", ""}, fork + "\tof " + k.str("workspace_id") + "\n:"},
		{[]string{"merge", "../"}, ":16\n"}, // directories
		{[]string{"in", ""}, fork + "\t"},
		{[]string{"in", fork, ""}, ":0\n"}, // files
		{[]string{"gc", fork}, fork + "\t"},
		{[]string{"task", "end", k.ID[:2]}, k.ID + "\t"},
		{[]string{"task", "end", k.ID, "--status", ""}, "completed\nfailed\ncancelled\n"},
		{[]string{"merge", "--on-conflict", ""}, "refuse\nskip\n:"},
		{[]string{"revert", "--on-conflict", ""}, "fail\nskip\nforce\n"},
		{[]string{"hook", "cl"}, "claude-code\n"},
		{[]string{"revert", "--acto"}, "--actor\tchanges by the actor A, in whatever task\n"},
	} {
		if status, out, errOut := harness.Run(t, []string{"UMBRA_DATA_DIR=" + s.DataDir}, append([]string{"__complete"}, c.line...)...); status != 0 || !strings.HasPrefix(out, c.want) {
			t.Errorf("%q: status %d\n%s\n%s", c.line, status, out, errOut)
		}
	}
	// Without a server nothing is started for it.
	s.Stop()
	status, out, _ = harness.Run(t, nil, "__complete", "log", "--data-dir", s.DataDir, "--task", "")
	if status != 0 || strings.TrimSpace(out) != ":4" {
		t.Errorf("without a server: status %d\n%s", status, out)
	}
	for _, shell := range []string{"bash", "zsh", "fish"} {
		if status, out, _ := harness.Run(t, nil, "completion", shell); status != 0 || !strings.Contains(out, "__complete") {
			t.Errorf("completion %s: status %d, %d bytes", shell, status, len(out))
		}
	}
	if status, _, _ := harness.Run(t, nil, "completion", "csh"); status != 2 {
		t.Errorf("completion csh: status %d", status)
	}
	pages := t.TempDir()
	if status, _, errOut := harness.Run(t, nil, "man", pages); status != 0 {
		t.Fatalf("man: status %d: %s", status, errOut)
	}
	for _, name := range []string{"umbra.1", "umbra-serve.1", "umbra-demo.1", "umbra-revert.1"} {
		raw, err := os.ReadFile(filepath.Join(pages, name))
		if err != nil || !bytes.HasPrefix(raw, []byte(".")) || bytes.Contains(raw, []byte("Auto generated")) {
			t.Errorf("%s: %v: %.60s", name, err, raw)
		}
	}
}
