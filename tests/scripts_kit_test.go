package tests

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"umbra/internal/need"
	"umbra/internal/sandbox/luau"
	"umbra/tests/harness"
)

// scripter is a server whose scripts save in dir.
type scripter struct {
	*harness.Server
	dir string
}

func startScripter(t *testing.T, opts harness.Options) *scripter {
	t.Helper()
	// The program is built from the same tree as this test.
	if !luau.Embedded() {
		need.Missing(t, luau.ErrNotEmbedded.Error())
	}
	parent, err := filepath.EvalSymlinks(t.TempDir())
	need.NoError(t, err)
	dir := filepath.Join(parent, "out")
	opts.Args = append(opts.Args, "--output-dir", dir)
	return &scripter{Server: harness.Start(t, opts), dir: dir}
}

// saved is one of files_written.
type saved struct {
	Name, Path string
	Bytes      int64
	Commit     *string
	Encoding   string `json:"path_encoding"`
}

// scripted is the answer of an execution.
type scripted struct {
	Result json.RawMessage
	Error  struct {
		Type, Message string
		Line          int
	}
	Logs  []string
	Stats struct {
		Calls    int   `json:"api_calls"`
		Duration int64 `json:"duration_ms"`
	}
	Files []saved `json:"files_written"`
	Task  *string `json:"task_id"`
}

// exec runs a script and wants a status.
func (s *scripter) exec(t *testing.T, status int, script string, headers ...string) scripted {
	t.Helper()
	var out scripted
	s.Do("POST", "/scripts/execute", obj{"script": script}, headers...).Expect(status).JSON(&out)
	return out
}

// value runs a script that must come to its end and holds its result.
func (s *scripter) value(t *testing.T, script, want string, headers ...string) scripted {
	t.Helper()
	out := s.exec(t, 200, script, headers...)
	if string(out.Result) != want {
		t.Errorf("%s\ngives %s, want %s", script, out.Result, want)
	}
	return out
}

func (s *scripter) content(t *testing.T, name string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(s.dir, name))
	need.NoError(t, err)
	return string(data)
}

// taskOf asks for a task's record.
func (s *scripter) taskOf(t *testing.T, id *string) obj {
	t.Helper()
	if id == nil {
		t.Fatal("no task")
	}
	var o obj
	s.Do("GET", "/tasks/"+*id, nil).Expect(200).JSON(&o)
	return o
}
