package tests

import (
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"testing"

	"umbra/internal/need"
	"umbra/tests/harness"
)

// coder is a server with a code workspace of its own.
type coder struct {
	*harness.Server
	dir string
}

func startCoder(t *testing.T, opts harness.Options) *coder {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "code")
	opts.Args = append(opts.Args, "--workspace-dir", dir)
	return &coder{Server: harness.Start(t, opts), dir: dir}
}

type obj = map[string]any

// save saves a program, which must work, and gives the result.
func (c *coder) save(t *testing.T, id, code string, headers ...string) obj {
	t.Helper()
	r := c.Do("PUT", "/workspace", obj{"codeId": id, "code": code}, headers...).Expect(200)
	return r.Field("result").(obj)
}

// refuse sends a request that must fail with this type and message, and gives
// the error's details.
func (c *coder) refuse(t *testing.T, method, target string, body any, status int, kind, message string, headers ...string) obj {
	t.Helper()
	r := c.Do(method, target, body, headers...)
	if r.Status != status || r.Field("success") != false || r.Field("error.type") != kind || message != "" && r.Field("error.message") != message {
		t.Errorf("%s %s: %d %s\nwant %d %s %q", method, target, r.Status, r.Body, status, kind, message)
		return obj{}
	}
	details, ok := r.Field("error.details").(obj)
	if !ok {
		t.Errorf("%s %s: no details: %s", method, target, r.Body)
	}
	return details
}

// ran is the answer of a run.
type ran struct {
	Success bool
	Result  any
	Stdout  string
	Stderr  string
	Error   struct {
		Type, Message string
		Details       obj
	}
	status int
}

// run runs a program given as text.
func (c *coder) run(t *testing.T, code string, more obj) ran {
	t.Helper()
	body := obj{"code": code}
	maps.Copy(body, more)
	return c.execute(t, body)
}

func (c *coder) execute(t *testing.T, body obj) ran {
	t.Helper()
	r := c.Do("POST", "/execute", body)
	out := ran{status: r.Status}
	if err := json.Unmarshal(r.Body, &out); err != nil {
		t.Fatalf("%v: %s", err, r.Body)
	}
	return out
}

// put writes a file into the code workspace behind the server's back.
func (c *coder) put(t *testing.T, name, text string) {
	t.Helper()
	at := filepath.Join(c.dir, name)
	need.NoError(t, os.MkdirAll(filepath.Dir(at), 0o777))
	need.NoError(t, os.WriteFile(at, []byte(text), 0o666))
}
