package tests

import (
	"path/filepath"
	"strings"
	"testing"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"umbra/internal/need"
	"umbra/tests/harness"
)

// A client that knows the server's address alone has the tools of what
// 'umbra serve DIR' opened, and a task from its first change on.
func TestMCPServeDirectory(t *testing.T) {
	bothRevisions(t, func(t *testing.T, revision string) {
		dir, err := filepath.EvalSymlinks(folder(t, map[string]string{"a.txt": "one\ntwo\nthree\n"}))
		need.NoError(t, err)
		s := harness.Start(t, harness.Options{Args: []string{dir}})
		c := connect(t, overHTTP(s, "", ""), revision)
		if got := c.InitializeResult().Instructions; !strings.Contains(got, "- "+dir+" [READ_WRITE] physical") {
			t.Errorf("the map: %s", got)
		}
		if got, failed := c.call(t, "read_file", map[string]any{"path": dir + "/a.txt", "line_numbers": true, "offset": 1}); failed || got != "2\ttwo\n3\tthree\n" {
			t.Errorf("%q", got)
		}
		if got, failed := c.call(t, "read_file", map[string]any{"path": dir + "/a.txt", "line_numbers": true, "limit": 1}); failed || !strings.HasPrefix(got, "1\tone\n[cut: ") {
			t.Errorf("%q", got)
		}
		if got, failed := c.call(t, "task_changes", nil); failed || got != "No changes." {
			t.Errorf("%q", got)
		}
		if got, failed := c.call(t, "revert_changes", map[string]any{"all": true}); failed || got != "Nothing to take back." {
			t.Errorf("%q", got)
		}
		tasks := func() []map[string]any { return objects(s.Do("GET", "/tasks", nil).Expect(200), "tasks") }
		if got := tasks(); len(got) != 0 {
			t.Fatalf("a task before the first change: %v", got)
		}
		edits := []map[string]any{{"old_string": "one", "new_string": "1"}, {"old_string": "t", "new_string": "T", "replace_all": true}}
		if got, failed := c.call(t, "edit_file", map[string]any{"path": dir + "/a.txt", "edits": edits}); failed || !strings.HasPrefix(got, "Replaced 3 occurrence(s)") {
			t.Errorf("%q", got)
		}
		list := tasks()
		if len(list) != 1 || list[0]["goal"] != "test in "+dir {
			t.Fatalf("%v", list)
		}
		id := list[0]["task_id"].(string)
		if e := objects(s.Do("GET", "/tasks/"+id+"/changes", nil).Expect(200), "entries"); len(e) != 1 || e[0]["actor"] != "test" {
			t.Errorf("%v", e)
		}
		// All or nothing, and one form at a time.
		for want, args := range map[string]map[string]any{
			"old_string not found in " + dir + "/a.txt (edits[1])":              {"edits": []map[string]any{{"old_string": "1", "new_string": "x"}, {"old_string": "none", "new_string": "x"}}},
			"Invalid arguments: give either old_string and new_string or edits": {"edits": edits, "old_string": "1", "new_string": "2"},
			"Invalid arguments: edits[0].new_string is required":                {"edits": []map[string]any{{"old_string": "1"}}},
			"Invalid arguments: edits must have 1 to 1000 elements":             {"edits": []any{}},
			"Invalid arguments: edits[0].oldText is not an argument":            {"edits": []map[string]any{{"old_string": "1", "new_string": "2", "oldText": "x"}}},
			"edits[0]: old_string and new_string are the same":                  {"edits": []map[string]any{{"old_string": "1", "new_string": "1"}}},
		} {
			args["path"] = dir + "/a.txt"
			if got, failed := c.call(t, "edit_file", args); !failed || got != "Error: "+want {
				t.Errorf("%q, not %q", got, want)
			}
		}
		if got := onDisk(t, dir, "a.txt"); got != "1\nTwo\nThree\n" {
			t.Errorf("%q", got)
		}
		if got, failed := c.call(t, "revert_changes", map[string]any{"all": true}); failed || !strings.Contains(got, "1 change(s) taken back") {
			t.Errorf("%q", got)
		}
		// Another client gets a task of its own, and none for looking.
		other := sdk.NewClient(&sdk.Implementation{Name: "other", Version: "1"}, nil)
		o, err := other.Connect(t.Context(), overHTTP(s, "", ""), &sdk.ClientSessionOptions{ProtocolVersion: revision})
		need.NoError(t, err)
		defer o.Close()
		if _, err := o.CallTool(t.Context(), &sdk.CallToolParams{Name: "write_file", Arguments: map[string]any{"path": dir + "/b", "content": "b"}}); err != nil {
			t.Fatal(err)
		}
		if got := tasks(); len(got) != 2 || got[0]["goal"] != "other in "+dir {
			t.Errorf("%v", got)
		}
	})
}

// A model that gives the path of the host is understood.
func TestHostPaths(t *testing.T) {
	s := harness.Start(t, harness.Options{})
	dir, err := filepath.EvalSymlinks(folder(t, map[string]string{"d/a.txt": "x"}))
	need.NoError(t, err)
	a := newAgent(t, s, physical("/p", "READ_WRITE", dir), virtual("/n", "READ_WRITE", "n"))
	a.ok("x", "read_file", "path", dir+"/d/a.txt")
	a.ok("/p/d/a.txt", "search_files", "pattern", "*.txt", "path", dir+"/d")
	a.ok("a.txt", "list_directory", "path", dir+"/d/")
	a.ok("Moved /p/d/a.txt to /p/b", "move_file", "from", dir+"/d/a.txt", "to", dir+"/b")
	a.fails("No workspace is mounted at "+dir+"x/b. Mounted: /n, /p", "read_file", "path", dir+"x/b")
	a.fails("File not found: /p/none", "read_file", "path", dir+"/none")
}

// objects gives the list of objects in an answer's field.
func objects(r *harness.Response, name string) []map[string]any {
	list, _ := r.Field(name).([]any)
	out := make([]map[string]any, 0, len(list))
	for _, x := range list {
		m, _ := x.(map[string]any)
		out = append(out, m)
	}
	return out
}

// A method that does not exist is a JSON-RPC error in every revision.
func TestMCPUnknownMethod(t *testing.T) {
	s := harness.Start(t, harness.Options{})
	for _, revision := range []string{newest, before} {
		r := s.Do("POST", "/mcp", map[string]any{"jsonrpc": "2.0", "id": 7, "method": "no/such", "params": map[string]any{"_meta": map[string]any{
			"io.modelcontextprotocol/protocolVersion": revision, "io.modelcontextprotocol/clientInfo": map[string]any{"name": "t", "version": "1"},
			"io.modelcontextprotocol/clientCapabilities": map[string]any{}}}},
			"Accept: application/json, text/event-stream", "Mcp-Protocol-Version: "+revision, "Mcp-Method: no/such")
		if r.Field("error.code") != -32601.0 || r.Field("id") != 7.0 || r.Header.Get("Content-Type") != "application/json" {
			t.Errorf("%s: %d %s", revision, r.Status, r.Body)
		}
	}
	// What is no request at all stays a 400.
	s.Do("POST", "/mcp", []byte("nonsense"), "Content-Type: application/json", "Accept: application/json, text/event-stream").Expect(400)
}
