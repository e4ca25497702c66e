package tests

import (
	"bufio"
	"bytes"
	"encoding/json"
	"io"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"umbra/internal/need"
	"umbra/tests/harness"
)

// editor is a client that started "umbra mcp".
func editor(t *testing.T, revision, dataDir string, args ...string) (*mcpClient, *exec.Cmd) {
	t.Helper()
	cmd := harness.Command(t, nil, append([]string{"mcp", "--data-dir", dataDir}, args...)...)
	var log bytes.Buffer
	cmd.Stderr = &log
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("standard error: %s", &log)
		}
	})
	return connect(t, &sdk.CommandTransport{Command: cmd, TerminateDuration: 10 * time.Second}, revision), cmd
}

func TestMCPStdio(t *testing.T) {
	bothRevisions(t, func(t *testing.T, revision string) {
		dir := folder(t, map[string]string{"f": "x", "ü": "u"})
		c, _ := editor(t, revision, filepath.Join(t.TempDir(), "data"), "--mount", "/project="+dir, "--mount", "/notes=virtual:a/b:WRITE_ONLY")
		if got := c.InitializeResult().Instructions; !strings.Contains(got, "- /notes [WRITE_ONLY] virtual\n- /project [READ_WRITE] physical\n") {
			t.Errorf("%s", got)
		}
		if got, failed := c.call(t, "edit_file", map[string]any{"path": "/project/f", "old_string": "x", "new_string": "y"}); failed {
			t.Error(got)
		}
		if got := onDisk(t, dir, "f"); got != "y" {
			t.Errorf("%q", got)
		}
		if got, failed := c.call(t, "read_file", map[string]any{"path": "/notes/f"}); !failed || got != "Error: Operation 'read' is not permitted: /notes/f is WRITE_ONLY" {
			t.Error(got)
		}
		for _, uri := range []string{"umbra:///project/%C3%BC", "umbra:///project/ü"} {
			if res, err := c.ReadResource(t.Context(), &sdk.ReadResourceParams{URI: uri}); err != nil || res.Contents[0].Text != "u" {
				t.Errorf("%s: %v, %v", uri, res, err)
			}
		}
		// Calls run side by side.
		done := make(chan string, 8)
		for range 8 {
			go func() {
				res, err := c.CallTool(t.Context(), &sdk.CallToolParams{Name: "read_file", Arguments: map[string]any{"path": "/project/f"}})
				if err != nil {
					done <- err.Error()
					return
				}
				done <- res.Content[0].(*sdk.TextContent).Text
			}()
		}
		for range 8 {
			if got := await(t, "an answer", done); got != "y" {
				t.Errorf("%s", got)
			}
		}
	})
}

// Beside a running server it works through that; its toolset goes with it.
func TestMCPStdioBeside(t *testing.T) {
	bothRevisions(t, func(t *testing.T, revision string) {
		s := harness.Start(t, harness.Options{})
		dir := folder(t, map[string]string{"f": "x"})
		task := s.Do("POST", "/tasks", map[string]any{"goal": "g", "workspace": dir}).Expect(201).Text("task_id")
		c, _ := editor(t, revision, s.DataDir, "--mount", "/p="+dir, "--task", task)
		d, _ := editor(t, revision, s.DataDir, "--mount", "/q="+dir+":READ_ONLY")
		if got, failed := c.call(t, "write_file", map[string]any{"path": "/p/g", "content": "1"}); failed {
			t.Error(got)
		}
		if got, _ := d.call(t, "read_file", map[string]any{"path": "/q/g"}); got != "1" {
			t.Error(got)
		}
		var list struct{ Toolsets []map[string]any }
		if s.Do("GET", "/toolsets", nil).JSON(&list); len(list.Toolsets) != 2 {
			t.Errorf("%v", list)
		}
		// Where a client is killed, its toolset goes by itself after a while.
		for _, made := range list.Toolsets {
			if idle, _ := made["idleSeconds"].(float64); idle < 60 || idle > 3600 {
				t.Errorf("the toolset stays for %v seconds", made["idleSeconds"])
			}
		}
		if n := s.Do("GET", "/tasks/"+task, nil).Field("changes"); n != 1.0 {
			t.Errorf("%v changes", n)
		}
		// A change of mounts is told through it.
		id := list.Toolsets[0]["id"].(string)
		c.changeTools(t, func() {
			s.Do("PUT", "/toolsets/"+id+"/mounts", mountsBody(physical("/p", "READ_WRITE", dir))).Expect(200)
		})
		// The server is started anew: the client goes on.
		if err := c.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
		if err := d.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
		if s.Do("GET", "/toolsets", nil).JSON(&list); len(list.Toolsets) != 0 {
			t.Errorf("%v is left", list)
		}
	})
}

