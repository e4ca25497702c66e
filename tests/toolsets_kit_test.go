package tests

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"umbra/internal/need"
	"umbra/tests/harness"
)

// agent is a toolset and what the tests do with it.
type agent struct {
	*harness.Server
	t  *testing.T
	id string
}

// physical and virtual are mounts as POST /toolsets takes them.
func physical(prefix, scope, root string) map[string]any {
	return map[string]any{"prefix": prefix, "scope": scope, "store": map[string]any{"type": "physical", "root": root}}
}

func virtual(prefix, scope string, namespace ...string) map[string]any {
	return map[string]any{"prefix": prefix, "scope": scope, "store": map[string]any{"type": "virtual", "namespace": namespace}}
}

func mountsBody(mounts ...map[string]any) map[string]any {
	if mounts == nil {
		mounts = []map[string]any{}
	}
	return map[string]any{"mounts": mounts}
}

// newAgent makes a toolset.
func newAgent(t *testing.T, s *harness.Server, mounts ...map[string]any) *agent {
	t.Helper()
	r := s.Do("POST", "/toolsets", mountsBody(mounts...)).Expect(201)
	a := &agent{s, t, r.Text("id")}
	if got := r.Header.Get("Location"); got != "/toolsets/"+a.id {
		t.Errorf("Location is %s", got)
	}
	return a
}

// call calls a tool; args are name, value, name, value.
func (a *agent) call(name string, args ...any) (status, content string) {
	a.t.Helper()
	o := map[string]any{}
	for i := 0; i < len(args); i += 2 {
		o[args[i].(string)] = args[i+1]
	}
	r := a.Do("POST", "/toolsets/"+a.id+"/call", map[string]any{"name": name, "arguments": o}).Expect(200)
	return r.Text("status"), r.Text("content")
}

// ok is a call that must succeed with this answer.
func (a *agent) ok(want, name string, args ...any) {
	a.t.Helper()
	if status, got := a.call(name, args...); status != "success" || got != want {
		a.t.Errorf("%s %v: %s %q, want %q", name, args, status, got, want)
	}
}

// fails is a call that must fail with this message.
func (a *agent) fails(want, name string, args ...any) {
	a.t.Helper()
	if status, got := a.call(name, args...); status != "error" || got != "Error: "+want {
		a.t.Errorf("%s %v: %s %q, want error %q", name, args, status, got, "Error: "+want)
	}
}

// gives is a call that must succeed, and its answer.
func (a *agent) gives(name string, args ...any) string {
	a.t.Helper()
	status, got := a.call(name, args...)
	if status != "success" {
		a.t.Fatalf("%s %v: %s %q", name, args, status, got)
	}
	return got
}

func (a *agent) setMounts(mounts ...map[string]any) *harness.Response {
	a.t.Helper()
	return a.Do("PUT", "/toolsets/"+a.id+"/mounts", mountsBody(mounts...))
}

func (a *agent) tools(format string) []map[string]any {
	a.t.Helper()
	var o struct{ Tools []map[string]any }
	a.Do("GET", "/toolsets/"+a.id+"/tools?format="+format, nil).Expect(200).JSON(&o)
	return o.Tools
}

func (a *agent) toolNames() string {
	var out []string
	for _, t := range a.tools("mcp") {
		out = append(out, t["name"].(string))
	}
	return strings.Join(out, " ")
}

func (a *agent) fileMap() string {
	a.t.Helper()
	return string(a.Do("GET", "/toolsets/"+a.id+"/filesystem-map", nil).Expect(200).Body)
}

// folder makes a folder with files; a name that ends in "/" is a folder.
func folder(t *testing.T, files map[string]string) string {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	need.NoError(t, err)
	for _, name := range slices.Sorted(maps.Keys(files)) {
		full := filepath.Join(dir, name)
		if strings.HasSuffix(name, "/") {
			err = os.MkdirAll(full, 0o755)
		} else if err = os.MkdirAll(filepath.Dir(full), 0o755); err == nil {
			err = os.WriteFile(full, []byte(files[name]), 0o644)
		}
		need.NoError(t, err)
	}
	return dir
}

func onDisk(t *testing.T, dir, name string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(dir, name))
	need.NoError(t, err)
	return string(data)
}

func jsonOf(t *testing.T, text string) map[string]any {
	t.Helper()
	var o map[string]any
	if err := json.Unmarshal([]byte(text), &o); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	return o
}

func sha(token string) string { return fmt.Sprintf("'%x'", sha256.Sum256([]byte(token))) }