// Without a server the first holds the data directory, the others work through
// it, and one of them takes over when it leaves.
func TestMCPStdioSideBySide(t *testing.T) {
	bothRevisions(t, func(t *testing.T, revision string) {
		data := filepath.Join(t.TempDir(), "data")
		dir := folder(t, map[string]string{"f": "x"})
		one, cmd := editor(t, revision, data, "--mount", "/p="+dir)
		two, _ := editor(t, revision, data, "--mount", "/p="+dir)
		if got, failed := two.call(t, "write_file", map[string]any{"path": "/p/g", "content": "1"}); failed {
			t.Error(got)
		}
		if got, _ := one.call(t, "read_file", map[string]any{"path": "/p/g"}); got != "1" {
			t.Error(got)
		}
		// Killed, not ended: nothing is told to anybody.
		need.NoError(t, cmd.Process.Signal(syscall.SIGKILL))
		one.Close()
		if got, failed := two.call(t, "edit_file", map[string]any{"path": "/p/g", "old_string": "1", "new_string": "2"}); failed {
			t.Error(got)
		}
		three, _ := editor(t, revision, data, "--mount", "/p="+dir)
		if got, _ := three.call(t, "read_file", map[string]any{"path": "/p/g"}); got != "2" {
			t.Error(got)
		}
		if got, _ := two.call(t, "task_changes", nil); got != "1 create /p/g\n2 modify /p/g" {
			t.Error(got)
		}
	})
}

func TestMCPStdioUse(t *testing.T) {
	dir := t.TempDir()
	data := filepath.Join(t.TempDir(), "data")
	for _, args := range [][]string{
		{}, {"--mount", "x"}, {"--mount", "p=" + dir}, {"--mount", "/p=" + dir + ":ALL"}, {"--mount", "/p="}, {"--mount", "/p=" + dir + "/none"},
		{"--mount", "/p=" + dir, "--mount", "/p/=" + dir}, {"--mount", "/p=virtual:"}, {"--mount", "/p=virtual:a//b"}, {"--mount", "/a/../b=" + dir}, {"extra"}, {"--nonsense"},
	} {
		status, stdout, stderr := harness.Run(t, nil, append([]string{"mcp", "--data-dir", data}, args...)...)
		if status != 2 || stdout != "" || stderr == "" {
			t.Errorf("%v: status %d, %q, %q", args, status, stdout, stderr)
		}
	}
}

// Nothing but JSON-RPC on standard output, whatever comes in.
func TestMCPStdioRaw(t *testing.T) {
	cmd := harness.Command(t, nil, "mcp", "--data-dir", filepath.Join(t.TempDir(), "data"), "--mount", "/p="+t.TempDir())
	in, err := cmd.StdinPipe()
	need.NoError(t, err)
	out, err := cmd.StdoutPipe()
	need.NoError(t, err)
	need.NoError(t, cmd.Start())
	timer := time.AfterFunc(30*time.Second, func() { cmd.Process.Kill() })
	defer timer.Stop()
	for _, line := range []string{
		"nonsense", "", "[]", "{}", `"x"`, `{"jsonrpc":"2.0","id":1,"method":"tools/list"}`, `{"jsonrpc":"2.0","method":"notifications/none"}`,
		`{"jsonrpc":"2.0","id":"i","method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}`,
		`{"jsonrpc":"2.0","method":"notifications/initialized"}`,
		"{\"jsonrpc\":\"2.0\",\r\n", `{"jsonrpc":"2.0","id":2,"method":"ping"}`, `{"jsonrpc":"2.0","id":3,"method":"no/such"}`, `{"jsonrpc":"2.0","id":4,"method":"tools/call","params":{"name":7}}`,
	} {
		if _, err := io.WriteString(in, line+"\n"); err != nil {
			t.Fatal(err)
		}
	}
	in.Close()
	answered := map[string]bool{}
	lines := bufio.NewScanner(out)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var m struct {
			JSONRPC string          `json:"jsonrpc"`
			ID      json.RawMessage `json:"id"`
		}
		if err := json.Unmarshal(lines.Bytes(), &m); err != nil || m.JSONRPC != "2.0" {
			t.Errorf("on standard output: %s", lines.Text())
		}
		answered[string(m.ID)] = true
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("exit: %v", err)
	}
	for _, id := range []string{"null", `"i"`, "1", "2", "3", "4"} {
		if !answered[id] {
			t.Errorf("%s was not answered: %v", id, answered)
		}
	}
}
